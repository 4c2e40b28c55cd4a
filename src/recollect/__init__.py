"""Recollect: everything your coding agents did, in one local store.

    from recollect import Filters, open_memory

    with open_memory() as memory:
        memory.sweep()
        for session in memory.sessions(Filters(repo="shop-api", since="last week"), limit=5):
            print(session.started_at, session.title)

Names load on first use: a hook or a search must not pay for what it does not need.
"""

from importlib import import_module

TYPE_CHECKING = False  # `typing` takes long to load, and whoever presses Ctrl-C meanwhile would get a traceback
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "recollect.api": ("Filters", "Memory", "doctor", "open_memory", "repair", "restore"),
    "recollect.distill.exchanges": ("Exchange",),
    "recollect.recall": (
        *("Block", "EditDiff", "FileEdit", "FileVisit", "Glimpse", "Match", "Related", "SearchAnswer"),
        *("SessionDiff", "SessionHit", "Spending", "StatLine", "Stats", "TimelineEntry", "Unfinished"),
    ),
    "recollect.care.doctor": ("Finding",),
    "recollect.errors": ("Ambiguous", "Busy", "NeedsAnswer", "NotFound", "RecollectError", "UsageError"),
    "recollect.forget.plan": ("ForgetPlan", "ForgottenSession", "UnreachableCopy"),
    "recollect.forget.rescan": ("RescanReport",),
    "recollect.schema": (
        *("Cost", "Digest", "Event", "Outcome", "Problem", "Session", "SessionSource", "Signal", "to_json"),
    ),
    "recollect.care.status": ("AgentTotals", "DistilledTotals", "RetentionStatus", "SourceTotals", "Status"),
    "recollect.sweep_report": ("SweepReport",),
    "recollect.sessions.transcript": ("TranscriptItem",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    from recollect.api import Filters, Memory, doctor, open_memory, repair, restore
    from recollect.care.doctor import Finding
    from recollect.care.status import AgentTotals, DistilledTotals, RetentionStatus, SourceTotals, Status
    from recollect.distill.exchanges import Exchange
    from recollect.errors import Ambiguous, Busy, NeedsAnswer, NotFound, RecollectError, UsageError
    from recollect.forget.plan import ForgetPlan, ForgottenSession, UnreachableCopy
    from recollect.forget.rescan import RescanReport
    from recollect.recall import (
        Block,
        EditDiff,
        FileEdit,
        FileVisit,
        Glimpse,
        Match,
        Related,
        SearchAnswer,
        SessionDiff,
        SessionHit,
        Spending,
        StatLine,
        Stats,
        TimelineEntry,
        Unfinished,
    )
    from recollect.schema import Cost, Digest, Event, Outcome, Problem, Session, SessionSource, Signal, to_json
    from recollect.sessions.transcript import TranscriptItem
    from recollect.sweep_report import SweepReport

__all__ = [
    "AgentTotals",
    "Ambiguous",
    "Block",
    "Busy",
    "Cost",
    "Digest",
    "DistilledTotals",
    "EditDiff",
    "Event",
    "Exchange",
    "FileEdit",
    "FileVisit",
    "Filters",
    "Finding",
    "ForgetPlan",
    "ForgottenSession",
    "Glimpse",
    "Match",
    "Memory",
    "NeedsAnswer",
    "NotFound",
    "Outcome",
    "Problem",
    "RecollectError",
    "Related",
    "RescanReport",
    "RetentionStatus",
    "SearchAnswer",
    "Session",
    "SessionDiff",
    "SessionHit",
    "SessionSource",
    "Signal",
    "SourceTotals",
    "Spending",
    "StatLine",
    "Stats",
    "Status",
    "SweepReport",
    "TimelineEntry",
    "TranscriptItem",
    "Unfinished",
    "UnreachableCopy",
    "UsageError",
    "__version__",
    "doctor",
    "open_memory",
    "repair",
    "restore",
    "to_json",
]


def __getattr__(name: str) -> "Any":
    if name not in _HOME_OF:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
