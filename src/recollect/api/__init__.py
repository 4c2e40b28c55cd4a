"""The library behind every interface: the command line, and whatever else shows or changes a memory, calls this.

Names load on first use: a search must not wait for the code of a sweep, a repair or a restore. Modules of this package
reach what few calls need the same way, through the doors of the packages below.
"""

from recollect.model.lazy import lazy_names

_NAMES = """
recollect.api.annotations: VIEW_FIELDS Annotations ForgetRequest SessionAnnotations UserNote
recollect.api.care: check_text doctor installer make_room plan_schedule repair rescue restore watch
recollect.api.graphs: Graphs
recollect.api.groups: Forked Groups Prompting
recollect.api.handover: Archive Archives DigestPages Handover HandoverPlan
recollect.api.knowledge: Knowledge
recollect.api.memory: Memory open_memory
recollect.api.tracking: Projects Tracking change_setting import_tracking_config settings_in_force
recollect.recall: Filters
"""
TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from recollect.api.annotations import VIEW_FIELDS, Annotations, ForgetRequest, SessionAnnotations, UserNote
    from recollect.api.care import (
        check_text,
        doctor,
        installer,
        make_room,
        plan_schedule,
        repair,
        rescue,
        restore,
        watch,
    )
    from recollect.api.graphs import Graphs
    from recollect.api.groups import Forked, Groups, Prompting
    from recollect.api.handover import Archive, Archives, DigestPages, Handover, HandoverPlan
    from recollect.api.knowledge import Knowledge
    from recollect.api.memory import Memory, open_memory
    from recollect.api.tracking import Projects, Tracking, change_setting, import_tracking_config, settings_in_force
    from recollect.recall import Filters
else:
    __getattr__ = lazy_names(__name__, _NAMES)
