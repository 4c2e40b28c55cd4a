"""Recollect: everything your coding agents did, in one local store.

    from recollect import open_memory

    with open_memory() as memory:
        memory.sweep()
        for session in memory.sessions(repo="shop-api", limit=5):
            print(session.started_at, session.title)

Names load on first use: a hook or a search must not pay for what it does not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "recollect.care": ("doctor", "repair", "restore"),
    "recollect.memory": ("Memory", "open_memory"),
    "recollect.distill.exchanges": ("Exchange",),
    "recollect.stats": ("StatLine", "Stats"),
    "recollect.doctor": ("Finding",),
    "recollect.errors": ("RecollectError",),
    "recollect.forget": ("ForgetPlan", "ForgottenSession", "UnreachableCopy"),
    "recollect.rescan": ("RescanReport",),
    "recollect.schema": (
        "Cost",
        "Digest",
        "Event",
        "Outcome",
        "Problem",
        "Session",
        "SessionSource",
        "Signal",
        "as_json",
    ),
    "recollect.status": ("AgentTotals", "DistilledTotals", "RetentionStatus", "SourceTotals", "Status"),
    "recollect.sweep": ("SweepReport",),
    "recollect.transcript": ("TranscriptItem",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    from recollect.care import doctor, repair, restore
    from recollect.distill.exchanges import Exchange
    from recollect.doctor import Finding
    from recollect.errors import RecollectError
    from recollect.forget import ForgetPlan, ForgottenSession, UnreachableCopy
    from recollect.memory import Memory, open_memory
    from recollect.rescan import RescanReport
    from recollect.schema import Cost, Digest, Event, Outcome, Problem, Session, SessionSource, Signal, as_json
    from recollect.stats import StatLine, Stats
    from recollect.status import AgentTotals, DistilledTotals, RetentionStatus, SourceTotals, Status
    from recollect.sweep import SweepReport
    from recollect.transcript import TranscriptItem

__all__ = [
    "AgentTotals",
    "Cost",
    "Digest",
    "DistilledTotals",
    "Event",
    "Exchange",
    "Finding",
    "ForgetPlan",
    "ForgottenSession",
    "Memory",
    "Outcome",
    "Problem",
    "RecollectError",
    "RescanReport",
    "RetentionStatus",
    "Session",
    "SessionSource",
    "Signal",
    "SourceTotals",
    "StatLine",
    "Stats",
    "Status",
    "SweepReport",
    "TranscriptItem",
    "UnreachableCopy",
    "__version__",
    "as_json",
    "doctor",
    "open_memory",
    "repair",
    "restore",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
