"""Keeps raw detail within the user's budget: `plan` decides, `apply` drops.

Names load on first use: settings need `Limits`, and must not load what drops sessions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.retention.apply import BudgetReport, Outlook, finish_evictions, keep_within_budget, look_ahead
    from recollect.retention.plan import CADENCES, Eviction, Limits, parse_size

__all__ = [
    "CADENCES",
    "BudgetReport",
    "Eviction",
    "Limits",
    "Outlook",
    "finish_evictions",
    "keep_within_budget",
    "look_ahead",
    "parse_size",
]
_OF_PLAN = ("CADENCES", "Eviction", "Limits", "parse_size")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'plan' if name in _OF_PLAN else 'apply'}"), name)
