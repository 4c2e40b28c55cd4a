"""Deleting on a disk that is full, or nearly so.

A deletion writes every page that it changes to the log first. So files that can be made again are given up before it;
then rows go a few at a time, and the log is emptied after each step, so that no step needs more than there is.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from recollect.model.files import remove
from recollect.model.home import PREPARED_NAME, SPENDING_NAME
from recollect.store.sqlite.database import BUSY_MS, PAGE_BYTES, Database

SHORT_BYTES = 32 * 1024 * 1024
# From what is missed least to what is missed most: compiled rules, what hooks read, the copy of memory.db.
_SPARE = ("redaction-*.hs", PREPARED_NAME, SPENDING_NAME, "memory.db-copy", "memory.db.zst")
_PATIENCE_MS = 500
_SCARCE = 100  # rows or pages: with room for fewer the log is emptied first
_ROW_BYTES = 16 * PAGE_BYTES  # of the log, for a row with its entries in indexes; seldom more
_MOVED_BYTES = 8 * PAGE_BYTES  # of the log, for a page that takes another place


def free_bytes(folder: Path) -> int:
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


def is_short(folder: Path) -> bool:
    """Return whether deleting has to go step by step: what it changes may not fit into the log at once."""
    cache = folder / "cache.db"
    return free_bytes(folder) < max(SHORT_BYTES, 3 * cache.stat().st_size if cache.exists() else 0)


def give_up_spare(folder: Path) -> None:
    """Remove files that the next sweep makes again, if the disk is nearly full: only then can a deletion begin."""
    for path in (path for pattern in _SPARE for path in sorted(folder.glob(pattern))):
        if free_bytes(folder) >= SHORT_BYTES:
            return
        with suppress(OSError):  # a read-only store is for its opener to report
            remove(path)


def delete_in_steps(database: Database, sql: str, bindings: Sequence[Any]) -> None:
    """Run a DELETE, whose last binding is how many rows it may take, until none is left."""

    def step(most: int) -> int:
        with database.transaction() as connection:
            connection.execute(sql, (*bindings, most))
            return connection.changes()

    _in_steps(database, _ROW_BYTES, step)


def give_back_pages(database: Database) -> None:
    """Return the unused pages of a database to the disk; the words in them are gone then."""

    def step(most: int) -> int:
        before = int(database.value("PRAGMA freelist_count"))
        database.rows(f"PRAGMA incremental_vacuum({most})")
        return before - int(database.value("PRAGMA freelist_count"))

    _in_steps(database, _MOVED_BYTES, step)


def _in_steps(database: Database, needed_bytes: int, step: Callable[[int], int]) -> None:
    """Repeat a step, each as large as the disk allows, until one does less than it may."""
    folder = database.path.parent
    if free_bytes(folder) < _SCARCE * needed_bytes:
        empty_log(database)
    while step(most := max(1, free_bytes(folder) // needed_bytes)) >= most:
        empty_log(database)


def empty_log(database: Database) -> None:
    """Move the log into the database, so that its room is free again; not while somebody reads, which it hardly awaits:
    there are many steps."""
    database.connection.set_busy_timeout(_PATIENCE_MS)
    try:
        with suppress(apsw.BusyError):
            database.checkpoint()
    finally:
        database.connection.set_busy_timeout(BUSY_MS)


@contextmanager
def without_overwriting(database: Database) -> Iterator[None]:
    """Leave pages that get free as they are: to overwrite them all takes as much room in the log."""
    database.connection.pragma("secure_delete", 0)
    try:
        yield
    finally:
        database.connection.pragma("secure_delete", 1)
