"""Tier 2: digests with their full text, and signals, as declared and written: durable, small, never dropped by itself.

`digests` reads them.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import orjson

from recollect.model.clock import as_ms
from recollect.model.kinds import SessionKey
from recollect.store.sqlite.database import Database
from recollect.store.tables import declared
from recollect.store.tables.activity import ActivityRow, UseRow, drop_activity, put_activity, seal_activity
from recollect.store.tables.digests import Digests
from recollect.store.tables.facts import (
    ExchangeRow,
    FactRow,
    drop_facts,
    put_exchanges,
    put_fact_words,
    put_facts,
    seal_facts,
)
from recollect.store.tables.table import (
    BY_DIGEST,
    BY_DIGEST_ROWID,
    BY_SESSION,
    KEYS,
    MEMORY,
    PARTS_OF_DIGEST,
    Table,
    column,
    drop_rows,
    hash_of,
    json_keys,
)

if TYPE_CHECKING:
    from recollect.model.schema import Signal


# `sealed` is the digest as it was when raw was last dropped: held events extend it. `checked_by` is the distiller that
# looked last; `digest` is NULL where a line in the root's digest is enough.
DIGESTS = Table(
    "digests",
    MEMORY,
    (
        column.row_number("id"),
        *column.plain("agent", "native_session_id"),
        *column.numbers("ingested_ms?", "checked_by", "event_count"),
        *column.plain("last_event_uid?", "outcome"),
        *column.reals("confidence"),
        *column.texts("line"),
        *column.numbers("raw_tokens", "kept_tokens"),
        *column.documents("digest?"),
        column.hash_of("digest", "digest_hash"),
        *column.documents("sealed?"),
        *column.numbers("made_ms"),
    ),
    owner=BY_SESSION,
    unique=("agent", "native_session_id"),
    is_exported=True,
    is_derived=True,
    extras=("CREATE INDEX digests_by_distiller ON digests (checked_by)",),
)

DIGEST_TEXT = Table(
    "digest_text",
    MEMORY,
    (*column.texts("text"),),
    owner=BY_DIGEST_ROWID,
    is_exported=True,
    tokenizer="unicode61 remove_diacritics 2",
    extras=("INSERT INTO digest_text (digest_text, rank) VALUES ('secure-delete', 1)",),
)

SIGNALS = Table(
    "signals",
    MEMORY,
    (
        column.row_number("id"),
        *column.numbers("digest", "is_sealed"),
        *column.plain("signal"),
        *column.numbers("ts_ms?"),
        *column.texts("detail"),
        *column.numbers("count"),
        *column.documents("evidence"),
    ),
    owner=BY_DIGEST,
    is_exported=True,
    extras=(
        "CREATE INDEX signals_by_digest ON signals (digest)",
        "CREATE INDEX signals_by_time ON signals (signal, ts_ms)",
    ),
)


class Pending(NamedTuple):
    """A session whose digest is missing, older than what is known of it, or made by another distiller.

    `sealed` is the digest, `sealed_line` the line, of what was dropped of it. `is_lost`: a part of it was dropped that
    neither tells of.
    """

    agent: str
    native_session_id: str
    session_uid: str
    root_session_uid: str
    parent_session_uid: str | None
    session_class: str
    title: str | None
    cwd: str | None
    started_ms: int | None
    ended_ms: int | None
    ingested_ms: int | None
    event_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    usd: float | None
    usd_is_estimate: int
    sealed: str | None
    sealed_line: str | None
    is_lost: int

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.agent, self.native_session_id)


class DigestRow(NamedTuple):
    """A session's digest with all that goes with it, ready to be stored. `digest` is None for a tiny sub-agent."""

    agent: str
    native_session_id: str
    ingested_ms: int | None
    distiller: int
    event_count: int
    last_event_uid: str | None
    outcome: str
    confidence: float
    line: str
    raw_tokens: int
    kept_tokens: int
    digest: bytes | None
    text: str
    signals: "Sequence[Signal]"
    activity: Sequence[ActivityRow]
    tools: Sequence[UseRow]
    commands: Sequence[UseRow]
    facts: Sequence[FactRow]
    exchanges: Sequence[ExchangeRow]

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.agent, self.native_session_id)


_PENDING = ", ".join(f"s.{name}" for name in Pending._fields[:-3])
_DROPPED = (
    "d.sealed, iif(s.evicted_ms IS NULL, NULL, nullif(d.line, '')), s.evicted_ms IS NOT NULL AND EXISTS"
    " (SELECT 1 FROM retention_events e WHERE e.event = 'data_loss' AND e.agent = s.agent"
    " AND e.native_session_id = s.native_session_id)"
)
_KEY = "agent = ? AND native_session_id = ?"


_TO_DISTIL = (
    "sessions s LEFT JOIN digests d ON d.agent = s.agent AND d.native_session_id = s.native_session_id"
    " WHERE (d.id IS NULL OR d.checked_by <> ? OR d.ingested_ms IS NOT s.ingested_ms)"
)


class DigestRows:
    """The digests and signals of a store, for the steps that make and keep them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pending(self, distiller: int, keys: Collection[SessionKey] | None = None) -> list[Pending]:
        """Sessions to distil, all or of these: the household with the oldest activity first, sub-agents before their
        root."""
        order = (
            " ORDER BY coalesce((SELECT max(r.ended_ms) FROM sessions r WHERE r.session_uid = s.root_session_uid),"
            " s.ended_ms), s.root_session_uid, s.parent_session_uid IS NULL, s.ended_ms, s.session_uid"
        )
        if keys is None:
            rows = self._database.rows(f"SELECT {_PENDING}, {_DROPPED} FROM {_TO_DISTIL}{order}", (distiller,))
        else:
            chosen = f"{KEYS}SELECT {_PENDING}, {_DROPPED} FROM keys CROSS JOIN {_TO_DISTIL}"
            chosen += " AND s.agent = keys.agent AND s.native_session_id = keys.native_id"
            rows = self._database.rows(f"{chosen}{order}", (json_keys(keys), distiller))
        return [Pending(*row) for row in rows]

    def has_outdated(self, distiller: int) -> bool:
        """Check whether any session was never distilled, or last looked at by another distiller."""
        sql = (
            "SELECT 1 FROM sessions WHERE analyzed_ms IS NULL AND evicted_ms IS NULL"
            " UNION ALL SELECT 1 FROM digests WHERE checked_by < ?1"
            " UNION ALL SELECT 1 FROM digests WHERE checked_by > ?1 LIMIT 1"
        )
        return self._database.value(sql, (distiller,)) is not None

    def put(self, rows: Sequence[DigestRow], at_ms: int) -> int:
        """Store digests with signals, activity and outcomes in one durable transaction; return how many were kept back.

        A digest that covers less than the stored one does not replace it. `analyzed_ms` keeps its first value.
        """
        with self._database.transaction() as connection:
            known = _known(connection, [row.key for row in rows])
            kept_back = [row for row in rows if known.get(row.key, _NO_DIGEST).event_count > row.event_count]
            for row in kept_back:
                connection.execute(
                    "UPDATE digests SET ingested_ms = ?, checked_by = ? WHERE id = ?",
                    (row.ingested_ms, row.distiller, known[row.key].id),
                )
            new = [row for row in rows if row not in kept_back] if kept_back else rows
            _replace(connection, new, known, at_ms)
            outcomes = [(row.outcome, at_ms, *row.key) for row in new]
            outcomes += [(known[row.key].outcome, at_ms, *row.key) for row in kept_back]
            connection.executemany(
                f"UPDATE sessions SET outcome = ?, analyzed_ms = coalesce(analyzed_ms, ?) WHERE {_KEY}", outcomes
            )
        return len(kept_back)

    def set_checked(self, sessions: Sequence[tuple[str, str]], distiller: int) -> None:
        """Note that nothing is held of these sessions from which a newer distiller could make a digest."""
        if not sessions:
            return
        self._database.write_all(
            "UPDATE digests SET checked_by = ?, ingested_ms = (SELECT s.ingested_ms FROM sessions s WHERE"
            " s.agent = digests.agent AND s.native_session_id = digests.native_session_id)"
            f" WHERE {_KEY}",
            [(distiller, *session) for session in sessions],
        )

    def cover_less(self, fewer: Mapping[tuple[str, str], int]) -> None:
        """Let a digest of so many events less replace those of these sessions; a sealed one stays what it is."""
        self._database.write_all(
            f"UPDATE digests SET event_count = max(0, event_count - ?) WHERE {_KEY} AND sealed IS NULL",
            [(count, *name) for name, count in fewer.items()],
        )

    def set_outdated(self, agent: str, native_id: str) -> bool:
        """Mark a digest to be made anew from its events; False if not all of them are held any more."""
        with self._database.transaction() as connection:
            connection.execute(f"UPDATE digests SET checked_by = 0 WHERE {_KEY} AND sealed IS NULL", (agent, native_id))
            return bool(connection.changes())

    def lines(self, roots: Sequence[str]) -> dict[str, dict[str, tuple[int, str]]]:
        """Return when each sub-agent of these roots began, and its line, by root and session."""
        rows = self._database.rows(
            "SELECT s.root_session_uid, s.session_uid, coalesce(s.started_ms, 0), d.line"
            " FROM json_each(?) r CROSS JOIN sessions s ON s.root_session_uid = r.value"
            " JOIN digests d USING (agent, native_session_id) WHERE d.line <> ''",
            (orjson.dumps(roots).decode(),),
        )
        lines: dict[str, dict[str, tuple[int, str]]] = {}
        for root, uid, started_ms, line in rows:
            lines.setdefault(root, {})[uid] = (started_ms, line)
        return lines

    def read_back(self, agent: str, native_id: str) -> dict[str, Any] | None:
        """Return all columns of a session's digest after a look at its hash, and the words it is found by.

        None if it was never distilled; raises StoreDamaged if the digest is not what was written.
        """
        Digests(self._database).find(SessionKey(agent, native_id))
        columns = ", ".join(_LASTING)
        sql = f"SELECT id, {columns} FROM digests WHERE {_KEY}"
        for number, *values in self._database.rows(sql, (agent, native_id)):
            text = self._database.value("SELECT text FROM digest_text WHERE rowid = ?", (number,))
            return dict(zip(_LASTING, values, strict=True)) | {"text": text or ""}
        return None


def drop_digests(connection: apsw.Connection, sessions: Sequence[tuple[str, str]]) -> None:
    """Delete all that was distilled of sessions (agent, native id), sealed or not."""
    parts = [table for table in declared(MEMORY) if table.owner in PARTS_OF_DIGEST]
    drop_rows(connection, [*parts, DIGESTS], [SessionKey(*session) for session in sessions])


def seal_digest(connection: apsw.Connection, session: tuple[str, str], *, is_sealed: bool = True) -> bool:
    """Make a digest last beyond its events; or not, when they are read again. False if there is none.

    One that is no longer sealed stays as it is until it is made anew.
    """
    for (number,) in list(connection.execute(f"SELECT id FROM digests WHERE {_KEY}", session)):
        connection.execute("UPDATE digests SET sealed = iif(?, digest, NULL) WHERE id = ?", (is_sealed, number))
        connection.execute("UPDATE signals SET is_sealed = ? WHERE digest = ?", (is_sealed, number))
        seal_facts(connection, number, is_sealed=is_sealed)
        seal_activity(connection, number, is_sealed=is_sealed)
        return True
    return False


def restore_digest(connection: apsw.Connection, session: tuple[str, str], record: dict[str, Any]) -> None:
    """Put a digest back as `read_back` gave it, sealed, if the session has none, and its words if they are lost."""
    for number, digest in list(connection.execute(f"SELECT id, digest FROM digests WHERE {_KEY}", session)):
        has_words = connection.execute("SELECT 1 FROM digest_text WHERE rowid = ?", (number,)).get is not None
        if digest == record["digest"] is not None and not has_words:
            connection.execute("INSERT INTO digest_text (rowid, text) VALUES (?, ?)", (number, record["text"]))
        return
    names = ("agent", "native_session_id", *_LASTING, "digest_hash", "sealed")
    digest = record["digest"]
    values = (*session, *(record[name] for name in _LASTING), digest and hash_of(digest.encode()), digest)
    connection.execute(f"INSERT INTO digests ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", values)
    if digest is not None:
        number = connection.last_insert_rowid()
        connection.execute("INSERT INTO digest_text (rowid, text) VALUES (?, ?)", (number, record["text"]))


_VALUES = tuple(one.name for one in DIGESTS.columns if one.name not in ("id", "sealed"))
# What is written into the ledger of a digest; its hash follows from it.
_LASTING = tuple(name for name in _VALUES[2:] if name != "digest_hash")


class _Known(NamedTuple):
    id: int
    event_count: int
    outcome: str


_NO_DIGEST = _Known(0, 0, "")


def _known(connection: apsw.Connection, keys: Collection[SessionKey]) -> dict[SessionKey, _Known]:
    """Return the stored digests of these sessions, as far as they have any."""
    rows = connection.execute(
        f"{KEYS}SELECT agent, native_id, d.id, d.event_count, d.outcome FROM keys CROSS JOIN digests d USING (agent)"
        " WHERE d.native_session_id = keys.native_id",
        (json_keys(keys),),
    )
    return {SessionKey(agent, native_id): _Known(*rest) for agent, native_id, *rest in rows}


def _replace(
    connection: apsw.Connection, rows: Sequence[DigestRow], known: Mapping[SessionKey, _Known], at_ms: int
) -> None:
    """Write digests, some of which take the place of known ones: those keep their numbers, and what is sealed."""
    replaced = [(known[row.key].id,) for row in rows if row.key in known]
    connection.executemany("DELETE FROM digest_text WHERE rowid = ?", replaced)
    connection.executemany("DELETE FROM signals WHERE digest = ? AND NOT is_sealed", replaced)
    drop_facts(connection, replaced)
    for (number,) in replaced:
        drop_activity(connection, number)
    last = int(connection.execute("SELECT coalesce(max(id), 0) FROM digests").get)
    numbers = count(last + 1)
    numbered = [(known[row.key].id if row.key in known else next(numbers), row) for row in rows]
    names = ("id", *_VALUES)
    updates = ", ".join(f"{name} = excluded.{name}" for name in _VALUES)
    connection.executemany(
        f"INSERT INTO digests ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        f" ON CONFLICT (id) DO UPDATE SET {updates}",
        [
            (number, *row[:11], row.digest and row.digest.decode(), row.digest and hash_of(row.digest), at_ms)
            for number, row in numbered
        ],
    )
    connection.executemany(
        "INSERT INTO signals (digest, is_sealed, signal, ts_ms, detail, count, evidence) VALUES (?, 0, ?, ?, ?, ?, ?)",
        [
            (
                number,
                one.signal,
                None if one.ts is None else as_ms(one.ts),
                one.detail,
                one.count,
                orjson.dumps(one.evidence).decode(),
            )
            for number, row in numbered
            for one in row.signals
        ],
    )
    for number, row in numbered:
        put_activity(connection, number, row.activity, row.tools, row.commands)
    put_exchanges(connection, [(number, row.exchanges) for number, row in numbered])
    put_facts(connection, [(number, row.facts) for number, row in numbered], at_ms)
    # Last: any upsert makes the index flush what it has gathered.
    connection.executemany(
        "INSERT INTO digest_text (rowid, text) VALUES (?, ?)",
        [(number, row.text) for number, row in numbered if row.digest is not None],
    )
    put_fact_words(connection, [number for number, _ in numbered])
