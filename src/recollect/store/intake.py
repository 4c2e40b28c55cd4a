"""Tier 1: events, their payloads, tokens. Written batch by batch, each in one transaction with its cursor."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.model.clock import now_ms
from recollect.redact import OLDER, OTHER, SAME, compare_versions
from recollect.store.batch import Batch, EventRow, Fresh, StreamBatch, UsageRow
from recollect.store.payloads.writer import FrameWriter, Stream, origin_of, take_rows
from recollect.store.sqlite.database import Database
from recollect.store.tables.events import HIDES_LEARNED, IS_CLAMPED, IS_PROVISIONAL, IS_REBUILT
from recollect.store.tables.streams import FIGURES, LOST, note_named

SaveSource = Callable[[apsw.Connection, Batch], int]
Index = Callable[[apsw.Connection, Sequence[Fresh]], None]

_UIDS_AT_ONCE = 500
_UID, _POSITION, _FLAGS, _TS_MS, _SUMMARY = map(
    EventRow._fields.index, ("event_uid", "position", "flags", "ts_ms", "summary")
)


class Stored(NamedTuple):
    """What counts when the same event is read again."""

    payload_hash: bytes
    flags: int
    reader: int
    position: int


class Written(NamedTuple):
    """What a transaction stored: new rows of events, those whose words are left to index, how many were replaced."""

    rows: list[tuple[Any, ...]]
    fresh: list[Fresh]
    events_replaced: int

    @property
    def events_new(self) -> int:
        return len(self.rows)


class Intake:
    """Takes what readers made into the store."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder

    def put(self, batches: Sequence[Batch], save_source: SaveSource, index: Index | None = None) -> Written:
        """Store batches with their cursors in one transaction; their payloads are durable before it commits.

        `index` takes the words that came with new events; those of others stay pending. It comes last: any statement
        that opens a savepoint would make FTS5 write out what it has gathered.
        """
        with self._database.transaction() as connection:
            written = self.put_into(connection, batches, save_source)
            if index:
                index(connection, written.fresh)
        return written

    def put_into(self, connection: apsw.Connection, batches: Sequence[Batch], save_source: SaveSource) -> Written:
        """The same in a transaction that the caller began; the caller has the words indexed."""
        transaction = _Transaction(connection, self._folder)
        for batch in batches:
            source = save_source(connection, batch)
            for part in batch.streams:
                transaction.put(batch, source, part)
        return transaction.finish()


class _Transaction:
    """What is put in one transaction. Each session is looked up once."""

    def __init__(self, connection: apsw.Connection, folder: Path) -> None:
        self._connection = connection
        self._frames = FrameWriter(connection, folder)
        self._begun_ms = now_ms()
        self._streams: dict[tuple[str, str], Stream] = {}
        self._changed: dict[int, Stream] = {}
        self._fresh: list[Fresh] = []
        self._rows: list[tuple[Any, ...]] = []
        self._events_replaced = 0

    def put(self, batch: Batch, source: int, part: StreamBatch) -> None:
        has_news = _put_info(self._connection, batch, part, source)
        stream = self._find_stream(batch, part)
        if stream is None:
            return  # what a source says of a session makes none
        if part.has_events and source not in stream.sources:
            self._connection.execute("INSERT OR IGNORE INTO stream_sources VALUES (?, ?)", (stream.id, source))
            stream.sources.add(source)
        has_news |= _put_usage(self._connection, stream.id, part)
        if part.named:
            note_named(self._connection, stream.id, part.named)
        fresh, replacing, has_moved = part.rows, list[tuple[Any, ...]](), False
        if stream.next_seq > 1 and part.rows:
            fresh = _without_rebuilt(self._connection, stream.id, part.rows)
            known = find_stored(self._connection, [row[_UID] for row in fresh])
            was_cut = f"SELECT EXISTS (SELECT 1 FROM stream_sources WHERE stream = ? AND source = {LOST})"
            has_lost = bool(self._connection.execute(was_cut, (stream.id,)).get)
            if has_lost:
                fresh = _without_moved(self._connection, stream.id, fresh, known)
            if known:
                # What is left of a log may lack what a record refers to: only a newer adapter replaces what it was.
                rules = compare_versions(stream.redacted_with or "0", batch.redacted_with)
                rules = OTHER if batch.is_adopted or has_lost else rules
                has_moved = _put_positions(self._connection, fresh, known)
                fresh, replacing = _sort_out(self._connection, fresh, known, rules)
                replacing = [] if batch.is_adopted else replacing  # an import adds, and never overwrites
        if fresh or replacing or has_news:
            self._put_events(batch, stream, part, fresh, replacing)
        if fresh or replacing or has_moved or not part.facts.is_empty:
            self._changed[stream.id] = stream

    def _put_events(
        self,
        batch: Batch,
        stream: Stream,
        part: StreamBatch,
        fresh: list[tuple[Any, ...]],
        replacing: list[tuple[Any, ...]],
    ) -> None:
        rows, frames = [*fresh, *replacing], part.frames
        if len(rows) < len(part.rows):
            rows, frames = take_rows(origin_of(batch, part.native_id), part, rows)
        start, place = stream.stream_bytes, (stream.id, stream.next_seq, stream.stream_bytes)
        self._frames.add(stream, frames)
        if fresh:
            self._connection.executemany(_INSERT_EVENTS, [row + place for row in rows[: len(fresh)]])
            stream.next_seq += len(fresh)
            if part.texts and len(fresh) == len(part.rows) and stream.indexed_bytes == start:
                self._add_fresh(stream, part)
        if replacing:
            self._connection.executemany(_REPLACE_EVENT, [row + place for row in rows[len(fresh) :]])
        self._rows += fresh
        self._events_replaced += len(replacing)

    def _add_fresh(self, stream: Stream, part: StreamBatch) -> None:
        """All events of a batch, which were just inserted one after another."""
        first = self._connection.last_insert_rowid() - len(part.rows) + 1
        stream.indexed_bytes = stream.stream_bytes
        seq = stream.next_seq - 1
        self._fresh.append(Fresh(stream.id, stream.pack_generation, first, part.texts, stream.stream_bytes, seq))

    def finish(self) -> Written:
        """Flush all payloads to the disk, then note in the database where they are."""
        self._frames.finish()
        self._connection.executemany(
            "UPDATE streams SET next_seq = ?, stream_bytes = ?, pack_generation = ?, pack_bytes = ?, is_dirty = 1"
            " WHERE id = ?",
            [
                (stream.next_seq, stream.stream_bytes, stream.pack_generation, stream.pack_bytes, stream.id)
                for stream in self._changed.values()
            ],
        )
        return Written(self._rows, self._fresh, self._events_replaced)

    def _find_stream(self, batch: Batch, part: StreamBatch) -> Stream | None:
        key = (batch.source.agent, part.native_id)
        stream = self._streams.get(key) or find_stream(self._connection, *key)
        if stream is None and (part.rows or part.facts.usage or part.facts.cost_totals or part.has_events):
            rules = batch.redacted_with
            self._connection.execute(
                "INSERT INTO streams (agent, native_id, discovered_ms, redacted_with) VALUES (?, ?, ?, ?)",
                (*key, self._begun_ms, rules or None),
            )
            stream = Stream(self._connection.last_insert_rowid(), *key, 1, 0, 1, 0, rules, 0)
        if stream is not None:
            self._streams[key] = stream
        return stream


def find_stream(connection: apsw.Connection, agent: str, native_id: str) -> Stream | None:
    select = (
        "SELECT id, agent, native_id, next_seq, stream_bytes, pack_generation, pack_bytes, redacted_with,"
        # Not a join: right after a commit, SQLite takes six times as long for that.
        " coalesce((SELECT bytes FROM fulltext_marks WHERE stream = id AND generation = pack_generation), 0)"
        " FROM streams WHERE agent = ? AND native_id = ?"
    )
    return next((Stream(*row) for row in connection.execute(select, (agent, native_id))), None)


# What only the writer knows is bound behind each row as a reader made it: (stream, first seq, start of the payloads).
_STREAM, _SEQ, _START = (len(EventRow._fields) + number for number in (1, 2, 3))
_ADDED = {"seq": f" + ?{_SEQ}", "payload_start": f" + ?{_START}"}
_VALUES = {name: f"?{number}{_ADDED.get(name, '')}" for number, name in enumerate(EventRow._fields, start=1)}
_INSERT_EVENTS = (
    f"INSERT INTO events (stream, {', '.join(EventRow._fields)}) VALUES (?{_STREAM}, {', '.join(_VALUES.values())})"
)
_REPLACE_EVENT = (
    f"UPDATE events SET {', '.join(f'{name} = {_VALUES[name]}' for name in EventRow._fields[2:])},"
    f" base_kind = NULL WHERE event_uid = {_VALUES['event_uid']}"  # seq and event_uid stay: by them others know it
)


def _without_rebuilt(connection: apsw.Connection, stream: int, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Leave out rows of a file rebuilt from the session, where any event it was made of is held."""
    own = [row for row in rows if not row[_FLAGS] & IS_REBUILT]
    sql = f"SELECT EXISTS (SELECT 1 FROM events WHERE stream = ? AND NOT flags & {IS_REBUILT})"
    return rows if len(own) == len(rows) or not connection.execute(sql, (stream,)).get else own


def _without_moved(
    connection: apsw.Connection, stream: int, rows: list[tuple[Any, ...]], known: dict[bytes, Stored]
) -> list[tuple[Any, ...]]:
    """Leave out rows of a cut log that are stored under another name: some agents' records are named by place.

    What fields a record has may differ, so that it is known by its time and summary.
    """
    times = {row[_TS_MS] for row in rows if row[_UID] not in known and row[_TS_MS] is not None}
    sql = "SELECT ts_ms, summary FROM events WHERE stream = ? AND ts_ms IN (SELECT value FROM json_each(?))"
    stored = set(connection.execute(sql, (stream, orjson.dumps(list(times)).decode()))) if times else set()
    return [row for row in rows if row[_UID] in known or (row[_TS_MS], row[_SUMMARY]) not in stored]


def _sort_out(
    connection: apsw.Connection, rows: list[tuple[Any, ...]], known: dict[bytes, Stored], rules: str
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Split rows into new events and those that replace a stored one; drop what is already stored.

    `rules` compares the redaction rules of what is stored with the rows': only under the same rules does other
    content mean another event; newer rules replace what older ones left.
    """
    fresh: list[tuple[Any, ...]] = []
    replacing: list[tuple[Any, ...]] = []
    for row in map(EventRow._make, rows):
        stored = known.get(row.event_uid)
        if stored is None:
            fresh.append(row._replace(seq=len(fresh)))
        elif stored.reader < row.reader or (
            stored.flags & IS_PROVISIONAL
            and (stored.payload_hash != row.payload_hash or not row.flags & IS_PROVISIONAL)
        ):
            replacing.append(row)
        elif stored.payload_hash == row.payload_hash or row.flags & IS_PROVISIONAL or stored.reader > row.reader:
            continue
        elif rules == OLDER or (row.flags & HIDES_LEARNED and not stored.flags & HIDES_LEARNED):
            replacing.append(row)
        elif stored.flags & HIDES_LEARNED:
            continue  # the same event, read with others
        elif rules == SAME:
            uid = second_uid(row.event_uid, row.payload_hash)
            fresh += [] if find_stored(connection, [uid]) else [row._replace(event_uid=uid, seq=len(fresh))]
    return fresh, replacing


def _put_positions(connection: apsw.Connection, rows: list[tuple[Any, ...]], known: dict[bytes, Stored]) -> bool:
    """Move events to where the file that holds more of what came before them has them; whether any moved.

    The last position of all files counts, so that the order of a session does not depend on which was read first; but
    none that is clamped counts beside one that is not.
    """
    better = [
        (row[_POSITION], row[_FLAGS] & IS_CLAMPED, row[_UID])
        for row in rows
        if (stored := known.get(row[_UID])) is not None
        and (not row[_FLAGS] & IS_CLAMPED, row[_POSITION]) > (not stored.flags & IS_CLAMPED, stored.position)
    ]
    connection.executemany(
        f"UPDATE events SET position = ?, flags = (flags & {~IS_CLAMPED}) | ? WHERE event_uid = ?", better
    )
    return bool(better)


def second_uid(event_uid: bytes, payload_hash: bytes) -> bytes:
    """Return the name of a record that has the id of another in its session but other content: both are kept."""
    half = int.from_bytes(event_uid[8:]) ^ int.from_bytes(payload_hash[:8])
    return event_uid[:8] + half.to_bytes(8)


def find_stored(connection: apsw.Connection, uids: Sequence[bytes]) -> dict[bytes, Stored]:
    """Return those of the events that are already stored."""
    stored: dict[bytes, Stored] = {}
    for start in range(0, len(uids), _UIDS_AT_ONCE):
        chunk = uids[start : start + _UIDS_AT_ONCE]
        marks = ", ".join("?" * len(chunk))
        sql = f"SELECT event_uid, payload_hash, flags, reader, position FROM events WHERE event_uid IN ({marks})"
        stored |= {row[0]: Stored(*row[1:]) for row in connection.execute(sql, chunk)}
    return stored


_SURER = ("usd", "model")
_PUT_USAGE = (
    f"INSERT INTO usage VALUES (?, {', '.join('?' * len(UsageRow._fields))}, 0) ON CONFLICT DO UPDATE SET"
    f" {', '.join(f'{name} = max({name}, excluded.{name})' for name in FIGURES)},"
    f" {', '.join(f'{name} = coalesce(excluded.{name}, {name})' for name in _SURER)}"
    f" WHERE {' OR '.join(f'excluded.{name} > {name}' for name in FIGURES)}"
    f" OR {' OR '.join(f'coalesce(excluded.{name}, {name}) IS NOT {name}' for name in _SURER)}"
)


def _put_usage(connection: apsw.Connection, stream: int, part: StreamBatch) -> bool:
    """Store it; return whether any of it is new."""
    if not part.facts.usage and not part.facts.cost_totals:
        return False
    before = connection.total_changes()
    connection.executemany(_PUT_USAGE, ((stream, *row) for row in part.facts.usage))
    connection.executemany(
        "INSERT OR IGNORE INTO cost_totals VALUES (?, ?, ?, ?)", ((stream, *row) for row in part.facts.cost_totals)
    )
    return connection.total_changes() > before


def _put_info(connection: apsw.Connection, batch: Batch, part: StreamBatch, source: int) -> bool:
    """Store it; return whether any of it is new."""
    if part.facts.info is None:
        return False
    key = (batch.source.agent, part.native_id, source)
    known = connection.execute("SELECT info FROM infos WHERE agent = ? AND native_id = ? AND source = ?", key).get
    info = orjson.loads(part.facts.info)
    if known is not None:
        info = orjson.loads(known) if batch.is_adopted else merge_infos(orjson.loads(known), info)
    text = orjson.dumps(info).decode()
    if text == known:
        return False
    links = [info["first"].get(name) for name in ("parent_native_id", "root_native_id", "base_native_id", "born_ms")]
    connection.execute("INSERT OR REPLACE INTO infos VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*key, *links, text))
    return True


def merge_infos(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Merge what a source says of a session: `first` keeps the earliest values, `last` the latest."""
    return {"first": {**later["first"], **earlier["first"]}, "last": {**earlier["last"], **later["last"]}}
