"""Space that is given up when the disk is full: even deleting needs some.

Deleting writes to the log first: with 64 kB left it fails. So an empty file is kept, as large as the store but at most
32 MiB, and removed before anything is deleted on a full disk.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recollect.files import written_beside

BALLAST_NAME = "ballast"
MOST_BYTES = 32 * 1024 * 1024
ROOM_BYTES = 1024 * 1024 * 1024  # with less room than this the disk's owner needs it more

_BLOCK_BYTES = 64 * 1024


def ensure(folder: Path, store_bytes: int, *, room_bytes: int = ROOM_BYTES) -> bool:
    """Make the ballast, unless the disk is short of space; returns whether it exists."""
    path = folder / BALLAST_NAME
    size = min(MOST_BYTES, -(-store_bytes // _BLOCK_BYTES) * _BLOCK_BYTES)
    held = path.stat().st_size if path.exists() else 0
    if held >= size // 2 and held:
        return True
    if _free_bytes(folder) < room_bytes:
        return False
    try:
        with written_beside(path) as fd:
            _allocate(fd, size)
    except OSError:
        return False  # nothing depends on it
    return True


def drop(folder: Path) -> bool:
    """Give the space back; returns whether there was any."""
    try:
        (folder / BALLAST_NAME).unlink()
    except FileNotFoundError:
        return False
    return True


def drop_if_needed(folder: Path) -> None:
    """Give the space back if the disk is nearly full: what is left may not be enough to delete."""
    if _free_bytes(folder) < MOST_BYTES:
        drop(folder)


@contextmanager
def more_room(folder: Path, store_bytes: int) -> Iterator[None]:
    """Drop the ballast if the disk is nearly full, for a block that deletes; put it back when there is room again."""
    drop_if_needed(folder)
    try:
        yield
    finally:
        ensure(folder, store_bytes)


def _free_bytes(folder: Path) -> int:
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


def _allocate(fd: int, size: int) -> None:
    """Allocate real blocks: a hole would give nothing back."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    for _ in range(size // _BLOCK_BYTES):
        os.write(fd, b"\0" * _BLOCK_BYTES)
