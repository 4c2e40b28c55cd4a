"""Rows of events: what is asked of one or of a few, their payloads, and what lists and searches show of them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from recollect.model.kinds import (
    ASSISTANT_MSG,
    COMPLETION,
    EDIT,
    ERROR,
    FILES_LANE,
    HISTORY_LANE,
    HUMAN_INTERVENTION,
    LIFECYCLE,
    QUEUE_ONLY,
    STAND_IN_LANE,
    USER_MSG,
    SessionKey,
)
from recollect.store.payloads.packs import StreamReader
from recollect.store.sqlite.database import Database
from recollect.store.tables.table import BY_STREAM, CACHE, Table, column, json_keys, json_list

# Bits of `flags`
IS_ERROR = 1
IS_RETRY = 2
IS_ABANDONED = 4
IS_PROVISIONAL = 8
HIDES_LEARNED = 32  # a secret that another event of its batch names: read with others, it may show it
IS_CLAMPED = 64  # its log has it behind later ones
MAY_REPEAT = 128  # and may have copied it from before them
TOLD_RETRY = 16  # the log itself says so; IS_RETRY is then never taken back
IS_REBUILT = 256  # read from a file that Recollect wrote, because nothing else was held of its session


# SQL: events that may stand in for others, requests that follow another event, what a user typed. An index serves only
# statements with the very words it was made with.
STANDS_IN = f"lane IN ('{HISTORY_LANE}', '{STAND_IN_LANE}') OR status = '{QUEUE_ONLY}'"
IS_REQUEST = f"kind = '{USER_MSG}' AND parent_uid IS NOT NULL"
IS_TYPED = f"kind IN ('{USER_MSG}', '{LIFECYCLE}') AND retry_key IS NOT NULL"

# Which session an event is of, and whether it is a copy: a twentieth of the pages that the rows themselves take. SQLite
# goes by it only where a query says so (INDEXED BY), for it takes the row's own number for quicker.
EVENTS_BY_NUMBER = "CREATE INDEX IF NOT EXISTS events_by_number ON events (id, stream, copy_of)"

EVENTS = Table(
    "events",
    CACHE,
    (
        column.row_number("id"),
        *column.numbers("stream"),
        *column.blobs("event_uid"),
        *column.numbers("seq"),
        *column.blobs("parent_uid?"),
        *column.identifiers("lane"),
        *column.numbers("position"),
        *column.identifiers("native_id"),
        *column.numbers("ts_ms?"),
        *column.plain("kind", "base_kind?"),
        *column.labels("role?"),
        *column.names("tool?"),
        *column.identifiers("call_id?"),
        *column.names("status?"),
        column.count("flags", 0),
        *column.blobs("copy_of?"),
        *column.numbers("copy_key?"),
        *column.blobs("retry_key?"),
        *column.texts("summary"),
        *column.numbers("payload_start?", "payload_bytes?"),
        *column.blobs("payload_hash"),
        *column.names("model?", "provider?"),
        *column.labels("content_type?"),
        *column.numbers("input_tokens?", "output_tokens?", "reader"),
        *column.documents("metadata?"),
    ),
    owner=BY_STREAM,
    is_raw=True,
    extras=(
        "CREATE UNIQUE INDEX events_by_uid ON events (event_uid)",
        "CREATE INDEX events_by_stream ON events (stream, seq)",
        "CREATE INDEX events_in_order ON events (stream, lane, position)",
        "CREATE INDEX events_by_copy_key ON events (copy_key, stream) WHERE copy_key IS NOT NULL",
        "CREATE INDEX events_by_copy_of ON events (stream, copy_of) WHERE copy_of IS NOT NULL",
        "CREATE INDEX events_by_original ON events (copy_of) WHERE copy_of IS NOT NULL",
        f"CREATE INDEX events_standing_in ON events (stream) WHERE {STANDS_IN}",
        f"CREATE INDEX events_of_requests ON events (parent_uid) WHERE {IS_REQUEST}",
        f"CREATE INDEX events_as_typed ON events (stream, retry_key) WHERE {IS_TYPED}",
        EVENTS_BY_NUMBER,
    ),
)

# SQL: what copies of an event have in common beside their kind. A call has its arguments: its summary may be made with
# the working directory.
CONTENT = "iif({0}retry_key IS NULL, {0}summary, hex({0}retry_key))"

# A session's payloads are one stream of bytes, cut into frames: `pack` is the number of a shared pack, or 0 for the
# session's own.
FRAMES = Table(
    "frames",
    CACHE,
    column.numbers("stream", "start", "bytes", "pack", "pack_offset", "pack_bytes"),
    owner=BY_STREAM,
    key=("stream", "start", "pack", "pack_offset"),
    is_raw=True,
    extras=("CREATE INDEX frames_by_pack ON frames (pack, pack_offset) WHERE pack > 0",),
)

# How long each shared pack is, and how much of it is blank: -1 until frames that were replaced are.
SHARED_PACKS = Table(
    "shared_packs", CACHE, (column.row_number("number"), *column.numbers("bytes", "blank_bytes")), is_raw=True
)

_T = TypeVar("_T")

PIECE_BYTES = 4 * 1024 * 1024  # of payloads in one transaction: others wait about a tenth of a second


def in_pieces(events: Iterable[_T], bytes_of: Callable[[_T], int]) -> Iterator[list[_T]]:
    """Return a session's events, so many at a time that their payloads can be held at once."""
    piece: list[_T] = []
    size = 0
    for event in events:
        piece.append(event)
        size += bytes_of(event)
        if size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


_ORDER = "lane, position, event_uid"
_OF_SESSION = BY_STREAM


class EventHeader(NamedTuple):
    """What a hit says of an event."""

    id: int
    stream: int
    event_uid: bytes
    seq: int
    lane: str
    position: int
    ts_ms: int | None
    kind: str
    tool: str | None
    flags: int
    summary: str
    payload_start: int
    payload_bytes: int

    @property
    def is_error(self) -> bool:
        return bool(self.flags & IS_ERROR)


_COLUMNS = ", ".join(EventHeader._fields)
_ENDINGS = (USER_MSG, ASSISTANT_MSG, COMPLETION, ERROR, HUMAN_INTERVENTION)


class Payloads:
    """What the events of a store hold, out of the packs."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder

    def iter(self, key: SessionKey, places: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the payloads at (start, bytes) of a session; each frame is unpacked once if they ascend."""
        with closing(StreamReader(self._database, self._folder, *key)) as reader:
            if reader.is_held:
                yield from (reader.read(start, length) for start, length in places)

    def iter_content(self, key: SessionKey) -> Iterator[bytes]:
        """Yield all that is stored in a session's frames, whether or not an event still has it."""
        with closing(StreamReader(self._database, self._folder, *key)) as reader:
            yield from (bytes(reader.content(row).payloads) for row in reader)


class Events:
    """The events of a store without their payloads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rows(
        self,
        key: SessionKey,
        columns: Sequence[str],
        *,
        last: int | None = None,
        calls: str | None = None,
        span: range | None = None,
        kinds: Collection[str] | None = None,
    ) -> list[tuple[Any, ...]]:
        """Return a session's events in reading order, with the columns asked for.

        With `last`, only so many from the end; with `calls`, only calls of this kind and their results; with `span`,
        only those at these places; with `kinds`, only of these.
        """
        tests, bindings = [_OF_SESSION], [*key]
        if kinds is not None:
            tests.append("kind IN (SELECT value FROM json_each(?3))")
            bindings.append(json_list(kinds))
        elif calls is not None:
            call_ids = f"SELECT call_id FROM events WHERE {_OF_SESSION} AND kind = ?3"
            tests.append(f"(kind = ?3 OR call_id IN ({call_ids}))")
            bindings.append(calls)
        order, limit = _ORDER, "" if span is None else f" LIMIT {len(span):d} OFFSET {span.start:d}"
        if last is not None:
            order, limit = "lane DESC, position DESC, event_uid DESC", f" LIMIT {last:d}"
        sql = f"SELECT {', '.join(columns)} FROM events WHERE {' AND '.join(tests)} ORDER BY {order}{limit}"
        rows = self._database.rows(sql, bindings)
        return rows if last is None else rows[::-1]

    def place(self, key: SessionKey, name: str) -> int | None:
        """Return the place in order of the event with this seq or end of a uid; of a result, that of its call."""
        columns = f"SELECT {_ORDER}, call_id, role FROM events WHERE {_OF_SESSION}"
        named = "(CAST(seq AS TEXT) = ?3 OR substr(lower(hex(event_uid)), -length(?3)) = ?3)"
        by_seq = "CAST(seq AS TEXT) = ?3 DESC"  # the end of many a uid is a number, too
        rows = self._database.rows(f"{columns} AND {named} ORDER BY {by_seq}, {_ORDER} LIMIT 1", (*key, name))
        if rows and rows[0][3] is not None and rows[0][4] != "assistant":
            rows = self._database.rows(f"{columns} AND call_id = ?3 ORDER BY {_ORDER} LIMIT 1", (*key, rows[0][3]))
        before = f"SELECT count(*) FROM events WHERE {_OF_SESSION} AND ({_ORDER}) < (?3, ?4, ?5)"
        return self._database.rows(before, (*key, *rows[0][:3]))[0][0] if rows else None

    def of(self, events: Collection[int]) -> dict[int, EventHeader]:
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM events WHERE id IN (SELECT value FROM json_each(?))", (json_list(events),)
        )
        return {row[0]: EventHeader(*row) for row in rows}

    def by_uid(self, uids: Collection[str]) -> dict[str, EventHeader]:
        """Events by their uids, those that are held."""
        found = self._chosen("event_uid IN (SELECT unhex(value) FROM json_each(?))", (json_list(uids),))
        return {event.event_uid.hex(): event for event in found}

    def keys(self, streams: Collection[int]) -> dict[int, SessionKey]:
        """Agent and native id of sessions, by their number in this store."""
        rows = self._database.rows(
            "SELECT id, agent, native_id FROM streams WHERE id IN (SELECT value FROM json_each(?))",
            (json_list(streams),),
        )
        return {stream: SessionKey(agent, native_id) for stream, agent, native_id in rows}

    def streams(self, keys: Collection[SessionKey]) -> dict[SessionKey, int]:
        """Return the numbers of sessions in this store; one that is not held any more has none."""
        rows = self._database.rows(
            "SELECT s.agent, s.native_id, s.id FROM json_each(?) k CROSS JOIN streams s"
            " ON s.agent = k.value ->> 0 AND s.native_id = k.value ->> 1",
            (json_keys(keys),),
        )
        return {SessionKey(agent, native_id): stream for agent, native_id, stream in rows}

    def near(
        self, event: EventHeader, kinds: Sequence[str] = (), *, count: int = 1, is_before: bool = False
    ) -> list[EventHeader]:
        """Return so many events (of some kinds) after or before one in its lane, the nearest first.

        What a side file holds is in another lane: it did not happen next.
        """
        sign, order = ("<", "DESC") if is_before else (">", "ASC")
        of_kinds = f" AND kind IN ({', '.join(map(repr, kinds))})" if kinds else ""
        return self._chosen(
            f"stream = ? AND lane = ? AND (position, event_uid) {sign} (?, ?){of_kinds}"
            f" ORDER BY position {order}, event_uid {order} LIMIT ?",
            (event.stream, event.lane, event.position, event.event_uid, count),
        )

    def ends(self, streams: Collection[int]) -> dict[int, tuple[EventHeader | None, EventHeader | None]]:
        """Return the first request of each session, and the last event that says how it ended."""
        first, last = (
            f"(SELECT id FROM events WHERE stream = k.value AND lane NOT IN ('{FILES_LANE}', '{HISTORY_LANE}')"
            f" AND kind IN ({', '.join(map(repr, kinds))})"
            f" ORDER BY lane {order}, position {order}, event_uid {order} LIMIT 1)"
            for kinds, order in (((USER_MSG,), "ASC"), (_ENDINGS, "DESC"))
        )
        rows = self._database.rows(f"SELECT value, {first}, {last} FROM json_each(?) k", (json_list(streams),))
        headers = self.of({event for _, *ends in rows for event in ends if event is not None})
        return {stream: (headers.get(first), headers.get(last)) for stream, first, last in rows}

    def request(self, stream: int, *, is_last: bool = False, is_own: bool = False) -> EventHeader | None:
        """Return a session's first request, or its last; `is_own`: of those not taken over from another."""
        order = "lane, position DESC, event_uid DESC" if is_last else _ORDER
        own = " AND copy_of IS NULL" if is_own else ""
        first = self._chosen(f"stream = ? AND kind = ?{own} ORDER BY {order} LIMIT 1", (stream, USER_MSG))
        return next(iter(first), None)

    def requests(self, streams: Collection[int]) -> list[str]:
        """Return what was asked for in these sessions, in a line each."""
        return self._database.column(
            "SELECT summary FROM events WHERE stream IN (SELECT value FROM json_each(?)) AND kind = ? LIMIT 40",
            (json_list(streams), USER_MSG),
        )

    def numbered(self, stream: int, seq: int) -> list[EventHeader]:
        """Return the event of a session with this seq, if there is one."""
        return self._chosen("stream = ? AND seq = ?", (stream, seq))

    def named(self, streams: Collection[int], part: str) -> list[EventHeader]:
        """Events of these sessions whose uid begins or ends so."""
        condition = "stream IN (SELECT value FROM json_each(?1)) AND (hex(event_uid) LIKE ?2 || '%'"
        if not (part.isascii() and part.isalnum()):
            return []
        return self._chosen(f"{condition} OR hex(event_uid) LIKE '%' || ?2)", (json_list(streams), part))

    def _chosen(self, condition: str, bindings: Sequence[Any]) -> list[EventHeader]:
        return self._database.read(EventHeader, f"SELECT {_COLUMNS} FROM events WHERE {condition}", bindings)

    def with_edits(self) -> set[int]:
        """Sessions that changed a file themselves: by an edit that did not fail and was not copied from another."""
        return set(
            self._database.column(
                "SELECT DISTINCT stream FROM (SELECT stream, max(kind = ?1 AND copy_of IS NULL) AS is_edit,"
                f" max(flags & {IS_ERROR}) AS has_failed FROM events WHERE kind = ?1 OR flags & {IS_ERROR}"
                " GROUP BY stream, coalesce(call_id, id)) WHERE is_edit AND NOT has_failed",
                (EDIT,),
            )
        )

    def request_of(self, event: EventHeader) -> EventHeader | None:
        """Return the request that an event answers: the last one before it in its lane."""
        return next(iter(self.near(event, (USER_MSG,), is_before=True)), None)

    def answer_to(self, event: EventHeader, *, is_last: bool) -> EventHeader | None:
        """Return what the agent said next after an event, or last, before the following request."""
        end = next((following.position for following in self.near(event, (USER_MSG,))), 2**62)
        said = self._chosen(
            "stream = ? AND lane = ? AND position > ? AND position < ? AND kind IN (?, ?)"
            f" ORDER BY position {'DESC' if is_last else 'ASC'} LIMIT 1",
            (event.stream, event.lane, event.position, end, ASSISTANT_MSG, COMPLETION),
        )
        return next(iter(said), None)

    def results(self, calls: Collection[EventHeader]) -> dict[int, list[EventHeader]]:
        """Return what came of calls of a session, by call: other events with its call id, in the order of payloads."""
        if not calls:
            return {}
        ids = {call.id for call in calls}
        rows = self._database.rows(
            f"SELECT call_id, {_COLUMNS} FROM events WHERE stream = ?1 AND call_id IN (SELECT call_id FROM events"
            " WHERE id IN (SELECT value FROM json_each(?2))) ORDER BY payload_start",
            (next(iter(calls)).stream, json_list(ids)),
        )
        events = [(call_id, EventHeader(*row)) for call_id, *row in rows]
        call_ids = {event.id: call_id for call_id, event in events if event.id in ids}
        return {
            call: [event for call_id, event in events if call_id == call_ids[call] and event.id != call]
            for call in call_ids
        }
