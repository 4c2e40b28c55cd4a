"""Sessions whose raw detail was dropped: what stays known of them, and how it is kept from coming back.

An eviction has hashes of a session's events, so that a file that is read again, moved or copied adds nothing, and the
session's row as it was, to which later work of the session is added. It is in memory.db and, with the digest that
preceded it, in the ledger. A session's usage stays in cache.db, so that a fork is paid once.
"""

from base64 import b64encode
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.model.clock import now_ms
from recollect.model.kinds import HISTORY_LANE, STAND_IN_LANE, SessionKey, name_half
from recollect.store.batch import Batch, EventRow, StreamBatch
from recollect.store.intake import second_uid
from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.payloads import packs
from recollect.store.payloads.rewrite import keep_facts
from recollect.store.payloads.writer import leave_out_events
from recollect.store.sqlite.database import Database, translated
from recollect.store.sqlite.room import delete_in_steps, is_short
from recollect.store.sqlite.snapshot import keep_copy, rewrite
from recollect.store.tables import declared
from recollect.store.tables.digest_rows import DigestRows, seal_digest
from recollect.store.tables.events import CONTENT, IS_PROVISIONAL, IS_REBUILT, MAY_REPEAT
from recollect.store.tables.raw import HeldSession
from recollect.store.tables.session_rows import SessionRow
from recollect.store.tables.table import (
    BY_DIGEST,
    BY_SESSION,
    BY_STREAM,
    CACHE,
    KEYS,
    MEMORY,
    TOKENS,
    Table,
    column,
    drop_rows,
    json_keys,
)
from recollect.store.tables.tombstones import HASH_BYTES, PackedHashes, event_key, pack, unpack

# Sessions whose raw detail was dropped: hashes of their events, so that none comes back, and their row as it was then,
# so that a session that grows is never less than it was. `finished_ms` is set once no byte of the raw detail is left.
EVICTIONS = Table(
    "evictions",
    MEMORY,
    (
        *column.plain("agent", "native_session_id"),
        *column.numbers("at_ms"),
        *column.plain("reason"),
        *column.numbers("bytes"),
        column.hashes("event_keys"),
        *column.documents("base"),
        *column.numbers("finished_ms?"),
    ),
    owner=BY_SESSION,
    key=("agent", "native_session_id"),
    has_rowid=True,
)

# What the user must see one by one: last copies that went, and what went without a digest.
RETENTION_EVENTS = Table(
    "retention_events",
    MEMORY,
    (
        column.row_number("id"),
        *column.numbers("at_ms"),
        *column.plain("event", "agent", "native_session_id", "session_uid"),
        *column.numbers("bytes"),
    ),
    owner=BY_SESSION,
)

# One row: when ages were last checked, and from when on the clock is trusted again after it jumped ahead.
RETENTION_CLOCK = Table("retention_clock", MEMORY, (*column.numbers("at_ms", "trusted_from_ms"),))

# Streams whose events were dropped and whose usage is still held, with the half of their events' uids that names the
# session: copies of them in other sessions are recognised by it.
EVICTED_STREAMS = Table(
    "evicted_streams",
    CACHE,
    (
        column.row_number("stream"),
        *column.blobs("uid_half"),
    ),
    owner=BY_STREAM,
    extras=("CREATE INDEX evicted_streams_by_half ON evicted_streams (uid_half)",),
)

EVICTION = "eviction"  # of the ledger's lines
EVICTED = "evicted"  # what the sweep's report counts left-out events as
DATA_LOSS = "data_loss"
LAST_COPY_EVICTED = "last_copy_evicted"

_UID = EventRow._fields.index("event_uid")
_HASH = EventRow._fields.index("payload_hash")
_LANE, _TS_MS, _FLAGS = map(EventRow._fields.index, ("lane", "ts_ms", "flags"))
_KEY = "agent = ? AND native_session_id = ?"
_FIND_STREAM = "SELECT id FROM streams WHERE agent = ? AND native_id = ?"
_ROW_COLUMNS = ", ".join(f'"{name}"' for name in SessionRow._fields)
# What each session used as far as it is held, of those that nobody noted: tokens, and money as the agent tells it.
_USED = (
    f"SELECT s.id, s.agent, s.native_id, {', '.join(f'total({name})' for name in TOKENS)}, max(total(usd),"
    " (SELECT coalesce(max(c.usd), 0) FROM cost_totals c WHERE c.stream = s.id))"
    " FROM streams s LEFT JOIN usage u ON u.stream = s.id AND NOT u.is_copy"
    " WHERE s.id NOT IN (SELECT stream FROM evicted_streams) GROUP BY s.id"
)
_CENT = 0.01


class Eviction(NamedTuple):
    """A session whose raw detail goes, and the rule that drops it. Without the `digest` that was read back there is a
    `loss`.
    """

    held: HeldSession
    reason: str
    digest: dict[str, Any] | None = None
    loss: str | None = None

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.held.agent, self.held.native_id)


class RetentionEvent(NamedTuple):
    """Something that went and cannot be had again: `data_loss` or `last_copy_evicted`."""

    at_ms: int
    event: str
    session_uid: str
    bytes: int


Counts = dict[str, list[list[Any]]]  # rows by table


def evicted_session(record: LedgerRecord) -> SessionKey:
    """Return which session a line of the ledger is about."""
    return SessionKey(record.data["agent"], record.data["native_session_id"])


def counted() -> list[tuple[Table, tuple[str, ...]]]:
    """List the tables of what was noticed and counted of a session, whose rows outlive its events once they are sealed;
    with the columns that the ledger has, in its order."""
    tables = [table for table in declared(MEMORY) if table.owner == BY_DIGEST]
    return [
        (table, tuple(name for name in names if name not in ("id", "digest", "is_sealed")))
        for table in tables
        if "is_sealed" in (names := [column.name for column in table.columns])
    ]


class Keys:
    """Knows the events of an evicted session by their hashes."""

    def __init__(self, packed: bytes) -> None:
        self._hashes = PackedHashes([packed])

    def hold(self, event_uid: bytes, payload_hash: bytes) -> bool:
        """Return True if an event was dropped; one that was still growing then is another when it has grown."""
        return any(uid[HASH_BYTES:] in self._hashes for uid in (event_uid, second_uid(event_uid, payload_hash)))

    def hold_copy(self, copy_key: int) -> bool:
        """Return True if a record with this key was dropped."""
        return copy_key.to_bytes(HASH_BYTES, "big", signed=True) in self._hashes


class Base(NamedTuple):
    """An evicted session as it was. `is_usage_held`: what it used is still known response by response."""

    row: SessionRow
    keys: Keys
    is_usage_held: bool


class EvictionTable:
    """The evictions of a store."""

    def __init__(self, cache: Database, memory: Database, ledger: Ledger) -> None:
        self._cache = cache
        self._memory = memory
        self._ledger = ledger
        self.awaited: set[SessionKey] = set()  # evicted sessions that may come back

    def names(self) -> set[SessionKey]:
        return self._select("1")

    def unfinished(self) -> set[SessionKey]:
        """Sessions whose eviction may have stopped half-way."""
        return self._select("finished_ms IS NULL")

    def _select(self, condition: str) -> set[SessionKey]:
        return set(self._memory.read(SessionKey, f"SELECT agent, native_session_id FROM evictions WHERE {condition}"))

    def unfinished_since_ms(self) -> int | None:
        """Return when the oldest of them was begun, or None."""
        at_ms = self._memory.value("SELECT min(at_ms) FROM evictions WHERE finished_ms IS NULL")
        return None if at_ms is None else int(at_ms)

    def keys(self, session: SessionKey) -> Keys:
        return Keys(self._packed_keys(session) or b"")

    def _packed_keys(self, session: SessionKey) -> bytes | None:
        keys: bytes | None = self._memory.value(f"SELECT event_keys FROM evictions WHERE {_KEY}", session)
        return keys

    def at_ms(self, session: SessionKey) -> int:
        """Return when a session was evicted last."""
        return int(self._memory.value(f"SELECT at_ms FROM evictions WHERE {_KEY}", session) or 0)

    def among(self, keys: Collection[SessionKey]) -> set[SessionKey]:
        """Return those of these sessions that were evicted."""
        return set(
            self._memory.read(
                SessionKey,
                f"{KEYS}SELECT agent, k.native_id FROM keys k JOIN evictions e USING (agent)"
                " WHERE e.native_session_id = k.native_id",
                (json_keys(keys),),
            )
        )

    def base(self, name: SessionKey) -> Base | None:
        """Return what a session was when its raw detail was dropped, or None."""
        packed = self._packed_keys(name)
        if packed is None:
            return None
        row, is_held = self._base(name), f"SELECT 1 FROM evicted_streams WHERE stream = ({_FIND_STREAM})"
        values = SessionRow._make(row.get(field) for field in SessionRow._fields)
        return Base(values, Keys(packed), bool(self._cache.value(is_held, name)))

    def later_counts(self) -> dict[SessionKey, int]:
        """Count the events of evicted sessions that came after that, by their rows."""
        count = "s.event_count - (e.base ->> '$.event_count')"
        rows = self._memory.rows(
            f"SELECT agent, native_session_id, {count} FROM sessions s JOIN evictions e"
            f" USING (agent, native_session_id) WHERE {count} > 0"
        )
        return {SessionKey(agent, native_id): number for agent, native_id, number in rows}

    def note_held_usage(self) -> int:
        """Note which evicted sessions have all their usage held, which a cache that was made anew does not know.

        Returns how many they are.
        """
        held = {SessionKey(row[1], row[2]): row for row in self._cache.rows(_USED)}
        known = sorted(key for key in self.names() & held.keys() if _is_all(held[key][3:], self._base(key)))
        with self._cache.transaction() as connection:
            for key in known:
                connection.execute("INSERT INTO evicted_streams VALUES (?, ?)", (held[key][0], name_half(*key)))
                connection.execute("UPDATE streams SET is_dirty = 1 WHERE id = ?", held[key][:1])
        return len(known)

    def add(self, evictions: Sequence[Eviction], at_ms: int) -> None:
        """Note that raw detail is about to go: on the disk, and in the ledger with the digests, when this returns."""
        renewed = self.names() & {eviction.key for eviction in evictions}
        rows, records, losses = [], [], []
        for eviction in evictions:
            key, size = eviction.key, eviction.held.bytes
            keys, row = self._all_keys(key), self._row(key)
            record = self._record(key, (at_ms, eviction.reason, size, keys, row), eviction.digest)
            if eviction.loss is not None:
                record["losses"].append((at_ms, eviction.loss, size))
                losses.append((key, eviction.held.session_uid, (at_ms, eviction.loss, size)))
            records.append((EVICTION, record))
            rows.append((*key, at_ms, eviction.reason, size, keys, orjson.dumps(row).decode()))
        self._ledger.extend(records)
        with self._memory.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO evictions VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", rows)
            for eviction in evictions:
                seal_digest(connection, eviction.key)
                connection.execute(f"UPDATE sessions SET evicted_ms = ? WHERE {_KEY}", (at_ms, *eviction.key))
            for loss in losses:
                note_loss(connection, *loss)
        if renewed:
            self._ledger.rewrite(
                lambda record: (
                    record.kind != EVICTION or evicted_session(record) not in renewed or record.data["at_ms"] == at_ms
                )
            )

    def _record(
        self, key: SessionKey, row: tuple[Any, ...], digest: dict[str, Any] | None, *, is_sealed: bool = False
    ) -> dict[str, Any]:
        """Return what the ledger has of an eviction, because it cannot be made again: row, digest, counts, losses.

        `is_sealed` leaves out what is counted from events that are held.
        """
        at_ms, reason, size, keys, session = row
        return {
            "agent": key.agent,
            "native_session_id": key.native_id,
            "at_ms": at_ms,
            "reason": reason,
            "bytes": size,
            "event_keys": b64encode(keys).decode(),
            "session": session,
            "digest": digest,
            "losses": self._memory.rows(f"SELECT at_ms, event, bytes FROM retention_events WHERE {_KEY}", key),
            "counted": self._counts(key, " AND is_sealed" if is_sealed else ""),
        }

    def _counts(self, key: SessionKey, condition: str) -> Counts:
        """Return all that is counted of a session."""
        counts = {}
        for table, columns in counted():
            listed = ", ".join(f"sum({name})" if name in table.sums else name for name in columns)
            keys = ", ".join(name for name in columns if name in table.key)
            order = f"GROUP BY {keys}" if table.sums else "ORDER BY rowid"
            sql = f"SELECT {listed} FROM {table.name} WHERE {BY_DIGEST}{condition} {order}"
            counts[table.name] = [list(row) for row in self._memory.rows(sql, key)]
        return counts

    def _row(self, session: SessionKey) -> dict[str, Any]:
        rows = self._memory.rows(f"SELECT {_ROW_COLUMNS}, analyzed_ms FROM sessions WHERE {_KEY}", session)
        return dict(zip((*SessionRow._fields, "analyzed_ms"), rows[0], strict=True))

    def _all_keys(self, session: SessionKey) -> bytes:
        """Hashes of all that was ever held of a session."""
        keys = unpack(self._packed_keys(session) or b"")
        for uid, payload_hash, flags, copy_key, kind, content in self._cache.iter_rows(
            "SELECT event_uid, payload_hash, flags, copy_key, coalesce(base_kind, kind),"
            f" {CONTENT.format('')} FROM events"
            f" WHERE stream = ({_FIND_STREAM})",
            session,
        ):
            uid = second_uid(uid, payload_hash) if flags & IS_PROVISIONAL else uid
            keys.add(uid[HASH_BYTES:])
            if copy_key is not None:
                keys.add(copy_key.to_bytes(HASH_BYTES, "big", signed=True))
                keys.add(event_key(copy_key, kind, content))  # a tombstone recognises copies by it
        return pack(keys)

    def drop_raw(self, sessions: Collection[SessionKey]) -> None:
        """Delete events and payloads of evicted sessions. Safe to run again after it was stopped.

        What a session holds that its eviction does not know came later, and stays.
        """
        folder = self._cache.path.parent
        for session in sessions if is_short(folder) else ():
            if self._knows_all(session):
                for table in declared(CACHE):  # what takes most room goes a few rows at a time
                    if table.is_raw and table.is_bulky:
                        delete_in_steps(self._cache, table.delete_some, session)
        with self._cache.transaction() as connection:
            for session in sessions:
                if self._knows_all(session):
                    _drop_stream(connection, folder, session)
        for session in sessions:
            sql = "SELECT pack_generation FROM streams WHERE agent = ? AND native_id = ?"
            generation = self._cache.value(sql, session) or 0
            packs.drop_own_packs(folder, *session, but_for=generation)

    def _knows_all(self, session: SessionKey) -> bool:
        """Return True if nothing is held of a session that came after its eviction."""
        keys = self.keys(session)
        return all(keys.hold(*event) for event in self._held(session))

    def _held(self, session: SessionKey) -> Iterator[tuple[bytes, bytes]]:
        sql = f"SELECT event_uid, payload_hash FROM events WHERE stream = ({_FIND_STREAM})"
        return self._cache.iter_rows(sql, session)

    def finish(self, sessions: Collection[SessionKey]) -> None:
        """Remove the last bytes of what was dropped from cache.db; raises StoreUnwritable or Busy if it cannot."""
        rewrite(self._cache)
        self._memory.write_all(
            f"UPDATE evictions SET finished_ms = ? WHERE {_KEY}", [(now_ms(), *session) for session in sessions]
        )
        keep_copy(self._memory, is_due=True)

    @contextmanager
    def awaiting(self, session: SessionKey) -> Iterator[None]:
        """Force a full re-read of the session and re-admit its evicted events.

        The eviction stays until something came: if the sources cannot be read, nothing is lost.
        """
        self._cache.write(
            "UPDATE sources SET size = -1, offset = 0, line = 0, head = '', tail = '', state = '{}'"
            f" WHERE gone_ms IS NULL AND id IN (SELECT source FROM stream_sources WHERE stream = ({_FIND_STREAM}))",
            session,
        )
        self.awaited.add(session)
        try:
            yield
        finally:
            self.awaited.discard(session)

    def lift_awaited(self) -> None:
        """Lift the evictions of sessions that are back."""
        for session in sorted(self.awaited & self.names()):
            keys = self.keys(session)
            if any(keys.hold(*event) for event in list(self._held(session))):
                self._lift(session)

    def _lift(self, session: SessionKey) -> None:
        """Forget that a session was evicted; its row and its digest are made again from all of it."""
        self._cache.write("UPDATE streams SET is_dirty = 1 WHERE agent = ? AND native_id = ?", session)
        with self._memory.transaction() as connection:
            seal_digest(connection, session, is_sealed=False)
            connection.execute(f"DELETE FROM evictions WHERE {_KEY}", session)
            connection.execute(f"UPDATE sessions SET evicted_ms = NULL, analyzed_ms = NULL WHERE {_KEY}", session)
        # Last: with an eviction but without this row, what the session used would be counted twice.
        self._cache.write(f"DELETE FROM evicted_streams WHERE stream = ({_FIND_STREAM})", session)
        self._ledger.rewrite(lambda record: record.kind != EVICTION or evicted_session(record) != session)

    def _base(self, session: SessionKey) -> dict[str, Any]:
        with translated(self._memory.path):
            base: dict[str, Any] = orjson.loads(self._memory.value(f"SELECT base FROM evictions WHERE {_KEY}", session))
            return base

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """All of them as lines of the ledger."""
        sql = "SELECT agent, native_session_id, at_ms, reason, bytes, event_keys FROM evictions ORDER BY at_ms"
        records = []
        for agent, native_id, *values in self._memory.rows(sql):
            key = SessionKey(agent, native_id)
            base = self._base(key)
            record = self._record(key, (*values, base), self._sealed_digest(key, base), is_sealed=True)
            records.append((EVICTION, record))
        return records

    def _sealed_digest(self, key: SessionKey, base: dict[str, Any]) -> dict[str, Any] | None:
        """Return a digest as it was at the eviction: what it tells of events that are held is told again from them."""
        digest = DigestRows(self._memory).read_back(*key)
        sealed = self._memory.value(f"SELECT sealed FROM digests WHERE {_KEY}", key)
        if digest is None or digest["digest"] is None:
            return digest
        covers = orjson.loads(sealed)["covers"] if sealed is not None else {"event_count": 0, "last_event_uid": None}
        covered = {name: covers[name] for name in ("event_count", "last_event_uid")}
        return digest | covered | {"digest": sealed, "ingested_ms": base["ingested_ms"]}

    def losses(self) -> list[RetentionEvent]:
        """Return unrecoverable losses, newest first."""
        columns = ", ".join(RetentionEvent._fields)
        sql = f"SELECT {columns} FROM retention_events ORDER BY at_ms DESC, id DESC"
        return self._memory.read(RetentionEvent, sql)

    def loss_counts(self) -> dict[str, int]:
        return dict(self._memory.rows("SELECT event, count(*) FROM retention_events GROUP BY event"))

    def clock(self) -> tuple[int, int] | None:
        """Return when ages were last checked, and from when on the clock is trusted; None if they never were."""
        rows = self._memory.rows("SELECT at_ms, trusted_from_ms FROM retention_clock")
        return (int(rows[0][0]), int(rows[0][1])) if rows else None

    def set_clock(self, at_ms: int, trusted_from_ms: int) -> None:
        with self._memory.transaction() as connection:
            connection.execute("DELETE FROM retention_clock")
            connection.execute("INSERT INTO retention_clock VALUES (?, ?)", (at_ms, trusted_from_ms))

    def mark_copies(self, name: SessionKey, owner: SessionKey) -> None:
        """Mark what a session has copied from an evicted one: those records were counted there."""
        keys = self.keys(owner)
        rows = self._cache.rows(
            f"SELECT id, copy_key FROM events WHERE stream = ({_FIND_STREAM})"
            " AND copy_of IS NULL AND copy_key IS NOT NULL",
            name,
        )
        copies = [
            (name_half(*owner) + copy_key.to_bytes(HASH_BYTES, "big", signed=True), number)
            for number, copy_key in rows
            if keys.hold_copy(copy_key)
        ]
        if copies:
            self._cache.write_all("UPDATE events SET copy_of = ? WHERE id = ?", copies)


def _is_all(used: Sequence[float], base: dict[str, Any]) -> bool:
    """Return True if a session's usage that is held is no less than its row had when it was evicted."""
    *tokens, usd = used
    is_exact = base["usd"] is not None and not base["usd_is_estimate"]
    has_tokens = all(count >= base[name] for count, name in zip(tokens, TOKENS, strict=True))
    return has_tokens and (not is_exact or usd > base["usd"] - _CENT)


def _drop_stream(connection: apsw.Connection, folder: Path, session: SessionKey) -> None:
    for (stream,) in list(connection.execute(_FIND_STREAM, session)):
        connection.execute("INSERT OR REPLACE INTO evicted_streams VALUES (?, ?)", (stream, name_half(*session)))
        drop_rows(connection, [table for table in declared(CACHE) if table.is_of_session and table.is_raw], [session])
        keep_facts(connection, folder, *session)
        connection.execute(
            "UPDATE problems SET raw = x'' WHERE source IN (SELECT source FROM stream_sources WHERE stream = ?)",
            (stream,),
        )


def note_loss(connection: apsw.Connection, key: SessionKey, session_uid: str, loss: tuple[int, str, int]) -> None:
    """Note once what was lost of a session: when, which event, bytes."""
    connection.execute(
        "INSERT INTO retention_events (at_ms, event, agent, native_session_id, session_uid, bytes)"
        " SELECT ?1, ?2, ?4, ?5, ?6, ?3 WHERE NOT EXISTS (SELECT 1 FROM retention_events"
        " WHERE at_ms = ?1 AND event = ?2 AND agent = ?4 AND native_session_id = ?5)",
        (*loss, *key, session_uid),
    )


class Evicted:
    """Serves a sweep: loads the names once, and keys when one of the sessions turns up."""

    def __init__(self, table: EvictionTable) -> None:
        self._table = table
        self._names: dict[str, set[str]] = defaultdict(set)
        for agent, native_id in table.names() - table.awaited:
            self._names[agent].add(native_id)
        self._last: tuple[SessionKey, Keys, int] | None = None

    def without(self, batch: Batch) -> Batch:
        """Leave events that were dropped out of the batch."""
        names = self._names.get(batch.source.agent)
        if not names or not any(stream.native_id in names for stream in batch.streams):
            return batch
        before = batch.events
        batch.streams = [
            self._new_part(batch, stream) if stream.native_id in names else stream for stream in batch.streams
        ]
        if dropped := before - batch.events:
            batch.skipped = batch.skipped | {EVICTED: batch.skipped.get(EVICTED, 0) + dropped}
        return batch

    def _new_part(self, batch: Batch, stream: StreamBatch) -> StreamBatch:
        """Keep what a session has done since. Even if that is nothing, its source is one of the session's sources."""
        session = SessionKey(batch.source.agent, stream.native_id)
        if self._last is None or self._last[0] != session:
            self._last = (session, self._table.keys(session), self._table.at_ms(session))
        _, keys, at_ms = self._last
        return leave_out_events(
            batch,
            stream,
            [
                row
                for row in stream.rows
                # Reading again repeats prompts of a lost log, and copies within a log; these replace evicted events.
                if not (
                    (row[_LANE] in (HISTORY_LANE, STAND_IN_LANE) or row[_FLAGS] & MAY_REPEAT)
                    and (row[_TS_MS] or 0) <= at_ms
                )
                and not row[_FLAGS] & IS_REBUILT
                and not keys.hold(row[_UID], row[_HASH])
            ],
        )
