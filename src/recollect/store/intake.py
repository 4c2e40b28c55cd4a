"""Tier 1: events, their payloads, tokens. Written batch by batch, each in one transaction with its cursor."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.clock import now_ms
from recollect.redact.marks import OLDER, OTHER, SAME, compare_versions
from recollect.store import packs
from recollect.store.batch import Batch, EventRow, Fresh, StreamBatch
from recollect.store.flags import IS_PROVISIONAL
from recollect.store.packs import Frame, compress, decompress
from recollect.store.sqlite import Database

SaveSource = Callable[[apsw.Connection, Batch], int]
Index = Callable[[apsw.Connection, Fresh], None]

INLINE_BYTES = 32 * 1024  # a frame up to this size lies in the database: thousands of tiny packs cost more

_UIDS_AT_ONCE = 500
_UID = EventRow._fields.index("event_uid")


class Stream(NamedTuple):
    """One session's stream of payloads, as the writer sees it before it appends."""

    id: int
    next_seq: int
    stream_bytes: int
    pack_generation: int
    pack_bytes: int
    redacted_with: str | None
    indexed_bytes: int


class Stored(NamedTuple):
    """What counts when the same event is read again."""

    payload_hash: bytes
    flags: int
    reader: int


class Written(NamedTuple):
    """How many events were made and how many changed."""

    events_new: int
    events_replaced: int


class Intake:
    """Takes what readers made into the store."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self._grown: set[Path] = set()  # packs with bytes that are not on the disk yet

    def put(self, batches: Sequence[Batch], save_source: SaveSource, index: Index | None = None) -> Written:
        """Store batches with their cursors in one transaction; their payloads are durable before it commits.

        `index` takes the words that came with new events; those of others stay pending.
        """
        begun_ms = now_ms()
        written = Written(0, 0)
        self._grown.clear()
        with self._database.transaction() as connection:
            for batch in batches:
                source = save_source(connection, batch)
                for stream_batch in batch.streams:
                    stream = _ensure_stream(connection, batch, stream_batch.native_id, begun_ms)
                    new, replaced = self._put_stream(connection, batch, stream, stream_batch, index)
                    connection.execute("INSERT OR IGNORE INTO stream_sources VALUES (?, ?)", (stream.id, source))
                    written = Written(written.events_new + new, written.events_replaced + replaced)
                _put_usage(connection, batch, begun_ms)
                _put_infos(connection, batch, source)
            packs.make_durable(self._grown)
        return written

    def _put_stream(
        self, connection: apsw.Connection, batch: Batch, stream: Stream, told: StreamBatch, index: Index | None
    ) -> tuple[int, int]:
        fresh, replacing = told.rows, list[tuple[Any, ...]]()
        if stream.next_seq > 1:
            known = compare_versions(stream.redacted_with or "0", batch.redacted_with)
            rules = OTHER if batch.is_adopted else known
            fresh, replacing = _sort_out(connection, told.rows, rules)
        rows, frames = [*fresh, *replacing], told.frames
        if not rows:
            return 0, 0
        if len(rows) < len(told.rows):
            rows, frames = _repacked(told, rows)
        self._append(connection, batch.source.agent, told.native_id, stream, frames)
        insert = _INSERT_EVENTS.format(stream=stream.id, seq=stream.next_seq, start=stream.stream_bytes)
        connection.executemany(insert, rows[: len(fresh)])
        if index and told.texts and len(fresh) == len(told.rows) and stream.indexed_bytes == stream.stream_bytes:
            index(connection, _fresh(stream, told, connection.last_insert_rowid()))
        if replacing:
            replace = _REPLACE_EVENT.format(start=stream.stream_bytes)
            connection.executemany(replace, ((*row[2:], row[1]) for row in rows[len(fresh) :]))
        update = "UPDATE streams SET next_seq = next_seq + ?, is_dirty = 1 WHERE id = ?"
        connection.execute(update, (len(fresh), stream.id))
        return len(fresh), len(replacing)

    def _append(
        self, connection: apsw.Connection, agent: str, native_id: str, stream: Stream, frames: Sequence[Frame]
    ) -> None:
        start, offset = stream.stream_bytes, stream.pack_bytes
        rows: list[tuple[Any, ...]] = []
        packed: list[bytes] = []
        for frame in frames:
            if len(frame.content) <= INLINE_BYTES:
                rows.append((stream.id, start, frame.length, None, len(frame.content), frame.content))
            else:
                rows.append((stream.id, start, frame.length, offset, len(frame.content), None))
                packed.append(frame.content)
                offset += len(frame.content)
            start += frame.length
        if packed:
            path = packs.pack_path(self._folder, agent, native_id, stream.pack_generation)
            packs.append(path, stream.pack_bytes, packed)
            self._grown.add(path)
        connection.executemany("INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.execute(
            "UPDATE streams SET stream_bytes = ?, pack_bytes = ? WHERE id = ?", (start, offset, stream.id)
        )


def _fresh(stream: Stream, told: StreamBatch, last_event: int) -> Fresh:
    """All events of a batch, which were just inserted one after another."""
    count, size = len(told.rows), sum(frame.length for frame in told.frames)
    first, seq = last_event - count + 1, stream.next_seq + count - 1
    return Fresh(stream.id, stream.pack_generation, first, told.texts, stream.stream_bytes + size, seq)


def _ensure_stream(connection: apsw.Connection, batch: Batch, native_id: str, at_ms: int) -> Stream:
    agent, rules = batch.source.agent, batch.redacted_with
    select = (
        "SELECT s.id, next_seq, stream_bytes, pack_generation, pack_bytes, redacted_with,"
        " iif(generation = pack_generation, bytes, 0)"
        " FROM streams s LEFT JOIN fulltext_marks m ON m.stream = s.id WHERE agent = ? AND native_id = ?"
    )
    for row in connection.execute(select, (agent, native_id)):
        return Stream(*row)
    connection.execute(
        "INSERT INTO streams (agent, native_id, discovered_ms, redacted_with) VALUES (?, ?, ?, ?)",
        (agent, native_id, at_ms, rules or None),
    )
    return Stream(connection.last_insert_rowid(), 1, 0, 1, 0, rules, 0)


# What only the writer knows stands in the text of a statement, so that it takes rows as a reader made them.
_PLACES = {"seq": "? + {seq:d}", "payload_start": "? + {start:d}"}
_INSERT_EVENTS = (
    f"INSERT INTO events (stream, {', '.join(EventRow._fields)})"
    f" VALUES ({{stream:d}}, {', '.join(_PLACES.get(name, '?') for name in EventRow._fields)})"
)
_REPLACE_EVENT = (
    f"UPDATE events SET {', '.join(f'{name} = ' + _PLACES.get(name, '?') for name in EventRow._fields[2:])},"
    " base_kind = NULL WHERE event_uid = ?"  # seq and event_uid stay: by them others know the event
)


def _sort_out(
    connection: apsw.Connection, rows: list[tuple[Any, ...]], rules: str
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Tell new events from those already held, and from those that replace what is held.

    `rules` says how those that redacted what is held compare with the rows': only with the same ones does
    other content mean another event; newer ones replace what older ones left.
    """
    known = _find_stored(connection, [row[_UID] for row in rows])
    if not known:
        return rows, []
    fresh: list[tuple[Any, ...]] = []
    replacing: list[tuple[Any, ...]] = []
    for row in map(EventRow._make, rows):
        stored = known.get(row.event_uid)
        if stored is None:
            fresh.append(row._replace(seq=len(fresh)))
        elif stored.reader < row.reader or (stored.flags & IS_PROVISIONAL and _differs(stored, row)):
            replacing.append(row)
        elif stored.payload_hash == row.payload_hash or row.flags & IS_PROVISIONAL:
            continue
        elif rules == OLDER:
            replacing.append(row)
        elif rules == SAME:
            uid = second_uid(row.event_uid, row.payload_hash)
            fresh += [] if _find_stored(connection, [uid]) else [row._replace(event_uid=uid, seq=len(fresh))]
    return fresh, replacing


def _differs(stored: Stored, row: EventRow) -> bool:
    return stored.payload_hash != row.payload_hash or not row.flags & IS_PROVISIONAL


def second_uid(event_uid: bytes, payload_hash: bytes) -> bytes:
    """The name of a record that has the id of another in its session but other content: both are kept."""
    half = int.from_bytes(event_uid[8:]) ^ int.from_bytes(payload_hash[:8])
    return event_uid[:8] + half.to_bytes(8)


def _find_stored(connection: apsw.Connection, uids: list[bytes]) -> dict[bytes, Stored]:
    """Those of the events that are held."""
    found: dict[bytes, Stored] = {}
    for start in range(0, len(uids), _UIDS_AT_ONCE):
        some = uids[start : start + _UIDS_AT_ONCE]
        marks = ", ".join("?" * len(some))
        sql = f"SELECT event_uid, payload_hash, flags, reader FROM events WHERE event_uid IN ({marks})"
        found |= {row[0]: Stored(*row[1:]) for row in connection.execute(sql, some)}
    return found


def _repacked(batch: StreamBatch, rows: list[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], list[Frame]]:
    """The stream of a batch with the payloads of `rows` only: what is already held is not stored again."""
    stream = decompress(frame.content for frame in batch.frames)
    kept: list[tuple[Any, ...]] = []
    pieces, start = [], 0
    for row in map(EventRow._make, rows):
        pieces.append(stream[row.payload_start : row.payload_start + row.payload_bytes])
        kept.append(row._replace(payload_start=start))
        start += row.payload_bytes
    return kept, compress(b"".join(pieces))


_LARGER = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


def _put_usage(connection: apsw.Connection, batch: Batch, at_ms: int) -> None:
    agent = batch.source.agent
    told = {row[0] for row in batch.usage} | {row.native_id for row in batch.cost_totals}
    streams = {native_id: _ensure_stream(connection, batch, native_id, at_ms).id for native_id in told}
    larger = ", ".join(f"{name} = max({name}, excluded.{name})" for name in _LARGER)
    connection.executemany(
        "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0) ON CONFLICT DO UPDATE SET"
        f" {larger}, usd = coalesce(excluded.usd, usd), model = coalesce(excluded.model, model)",
        ((streams[row[0]], *row[1:]) for row in batch.usage),
    )
    connection.executemany(
        "INSERT OR IGNORE INTO cost_totals VALUES (?, ?, ?, ?)",
        ((streams[row.native_id], *row[1:]) for row in batch.cost_totals),
    )
    changed = [(agent, native_id) for native_id in told | set(batch.infos)]
    connection.executemany("UPDATE streams SET is_dirty = 1 WHERE agent = ? AND native_id = ?", changed)


def _put_infos(connection: apsw.Connection, batch: Batch, source: int) -> None:
    for native_id, told in batch.infos.items():
        key = (batch.source.agent, native_id, source)
        known = list(connection.execute("SELECT info FROM infos WHERE agent = ? AND native_id = ? AND source = ?", key))
        info = merge_infos(orjson.loads(known[0][0]), orjson.loads(told)) if known else orjson.loads(told)
        links = [
            info["first"].get(name) for name in ("parent_native_id", "root_native_id", "base_native_id", "born_ms")
        ]
        row = (*key, *links, orjson.dumps(info).decode())
        connection.execute("INSERT OR REPLACE INTO infos VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def merge_infos(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Two tellings of one session: `first` keeps what was said first, `last` what was said last."""
    return {"first": {**later["first"], **earlier["first"]}, "last": {**earlier["last"], **later["last"]}}
