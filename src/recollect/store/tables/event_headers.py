"""Single events and what stands around them, as hits show them."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from recollect.kinds import (
    ASSISTANT_MSG,
    COMPLETION,
    EDIT,
    ERROR,
    FILES_LANE,
    HISTORY_LANE,
    HUMAN_INTERVENTION,
    USER_MSG,
    SessionKey,
)
from recollect.store.flags import IS_ERROR
from recollect.store.sqlite.database import Database


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


_COLUMNS = ", ".join(EventHeader._fields)
_ORDER = "lane, position, event_uid"
_ENDINGS = (USER_MSG, ASSISTANT_MSG, COMPLETION, ERROR, HUMAN_INTERVENTION)


class EventHeaders:
    """Events of cache.db, a few at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, events: Collection[int]) -> dict[int, EventHeader]:
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM events WHERE id IN (SELECT value FROM json_each(?))", (_json(events),)
        )
        return {row[0]: EventHeader(*row) for row in rows}

    def keys(self, streams: Collection[int]) -> dict[int, SessionKey]:
        """Agent and native id of sessions, by their number in this store."""
        rows = self._database.rows(
            "SELECT id, agent, native_id FROM streams WHERE id IN (SELECT value FROM json_each(?))", (_json(streams),)
        )
        return {stream: SessionKey(agent, native_id) for stream, agent, native_id in rows}

    def streams(self, keys: Collection[SessionKey]) -> dict[SessionKey, int]:
        """The numbers of sessions in this store; one that is not held any more has none."""
        rows = self._database.rows(
            "SELECT s.agent, s.native_id, s.id FROM json_each(?) k CROSS JOIN streams s"
            " ON s.agent = k.value ->> 0 AND s.native_id = k.value ->> 1",
            (orjson.dumps(sorted(map(tuple, keys))).decode(),),
        )
        return {SessionKey(agent, native_id): stream for agent, native_id, stream in rows}

    def around(self, event: EventHeader, count: int) -> tuple[list[EventHeader], list[EventHeader]]:
        """So many events before and after one in its lane: what a side file holds did not happen next."""
        if not count:
            return [], []
        before, after = (
            self._chosen(
                f"stream = ? AND lane = ? AND (position, event_uid) {sign} (?, ?)"
                f" ORDER BY position {order}, event_uid {order} LIMIT ?",
                (event.stream, event.lane, event.position, event.event_uid, count),
            )
            for sign, order in (("<", "DESC"), (">", "ASC"))
        )
        return before[::-1], after

    def ends(self, streams: Collection[int]) -> dict[int, tuple[EventHeader | None, EventHeader | None]]:
        """The first request of each session, and the last event that says how it ended."""
        first, last = (
            f"(SELECT id FROM events WHERE stream = k.value AND lane NOT IN ('{FILES_LANE}', '{HISTORY_LANE}')"
            f" AND kind IN ({', '.join(map(repr, kinds))})"
            f" ORDER BY lane {order}, position {order}, event_uid {order} LIMIT 1)"
            for kinds, order in (((USER_MSG,), "ASC"), (_ENDINGS, "DESC"))
        )
        rows = self._database.rows(f"SELECT value, {first}, {last} FROM json_each(?) k", (_json(streams),))
        headers = self.of({event for _, *ends in rows for event in ends if event is not None})
        return {stream: (headers.get(first), headers.get(last)) for stream, first, last in rows}

    def last_request(self, stream: int) -> EventHeader | None:
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM events WHERE stream = ? AND kind = ?"
            " ORDER BY lane, position DESC, event_uid DESC LIMIT 1",
            (stream, USER_MSG),
        )
        return EventHeader(*rows[0]) if rows else None

    def first_request(self, stream: int, *, is_own: bool = False) -> EventHeader | None:
        """What a session began with; `is_own`: the first that it did not take over from another session."""
        own = " AND copy_of IS NULL" if is_own else ""
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM events WHERE stream = ? AND kind = ?{own} ORDER BY {_ORDER} LIMIT 1",
            (stream, USER_MSG),
        )
        return EventHeader(*rows[0]) if rows else None

    def requests(self, streams: Collection[int]) -> list[str]:
        """What was asked for in these sessions, in a line each."""
        rows = self._database.rows(
            "SELECT summary FROM events WHERE stream IN (SELECT value FROM json_each(?)) AND kind = ? LIMIT 40",
            (_json(streams), USER_MSG),
        )
        return [summary for (summary,) in rows]

    def numbered(self, stream: int, seq: int) -> list[EventHeader]:
        """The event of a session with this seq, if there is one."""
        return self._chosen("stream = ? AND seq = ?", (stream, seq))

    def named(self, streams: Collection[int], part: str) -> list[EventHeader]:
        """Events of these sessions whose uid begins or ends so."""
        condition = "stream IN (SELECT value FROM json_each(?1)) AND (hex(event_uid) LIKE ?2 || '%'"
        is_hex = part.isascii() and part.isalnum()
        return self._chosen(f"{condition} OR hex(event_uid) LIKE '%' || ?2)", (_json(streams), part)) if is_hex else []

    def _chosen(self, condition: str, bindings: Sequence[Any]) -> list[EventHeader]:
        rows = self._database.rows(f"SELECT {_COLUMNS} FROM events WHERE {condition}", bindings)
        return [EventHeader(*row) for row in rows]

    def with_edits(self) -> set[int]:
        """Sessions that changed a file themselves: by an edit that did not fail and was not copied from another."""
        rows = self._database.rows(
            "SELECT DISTINCT stream FROM (SELECT stream, max(kind = ?1 AND copy_of IS NULL) AS is_edit,"
            f" max(flags & {IS_ERROR}) AS has_failed FROM events WHERE kind = ?1 OR flags & {IS_ERROR}"
            " GROUP BY stream, coalesce(call_id, id)) WHERE is_edit AND NOT has_failed",
            (EDIT,),
        )
        return {stream for (stream,) in rows}

    def request_of(self, event: EventHeader) -> EventHeader | None:
        """The request that an event answers: the last one before it in its lane."""
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM events WHERE stream = ? AND lane = ? AND kind = ?"
            " AND (position, event_uid) < (?, ?) ORDER BY position DESC, event_uid DESC LIMIT 1",
            (event.stream, event.lane, USER_MSG, event.position, event.event_uid),
        )
        return EventHeader(*rows[0]) if rows else None

    def results(self, calls: Collection[EventHeader]) -> dict[int, list[EventHeader]]:
        """What came of calls of one session, by call: the other events with its call id, in the order of payloads."""
        if not calls:
            return {}
        ids = {call.id for call in calls}
        rows = self._database.rows(
            f"SELECT call_id, {_COLUMNS} FROM events WHERE stream = ?1 AND call_id IN (SELECT call_id FROM events"
            " WHERE id IN (SELECT value FROM json_each(?2))) ORDER BY payload_start",
            (next(iter(calls)).stream, _json(ids)),
        )
        events = [(call_id, EventHeader(*row)) for call_id, *row in rows]
        call_ids = {event.id: call_id for call_id, event in events if event.id in ids}
        return {
            call: [event for call_id, event in events if call_id == call_ids[call] and event.id != call]
            for call in call_ids
        }


def _json(numbers: Iterable[int]) -> str:
    return orjson.dumps(sorted(numbers)).decode()
