"""Rows that can still be read of a damaged database: pages that fail their checksum are stepped over."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from recollect.errors import StoreDamaged, StoreUnwritable
from recollect.store import checksums
from recollect.store.sqlite import Database, connect, translated

_ROWS_AT_ONCE = 2000
_FAR = 1 << 24  # as many rows as a large store has
_OWN_TABLES = ("history", "marks", "rules")  # about the file itself, or made again by the next sweep


class DamagedDatabase(Database):
    """A database that is read whatever its first page looks like; all other pages have to be sound."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read_only = True
        self.is_new = False
        self.connection = connect(path, read_only=True)
        with translated(path):
            self.connection.execute("BEGIN")
            self.connection.execute("SELECT count(*) FROM sqlite_schema").get  # noqa: B018  keeps the first page at hand
        checksums.set_verification(self.connection, _are_mostly_sound(path))


def _are_mostly_sound(path: Path) -> bool:
    """Whether the pages have checksums at all: the place that tells may be what is damaged."""
    pages = [page is None for page in checksums.iter_damaged_pages(path)]
    return sum(pages) * 2 > len(pages)


def try_rows(database: Database, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]] | None:
    """What a query finds, or None if it comes upon a damaged page."""
    try:
        return database.rows(sql, bindings)
    except (StoreDamaged, StoreUnwritable, apsw.Error):
        return None


def iter_readable_rows(database: Database, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table in the order of their numbers, without those on pages that cannot be read."""
    select = f"SELECT {columns} FROM {table} NOT INDEXED WHERE rowid BETWEEN ? AND ? ORDER BY rowid"
    highest = _highest(database, table)
    low = 0
    while low <= highest:
        rows = list(_pieces(database, select, low, low + _ROWS_AT_ONCE - 1))
        yield from (row for piece in rows for row in piece)
        low += _ROWS_AT_ONCE
        if not rows and not _is_any_readable(database, select, low):
            return


def _highest(database: Database, table: str) -> int:
    found = try_rows(database, f"SELECT rowid FROM {table} NOT INDEXED ORDER BY rowid DESC LIMIT 1")
    if found is None:
        return _FAR  # the end lies on a damaged page
    return int(found[0][0]) if found else -1


def _pieces(database: Database, select: str, low: int, high: int) -> Iterator[list[tuple[Any, ...]]]:
    """What can be read of a range of rows, halved until no damaged page is among them."""
    rows = try_rows(database, select, (low, high))
    if rows is not None:
        yield rows
    elif low < high:
        middle = (low + high) // 2
        yield from _pieces(database, select, low, middle)
        yield from _pieces(database, select, middle + 1, high)


def _is_any_readable(database: Database, select: str, low: int) -> bool:
    """Whether there is anything behind a stretch without a single readable row: a page near the root leads to many."""
    steps = (1 << power for power in range(_FAR.bit_length()))
    return any(try_rows(database, select, (low + step, low + step)) is not None for step in steps)


def take_over_rows(old: Database, new: Database) -> int:
    """Copy every row of the old database that can be read and that the new one lacks; returns how many."""
    taken = 0
    for table, has_no_rowid in _tables(new):
        columns = [name for name in _columns(new, table) if name in _columns(old, table)]
        listed = ", ".join(f'"{name}"' for name in columns)
        if not columns:
            continue
        whole = f"SELECT {listed} FROM {table}"
        rows = (try_rows(old, whole) or []) if has_no_rowid else iter_readable_rows(old, table, listed)
        with new.transaction() as connection:
            for row in rows:
                insert = f"INSERT OR IGNORE INTO {table} ({listed}) VALUES ({', '.join('?' * len(columns))})"
                connection.execute(insert, row)
                taken += connection.changes()
    return taken


def _tables(database: Database) -> list[tuple[str, bool]]:
    """Ordinary tables, and whether they have no row numbers; an index of words is made again from its text."""
    rows = database.rows("SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table'")
    return [(name, bool(wr)) for name, wr in rows if name not in _OWN_TABLES and not name.startswith("sqlite_")]


def _columns(database: Database, table: str) -> list[str]:
    return [name for (name,) in try_rows(database, "SELECT name FROM pragma_table_info(?)", (table,)) or []]
