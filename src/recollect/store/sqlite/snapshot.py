"""Copies of both databases as of one moment, taken while others go on writing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from recollect.store.sqlite import checksums
from recollect.store.sqlite.database import Database, require_utf8, translated
from recollect.store.sqlite.locks import write_lock

if TYPE_CHECKING:
    from recollect.store import Store

_PAGES_AT_ONCE = 2000


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
            database.connection.execute("ROLLBACK")


def copy_database(database: Database, target: Path, advance: Callable[[int, int], None]) -> None:
    """Write the database as it is frozen into a new file, through SQLite: its own file must not be opened otherwise."""
    require_utf8(target)
    with translated(target):
        copy = apsw.Connection(str(target), vfs=checksums.layer())
        try:
            # Only a file whose header says that pages have room for checksums gets them computed: pages still in
            # the source's log may have none.
            copy.reserve_bytes(reserve=checksums.RESERVED_BYTES)
            copy.execute("CREATE TABLE header (x)")
            with copy.backup("main", database.connection, "main") as backup:
                while not backup.done:
                    backup.step(_PAGES_AT_ONCE)
                    advance(backup.page_count - backup.remaining, backup.page_count)
            copy.pragma("journal_mode", "delete")  # the file alone is the whole database
        finally:
            copy.close()
