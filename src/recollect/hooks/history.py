"""Reading the log of hooks, and what became of what they said."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recollect.api import open_memory
from recollect.clock import rfc3339
from recollect.config import store_folder
from recollect.errors import Ambiguous, NotFound
from recollect.home import HOOK_LOG_NAME, is_in_group
from recollect.knowledge import signature_of
from recollect.text import payload_text

if TYPE_CHECKING:
    from recollect.api import Memory
    from recollect.schema import Session

MET_AGAIN, NOT_MET_AGAIN = "met again", "not met again"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Something a hook added to a session.

    `then` is what came of it: for the fix of an `error`, whether the session met that error again; else how the session
    ended. None while the session is not stored.
    """

    at: str | None
    agent: str
    session: str
    event: str
    turn: str
    error: str
    text: str
    then: str | None = None


def read_hook_log(limit: int | None) -> list[LogEntry]:
    """What hooks added to sessions, newest first; nothing for a group, because the log covers all sessions."""
    entries = [] if is_in_group() else list(_entries())[::-1][:limit]
    if not entries:
        return []
    with open_memory(read_only=True) as memory:
        return [replace(item, then=_then(memory, item)) for item in entries]


def _entries() -> Iterator[LogEntry]:
    try:
        lines = (store_folder() / HOOK_LOG_NAME).read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        with suppress(ValueError, LookupError, TypeError):  # one that is cut off
            item = json.loads(line)
            fields = (item[name] for name in ("agent", "session", "event", "turn", "error", "text"))
            yield LogEntry(rfc3339(item["at_ms"]), *fields)


def _then(memory: "Memory", entry: LogEntry) -> str | None:
    try:
        session = memory.session(f"{entry.agent}:{entry.session}")
    except (NotFound, Ambiguous):
        return None
    if not entry.error:
        return session.outcome
    return MET_AGAIN if _is_met_again(memory, session, entry) else NOT_MET_AGAIN


def _is_met_again(memory: "Memory", session: "Session", entry: LogEntry) -> bool:
    """Whether a later call failed with the same error; the one that was answered may be logged after the answer."""
    return any(
        signature_of(payload_text(item.event.kind, item.payload) or item.event.summary) == entry.error
        for item in memory.transcript(session)
        if item.event.is_error and (item.event.ts or "") > (entry.at or "") and item.event.call_id != entry.turn
    )
