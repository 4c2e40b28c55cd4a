"""Databases copied as a whole: as of one moment while others write, or written anew without what was deleted.

One compressed copy of memory.db is kept beside it, for the day its own file is damaged. What was stored since is made
again from cache.db and the ledger, so the copy may be a day old. It is made anew at once when something was deleted for
good, which must not live on in it.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from recollect.model.errors import Busy, RecollectError, StoreUnwritable
from recollect.model.files import new_file, sync, work_name, write_all, written_beside
from recollect.store.sqlite.database import RESERVED_BYTES, Database, checksum_layer, require_utf8, translated
from recollect.store.sqlite.locks import write_lock
from recollect.store.sqlite.room import free_bytes

if TYPE_CHECKING:
    from recollect.store import Store


COPY_SUFFIX = ".zst"
_OLDER_NAMES = ("memory.db-copy", "memory.db-last", "cache.db-last", "ballast")  # files that earlier versions made
_PAGES_AT_ONCE = 2000
_OLDEST_SECONDS = 24 * 3600
_ROOM = 1.1  # times the size of a database, for each time that it is written
_IN_MEMORY_BYTES = 32 * 1024 * 1024  # a database up to this size is written anew in memory


@contextmanager
def frozen(store: "Store") -> Iterator[None]:
    """Have both databases read as of this moment inside the block. Nobody writes while the two are taken hold of."""
    with nullcontext() if store.read_only else write_lock(store.folder):
        for database in store.databases:
            with translated(database.path):
                database.connection.execute("BEGIN")
                database.rows("SELECT 1 FROM sqlite_schema LIMIT 1")  # the read itself takes hold of the moment
    try:
        yield
    finally:
        for database in store.databases:
            if database.connection.in_transaction:  # a damaged page ends it
                database.connection.execute("ROLLBACK")


def copy_database(database: Database, target: Path, advance: Callable[[int, int], None]) -> None:
    """Write the database as it is frozen into a new file, through SQLite: its own file must not be opened otherwise."""
    require_utf8(target)
    _make_empty(target)
    with translated(target), closing(apsw.Connection(str(target), vfs=checksum_layer())) as copy:
        # Only a file whose header says that pages have room for checksums gets them computed: pages still in
        # the source's log may have none.
        copy.reserve_bytes(reserve=RESERVED_BYTES)
        copy.execute("CREATE TABLE header (x)")
        with copy.backup("main", database.connection, "main") as backup:
            while not backup.done:
                backup.step(_PAGES_AT_ONCE)
                advance(backup.page_count - backup.remaining, backup.page_count)
        copy.pragma("journal_mode", "delete")  # the file alone is the whole database


def keep_copy(database: Database, *, is_due: bool = False) -> None:
    """Make the copy anew if it is due, missing or old. A disk without room for it must not stop anything."""
    path = _copy_path(database.path)
    if not is_due and path.exists() and 0 <= time.time() - path.stat().st_mtime < _OLDEST_SECONDS:
        return
    import zstandard  # slow to load, and most sweeps make no copy

    for name in _OLDER_NAMES:
        path.with_name(name).unlink(missing_ok=True)
    if is_due:
        path.unlink(missing_ok=True)  # rather none than one with what had to go
    plain = path.with_name(work_name(database.path.name))
    with suppress(OSError, RecollectError):
        try:
            copy_database(database, plain, lambda done, total: None)
            compressor = zstandard.ZstdCompressor(write_checksum=True)
            with plain.open("rb") as source, written_beside(path) as fd:
                for chunk in compressor.read_to_iter(source, size=plain.stat().st_size):
                    write_all(fd, chunk)
                os.fsync(fd)
            sync(path.parent)
        finally:
            plain.unlink(missing_ok=True)


def _make_empty(path: Path) -> None:
    """Make the file before SQLite does, so that it is the user's alone."""
    path.unlink(missing_ok=True)
    with new_file(path):
        pass


def _copy_path(database: Path) -> Path:
    return database.with_name(database.name + COPY_SUFFIX)


def restore_copy(database: Path) -> bool:
    """Put the copy in the place of a database that is not there; False if there is no sound one."""
    import zstandard

    copy = _copy_path(database)
    if database.exists() or not copy.exists():
        return False
    try:
        with copy.open("rb") as source, written_beside(database) as fd:
            size = zstandard.frame_content_size(source.read(18))
            source.seek(0)
            for chunk in zstandard.ZstdDecompressor().read_to_iter(source):
                write_all(fd, chunk)
            if os.fstat(fd).st_size != size:
                raise zstandard.ZstdError("it is cut off")
            os.fsync(fd)
    except (OSError, zstandard.ZstdError):
        return False
    sync(database.parent)
    return True


def rewrite(database: Database) -> None:
    """Leave no byte of what was deleted; raises StoreUnwritable for lack of room, and Busy while others read.

    `secure_delete` is not enough: when SQLite moves rows from a page to its neighbours, it leaves their bytes in the
    unused part of the page (measured: 3 of 15,000 deleted words were still in the file). So the content is written to
    memory, or a large one to a file beside the database, and copied back by the backup API, in one transaction like
    any other. `VACUUM` alone would use memory, or a folder that others may read.
    """
    path = database.path
    with translated(path), write_lock(path.parent):
        _empty_log(database)  # its room is needed
        size = path.stat().st_size
        is_small = size <= _IN_MEMORY_BYTES
        _require_room(path, round(size * _ROOM * (1 if is_small else 2)))
        with (
            _compact(database) if is_small else _compact_beside(database) as fresh,
            database.connection.backup("main", fresh, "main") as copying,
        ):
            copying.step(-1)
        _empty_log(database)


@contextmanager
def _compact(database: Database) -> Iterator[apsw.Connection]:
    """The content of a database without unused pages, in memory."""
    with closing(apsw.Connection(":memory:")) as fresh:
        with fresh.backup("main", database.connection, "main") as copying:
            copying.step(-1)
        fresh.execute("VACUUM")
        yield fresh


@contextmanager
def _compact_beside(database: Database) -> Iterator[apsw.Connection]:
    """The content of a database without unused pages, in a file that is gone after the block."""
    beside = database.path.with_name(f"{database.path.name}.new")
    _make_empty(beside)
    try:
        database.connection.execute("VACUUM INTO ?", (str(beside),))
        with closing(apsw.Connection(str(beside))) as fresh:
            yield fresh
    finally:
        beside.unlink(missing_ok=True)


def _require_room(path: Path, needed: int) -> None:
    free = free_bytes(path.parent)
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
