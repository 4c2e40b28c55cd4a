"""Whether agents have written since the last sweep: a quick look before a question is answered.

Only files that were written lately, and folders, are looked at: an agent hardly ever goes on with an old file, and a
new file changes its folder. What this misses, the next sweep finds.
"""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recollect.store import Store, SweepState, read_sweep_state

RECENT_FILES = 500
QUICK_BYTES = 8 * 1024 * 1024  # about what is read in a second, the start included
QUICK_FILES = 200
_LOGS = (".jsonl", ".jsonl.zst")


class Freshness(NamedTuple):
    """What changed since the last sweep, as far as a quick look shows."""

    sweep: SweepState
    files_changed: int = 0
    bytes_changed: int = 0

    @property
    def is_quick(self) -> bool:
        """Whether a sweep would take about a second."""
        return self.bytes_changed <= QUICK_BYTES and self.files_changed <= QUICK_FILES


def find_freshness(store: Store) -> Freshness:
    """Compare recent files and all folders with what the last sweep saw. Opens no file."""
    state = read_sweep_state(store.folder)
    if state.began_ns is None:
        return Freshness(state)
    host, below = os.uname().nodename or "localhost", tuple(f"{root}/" for root in state.roots)
    folders = _with_parents(store.sources.folders(host), below)
    changed = dict(_new_files(folders, state.began_ns))
    latest = (file for file in store.sources.latest(host, RECENT_FILES) if file[0].startswith(below))
    changed |= _grown_files(latest, state.began_ns)
    return Freshness(state, len(changed), sum(changed.values()))


def _grown_files(latest: Iterable[tuple[str, int, int]], began_ns: int) -> Iterator[tuple[str, int]]:
    """Recent files that were written since, each with how much is new."""
    for path, size, mtime_ns in latest:
        try:
            info = os.lstat(path)
        except OSError:
            continue  # gone, which is no news to search in
        if info.st_mtime_ns > began_ns and info.st_mtime_ns != mtime_ns:
            yield path, max(info.st_size - size, 0)


def _with_parents(folders: Iterable[str], roots: tuple[str, ...]) -> set[str]:
    """Folders with logs and the two above each: a new project, day or month is a new folder in one of those."""
    watched = set(roots)
    for folder in folders:
        for _ in range(3):
            if folder in watched or not folder.startswith(roots):
                break
            watched.add(folder)
            folder = folder[:-1].rpartition("/")[0] + "/"
    return watched


def _new_files(folders: Iterable[str], began_ns: int) -> Iterator[tuple[str, int]]:
    """Logs written since in folders that changed since, each with its size."""
    for folder in folders:
        try:
            if os.lstat(folder).st_mtime_ns > began_ns:
                yield from _logs_since(folder, began_ns, depth=1)
        except OSError:
            continue  # gone or unreadable: the sweep reports it


def _logs_since(folder: str, began_ns: int, depth: int) -> Iterator[tuple[str, int]]:
    for entry in os.scandir(folder):
        info = entry.stat(follow_symlinks=False)
        if info.st_mtime_ns <= began_ns:
            continue
        if entry.name.endswith(_LOGS):
            yield entry.path, info.st_size
        elif depth and entry.is_dir(follow_symlinks=False):
            yield from _logs_since(entry.path, began_ns, depth - 1)
