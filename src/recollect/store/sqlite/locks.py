"""Locks between processes: one sweep at a time, and a fair queue of short writes.

Processes also leave one another notes beside the databases: how sweeps went, who watches, what pushes spent.
The sweep's state is in its lock file, whose modification time is when the last complete sweep began: a sweep that finds
nothing new changes nothing else. It names the agents' homes and no file in them, so there is nothing in it to forget; a
home with a secret in its path is left out, because no stored path begins with it.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from recollect.model.errors import Busy, StoreUnwritable
from recollect.model.files import abandoned, drop_abandoned, remove, replace_file, unwritable, work_name

SWEEP_LOCK = "sweep.lock"
NOTE_BYTES = 128  # at the start of a database's lock file: its last commit
_LIVE_LOCK = "live.lock"
_TRY = fcntl.LOCK_EX | fcntl.LOCK_NB


@contextmanager
def sweep_lock(folder: Path) -> Iterator[None]:
    """Hold the store's sweep lock for the block; raises Busy if another process holds it.

    Leftovers of dead processes are removed first: they may hold whole sessions that somebody is about to forget.
    """
    with try_lock(folder / SWEEP_LOCK):
        if abandoned(folder):
            with write_lock(folder):
                drop_abandoned(folder)
        yield


def is_sweeping(folder: Path) -> bool:
    """Whether a process holds the store's sweep lock."""
    return is_held(folder / SWEEP_LOCK)


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of this file."""
    try:
        with try_lock(path):
            return False
    except Busy:
        return True
    except StoreUnwritable:
        return False


def try_lock(path: Path) -> AbstractContextManager[int]:
    """Hold the lock of a file for the block; raises Busy if another process holds it."""
    return _flock(str(path), _TRY)


def queue_of(database: Path) -> str:
    """The file by which writers of a database queue."""
    return str(database.with_suffix(".lock"))


def turn_to_write(queue: str) -> AbstractContextManager[int]:
    """Wait for the turn to write to a database; gives the lock file. Hold it for one batch: others are waiting too.

    SQLite's own lock is not fair: with ten writers the unluckiest waited 9 s for it, here 2 s. Each database has a
    queue of its own: who appends to cache.db need not wait until memory.db is flushed to the disk.
    """
    return _flock(queue, fcntl.LOCK_EX)


def drop_note(database: Path) -> None:
    """Remove the note of a database's last commit: another one comes in its place."""
    with suppress(FileNotFoundError):
        os.truncate(queue_of(database), 0)


@contextmanager
def write_lock(folder: Path) -> Iterator[None]:
    """Wait until nobody writes to the store, and let nobody write for the block."""
    with _flock(f"{folder}/cache.lock", fcntl.LOCK_EX), _flock(f"{folder}/memory.lock", fcntl.LOCK_EX):
        yield


def announce_live(folder: Path) -> int:
    """Say that this process appends to live sessions, until the descriptor is closed: then sweeps hold the turn to
    write for shorter."""
    fd = _open(f"{folder}/{_LIVE_LOCK}")
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def has_live(folder: Path) -> bool:
    """Whether any process appends to live sessions."""
    return is_held(folder / _LIVE_LOCK)


@contextmanager
def work_folder(store: Path, what: str) -> Iterator[Path]:
    """A folder in the store for the block; it is locked, so that nobody cleans it up meanwhile."""
    path = store / work_name(what)
    with write_lock(store):  # nobody may see it without its lock
        remove(path)
        path.mkdir(mode=0o700)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield path
    finally:
        remove(path)
        os.close(fd)


@contextmanager
def _flock(
    path: str,
    operation: int,
    message: str = "Another sweep is running on this store",
    hint: str = "it reads the same files; try again later",
) -> Iterator[int]:
    fd = _open(path)
    try:
        try:
            fcntl.flock(fd, operation)
        except BlockingIOError:
            raise Busy(message, hint) from None
        yield fd
    finally:
        os.close(fd)


def _open(path: str) -> int:
    folder = path.rpartition("/")[0] or "."
    if not os.access(folder, os.W_OK):  # the lock file may exist, but nothing else could be written
        raise unwritable(Path(folder), "no write permission")
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unwritable(Path(folder), error) from error


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


@contextmanager
def watch_lock(folder: Path, since_ms: int, every_minutes: float | None) -> Iterator[None]:
    """Be the one process that watches for this store; raises Busy if there is another.

    `every_minutes` is None for one that sweeps what changes as it changes.
    """
    path = folder / WATCH_NAME
    if other := read_watch_state(folder):
        raise Busy(f"Already watching this store: process {other[0]}", f"to stop it: kill {other[0]}")
    with try_lock(path):
        state = {"pid": os.getpid(), "since_ms": since_ms, "every_minutes": every_minutes}
        path.write_bytes(orjson.dumps(state))
        yield
        os.truncate(path, 0)


def read_watch_state(folder: Path) -> tuple[int, int, float | None] | None:
    """The process that watches for this store now, since when, and every how many minutes; None if there is none."""
    path = folder / WATCH_NAME
    try:
        state = orjson.loads(path.read_bytes()) if path.exists() and is_held(path) else None
        return (state["pid"], state["since_ms"], state["every_minutes"]) if state else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


_TOKENS_NAME, _LOCK_NAME = "graphiti.json", "graphiti.lock"
_KEPT_DAYS = 62  # this month and the last


def push_lock(folder: Path) -> AbstractContextManager[int]:
    """Be the one process that pushes from this store; raises Busy if there is another."""
    return _flock(f"{folder}/{_LOCK_NAME}", _TRY, "Another push to the graph is running", "try again when it is done")


def read_tokens(folder: Path) -> dict[str, int]:
    """Tokens spent, by day (`2026-11-15`)."""
    path = folder / _TOKENS_NAME
    days: dict[str, int] = orjson.loads(path.read_bytes()) if path.exists() else {}
    return days


def note_tokens(folder: Path, days: Mapping[str, int]) -> None:
    """Replace what is known to be spent; it is on the disk on return."""
    replace_file(folder / _TOKENS_NAME, orjson.dumps(dict(sorted(days.items())[-_KEPT_DAYS:])))
