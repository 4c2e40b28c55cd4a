"""Writing a database anew, so that nothing deleted is left in it.

`secure_delete` is not enough: when SQLite moves rows from a page to its neighbours, it leaves their bytes in the
unused part of the page (measured: 3 of 15,000 deleted words were still in the file). So the content is written to a
file beside the database and copied back by the backup API, in one transaction like any other. `VACUUM` alone would
use memory, or a folder that others may read.
"""

import os
from pathlib import Path

import apsw

from recollect.errors import Busy, StoreUnwritable
from recollect.store.sqlite.database import Database, translated
from recollect.store.sqlite.locks import write_lock

_ROOM = 2.2  # times the size of the database: for the copy and for the write-ahead log


def rewrite(database: Database) -> None:
    """Leave no byte of what was deleted; raises StoreUnwritable for lack of room, and Busy while others read."""
    path = database.path
    beside = path.with_name(f"{path.name}.new")
    with translated(path), write_lock(path.parent):
        _require_room(path)
        beside.unlink(missing_ok=True)
        os.close(os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        try:
            database.connection.execute("VACUUM INTO ?", (str(beside),))
            _copy_back(database.connection, beside)
        finally:
            beside.unlink(missing_ok=True)
        _empty_log(database)


def _copy_back(connection: apsw.Connection, beside: Path) -> None:
    fresh = apsw.Connection(str(beside))
    try:
        with connection.backup("main", fresh, "main") as copying:
            copying.step(-1)
    finally:
        fresh.close()


def _require_room(path: Path) -> None:
    space = os.statvfs(path.parent)
    needed, free = round(path.stat().st_size * _ROOM), space.f_bavail * space.f_frsize
    if free < needed:
        raise StoreUnwritable(
            f"Not enough space to rewrite a database ({needed - free:,} more bytes needed): {path}",
            "free some space, then run `recollect sweep` to finish",
        )


def _empty_log(database: Database) -> None:
    try:
        database.checkpoint()
    except apsw.BusyError as error:
        raise Busy(
            f"Another program is reading the store, so old pages cannot be erased yet: {database.path}",
            "close it, then run `recollect sweep` to finish",
        ) from error
