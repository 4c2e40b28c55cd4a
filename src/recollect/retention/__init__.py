"""Keeps raw detail within the user's budget: `plan` decides, `apply` drops.

Names load on first use: settings need `Limits`, and must not load what drops sessions.
"""

from typing import TYPE_CHECKING

from recollect.lazy import lazy_names

_NAMES = """
recollect.retention.apply: BudgetReport Outlook finish_evictions keep_within_budget look_ahead
recollect.retention.plan: CADENCES Limits parse_size
"""
if TYPE_CHECKING:
    from recollect.retention.apply import BudgetReport, Outlook, finish_evictions, keep_within_budget, look_ahead
    from recollect.retention.plan import CADENCES, Limits, parse_size
else:
    __getattr__ = lazy_names(__name__, _NAMES)
