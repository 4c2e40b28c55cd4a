"""Looking after a store: doctor, repair, backup, export and import, schedules."""

from recollect.model.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes long to load

_NAMES = """
recollect.care.backup: BackupReport RestoreReport make_backup restore_backup
recollect.care.doctor: PROBLEM Finding examine
recollect.care.inspect: inspect_store
recollect.care.install: Installation Installer
recollect.care.repair: RepairReport apply_repair plan_repair rehydrate_session repair_steps
recollect.care.schedule: LOG_NAME WATCH Host Schedule install_schedule plan_schedule remove_schedule
recollect.care.status: AgentTotals DistilledTotals Overview RetentionStatus SourceTotals Status list_problems
recollect.care.status: make_overview make_status
recollect.care.transfer: ExportReport ImportReport export_sessions import_sessions
"""
if TYPE_CHECKING:
    from recollect.care.backup import BackupReport, RestoreReport, make_backup, restore_backup
    from recollect.care.doctor import PROBLEM, Finding, examine
    from recollect.care.inspect import inspect_store
    from recollect.care.install import Installation, Installer
    from recollect.care.repair import RepairReport, apply_repair, plan_repair, rehydrate_session, repair_steps
    from recollect.care.schedule import (
        LOG_NAME,
        WATCH,
        Host,
        Schedule,
        install_schedule,
        plan_schedule,
        remove_schedule,
    )
    from recollect.care.status import (
        AgentTotals,
        DistilledTotals,
        Overview,
        RetentionStatus,
        SourceTotals,
        Status,
        list_problems,
        make_overview,
        make_status,
    )
    from recollect.care.transfer import ExportReport, ImportReport, export_sessions, import_sessions

else:
    __getattr__ = lazy_names(__name__, _NAMES)
