"""Putting a session's payloads in order again, and having its files read anew."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from recollect.store import packs
from recollect.store.adopting import READ_ELSEWHERE
from recollect.store.batch import EventRow
from recollect.store.frames import HeldStream
from recollect.store.holdings import HeldEvent, Holdings
from recollect.store.intake import INLINE_BYTES
from recollect.store.packs import compress
from recollect.store.sqlite import Database

_PIECE_BYTES = 16 * 1024 * 1024


class LostEvent(NamedTuple):
    """An event whose content is gone, as far as this store goes."""

    agent: str
    native_id: str
    event_uid: bytes
    ts_ms: int | None
    kind: str
    summary: str


def rewrite_stream(database: Database, folder: Path, stream: HeldStream) -> list[LostEvent]:
    """Write a session's sound payloads into a pack of the next generation; returns the events that were lost.

    The old pack stays where it is, for the caller to set aside. Until the one transaction commits, the new pack
    is a file that nobody knows of.
    """
    holdings = Holdings(database, folder)
    frames = holdings.frames(stream)
    writer = _StreamWriter(folder, stream)
    try:
        lost = [_lost(stream, event.row) for event in _written(holdings.iter_events(stream, frames), writer)]
        writer.finish()
    finally:
        frames.close()
    with database.transaction() as connection:
        writer.swap(connection)
        _drop_events(connection, [(event.event_uid,) for event in lost])
        if writer.is_empty:
            _drop_stream(connection, stream.id)
    return lost


def _drop_stream(connection: apsw.Connection, stream: int) -> None:
    """Nothing is left of a session here: an empty stream would be taken for one that never was a session."""
    for table in ("usage", "cost_totals", "stream_sources"):
        connection.execute(f"DELETE FROM {table} WHERE stream = ?", (stream,))
    connection.execute("DELETE FROM streams WHERE id = ?", (stream,))


def _drop_events(connection: apsw.Connection, uids: list[tuple[bytes]]) -> None:
    """Delete events; copies of them elsewhere are to be judged anew."""
    held = "copy_of IS NOT NULL AND copy_of = ?"
    connection.executemany(
        f"UPDATE streams SET is_dirty = 1 WHERE id IN (SELECT stream FROM events WHERE {held})", uids
    )
    connection.executemany(f"UPDATE events SET copy_of = NULL WHERE {held}", uids)
    connection.executemany("DELETE FROM events WHERE event_uid = ?", uids)


def _written(events: Iterable[HeldEvent], writer: "_StreamWriter") -> Iterable[HeldEvent]:
    """Hand the events with payloads to the writer; yields the others."""
    for event in events:
        if event.payload is None:
            yield event
        else:
            writer.add(event.row, event.payload)


def _lost(stream: HeldStream, row: EventRow) -> LostEvent:
    return LostEvent(stream.agent, stream.native_id, row.event_uid, row.ts_ms, row.kind, row.summary)


class _StreamWriter:
    """The next generation of a session's payloads, written before the database knows of it."""

    def __init__(self, folder: Path, stream: HeldStream) -> None:
        self._stream = stream
        self._path = packs.pack_path(folder, stream.agent, stream.native_id, stream.pack_generation + 1)
        self._places: list[tuple[int, bytes]] = []
        self._frames: list[tuple[Any, ...]] = []
        self._waiting: list[bytes] = []
        self._waiting_bytes = self._start = self._pack_bytes = 0

    def add(self, row: EventRow, payload: bytes) -> None:
        self._places.append((self._start + self._waiting_bytes, row.event_uid))
        self._waiting.append(payload)
        self._waiting_bytes += len(payload)
        if self._waiting_bytes >= _PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        packed, offset = [], self._pack_bytes
        for frame in compress(b"".join(self._waiting)):
            if len(frame.content) <= INLINE_BYTES:
                place: tuple[Any, ...] = (None, len(frame.content), frame.content)
            else:
                place = (offset, len(frame.content), None)
                packed.append(frame.content)
                offset += len(frame.content)
            self._frames.append((self._stream.id, self._start, frame.length, *place))
            self._start += frame.length
        if packed:
            packs.append(self._path, self._pack_bytes, packed)
            self._pack_bytes = offset
        self._waiting, self._waiting_bytes = [], 0

    @property
    def is_empty(self) -> bool:
        return not self._places

    def finish(self) -> None:
        self._flush()
        if self._pack_bytes:
            packs.make_durable({self._path})

    def swap(self, connection: apsw.Connection) -> None:
        stream = self._stream.id
        connection.execute("DELETE FROM frames WHERE stream = ?", (stream,))
        connection.executemany("INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?)", self._frames)
        connection.executemany("UPDATE events SET payload_start = ? WHERE event_uid = ?", self._places)
        connection.execute(
            "UPDATE streams SET stream_bytes = ?, pack_bytes = ?, pack_generation = pack_generation + 1, is_dirty = 1"
            " WHERE id = ?",
            (self._start, self._pack_bytes, stream),
        )


def read_again(database: Database, stream: int) -> None:
    """Have the next sweep read all files of a session from their start."""
    with database.transaction() as connection:
        connection.execute(
            "UPDATE sources SET mtime_ns = -1, reader = ?, offset = 0, line = 0, head = '', tail = '', state = '{}'"
            " WHERE id IN (SELECT source FROM stream_sources WHERE stream = ?)",
            (READ_ELSEWHERE, stream),
        )
