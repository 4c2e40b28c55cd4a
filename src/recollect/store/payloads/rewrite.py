"""A session's frames written again: when newer redaction rules are applied, when some of them are damaged, or when they
are the small ones of a live host.

A session is framed anew beside its old frames, and the rows change over in one transaction. What was replaced goes
only after that transaction is on the disk, so that at every moment one of them is whole and known.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw

from recollect.model.kinds import SessionKey
from recollect.store.batch import EventRow, Facts, UsageRow, hash_payload
from recollect.store.payloads.packs import Frame
from recollect.store.payloads.writer import (
    FIRST_LIVE,
    FrameWriter,
    Origin,
    Stream,
    hash_source,
    make_frames,
    old_packs,
    tidy_packs,
)
from recollect.store.sqlite.database import Database
from recollect.store.sqlite.snapshot import keep_copy
from recollect.store.tables import declared
from recollect.store.tables.events import in_pieces
from recollect.store.tables.raw import EVENT_COLUMNS, STREAM_COLUMNS, HeldStream, RawCache, sound_payload
from recollect.store.tables.table import BY_STREAM, CACHE, drop_rows

# Stands for the version of the rules in a session whose old text is not yet gone from every byte.
RESCAN_UNFINISHED = "unfinished"

# Of a live host: how many frames there must be for it to pay to write a session again, and what part of the session
# they must hold, in percent: a long session that goes on is not written whole for a few messages.
_FEWEST_FRAMES, _LEAST_PERCENT = 16, 25
_STALE = -1  # the blank bytes of a pack with frames that were replaced
# Sessions in which nothing was replaced: their payloads keep their places, and whoever is reading does not notice.
_SCATTERED = (
    f"SELECT {', '.join(f's.{name}' for name in HeldStream._fields)} FROM live l JOIN streams s"
    " ON s.agent = l.agent AND s.native_id = l.native_id"
    " WHERE l.updated_ms >= ? AND l.updated_ms < ? AND NOT s.is_dirty"
    " AND (SELECT count(*) >= ? AND sum(bytes) * 100 >= s.stream_bytes * ? FROM frames"
    " WHERE stream = s.id AND pack >= ?)"
    " AND s.stream_bytes = (SELECT sum(payload_bytes) FROM events WHERE stream = s.id)"
)

PayloadOf = Callable[[int, EventRow], bytes | None]  # of an event by its number and row


# Some events of a session, placed from 0 on, with their numbers; those without a payload; and frames of the others.
Framed = tuple[list[tuple[int, EventRow]], list[EventRow], list[Frame]]


def iter_framed(connection: apsw.Connection, stream: HeldStream, payload_of: PayloadOf) -> Iterator[Framed]:
    """A session's events and facts as they now are, framed again."""
    sql = f"SELECT id, {EVENT_COLUMNS} FROM events WHERE stream = ? ORDER BY payload_start, seq"
    rows: list[tuple[Any, ...]] = connection.execute(sql, (stream.id,)).fetchall()
    events = [(row[0], EventRow._make(row[1:])) for row in rows]
    origins = _origins(connection, stream)
    origin = next(iter(origins.values()))
    for piece in in_pieces(events, lambda event: event[1].payload_bytes):
        yield _framed(origin, piece, payload_of)
    for facts, source in _facts(connection, stream):
        yield [], [], make_frames(origins.get(source, origin), (), (), facts)


def _framed(origin: Origin, events: Sequence[tuple[int, EventRow]], payload_of: PayloadOf) -> Framed:
    placed, lost, payloads, start = list[tuple[int, EventRow]](), list[EventRow](), list[bytes](), 0
    for number, row in events:
        payload = payload_of(number, row)
        if payload is None:
            lost.append(row)
            continue
        new = row._replace(seq=len(payloads), payload_start=start, payload_bytes=len(payload))
        placed.append((number, new._replace(payload_hash=hash_payload(payload))))
        payloads.append(payload)
        start += len(payload)
    return placed, lost, make_frames(origin, [row for _, row in placed], payloads, Facts())


def _origins(connection: apsw.Connection, stream: HeldStream) -> dict[int, Origin]:
    """Whose frames a session's are, by the number of the source; at least one."""
    sql = (
        "SELECT s.id, s.host, s.kind, s.path FROM sources s WHERE s.id IN"
        " (SELECT source FROM stream_sources WHERE stream = ?1"
        " UNION SELECT source FROM infos WHERE agent = ?2 AND native_id = ?3) ORDER BY s.kind, s.host, s.path"
    )
    key = stream.agent, stream.native_id, stream.redacted_with or ""
    origins = {
        source: Origin(*key, host, kind, hash_source(host, path))
        for source, host, kind, path in connection.execute(sql, stream[:3])
    }
    return origins or {0: Origin(*key, "", "", b"")}


def _facts(connection: apsw.Connection, stream: HeldStream) -> list[tuple[Facts, int]]:
    """Tokens and money, then what each source says of the session."""
    usage = connection.execute(f"SELECT {', '.join(UsageRow._fields)} FROM usage WHERE stream = ?", (stream.id,))
    totals = connection.execute("SELECT ledger, usd, ts_ms FROM cost_totals WHERE stream = ?", (stream.id,))
    counted = [(Facts(None, usage.fetchall(), totals.fetchall()), 0)]
    sql = "SELECT info, source FROM infos WHERE agent = ? AND native_id = ? ORDER BY source"
    return counted + [(Facts(info), source) for info, source in connection.execute(sql, stream[1:3])]


def write_anew(connection: apsw.Connection, folder: Path, stream: HeldStream, payload_of: PayloadOf) -> list[EventRow]:
    """Frame a session again in its packs; returns the events that had no payload, which are deleted.

    The frames it had lose their rows: `tidy_packs` then removes them from the disk.
    """
    generation = stream.pack_generation + 1
    target = Stream(stream.id, stream.agent, stream.native_id, 0, 0, generation, 0, stream.redacted_with, 0)
    writer, lost = FrameWriter(connection, folder), list[EventRow]()
    for placed, unplaced, frames in iter_framed(connection, stream, payload_of):
        start = target.stream_bytes
        connection.executemany(
            "UPDATE events SET payload_start = ?, payload_bytes = ?, payload_hash = ? WHERE id = ?",
            [(start + row.payload_start, row.payload_bytes, row.payload_hash, number) for number, row in placed],
        )
        lost += unplaced
        writer.add(target, frames)
    connection.execute("DELETE FROM frames WHERE stream = ?", (stream.id,))
    writer.finish()
    _drop_events(connection, [(row.event_uid,) for row in lost])
    connection.execute(
        "UPDATE streams SET stream_bytes = ?, pack_generation = ?, pack_bytes = ? WHERE id = ?",
        (target.stream_bytes, generation, target.pack_bytes, stream.id),
    )
    return lost


def keep_facts(connection: apsw.Connection, folder: Path, agent: str, native_id: str) -> None:
    """Of a session without events keep what it used and what its sources say, so that a fork is paid once."""
    sql = f"SELECT {STREAM_COLUMNS} FROM streams WHERE agent = ? AND native_id = ?"
    write_anew(connection, folder, HeldStream(*connection.execute(sql, (agent, native_id)).get), lambda _, row: None)


def _drop_events(connection: apsw.Connection, uids: list[tuple[bytes]]) -> None:
    """Delete events; copies of them elsewhere are to be judged anew."""
    held = "copy_of IS NOT NULL AND copy_of = ?"
    connection.executemany(
        f"UPDATE streams SET is_dirty = 1 WHERE id IN (SELECT stream FROM events WHERE {held})", uids
    )
    connection.executemany(f"UPDATE events SET copy_of = NULL WHERE {held}", uids)
    connection.executemany("DELETE FROM events WHERE event_uid = ?", uids)


class Rewrites:
    """The write side of applying rules to a whole store."""

    def __init__(self, cache: Database, memory: Database, folder: Path) -> None:
        self._cache = cache
        self._memory = memory
        self._folder = folder
        self._raw = RawCache(cache, folder)

    def events(self, stream: HeldStream) -> list[tuple[int, ...]]:
        """A session's events in the order of their payloads: the number, where the payload starts, and its bytes."""
        sql = "SELECT id, payload_start, payload_bytes FROM events WHERE stream = ? ORDER BY payload_start"
        return self._cache.rows(sql, (stream.id,))

    def replace(
        self,
        stream: HeldStream,
        payloads: Mapping[int, bytes],
        flags: int = 0,
        redacted_with: str | None = RESCAN_UNFINISHED,
    ) -> None:
        """Frame a session again with its rows as they now are and these payloads, by event; `drop_old` must follow.

        Events with a new payload get these flags.
        Nothing is written if the session has grown meanwhile: it is then looked at again another time.
        """
        with self._cache.transaction() as connection, closing(self._raw.reader(stream)) as reader:
            if not _is_same(connection, stream):
                return
            sql = "UPDATE events SET flags = flags | ? WHERE id = ?"
            connection.executemany(sql, [(flags, number) for number in payloads] if flags else ())
            write_anew(
                connection,
                self._folder,
                stream,
                lambda number, row: payloads.get(number) or reader.read(row.payload_start, row.payload_bytes),
            )
            # Its events are indexed anew: their old words must not be found.
            connection.execute("INSERT OR IGNORE INTO fulltext_gone SELECT id FROM events WHERE stream = ?", stream[:1])
            connection.execute("DELETE FROM fulltext_marks WHERE stream = ?", stream[:1])
            sql = "UPDATE streams SET redacted_with = ?, is_dirty = 1 WHERE id = ?"
            connection.execute(sql, (redacted_with, stream.id))

    def repack_idle(self, since_ms: int, before_ms: int) -> int:
        """Put the small frames of live sessions together that fell idle in this time; returns how many sessions.

        What they replace goes with the next call, for somebody may be reading it.
        """
        if self._cache.value("SELECT 1 FROM shared_packs WHERE blank_bytes = ? LIMIT 1", (_STALE,)):
            tidy_packs(self._cache, self._folder)
        chosen = since_ms, before_ms, _FEWEST_FRAMES, _LEAST_PERCENT, FIRST_LIVE
        streams = [HeldStream(*row) for row in self._cache.rows(_SCATTERED, chosen)]
        for stream in streams:
            self._repack(stream)
        return len(streams)

    def _repack(self, stream: HeldStream) -> None:
        with self._cache.transaction() as connection, closing(self._raw.reader(stream)) as reader:
            if not _is_same(connection, stream):
                return
            read = reader.read
            sql = "SELECT pack FROM frames WHERE stream = ? AND pack >= ?"
            connection.execute(
                f"UPDATE shared_packs SET blank_bytes = ? WHERE number IN ({sql})", (_STALE, stream.id, FIRST_LIVE)
            )
            write_anew(connection, self._folder, stream, lambda _, row: read(row.payload_start, row.payload_bytes))
            sql = "UPDATE fulltext_marks SET generation = generation + 1 WHERE stream = ? AND generation = ?"
            connection.execute(sql, (stream.id, stream.pack_generation))

    def iter_framed(self, stream: HeldStream) -> Iterator[Framed]:
        """A session in frames as an export has them; what is damaged is left out and counted."""
        with closing(self._raw.reader(stream)) as reader:
            yield from iter_framed(self._cache.connection, stream, lambda _, row: sound_payload(reader, row))

    def drop_damaged(self, stream: HeldStream) -> list[EventRow]:
        """Frame a session again without what is damaged of it; returns the events that are lost by that.

        One of which nothing is left is dropped: it would be taken for one that never was a session.
        """
        with closing(self._raw.reader(stream)) as reader, self._cache.transaction() as connection:
            connection.execute("UPDATE streams SET is_dirty = 1 WHERE id = ?", (stream.id,))
            lost = write_anew(connection, self._folder, stream, lambda _, row: sound_payload(reader, row))
            if connection.execute("SELECT 1 FROM events WHERE stream = ? LIMIT 1", (stream.id,)).get is None:
                key = SessionKey(stream.agent, stream.native_id)
                drop_rows(connection, [table for table in declared(CACHE) if table.owner == BY_STREAM], [key])
                connection.execute("DELETE FROM streams WHERE id = ?", (stream.id,))
            return lost

    def mark(self, streams: Sequence[HeldStream], version: str) -> None:
        """Note the rules that were applied to sessions in which they changed nothing."""
        with self._cache.transaction() as connection:
            for stream in streams:
                if _is_same(connection, stream):
                    sql = "UPDATE streams SET redacted_with = ? WHERE id = ?"
                    connection.execute(sql, (version, stream.id))

    def finish(self, streams: Sequence[HeldStream], version: str) -> None:
        """Note the rules of those that were replaced: nothing is left of what they were."""
        self._cache.write_all(
            "UPDATE streams SET redacted_with = ? WHERE id = ? AND redacted_with = ?",
            [(version, stream.id, RESCAN_UNFINISHED) for stream in streams],
        )

    def drop_old(self) -> None:
        """Have all that was written on the disk, then leave nothing of what it replaced."""
        for database in (self._cache, self._memory):
            database.rows("PRAGMA incremental_vacuum")
            database.checkpoint()
        tidy_packs(self._cache, self._folder)
        keep_copy(self._memory, is_due=True)

    def has_old(self) -> bool:
        """Whether a process that died left something which it had replaced."""
        return bool(old_packs(self._cache, self._folder))


def _is_same(connection: apsw.Connection, stream: HeldStream) -> bool:
    row = connection.execute(f"SELECT {STREAM_COLUMNS} FROM streams WHERE id = ?", (stream.id,)).fetchone()
    return row is not None and HeldStream(*row) == stream
