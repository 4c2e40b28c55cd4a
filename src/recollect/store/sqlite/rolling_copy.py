"""A recent copy of memory.db beside it, for the day its own file is damaged.

What was stored since is made again from cache.db and the ledger, so the copy may be an hour old. It is made anew at
once when something was deleted for good, which must not live on in it.
"""

import os
import time
from pathlib import Path

import apsw

from recollect.errors import RecollectError
from recollect.store.sqlite.checksums import iter_damaged_pages
from recollect.store.sqlite.database import Database
from recollect.store.sqlite.durable import sync
from recollect.store.sqlite.leftovers import work_name
from recollect.store.sqlite.snapshot import copy_database

COPY_SUFFIX = "-copy"
_OLDEST_SECONDS = 3600


def keep_copy(database: Database, *, is_due: bool = False) -> None:
    """Make the copy anew if it is due, missing or old. A disk without room for it must not stop anything."""
    path = _copy_path(database.path)
    if not is_due and path.exists() and 0 <= time.time() - path.stat().st_mtime < _OLDEST_SECONDS:
        return
    beside = path.with_name(work_name(path.name))
    try:
        beside.unlink(missing_ok=True)
        os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        copy_database(database, beside, lambda done, total: None)
        sync(beside)
        beside.replace(path)
        sync(path.parent)
    except (OSError, RecollectError):
        beside.unlink(missing_ok=True)
        if is_due:
            path.unlink(missing_ok=True)  # rather none than one with what had to go


def _copy_path(database: Path) -> Path:
    return database.with_name(database.name + COPY_SUFFIX)


def restore_copy(database: Path) -> bool:
    """Put the copy in the place of a database that is not there; False if there is no sound one."""
    copy = _copy_path(database)
    if database.exists() or not copy.exists():
        return False
    try:
        is_sound = all(page is None for page in iter_damaged_pages(copy))
    except (OSError, apsw.Error):
        is_sound = False
    if is_sound:
        copy.replace(database)
        sync(database.parent)
    return is_sound
