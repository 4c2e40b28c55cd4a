"""What processes leave for one another beside the databases: how sweeps went, who watches, what pushes spent.

The sweep's state is in its lock file, whose modification time is when the last complete sweep began: a sweep that finds
nothing new changes nothing else. It names the agents' homes and no file in them, so there is nothing in it to forget; a
home with a secret in its path is left out, because no stored path begins with it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from recollect.errors import Busy
from recollect.store.sqlite.files import replace_file
from recollect.store.sqlite.locks import SWEEP_LOCK, is_held, try_lock


class SweepState(NamedTuple):
    """`began_ns` is when the last complete sweep began; the bytes are those of one that was interrupted."""

    began_ns: int | None = None
    roots: tuple[str, ...] = ()
    read_bytes: int = 0
    total_bytes: int = 0

    @property
    def is_interrupted(self) -> bool:
        return self.total_bytes > 0


def read_sweep_state(folder: Path) -> SweepState:
    try:
        content, mtime_ns = (folder / SWEEP_LOCK).read_bytes(), (folder / SWEEP_LOCK).stat().st_mtime_ns
        state = orjson.loads(content)
        return SweepState(
            None if "total_bytes" in state else mtime_ns, **state | {"roots": tuple(state.get("roots", ()))}
        )
    except (OSError, orjson.JSONDecodeError, TypeError, AttributeError):
        return SweepState()  # no sweep yet, or a file that says nothing


def note_progress(folder: Path, read_bytes: int, total_bytes: int) -> None:
    """Note how far a sweep has come; the sweep's lock must be held."""
    _write_sweep(folder, {"read_bytes": read_bytes, "total_bytes": total_bytes})


def note_finished(folder: Path, roots: Sequence[str], began_ns: int) -> None:
    """Note that a sweep which began at this time is complete."""
    _write_sweep(folder, {"roots": roots})
    os.utime(folder / SWEEP_LOCK, ns=(began_ns, began_ns))


def _write_sweep(folder: Path, state: dict[str, Any]) -> None:
    """Replace what the lock file says; it must stay the same file, for it is locked."""
    content = orjson.dumps(state)
    if (folder / SWEEP_LOCK).read_bytes() != content:
        (folder / SWEEP_LOCK).write_bytes(content)


WATCH_NAME = "watch.pid"


class WatchState(NamedTuple):
    """`every_minutes` is None for one that sweeps what changes as it changes."""

    pid: int
    since_ms: int
    every_minutes: float | None


@contextmanager
def watch_lock(folder: Path, state: WatchState) -> Iterator[None]:
    """Be the one process that watches for this store; raises Busy if there is another."""
    path = folder / WATCH_NAME
    other = read_watch_state(folder)
    if other is not None:
        raise Busy(f"Already watching this store: process {other.pid}", f"to stop it: kill {other.pid}")
    with try_lock(path):
        path.write_bytes(orjson.dumps(state._asdict()))
        yield
        os.truncate(path, 0)


def read_watch_state(folder: Path) -> WatchState | None:
    """The process that watches for this store now; None if there is none."""
    path = folder / WATCH_NAME
    try:
        return WatchState(**orjson.loads(path.read_bytes())) if path.exists() and is_held(path) else None
    except (OSError, ValueError, TypeError):
        return None


_TOKENS_NAME, _LOCK_NAME = "graphiti.json", "graphiti.lock"
_KEPT_DAYS = 62  # this month and the last


@contextmanager
def push_lock(folder: Path) -> Iterator[None]:
    """Be the one process that pushes from this store; raises Busy if there is another."""
    path = folder / _LOCK_NAME
    if is_held(path):
        raise Busy("Another push to the graph is running", "try again when it is done")
    with try_lock(path):
        yield


def read_tokens(folder: Path) -> dict[str, int]:
    """Tokens spent, by day (`2026-11-15`)."""
    path = folder / _TOKENS_NAME
    days: dict[str, int] = orjson.loads(path.read_bytes()) if path.exists() else {}
    return days


def note_tokens(folder: Path, days: Mapping[str, int]) -> None:
    """Replace what is known to be spent; it is on the disk on return."""
    replace_file(folder / _TOKENS_NAME, orjson.dumps(dict(sorted(days.items())[-_KEPT_DAYS:])))
