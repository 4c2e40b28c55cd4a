"""Why a store cannot be written, in one sentence with the advice that fits."""

import errno
import os
from pathlib import Path

from recollect.errors import StoreUnwritable

SHARED_INDEX_BYTES = 64 * 1024
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(folder: Path) -> bool:
    """Whether not even the small file is to be had that SQLite shares among its readers."""
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize < SHARED_INDEX_BYTES or (space.f_files > 0 and space.f_favail == 0)


def has_no_room(error: OSError) -> bool:
    return error.errno in _NO_ROOM


def unwritable(folder: Path, reason: str, *, no_room: bool = False) -> StoreUnwritable:
    """What to raise when writing failed: the disk is full, the folder is not the user's to write, or `reason`."""
    if no_room or (os.access(folder, os.F_OK) and is_full(folder)):
        return StoreUnwritable(
            f"No room is left on the disk of the store: {folder}", "free some space, then try again; nothing is lost"
        )
    if not os.access(folder, os.W_OK):
        return StoreUnwritable(f"Store is read-only: {folder}", "make it writable, or set RECOLLECT_HOME to another")
    return StoreUnwritable(
        f"Cannot use the store ({reason}): {folder}", "look at its files' permissions and at its disk; nothing is lost"
    )
