"""Locks between processes: one sweep at a time, and a fair queue of short writes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from recollect.errors import Busy, StoreUnwritable
from recollect.store.sqlite.files import abandoned, drop_abandoned, has_no_room, remove, unwritable, work_name

SWEEP_LOCK = "sweep.lock"
NOTE_BYTES = 128  # at the start of a database's lock file: its last commit
_LIVE_LOCK = "live.lock"


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
    return _flock(str(path), fcntl.LOCK_EX | fcntl.LOCK_NB)


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
def _flock(path: str, operation: int) -> Iterator[int]:
    fd = _open(path)
    try:
        try:
            fcntl.flock(fd, operation)
        except BlockingIOError:
            raise Busy("Another sweep is running on this store", "it reads the same files; try again later") from None
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
        raise unwritable(Path(folder), error.strerror or str(error), no_room=has_no_room(error)) from error
