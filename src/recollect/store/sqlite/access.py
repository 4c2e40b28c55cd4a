"""Why a store cannot be written, in one sentence with a fitting hint."""

import errno
import os
from pathlib import Path

from recollect.errors import StoreUnwritable

SHARED_INDEX_BYTES = 64 * 1024
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(folder: Path) -> bool:
    """Whether there is no room even for the small file that SQLite shares among its readers."""
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize < SHARED_INDEX_BYTES or (space.f_files > 0 and space.f_favail == 0)


def has_no_room(error: OSError) -> bool:
    return error.errno in _NO_ROOM


def unwritable(folder: Path, reason: str, *, no_room: bool = False) -> StoreUnwritable:
    """The error for a failed write: the disk is full, the folder is read-only, or `reason`."""
    if no_room or (os.access(folder, os.F_OK) and is_full(folder)):
        return StoreUnwritable(f"Disk full: {folder}", "free some space, then try again; nothing has been lost")
    if not os.access(folder, os.W_OK):
        return StoreUnwritable(
            f"Store is read-only: {folder}", "make it writable, or set RECOLLECT_HOME to another folder"
        )
    return StoreUnwritable(
        f"Cannot use the store ({reason}): {folder}",
        "check the permissions of its files and its disk; nothing has been lost",
    )
