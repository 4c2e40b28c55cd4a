"""What comes after a hook's answer: the sweep of the files that hooks noted, until there are no more notes, and what
became of what they said."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.api import open_memory
from recollect.config import store_folder
from recollect.hooks import spool
from recollect.hooks.answers import PRE_COMPACT
from recollect.knowledge import signature_of
from recollect.model.clock import rfc3339
from recollect.model.errors import Ambiguous, Busy, NotFound, RecollectError
from recollect.model.home import HOOK_LOG_NAME, is_in_group
from recollect.model.text import payload_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recollect.api import Memory
    from recollect.sweep_report import SweepReport


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


def _then(memory: Memory, entry: LogEntry) -> str | None:
    try:
        session = memory.session(f"{entry.agent}:{entry.session}")
    except (NotFound, Ambiguous):
        return None
    if not entry.error:
        return session.outcome
    # The call that was answered may be logged after the answer.
    later = (
        item
        for item in memory.transcript(session)
        if item.event.is_error and (item.event.ts or "") > (entry.at or "") and item.event.call_id != entry.turn
    )
    said = (payload_text(item.event.kind, item.payload) or item.event.summary for item in later)
    return MET_AGAIN if entry.error in map(signature_of, said) else NOT_MET_AGAIN


_NICE = 10
_MOST_TRIES, _PAUSE_S = 120, 0.5  # while another sweep runs


def drain_spool() -> list[SweepReport]:
    """Sweep what hooks noted, at low priority. Does nothing if another process is doing it."""
    if os.getsid(0) == os.getpid():  # started for this alone
        os.nice(_NICE)
    reports = []
    with open_memory() as memory:
        folder = Path(spool.spool_folder(str(memory.settings.folder)))
        folder.mkdir(mode=0o700, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return []
            for _ in range(_MOST_TRIES):
                notes = sorted(folder.glob("*.json"))
                if not notes:
                    break
                said = _read(notes)
                paths = dict.fromkeys(path for note in said if isinstance(path := note.get("path"), str))
                try:
                    reports.append(memory.sweep(only=list(filter(os.path.exists, paths)), with_recent=True))
                except Busy:
                    time.sleep(_PAUSE_S)
                else:
                    _archive_compacted(memory, said)
                    for note in notes:
                        note.unlink(missing_ok=True)
        with suppress(OSError):
            spool.drop_old(str(memory.settings.folder))
    return reports


def _read(paths: list[Path]) -> list[Mapping[str, Any]]:
    notes = []
    for path in paths:
        with suppress(OSError, ValueError):
            notes.append(json.loads(path.read_bytes()))
    return [note for note in notes if isinstance(note, dict)]


def _archive_compacted(memory: Memory, notes: list[Mapping[str, Any]]) -> None:
    """Write what groups' agents are about to compact into the groups' conversations."""
    for note in notes:
        if note.get("event") == PRE_COMPACT:
            with suppress(RecollectError, OSError):  # it is in the store all the same
                memory.groups.archive(memory.session(str(note.get("session"))))
