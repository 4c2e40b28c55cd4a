"""The sweep that hooks start: of the files they noted, until there are no more notes."""

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.api import open_memory
from recollect.errors import Busy
from recollect.hooks import claims, spool

if TYPE_CHECKING:
    from recollect.sweep_report import SweepReport

_NICE = 10
_MOST_TRIES, _PAUSE_S = 120, 0.5  # while another sweep runs


def drain_spool() -> list["SweepReport"]:
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
                    reports.append(memory.sweep(only=_paths(notes), with_recent=True))
                except Busy:
                    time.sleep(_PAUSE_S)
                else:
                    for note in notes:
                        note.unlink(missing_ok=True)
        with suppress(OSError):
            claims.drop_old(str(memory.settings.folder))
    return reports


def _paths(notes: list[Path]) -> list[str]:
    """The files that notes name, each once."""
    paths = []
    for note in notes:
        with suppress(OSError, ValueError):
            paths.append(json.loads(note.read_bytes())["path"])
    return [path for path in dict.fromkeys(paths) if isinstance(path, str) and os.path.exists(path)]
