"""Tier 2: digests with their full text, and signals. Durable, small, never dropped by itself."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.clock import now_ms, rfc3339
from recollect.errors import StoreDamaged
from recollect.schema import Signal
from recollect.store.sqlite import Database
from recollect.store.tallies import ActivityRow, UseRow, put_tallies, seal_tallies, unseal_tallies


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
    signals: Sequence[Signal]
    activity: Sequence[ActivityRow]
    tools: Sequence[UseRow]
    commands: Sequence[UseRow]


class Saved(NamedTuple):
    """What filtering saves over all sessions, in tokens, and how many of them are distilled."""

    sessions: int
    raw_tokens: int
    kept_tokens: int


_PENDING = ", ".join(f"s.{name}" for name in Pending._fields[:-3])
_DROPPED = (
    "d.sealed, iif(s.evicted_ms IS NULL, NULL, nullif(d.line, '')), s.evicted_ms IS NOT NULL AND EXISTS"
    " (SELECT 1 FROM retention_events e WHERE e.event = 'data_loss' AND e.agent = s.agent"
    " AND e.native_session_id = s.native_session_id)"
)
_KEY = "agent = ? AND native_session_id = ?"


_TO_DISTIL = (
    "FROM sessions s LEFT JOIN digests d USING (agent, native_session_id)"
    " WHERE d.id IS NULL OR d.checked_by <> ? OR d.ingested_ms IS NOT s.ingested_ms"
)


class Digests:
    """The digests and signals of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pending(self, distiller: int) -> list[Pending]:
        """Sessions to distil: the household with the oldest activity first, sub-agents before their root."""
        rows = self._database.rows(
            f"SELECT {_PENDING}, {_DROPPED} {_TO_DISTIL}"
            " ORDER BY coalesce((SELECT max(r.ended_ms) FROM sessions r WHERE r.session_uid = s.root_session_uid),"
            " s.ended_ms), s.root_session_uid, s.parent_session_uid IS NULL, s.ended_ms, s.session_uid",
            (distiller,),
        )
        return [Pending(*row) for row in rows]

    def has_pending(self, distiller: int) -> bool:
        return self._database.value(f"SELECT 1 {_TO_DISTIL} LIMIT 1", (distiller,)) is not None

    def put(self, rows: Iterable[DigestRow]) -> int:
        """Store digests with signals, tallies and outcomes in one durable transaction; return how many were kept back.

        A digest that covers less than the stored one does not replace it. `analyzed_ms` keeps its first value.
        """
        kept_back = 0
        at_ms = now_ms()
        with self._database.transaction() as connection:
            for row in rows:
                kept_back += not _put(connection, row, at_ms)
        return kept_back

    def set_checked(self, sessions: Sequence[tuple[str, str]], distiller: int) -> None:
        """Note that nothing is held of these sessions from which a newer distiller could make a digest."""
        if not sessions:
            return
        with self._database.transaction() as connection:
            connection.executemany(
                "UPDATE digests SET checked_by = ?, ingested_ms = (SELECT s.ingested_ms FROM sessions s WHERE"
                " s.agent = digests.agent AND s.native_session_id = digests.native_session_id)"
                f" WHERE {_KEY}",
                [(distiller, *session) for session in sessions],
            )

    def cover_less(self, fewer: Mapping[tuple[str, str], int]) -> None:
        """Have one with so many events less be as good for these sessions; a sealed one stays what it is."""
        with self._database.transaction() as connection:
            connection.executemany(
                f"UPDATE digests SET event_count = max(0, event_count - ?) WHERE {_KEY} AND sealed IS NULL",
                [(count, *name) for name, count in fewer.items()],
            )

    def set_outdated(self, agent: str, native_id: str) -> bool:
        """Have a digest made anew from its events; False if not all of them are held any more."""
        with self._database.transaction() as connection:
            connection.execute(f"UPDATE digests SET checked_by = 0 WHERE {_KEY} AND sealed IS NULL", (agent, native_id))
            return bool(connection.changes())

    def find(self, agent: str, native_id: str) -> bytes | None:
        """A session's digest as JSON, checked against its hash; None if it has none of its own."""
        rows = self._database.rows(
            f"SELECT digest, digest_hash FROM digests WHERE {_KEY} AND digest IS NOT NULL", (agent, native_id)
        )
        if not rows:
            return None
        text, told = rows[0]
        raw = text.encode()
        if hash_of(raw) != told:
            raise StoreDamaged(
                f"A digest is not what was written: {agent}:{native_id}", "`recollect doctor` says what can be done"
            )
        return bytes(raw)

    def dropped_requests(self, agent: str, native_id: str) -> int:
        """How many requests of a session were dropped, as far as its digest tells."""
        sql = f"SELECT sealed ->> '$.request_count' FROM digests WHERE {_KEY}"
        return int(self._database.value(sql, (agent, native_id)) or 0)

    def lines(self, root_session_uid: str) -> dict[str, tuple[int, str]]:
        """When each sub-agent of a root began, and its line, by session."""
        rows = self._database.rows(
            "SELECT s.session_uid, coalesce(s.started_ms, 0), d.line FROM sessions s"
            " JOIN digests d USING (agent, native_session_id)"
            " WHERE s.root_session_uid = ? AND d.line <> ''",
            (root_session_uid,),
        )
        return {uid: (started_ms, line) for uid, started_ms, line in rows}

    def read_back(self, agent: str, native_id: str) -> dict[str, Any] | None:
        """All columns of a session's digest after a look at its hash, and the words it is found by.

        None if it was never distilled; raises StoreDamaged if the digest is not what was written.
        """
        self.find(agent, native_id)
        columns = ", ".join(_LASTING)
        sql = f"SELECT id, {columns} FROM digests WHERE {_KEY}"
        for number, *values in self._database.rows(sql, (agent, native_id)):
            text = self._database.value("SELECT text FROM digest_text WHERE rowid = ?", (number,))
            return dict(zip(_LASTING, values, strict=True)) | {"text": text or ""}
        return None

    def put_back(self, told: dict[tuple[str, str], dict[str, Any]]) -> None:
        """Store digests as `read_back` gave them, of sessions that have none here."""
        with self._database.transaction() as connection:
            for session, digest in told.items():
                restore_digest(connection, session, digest)

    def signals(
        self, session: tuple[str, str] | None = None, signal: str | None = None, since_ms: int | None = None
    ) -> list[Signal]:
        """Signals of one session or of all, oldest first."""
        tests: list[tuple[str, Any]] = [("g.signal = ?", signal), ("g.ts_ms >= ?", since_ms)]
        if session is not None:
            tests += [("d.agent = ?", session[0]), ("d.native_session_id = ?", session[1])]
        used = [(test, value) for test, value in tests if value is not None]
        where = f" WHERE {' AND '.join(test for test, _ in used)}" if used else ""
        rows = self._database.rows(
            "SELECT s.session_uid, g.signal, g.ts_ms, g.detail, g.count, g.evidence FROM signals g"
            " JOIN digests d ON d.id = g.digest JOIN sessions s USING (agent, native_session_id)"
            f"{where} ORDER BY coalesce(g.ts_ms, 0), s.session_uid, g.id",
            [value for _, value in used],
        )
        return [
            Signal(uid, name, rfc3339(ts_ms), detail, count, tuple(orjson.loads(evidence)))
            for uid, name, ts_ms, detail, count, evidence in rows
        ]

    def matching(self, query: str, limit: int) -> list[tuple[str, str]]:
        """Agent and native id of sessions whose digests match a full-text query, best first."""
        rows = self._database.rows(
            "SELECT d.agent, d.native_session_id FROM digest_text t JOIN digests d ON d.id = t.rowid"
            " WHERE digest_text MATCH ? ORDER BY t.rank LIMIT ?",
            (query, limit),
        )
        return [(agent, native_id) for agent, native_id in rows]

    def saved(self) -> Saved:
        rows = self._database.rows(
            "SELECT count(*), coalesce(sum(raw_tokens), 0), coalesce(sum(kept_tokens), 0) FROM digests"
        )
        return Saved(*rows[0])

    def size_bytes(self) -> int:
        """Bytes of all digests as they are stored, without their full text."""
        return int(self._database.value("SELECT coalesce(sum(octet_length(digest)), 0) FROM digests"))


def drop_digests(connection: apsw.Connection, sessions: Sequence[tuple[str, str]]) -> None:
    """Delete all that was distilled of sessions (agent, native id), sealed or not."""
    for session in sessions:
        for (number,) in list(connection.execute(f"SELECT id FROM digests WHERE {_KEY}", session)):
            for table in ("signals", "activity", "tool_use", "command_use"):
                connection.execute(f"DELETE FROM {table} WHERE digest = ?", (number,))
            connection.execute("DELETE FROM digest_text WHERE rowid = ?", (number,))
            connection.execute("DELETE FROM digests WHERE id = ?", (number,))


def seal_digest(connection: apsw.Connection, session: tuple[str, str]) -> bool:
    """Make a digest last beyond its events; False if there is none."""
    for (number,) in list(connection.execute(f"SELECT id FROM digests WHERE {_KEY}", session)):
        connection.execute("UPDATE digests SET sealed = digest WHERE id = ?", (number,))
        connection.execute("UPDATE signals SET is_sealed = 1 WHERE digest = ?", (number,))
        seal_tallies(connection, number)
        return True
    return False


def unseal_digest(connection: apsw.Connection, session: tuple[str, str]) -> None:
    """Have a digest made anew from events that are read again; until then it stays as it is."""
    for (number,) in list(connection.execute(f"SELECT id FROM digests WHERE {_KEY}", session)):
        connection.execute("UPDATE digests SET sealed = NULL WHERE id = ?", (number,))
        connection.execute("UPDATE signals SET is_sealed = 0 WHERE digest = ?", (number,))
        unseal_tallies(connection, number)


def restore_digest(connection: apsw.Connection, session: tuple[str, str], told: dict[str, Any]) -> None:
    """Put a digest back as `read_back` gave it, sealed, if the session has none, and its words if they are lost."""
    for number, digest in list(connection.execute(f"SELECT id, digest FROM digests WHERE {_KEY}", session)):
        if digest == told["digest"] is not None and not _has_words(connection, number):
            connection.execute("INSERT INTO digest_text (rowid, text) VALUES (?, ?)", (number, told["text"]))
        return
    names = ("agent", "native_session_id", *_LASTING, "digest_hash", "sealed")
    digest = told["digest"]
    values = (*session, *(told[name] for name in _LASTING), digest and hash_of(digest.encode()), digest)
    connection.execute(f"INSERT INTO digests ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", values)
    if digest is not None:
        number = connection.last_insert_rowid()
        connection.execute("INSERT INTO digest_text (rowid, text) VALUES (?, ?)", (number, told["text"]))


def _has_words(connection: apsw.Connection, number: int) -> bool:
    return connection.execute("SELECT 1 FROM digest_text WHERE rowid = ?", (number,)).get is not None


def rewrite_digest(connection: apsw.Connection, session: tuple[str, str], told: dict[str, Any]) -> None:
    """Write the texts of a sealed digest anew, as `read_back` gave them and newer rules of redaction left them."""
    digest = told["digest"]
    for (number,) in list(connection.execute(f"SELECT id FROM digests WHERE {_KEY}", session)):
        connection.execute(
            "UPDATE digests SET digest = ?1, digest_hash = ?2, sealed = ?1, line = ?3 WHERE id = ?4",
            (digest, digest and hash_of(digest.encode()), told["line"], number),
        )
        connection.execute("DELETE FROM digest_text WHERE rowid = ?", (number,))
        if digest is not None:
            connection.execute("INSERT INTO digest_text (rowid, text) VALUES (?, ?)", (number, told["text"]))


def leave_no_byte(database: Database) -> None:
    """Have the index of digests written anew, without the words of those that are gone."""
    with database.transaction() as connection:
        connection.execute("INSERT INTO digest_text (digest_text) VALUES ('optimize')")


def hash_of(raw: bytes) -> bytes:
    """By which a digest is known to be what was written."""
    return blake2b(raw, digest_size=16).digest()


def _put(connection: apsw.Connection, row: DigestRow, at_ms: int) -> bool:
    key = (row.agent, row.native_session_id)
    known = list(connection.execute(f"SELECT id, event_count, outcome FROM digests WHERE {_KEY}", key))
    is_kept_back = bool(known) and known[0][1] > row.event_count
    if is_kept_back:
        connection.execute(
            "UPDATE digests SET ingested_ms = ?, checked_by = ? WHERE id = ?",
            (row.ingested_ms, row.distiller, known[0][0]),
        )
    else:
        _replace(connection, row, known[0][0] if known else None, at_ms)
    connection.execute(
        f"UPDATE sessions SET outcome = ?, analyzed_ms = coalesce(analyzed_ms, ?) WHERE {_KEY}",
        (known[0][2] if is_kept_back else row.outcome, at_ms, *key),
    )
    return not is_kept_back


_VALUES = (
    "agent",
    "native_session_id",
    "ingested_ms",
    "checked_by",
    "event_count",
    "last_event_uid",
    "outcome",
    "confidence",
    "line",
    "raw_tokens",
    "kept_tokens",
    "digest",
    "digest_hash",
    "made_ms",
)
# What is written into the ledger of a digest; its hash follows from it.
_LASTING = tuple(name for name in _VALUES[2:] if name != "digest_hash")


def _replace(connection: apsw.Connection, row: DigestRow, number: int | None, at_ms: int) -> None:
    digest = None if row.digest is None else row.digest.decode()
    values = (*row[:11], digest, None if row.digest is None else hash_of(row.digest), at_ms)
    if number is None:
        marks = ", ".join("?" * len(_VALUES))
        connection.execute(f"INSERT INTO digests ({', '.join(_VALUES)}) VALUES ({marks})", values)
        number = connection.last_insert_rowid()
    else:
        sets = ", ".join(f"{name} = ?" for name in _VALUES)
        connection.execute(f"UPDATE digests SET {sets} WHERE id = ?", (*values, number))
        connection.execute("DELETE FROM digest_text WHERE rowid = ?", (number,))
        connection.execute("DELETE FROM signals WHERE digest = ? AND NOT is_sealed", (number,))
    if row.digest is not None:
        connection.execute("INSERT INTO digest_text (rowid, text) VALUES (?, ?)", (number, row.text))
    connection.executemany(
        "INSERT INTO signals (digest, is_sealed, signal, ts_ms, detail, count, evidence) VALUES (?, 0, ?, ?, ?, ?, ?)",
        [(number, *_signal_values(signal)) for signal in row.signals],
    )
    put_tallies(connection, number, row.activity, row.tools, row.commands)


def _signal_values(signal: Signal) -> tuple[Any, ...]:
    from datetime import datetime

    ts_ms = None if signal.ts is None else round(datetime.fromisoformat(signal.ts).timestamp() * 1000)
    return signal.signal, ts_ms, signal.detail, signal.count, orjson.dumps(signal.evidence).decode()
