"""The full text of all events: FTS5 tables without content, one for each month of ingest.

The text itself is in the packs only; the index holds words and their positions. Months keep the work of
tidying up after a deletion small. `fulltext_marks` holds how far a session's stream of payloads is indexed:
new events and replaced ones are both behind that mark. `fulltext_gone` is filled by a trigger, so that whoever
deletes an event need not know of the index.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.model.clock import now_ms
from recollect.model.kinds import SessionKey
from recollect.model.text import Columns, columns_of
from recollect.store.batch import Fresh
from recollect.store.search import TOKENIZER, table_of
from recollect.store.sqlite.database import Database
from recollect.store.sqlite.room import empty_log, free_bytes, give_back_pages, is_short, without_overwriting
from recollect.store.tables.events import PIECE_BYTES, Payloads, in_pieces
from recollect.store.tables.table import BY_STREAM, CACHE, Table, column

# Up to where a session's stream of payloads is indexed, and the highest seq among them.
FULLTEXT_MARKS = Table(
    "fulltext_marks",
    CACHE,
    (
        column.row_number("stream"),
        *column.numbers("generation", "bytes", "seq"),
    ),
    owner=BY_STREAM,
    is_raw=True,
)

# A row for each table `fts_<month>`, which is made when its month has its first event.
FULLTEXT_MONTHS = Table(
    "fulltext_months",
    CACHE,
    (
        *column.plain("month"),
        *column.numbers("events", "text_bytes"),
    ),
    key=("month",),
    is_raw=True,
)

# Events that were deleted and may still be in the index: their numbers are used again.
FULLTEXT_GONE = Table(
    "fulltext_gone",
    CACHE,
    (column.row_number("id"),),
    is_raw=True,
    extras=(
        "CREATE TRIGGER events_leave_the_index AFTER DELETE ON events BEGIN"
        " INSERT OR IGNORE INTO fulltext_gone VALUES (OLD.id); END",
    ),
)


_HASH_BYTES = 24 * 1024 * 1024  # words of one transaction held in memory: 10 % quicker than FTS5's 1 MiB
_ROOM_TO_WRITE = 4  # times a month's size: the new index, and both in the log
_HOLDS_GONE = "SELECT 1 FROM fulltext_gone WHERE id IN (SELECT id FROM {}_docsize) LIMIT 1"
_SEGMENTS_TO_MERGE = 8  # twice the default: merging less often saves 10 % of a first import


_Row = tuple[Any, ...]  # the number of an event, then its Columns


class _Unindexed(NamedTuple):
    """A session with events that are not indexed yet, and up to where they are."""

    stream: int
    key: SessionKey
    generation: int
    bytes: int
    seq: int
    all_bytes: int


class _Event(NamedTuple):
    id: int
    seq: int
    kind: str
    payload_start: int
    payload_bytes: int


_Piece = tuple[_Unindexed, list[_Event], list[Columns | None]]  # some events of a session, and the words of each


class Fulltext:
    """Writes the index. `Words` reads it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def index_pending(self, payloads: Payloads, advance: Callable[[int, int], None] = lambda done, total: None) -> int:
        """Index all events that are not in the full text yet; return how many. Cut off anywhere, it goes on from there.

        A session read anew by a better adapter starts from nothing.
        """
        if self._database.value("SELECT 1 FROM fulltext_gone LIMIT 1"):
            with self._database.transaction() as connection:
                _drop_gone(connection)
        rows = self._database.rows(
            "SELECT s.id, s.agent, s.native_id, s.pack_generation,"
            " iif(m.generation = s.pack_generation, m.bytes, 0), iif(m.generation = s.pack_generation, m.seq, 0),"
            " s.stream_bytes"
            " FROM streams s LEFT JOIN fulltext_marks m ON m.stream = s.id"
            " WHERE s.stream_bytes > iif(m.generation = s.pack_generation, m.bytes, 0) ORDER BY s.id"
        )
        sessions = [_Unindexed(row[0], SessionKey(row[1], row[2]), *row[3:]) for row in rows]
        places = {session.stream: place for place, session in enumerate(sessions, start=1)}
        done = 0
        for batch in self._batches(payloads, sessions):
            self._put(batch)
            done += sum(len(events) for _, events, _ in batch)
            advance(places[batch[-1][0].stream], len(sessions))
        if sessions:
            with self._database.transaction() as connection:  # events at the ends may have been deleted
                _move_marks(connection, [(one.stream, one.generation, one.all_bytes, one.seq) for one in sessions])
        return done

    def _batches(self, payloads: Payloads, sessions: Sequence[_Unindexed]) -> Iterator[list[_Piece]]:
        """Small sessions together, large ones in pieces."""
        batch: list[_Piece] = []
        size = 0
        for session in sessions:
            events = self._database.read(
                _Event,
                "SELECT id, seq, coalesce(base_kind, kind), payload_start, payload_bytes FROM events"
                " WHERE stream = ? AND payload_start >= ? ORDER BY payload_start",
                (session.stream, session.bytes),
            )
            for piece in in_pieces(events, attrgetter("payload_bytes")):
                places = [(event.payload_start, event.payload_bytes) for event in piece]
                # Parsed as they come: a large one is not held beside what is made of it.
                contents = map(orjson.loads, payloads.iter(session.key, places))
                words = [columns_of(event.kind, content) for event, content in zip(piece, contents, strict=True)]
                batch.append((session, piece, words))
                size += sum(event.payload_bytes for event in piece)
                if size >= PIECE_BYTES:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def add(self, connection: apsw.Connection, fresh: Sequence[Fresh]) -> None:
        """Index events within the transaction that stores them, and move the marks of their sessions."""
        if not fresh:
            return
        _drop_gone(connection)  # the new ones may have the numbers of deleted ones
        _move_marks(connection, [(part.stream, part.generation, part.bytes, part.seq) for part in fresh])
        rows: list[_Row] = [
            (event, *text)
            for part in fresh
            for event, text in enumerate(part.texts, start=part.first_event)
            if text is not None
        ]
        _insert(connection, _month(), rows)

    def _put(self, pieces: Sequence[_Piece]) -> None:
        """Index these events and move the marks of their sessions, in one transaction."""
        replaced = [event.id for session, events, _ in pieces for event in events if event.seq <= session.seq]
        rows = [
            (event.id, *columns)
            for _, events, words in pieces
            for event, columns in zip(events, words, strict=True)
            if columns is not None
        ]
        with self._database.transaction() as connection:
            _drop_gone(connection)
            _drop(connection, replaced, _months(connection))
            _insert(connection, _month(), rows)
            _move_marks(
                connection,
                [
                    (
                        session.stream,
                        session.generation,
                        events[-1].payload_start + events[-1].payload_bytes,
                        max(event.seq for event in events),
                    )
                    for session, events, _ in pieces
                ],
            )

    def leave_no_byte(self, *, of_all: bool = True) -> None:
        """Write months anew without the words of events that are gone: all, or those that held any until now.

        A month that the disk has no room for goes as a whole, and its sessions are indexed again by the next sweep.
        """
        if is_short(self._database.path.parent):
            self._leave_no_byte_in_steps(of_all=of_all)
            return
        with self._database.transaction() as connection:
            touched = _drop_gone(connection)
            for month in _months(connection) if of_all else touched:
                _write_anew(connection, month)

    def _leave_no_byte_in_steps(self, *, of_all: bool) -> None:
        for month in self._database.column("SELECT month FROM fulltext_months"):
            if not (of_all or self._database.value(_HOLDS_GONE.format(table_of(month)))):
                continue
            empty_log(self._database)
            size = int(self._database.value(f"SELECT coalesce(sum(length(block)), 0) FROM {table_of(month)}_data"))
            if size * _ROOM_TO_WRITE < free_bytes(self._database.path.parent):
                with self._database.transaction() as connection:
                    _drop(connection, _gone(connection), [month])
                    _write_anew(connection, month)
            else:
                with without_overwriting(self._database), self._database.transaction() as connection:
                    # Its sessions count as not indexed: they are taken out of the other months then.
                    connection.execute(
                        "UPDATE fulltext_marks SET bytes = 0 WHERE stream IN"
                        f" (SELECT stream FROM events WHERE id IN (SELECT id FROM {table_of(month)}_docsize))"
                    )
                    _drop_month(connection, month)
            give_back_pages(self._database)
        with self._database.transaction() as connection:  # last: until then they tell which months are to be written
            _drop_gone(connection)

    def sizes(self) -> dict[str, int]:
        """Bytes of text that are indexed, and bytes the index takes."""
        text = self._database.value("SELECT coalesce(sum(text_bytes), 0) FROM fulltext_months")
        months = [month for (month,) in self._database.rows("SELECT month FROM fulltext_months")]
        queries = [f"SELECT sum(length(block)) FROM {table_of(month)}_data" for month in months]
        return {"text": int(text), "index": sum(int(self._database.value(query) or 0) for query in queries)}


def _month() -> str:
    return time.strftime("%Y%m", time.gmtime(now_ms() / 1000))


def _move_marks(connection: apsw.Connection, marks: Sequence[tuple[int, int, int, int]]) -> None:
    connection.executemany(
        "INSERT INTO fulltext_marks VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " seq = iif(generation = excluded.generation, max(seq, excluded.seq), excluded.seq),"
        " generation = excluded.generation, bytes = excluded.bytes",
        marks,
    )


def _months(connection: apsw.Connection) -> list[str]:
    return [month for (month,) in connection.execute("SELECT month FROM fulltext_months ORDER BY month")]


def _insert(connection: apsw.Connection, month: str, rows: Sequence[_Row]) -> None:
    """Index rows of an event's number and its text in each column."""
    if not rows:
        return
    _ensure_month(connection, month)
    names = ", ".join(Columns._fields)
    connection.executemany(
        f"INSERT OR REPLACE INTO {table_of(month)} (rowid, {names}) VALUES (?{', ?' * len(Columns._fields)})", rows
    )
    connection.execute(
        "UPDATE fulltext_months SET events = events + ?, text_bytes = text_bytes + ? WHERE month = ?",
        (len(rows), sum(map(len, chain.from_iterable(row[1:] for row in rows))), month),
    )


def _ensure_month(connection: apsw.Connection, month: str) -> None:
    if month in _months(connection):
        return
    connection.execute(
        f"CREATE VIRTUAL TABLE {table_of(month)} USING fts5({', '.join(Columns._fields)},"
        f" content = '', contentless_delete = 1, tokenize = '{' '.join(TOKENIZER)}')"
    )
    for option, value in (("hashsize", _HASH_BYTES), ("automerge", _SEGMENTS_TO_MERGE)):
        connection.execute(f"INSERT INTO {table_of(month)} ({table_of(month)}, rank) VALUES (?, ?)", (option, value))
    connection.execute("INSERT INTO fulltext_months VALUES (?, 0, 0)", (month,))


def _write_anew(connection: apsw.Connection, month: str) -> None:
    """Leave no words of deleted events in a month's index; one without events goes."""
    if connection.execute(f"SELECT 1 FROM {table_of(month)}_docsize LIMIT 1").get is None:
        _drop_month(connection, month)
    else:
        connection.execute(f"INSERT INTO {table_of(month)} ({table_of(month)}) VALUES ('optimize')")


def _drop_month(connection: apsw.Connection, month: str) -> None:
    connection.execute(f"DROP TABLE {table_of(month)}")
    connection.execute("DELETE FROM fulltext_months WHERE month = ?", (month,))


def _drop_gone(connection: apsw.Connection) -> list[str]:
    """Take deleted events out of the index; return the months that held any.

    Their words stay in the file until segments merge.
    """
    gone = _gone(connection)
    touched = _drop(connection, gone, _months(connection))
    if gone:
        connection.execute("DELETE FROM fulltext_gone")
    return touched


def _gone(connection: apsw.Connection) -> list[int]:
    return [event for (event,) in connection.execute("SELECT id FROM fulltext_gone")]


def _drop(connection: apsw.Connection, events: Iterable[int], months: Sequence[str]) -> list[str]:
    """Delete events from those of the months that hold them; return those months."""
    rows = [(event,) for event in events]
    touched = []
    for month in months if rows else ():
        sql = f"SELECT 1 FROM {table_of(month)}_docsize WHERE id = ?"
        held = [row for row in rows if connection.execute(sql, row).get is not None]
        connection.executemany(f"DELETE FROM {table_of(month)} WHERE rowid = ?", held)
        connection.execute("UPDATE fulltext_months SET events = events - ? WHERE month = ?", (len(held), month))
        touched += [month] if held else []
    return touched
