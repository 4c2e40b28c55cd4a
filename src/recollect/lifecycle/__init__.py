"""What may go and what must go: the budget for raw detail, forgetting sessions, and newer rules of redaction.

Names load on first use: settings need `Limits`, and must not load what drops sessions.
"""

from recollect.model.lazy import lazy_names

_NAMES = """
recollect.lifecycle.budget: CADENCES Limits parse_size
recollect.lifecycle.erase: ANSWERS_KEPT_MS FINISHES_FORGETTING drop_leftovers expire_answers finish_forgetting
recollect.lifecycle.erase: hide_named scrub_if_due
recollect.lifecycle.evict: BudgetReport Outlook finish_evictions keep_within_budget look_ahead
recollect.lifecycle.forget: ForgetPlan ForgottenSession Selection UnreachableCopy apply_plan finish_interrupted
recollect.lifecycle.forget: is_forgotten plan_forgetting without_sweeps
recollect.lifecycle.rescan: RescanReport rescan_store
"""
TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from recollect.lifecycle.budget import CADENCES, Limits, parse_size
    from recollect.lifecycle.erase import (
        ANSWERS_KEPT_MS,
        FINISHES_FORGETTING,
        drop_leftovers,
        expire_answers,
        finish_forgetting,
        hide_named,
        scrub_if_due,
    )
    from recollect.lifecycle.evict import BudgetReport, Outlook, finish_evictions, keep_within_budget, look_ahead
    from recollect.lifecycle.forget import (
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
    from recollect.lifecycle.rescan import RescanReport, rescan_store
else:
    __getattr__ = lazy_names(__name__, _NAMES)
