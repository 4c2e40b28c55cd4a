"""Removing sessions for good, and applying newer redaction rules to what is stored."""

from recollect.lazy import lazy_names

_NAMES = """
recollect.forget.erase: ANSWERS_KEPT_MS FINISHES_FORGETTING drop_leftovers expire_answers finish_forgetting hide_named
recollect.forget.erase: scrub_if_due
recollect.forget.plan: ForgetPlan ForgottenSession Selection UnreachableCopy apply_plan finish_interrupted is_forgotten
recollect.forget.plan: plan_forgetting without_sweeps
recollect.forget.rescan: RescanReport rescan_store
"""
TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from recollect.forget.erase import (
        ANSWERS_KEPT_MS,
        FINISHES_FORGETTING,
        drop_leftovers,
        expire_answers,
        finish_forgetting,
        hide_named,
        scrub_if_due,
    )
    from recollect.forget.plan import (
        ForgetPlan,
        ForgottenSession,
        Selection,
        UnreachableCopy,
        apply_plan,
        finish_interrupted,
        is_forgotten,
        plan_forgetting,
        without_sweeps,
    )
    from recollect.forget.rescan import RescanReport, rescan_store
else:
    __getattr__ = lazy_names(__name__, _NAMES)
