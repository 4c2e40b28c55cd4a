"""The sweep that hooks start: of the files they noted, until there are no more notes."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.api import open_memory
from recollect.errors import Busy, RecollectError
from recollect.hooks import claims, spool
from recollect.hooks.event import PRE_COMPACT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recollect.api import Memory
    from recollect.sweep import SweepReport

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
                try:
                    reports.append(memory.sweep(only=_paths(_read(notes)), with_recent=True))
                except Busy:
                    time.sleep(_PAUSE_S)
                else:
                    _archive_compacted(memory, _read(notes))
                    for note in notes:
                        note.unlink(missing_ok=True)
        with suppress(OSError):
            claims.drop_old(str(memory.settings.folder))
    return reports


def _paths(notes: list[Mapping[str, Any]]) -> list[str]:
    """The files that notes name, each once."""
    paths = dict.fromkeys(note.get("path") for note in notes)
    return [path for path in paths if isinstance(path, str) and os.path.exists(path)]


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
