"""What the ledger holds of an evicted session, because it cannot be made again: its row, its digest, its counts."""

from base64 import b64decode
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import apsw
import orjson

from recollect.kinds import SessionKey
from recollect.store.ledger import LedgerRecord
from recollect.store.sqlite.database import Database
from recollect.store.tables import declared
from recollect.store.tables.digest_rows import restore_digest
from recollect.store.tables.facts import NOTE
from recollect.store.tables.groups import BOOKMARK
from recollect.store.tables.session_rows import SessionRow
from recollect.store.tables.table import BY_DIGEST, MEMORY, Role, Table
from recollect.store.tables.texts import redacted

if TYPE_CHECKING:
    from recollect.store.tables.texts import Rules


KIND = "eviction"  # of the ledger's lines
_WITH_WORDS = (BOOKMARK, NOTE)

Counts = dict[str, list[list[Any]]]  # rows by table

_KEY = "agent = ? AND native_session_id = ?"


def key_of(record: LedgerRecord) -> SessionKey:
    return SessionKey(record.data["agent"], record.data["native_session_id"])


def _counted() -> list[Table]:
    """List the tables of what was noticed and counted of a session; rows that outlive the events are sealed."""
    tables = [table for table in declared(MEMORY) if table.owner is BY_DIGEST]
    return [table for table in tables if any(column.name == "is_sealed" for column in table.columns)]


def _columns(table: Table) -> tuple[str, ...]:
    """List the columns with content, in the order in which the ledger has them."""
    return tuple(column.name for column in table.columns if column.name not in ("id", "digest", "is_sealed"))


def read_counts(memory: Database, key: SessionKey, *, is_sealed: bool = False) -> Counts:
    """All that is counted of a session; `is_sealed` leaves out what is counted from events that are held."""
    sealed = " AND is_sealed" if is_sealed else ""
    counts = {}
    for table in _counted():
        columns = [f"sum({name})" if name in table.sums else name for name in _columns(table)]
        keys = [name for name in _columns(table) if name in table.key]
        group = f"GROUP BY {', '.join(keys)}" if table.sums else "ORDER BY rowid"
        sql = f"SELECT {', '.join(columns)} FROM {table.name} WHERE {BY_DIGEST}{sealed} {group}"
        counts[table.name] = [list(row) for row in memory.rows(sql, key)]
    return counts


def redact_data(record: LedgerRecord, rules: "Rules") -> dict[str, Any] | None:
    """A record's data with newer rules applied to its texts, as they are applied to the rows it restores."""
    data = record.data
    if record.kind in _WITH_WORDS:
        return {name: _text(rules, value) if isinstance(value, str) else value for name, value in data.items()}
    if record.kind != KIND:
        return None
    session = orjson.loads(_document(rules, orjson.dumps(data["session"]).decode()))
    digest = data["digest"]
    if digest is not None:
        texts = {name: _text(rules, digest[name]) for name in ("line", "text")}
        digest = digest | texts | {"digest": digest["digest"] and _document(rules, digest["digest"])}
    counts = {table.name: _redact_rows(rules, table, data["counted"].get(table.name, [])) for table in _counted()}
    return data | {"session": session, "digest": digest, "counted": data["counted"] | counts}


def _text(rules: "Rules", text: str) -> str:
    return rules.texts([text]).get(0, text)


def _document(rules: "Rules", document: str) -> str:
    return rules.payloads([document.encode()]).get(0, document.encode()).decode()


def _redact_rows(rules: "Rules", table: Table, rows: list[list[Any]]) -> list[list[Any]]:
    changed = [list(row) for row in rows]
    for index, name in enumerate(_columns(table)):
        role = table.role(name)
        if role is not Role.PLAIN:
            for number, value in redacted(rules, role, [row[index] for row in rows]):
                changed[number][index] = value
    return _add_up(table, changed) if table.sums and changed != rows else changed


def _add_up(table: Table, rows: Iterable[list[Any]]) -> list[list[Any]]:
    """One row for each key: two names may have become the same."""
    size = sum(name in table.key for name in _columns(table))
    totals: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        key, rest = tuple(row[:size]), row[size:]
        totals[key] = list(map(_sum, totals[key], rest)) if key in totals else rest
    return [[*key, *rest] for key, rest in totals.items()]


def _sum(first: Any, second: Any) -> Any:
    """Add two numbers; of two texts, return the first that is not empty."""
    if isinstance(first, str):
        return first or second
    return second if first is None else first + (second or 0)


def restore_eviction(connection: apsw.Connection, record: LedgerRecord) -> None:
    """Put back a session that only the ledger knows: its row, its digest, and what keeps it from coming back."""
    data, key = record.data, key_of(record)
    row = {name: value for name, value in data["session"].items() if name in (*SessionRow._fields, "analyzed_ms")}
    row["evicted_ms"] = data["at_ms"]
    listed = ", ".join(f'"{column}"' for column in row)
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT OR IGNORE INTO sessions ({listed}) VALUES ({marks})", list(row.values()))
    if data["digest"] is not None:
        restore_digest(connection, key, data["digest"])
        known = connection.execute(f"SELECT at_ms FROM evictions WHERE {_KEY}", key).get
        if known in (None, data["at_ms"]):  # else there are counts that are not sealed yet
            _restore_counts(connection, key, data["counted"])
    for loss in data["losses"]:
        note_loss(connection, key, data["session"]["session_uid"], loss)
    base = orjson.dumps(data["session"]).decode()
    connection.execute(
        "INSERT INTO evictions VALUES (?, ?, ?, ?, ?, ?, ?, NULL) ON CONFLICT DO UPDATE SET at_ms = excluded.at_ms,"
        " event_keys = excluded.event_keys, base = excluded.base WHERE excluded.at_ms > at_ms",
        (*key, data["at_ms"], data["reason"], data["bytes"], b64decode(data["event_keys"]), base),
    )


def _restore_counts(connection: apsw.Connection, key: SessionKey, counts: Counts) -> None:
    """Replace the sealed counts of a session by the ledger's; one that was never sealed is counted from its events."""
    for digest, sealed in list(connection.execute(f"SELECT id, sealed FROM digests WHERE {_KEY}", key)):
        is_counted = "SELECT 1 FROM activity WHERE digest = ? AND NOT is_sealed"
        if sealed is None and connection.execute(is_counted, (digest,)).get is not None:
            continue
        for table in _counted():
            connection.execute(f"DELETE FROM {table.name} WHERE digest = ? AND is_sealed", (digest,))
            columns = ("digest", "is_sealed", *_columns(table))
            sql = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES (?, 1{', ?' * (len(columns) - 2)})"
            connection.executemany(sql, [(digest, *row) for row in counts.get(table.name, ())])


def note_loss(connection: apsw.Connection, key: SessionKey, session_uid: str, loss: tuple[int, str, int]) -> None:
    """Note once what was lost of a session: when, which event, bytes."""
    at_ms, event, size = loss
    connection.execute(
        "INSERT INTO retention_events (at_ms, event, agent, native_session_id, session_uid, bytes)"
        " SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT EXISTS (SELECT 1 FROM retention_events"
        " WHERE at_ms = ?1 AND event = ?2 AND agent = ?3 AND native_session_id = ?4)",
        (at_ms, event, *key, session_uid, size),
    )
