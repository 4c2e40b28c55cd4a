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
    "recollect.memory": ("AgentTotals", "Memory", "SourceTotals", "Status", "TranscriptItem", "doctor", "open_memory"),
    "recollect.doctor": ("Finding",),
    "recollect.errors": ("RecollectError",),
    "recollect.rescan": ("RescanReport",),
    "recollect.schema": ("Cost", "Event", "Problem", "Session", "SessionSource", "as_json"),
    "recollect.sweep": ("SweepReport",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    from recollect.doctor import Finding
    from recollect.errors import RecollectError
    from recollect.memory import AgentTotals, Memory, SourceTotals, Status, TranscriptItem, doctor, open_memory
    from recollect.rescan import RescanReport
    from recollect.schema import Cost, Event, Problem, Session, SessionSource, as_json
    from recollect.sweep import SweepReport

__all__ = [
    "AgentTotals",
    "Cost",
    "Event",
    "Finding",
    "Memory",
    "Problem",
    "RecollectError",
    "RescanReport",
    "Session",
    "SessionSource",
    "SourceTotals",
    "Status",
    "SweepReport",
    "TranscriptItem",
    "__version__",
    "as_json",
    "doctor",
    "open_memory",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'recollect' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
