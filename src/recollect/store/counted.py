"""What was noticed and counted of a session that was evicted, as the ledger has it: nobody can count it again."""

from collections.abc import Callable, Iterable
from typing import Any

import apsw

from recollect.store.sqlite import Database
from recollect.store.tallies import ActivityRow, UseRow

Counted = dict[str, list[list[Any]]]  # rows by table

_KEY = "d.agent = ? AND d.native_session_id = ?"
_SIGNAL = ("signal", "ts_ms", "detail", "count", "evidence")
_DETAIL = _SIGNAL.index("detail")
_SIGNALS = "signals"
# The first two of each are its key; the others are sums.
_TALLIES = {"activity": ActivityRow._fields, "tool_use": UseRow._fields, "command_use": UseRow._fields}


def read_counted(memory: Database, session: tuple[str, str], *, is_sealed: bool = False) -> Counted:
    """All that is counted of a session; `is_sealed` leaves out what is counted from events that are held."""
    sealed = " AND t.is_sealed" if is_sealed else ""
    source = f"t JOIN digests d ON d.id = t.digest WHERE {_KEY}{sealed}"
    listed = ", ".join(f"t.{name}" for name in _SIGNAL)
    found = {_SIGNALS: memory.rows(f"SELECT {listed} FROM signals {source} ORDER BY t.id", session)}
    for table, columns in _TALLIES.items():
        sums = ", ".join(f"sum(t.{name})" for name in columns[2:])
        keys = ", ".join(f"t.{name}" for name in columns[:2])
        found[table] = memory.rows(f"SELECT {keys}, {sums} FROM {table} {source} GROUP BY 1, 2", session)
    return {table: [list(row) for row in rows] for table, rows in found.items()}


def redacted_counted(counted: Counted, changed_text: Callable[[str], str]) -> Counted:
    """The same with its texts changed: details, and names of models, tools and commands."""
    found = {_SIGNALS: [_with_text(row, _DETAIL, changed_text) for row in counted[_SIGNALS]]}
    for table in _TALLIES:
        found[table] = _summed(_with_text(row, 1, changed_text) for row in counted[table])
    return found


def _with_text(row: list[Any], place: int, changed_text: Callable[[str], str]) -> list[Any]:
    return [*row[:place], changed_text(row[place]), *row[place + 1 :]]


def _summed(rows: Iterable[list[Any]]) -> list[list[Any]]:
    """One row for each key: two names may have become the same."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for first, second, *sums in rows:
        key = (first, second)
        found[key] = list(map(_sum, found[key], sums)) if key in found else sums
    return [[*key, *sums] for key, sums in found.items()]


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one + (other or 0)


def restore_counted(connection: apsw.Connection, session: tuple[str, str], told: Counted) -> None:
    """Have what lasts of a session be what the ledger tells; one that was never sealed has it from its events."""
    for number, sealed in list(connection.execute(f"SELECT id, sealed FROM digests d WHERE {_KEY}", session)):
        is_counted = "SELECT 1 FROM activity WHERE digest = ? AND NOT is_sealed"
        if sealed is not None or connection.execute(is_counted, (number,)).get is None:
            for table, columns in (_TALLIES | {_SIGNALS: _SIGNAL}).items():
                _replace(connection, table, columns, number, told[table])


def _replace(
    connection: apsw.Connection, table: str, columns: tuple[str, ...], number: int, rows: list[list[Any]]
) -> None:
    connection.execute(f"DELETE FROM {table} WHERE digest = ? AND is_sealed", (number,))
    listed, marks = ", ".join(columns), ", ".join("?" * len(columns))
    insert = f"INSERT INTO {table} (digest, is_sealed, {listed}) VALUES (?, 1, {marks})"
    connection.executemany(insert, [(number, *row) for row in rows])
