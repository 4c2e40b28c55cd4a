"""Rows of memory.db that outlive it: what an export carries of a session, and what the ledger's records restore.

Each kind of record has its function. It changes nothing that exists already, so it may run at any time.
"""

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import apsw
import orjson

from recollect.model.errors import StoreDamaged
from recollect.model.kinds import SessionKey
from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.payloads.packs import ADVICE
from recollect.store.sqlite.database import Database
from recollect.store.tables import declared
from recollect.store.tables.activity import renewed
from recollect.store.tables.copies import COPY, restore_copy_record
from recollect.store.tables.digest_rows import restore_digest
from recollect.store.tables.evictions import EVICTION, Counts, counted, evicted_session, note_loss
from recollect.store.tables.facts import NOTE, VERDICT, restore_note, restore_verdict
from recollect.store.tables.groups import BOOKMARK, GROUP, restore_bookmark, restore_group
from recollect.store.tables.session_rows import SESSIONS, SessionRow
from recollect.store.tables.table import MEMORY, OWNER_KEYS, PRIMARY_KEY, Column, Role, Table
from recollect.store.tables.texts import hashes_of, redacted
from recollect.store.tables.tombstones import TOMBSTONE, restore_tombstone

if TYPE_CHECKING:
    from recollect.redact import Redactor
    from recollect.store.tables.texts import Rules


_KEY = "agent = ? AND native_session_id = ?"

Row = tuple[str, dict[str, Any]]  # table, and values by column as JSON holds them

_JSON_TYPES: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "REAL": (int, float), "TEXT": (str,), "BLOB": (str,)}


class Lasting:
    """The exported rows of a store."""

    def __init__(self, memory: Database, ledger: Ledger) -> None:
        self._memory = memory
        self._ledger = ledger

    def iter_rows(self, key: SessionKey, *, with_derived: bool = True) -> Iterator[Row]:
        """Yield the rows of a session, parts of its digest last; what a sweep derives from events can be left out."""
        for table in _exported():
            if _is_derived(table) and not with_derived:
                continue
            columns = [column.name for column in _columns(table)]
            names = [*columns, *(column.name for column in table.columns if column.hash_of)]
            listed = ", ".join(f'"{name}"' for name in names)
            for values in self._memory.rows(f"SELECT {listed} FROM {table.name} WHERE {table.owner}", key):
                row = dict(zip(names, values, strict=True))
                if any(row[name] != value for name, value in hashes_of(table, row).items()):
                    raise StoreDamaged(f"A row of {table.name} is damaged: {':'.join(key)}", ADVICE)
                yield table.name, {name: _to_json(row[name]) for name in columns}

    def put(self, key: SessionKey, rows: Iterable[Row]) -> None:
        """Store a session's rows as `iter_rows` gave them; raises ValueError for one that was never written like that.

        A table that holds rows of the session keeps them; a session that is known keeps all that was derived of it.
        """
        tables = {table.name: table for table in _exported()}
        known_tables = [(name, values) for name, values in rows if name in tables]  # others are of a newer version
        new = sorted(known_tables, key=lambda row: tables[row[0]].is_part)
        with self._memory.transaction() as connection:
            any_row = "SELECT 1 FROM {0.name} WHERE {0.owner} LIMIT 1"
            held = {name for name, table in tables.items() if connection.execute(any_row.format(table), key).get}
            if SESSIONS.name in held:
                held |= {name for name, table in tables.items() if _is_derived(table)}
            for name, values in new:
                if name not in held:
                    _insert(connection, tables[name], key, values)

    def redact_records(self, rules: "Rules", of: SessionKey | None = None) -> bool:
        """Apply rules to the words that the ledger holds, or holds of an evicted session; say whether any changed."""

        def change(record: LedgerRecord) -> dict[str, Any] | None:
            is_other = of is not None and (record.kind != EVICTION or evicted_session(record) != of)
            return None if is_other else _redact_data(record, rules)

        return self._ledger.update(change)


def redact_rows(redactor: "Redactor", rows: Iterable[Row]) -> Iterator[Row]:
    """Rows as another store gave them, without what this one's rules call a secret."""
    tables = {table.name: table for table in _exported()}
    for name, values in rows:
        columns = _columns(tables[name]) if name in tables else []
        changes = {
            column.name: value
            for column in columns
            if column.role is not Role.PLAIN and values.get(column.name) is not None
            for _, value in redacted(redactor, column.role, [_from_json(column, values[column.name])])
        }
        yield name, values | {column: _to_json(value) for column, value in changes.items()}


def _exported() -> list[Table]:
    tables = [table for table in declared(MEMORY) if table.is_exported and table.owner in OWNER_KEYS]
    return sorted(tables, key=lambda table: table.is_part)


def _is_derived(table: Table) -> bool:
    return table.is_derived or table.is_part


def _columns(table: Table) -> list[Column]:
    """All but its key, which the session gives, row numbers, which differ by store, and hashes, which are made."""
    key = OWNER_KEYS[table.owner]
    return [
        column
        for column in table.columns
        if not column.constraint.startswith(PRIMARY_KEY) and column.hash_of is None and column.name not in key
    ]


def _insert(connection: apsw.Connection, table: Table, key: SessionKey, values: dict[str, Any]) -> None:
    values = renewed(values)
    row = {column.name: _from_json(column, values[column.name]) for column in _columns(table) if column.name in values}
    row |= hashes_of(table, row)
    owner: tuple[Any, ...] = key
    if table.is_part:
        digest = connection.execute("SELECT id FROM digests WHERE agent = ? AND native_session_id = ?", key).get
        if digest is None:
            return
        owner = (digest,)
    row |= dict(zip(OWNER_KEYS[table.owner], owner, strict=True))
    listed = ", ".join(f'"{name}"' for name in row)
    connection.execute(f"INSERT INTO {table.name} ({listed}) VALUES ({', '.join('?' * len(row))})", list(row.values()))


def _to_json(value: Any) -> Any:
    return b64encode(value).decode() if isinstance(value, bytes) else value


def _from_json(column: Column, value: Any) -> Any:
    if value is None and column.is_optional:
        return None
    if type(value) not in _JSON_TYPES[column.type]:
        raise ValueError(f"not a value of {column.name}: {value!r}")
    if column.role is Role.DOCUMENT:
        orjson.loads(value)
    return b64decode(value) if column.type == "BLOB" else value


def _redact_data(record: LedgerRecord, rules: "Rules") -> dict[str, Any] | None:
    """A record's data with newer rules applied to its texts, as they are applied to the rows it restores."""
    data = record.data
    if record.kind in (BOOKMARK, NOTE):
        return {
            name: _changed(rules, Role.TEXT, value) if isinstance(value, str) else value for name, value in data.items()
        }
    if record.kind != EVICTION:
        return None
    session = orjson.loads(_changed(rules, Role.DOCUMENT, orjson.dumps(data["session"]).decode()))
    digest = data["digest"]
    if digest is not None:
        texts = {name: _changed(rules, Role.TEXT, digest[name]) for name in ("line", "text")}
        digest = digest | texts | {"digest": digest["digest"] and _changed(rules, Role.DOCUMENT, digest["digest"])}
    counts = {
        table.name: _redact_rows(rules, table, names, data["counted"].get(table.name, [])) for table, names in counted()
    }
    return data | {"session": session, "digest": digest, "counted": data["counted"] | counts}


def _changed(rules: "Rules", role: Role, text: str) -> str:
    return next((new for _, new in redacted(rules, role, [text])), text)


def _redact_rows(rules: "Rules", table: Table, columns: Sequence[str], rows: list[list[Any]]) -> list[list[Any]]:
    changed = [list(row) for row in rows]
    for index, name in enumerate(columns):
        role = table.role(name)
        if role is not Role.PLAIN:
            for number, value in redacted(rules, role, [row[index] for row in rows]):
                changed[number][index] = value
    return changed


def _restore_eviction(connection: apsw.Connection, record: LedgerRecord) -> None:
    """Put back a session that only the ledger knows: its row, its digest, and what keeps it from coming back."""
    data, key = record.data, evicted_session(record)
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
        for table, names in counted():
            connection.execute(f"DELETE FROM {table.name} WHERE digest = ? AND is_sealed", (digest,))
            # Redaction may have made two names the same.
            sums = f" ON CONFLICT DO UPDATE SET {table.adding}" if table.sums else ""
            columns = ", ".join(("digest", "is_sealed", *names))
            sql = f"INSERT INTO {table.name} ({columns}) VALUES (?, 1{', ?' * len(names)}){sums}"
            connection.executemany(sql, [(digest, *row) for row in counts.get(table.name, ())])


RESTORERS: dict[str, Callable[[apsw.Connection, LedgerRecord], None]] = {
    COPY: restore_copy_record,
    TOMBSTONE: restore_tombstone,
    EVICTION: _restore_eviction,
    VERDICT: restore_verdict,
    NOTE: restore_note,
    GROUP: restore_group,
    BOOKMARK: restore_bookmark,
}

# What stays true when an older state of the store is put back: a restored one takes it over.
OUTLIVES_RESTORE = frozenset({TOMBSTONE, COPY, VERDICT, NOTE})


def restore_records(connection: apsw.Connection, records: Iterable[LedgerRecord]) -> Counter[str]:
    """Put records of the ledger back as rows; how many of each kind. Kinds of a newer version stay in the ledger."""
    restored: Counter[str] = Counter()
    for record in records:
        if record.kind in RESTORERS:
            RESTORERS[record.kind](connection, record)
            restored[record.kind] += 1
    return restored


def missing_records(ledger: Ledger, rows: Iterable[Row]) -> list[Row]:
    """Return those of the rows, each given as the kind and data of a line of the ledger, that have none there."""
    known = {_subject(record.kind, record.data) for record in ledger.records()}
    return [(kind, data) for kind, data in rows if _subject(kind, data) not in known]


def _subject(kind: str, data: dict[str, Any]) -> tuple[str | None, ...]:
    """Return what a record is about: a session, the path of a copy, a group and its part in it, a fact, a note."""
    names = ("agent", "native_session_id", "path", "group", "fact_uid", "note_uid")
    return kind, *map(data.get, names)
