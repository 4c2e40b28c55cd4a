"""What was noticed and counted of a session that was evicted, as the ledger has it: nobody can count it again."""

from typing import Any

import apsw

from recollect.store.sqlite import Database
from recollect.store.tallies import ActivityRow, UseRow

Counted = dict[str, list[list[Any]]]  # rows by table

_KEY = "d.agent = ? AND d.native_session_id = ?"
_SIGNAL = ("signal", "ts_ms", "detail", "count", "evidence")
DETAIL = _SIGNAL.index("detail")
SIGNALS = "signals"
# The first two of each are its key; the others are sums.
_TALLIES = {"activity": ActivityRow._fields, "tool_use": UseRow._fields, "command_use": UseRow._fields}


def read_counted(memory: Database, session: tuple[str, str], *, is_sealed: bool = False) -> Counted:
    """All that is counted of a session; `is_sealed` leaves out what is counted from events that are held."""
    sealed = " AND t.is_sealed" if is_sealed else ""
    source = f"t JOIN digests d ON d.id = t.digest WHERE {_KEY}{sealed}"
    found = {
        SIGNALS: memory.rows(f"SELECT {', '.join(f't.{name}' for name in _SIGNAL)} FROM signals {source}", session)
    }
    for table, columns in _TALLIES.items():
        sums = ", ".join(f"sum(t.{name})" for name in columns[2:])
        keys = ", ".join(f"t.{name}" for name in columns[:2])
        found[table] = memory.rows(f"SELECT {keys}, {sums} FROM {table} {source} GROUP BY 1, 2", session)
    return {table: [list(row) for row in rows] for table, rows in found.items()}


def restore_counted(connection: apsw.Connection, session: tuple[str, str], told: Counted) -> None:
    """Put back, as lasting, what a session's digest lacks of it; one that was never sealed has it from its events."""
    for number, sealed in list(connection.execute(f"SELECT id, sealed FROM digests d WHERE {_KEY}", session)):
        is_counted = "SELECT 1 FROM activity WHERE digest = ? AND NOT is_sealed"
        if sealed is not None or connection.execute(is_counted, (number,)).get is None:
            _restore(connection, number, told)


def _restore(connection: apsw.Connection, digest: int, told: Counted) -> None:
    for table, columns in _TALLIES.items():
        listed, marks = ", ".join(columns), ", ".join("?" * len(columns))
        connection.executemany(
            f"INSERT OR IGNORE INTO {table} (digest, is_sealed, {listed}) VALUES (?, 1, {marks})",
            [(digest, *row) for row in told.get(table, ())],
        )
    connection.executemany(
        f"INSERT INTO signals (digest, is_sealed, {', '.join(_SIGNAL)}) SELECT ?1, 1, ?2, ?3, ?4, ?5, ?6"
        " WHERE NOT EXISTS (SELECT 1 FROM signals WHERE digest = ?1 AND signal = ?2 AND ts_ms IS ?3 AND detail = ?4)",
        [(digest, *row) for row in told.get(SIGNALS, ())],
    )
