"""Whole sessions of cache.db as they are accounted for and distilled: events, responses, what their sources say.

And what sessions hold twice: events copied from others, responses that count once, events that stand in for others.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter, lt
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

import orjson

from recollect.model.kinds import (
    FILES_LANE,
    HISTORY_LANE,
    MAIN_LANE,
    QUEUE_ONLY,
    STAND_IN_LANE,
    USER_MSG,
    SessionKey,
    may_tell_queued,
    name_half,
)
from recollect.store.batch import CostTotalRow
from recollect.store.sqlite.database import Database
from recollect.store.tables.events import (
    CONTENT,
    IS_ABANDONED,
    IS_ERROR,
    IS_REQUEST,
    IS_RETRY,
    IS_TYPED,
    MAY_REPEAT,
    STANDS_IN,
    Events,
    Payloads,
)
from recollect.store.tables.kept import Boundary, Kept
from recollect.store.tables.session_rows import SourceOfSession
from recollect.store.tables.streams import CHOSEN, FIGURES, HALF_BYTES, Streams
from recollect.store.tables.table import KEYS, json_keys, json_list

_T = TypeVar("_T")
_NOTHING: Mapping[SessionKey, Kept] = MappingProxyType({})


class Step(NamedTuple):
    """One event without its payload: of a big store a hundred thousand of these are read in a sweep."""

    id: int
    event_uid: bytes
    parent_uid: bytes | None
    lane: str
    position: int
    ts_ms: int | None
    kind: str
    base_kind: str
    role: str | None
    tool: str | None
    call_id: str | None
    status: str | None
    flags: int
    copy_of: bytes | None
    retry_key: bytes | None
    summary: str
    payload_start: int
    payload_bytes: int
    payload_hash: bytes
    model: str | None
    metadata: str | None
    seq: int = 0

    @property
    def uid(self) -> str:
        return self.event_uid.hex()

    @property
    def is_error(self) -> bool:
        return bool(self.flags & IS_ERROR)

    @property
    def is_retry(self) -> bool:
        return bool(self.flags & IS_RETRY)

    @property
    def is_abandoned(self) -> bool:
        return bool(self.flags & IS_ABANDONED)


class Response(NamedTuple):
    """The tokens of one response of the model."""

    ts_ms: int | None
    model: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    usd: float | None = None
    includes_sub_agents: int = 0
    cache_write_1h_tokens: int = 0  # among `cache_write_tokens`
    web_searches: int = 0
    requests: int = 1


class StoredSession(NamedTuple):
    """All that cache.db holds of one session but its payloads. `steps` are in reading order, copies included.

    Where there is a `kept`, `steps` and `responses` are only those that it does not stand for.
    """

    key: SessionKey
    discovered_ms: int
    steps: list[Step]
    responses: list[Response]  # without copies: they are counted where they were made
    infos: list[dict[str, Any]]
    totals: list[CostTotalRow]
    sources: list[SourceOfSession]
    kept: Kept | None = None

    @property
    def is_held(self) -> bool:
        """True if any event of it is."""
        return bool(self.steps) or self.kept is not None


_STEPS = (
    f"SELECT {', '.join(Step._fields).replace('base_kind', 'coalesce(base_kind, kind)')} FROM events WHERE stream = ?1"
)
_SELECT_STEPS = f"{_STEPS} AND seq < ?2 ORDER BY seq"
# Events of other lanes have their place before or behind: they are always read.
_SELECT_LATE_STEPS = (
    f"{_STEPS} AND seq >= ?2 AND seq < ?4"
    f" UNION ALL {_STEPS} AND lane < ?3 AND seq < ?2 UNION ALL {_STEPS} AND lane > ?3 AND seq < ?2"
)
# Twice as quick as `Step._make`, and there are many.
_step = cast(Callable[[tuple[Any, ...]], Step], partial(tuple.__new__, Step))
_ALL = 1 << 62  # no session has so many events
_place = itemgetter(Step._fields.index("lane"), Step._fields.index("position"))
_place_and_uid = itemgetter(*(Step._fields.index(name) for name in ("lane", "position", "event_uid")))


class Steps:
    """Whole sessions of a store, many at a time."""

    def __init__(self, database: Database, payloads: Payloads) -> None:
        self._database = database
        self._payloads = payloads
        self._streams = Streams(database)

    def groups(self, keys: Sequence[SessionKey], sessions: int, events: int) -> Iterator[list[SessionKey]]:
        """These sessions in groups: no more of them, and about no more events, than can be held at once."""
        group: list[SessionKey] = []
        size = 0
        counts = self.counts(keys)
        for key in (key for key in keys if key in counts):
            if group and (len(group) >= sessions or size + counts[key] > events):
                yield group
                group, size = [], 0
            group.append(key)
            size += counts[key]
        if group:
            yield group

    def counts(self, keys: Collection[SessionKey]) -> dict[SessionKey, int]:
        """Return about how many events are held of each session; none for sessions of which nothing is."""
        rows = self._rows(keys, "SELECT agent, native_id, next_seq FROM keys JOIN streams USING (agent, native_id)")
        return {SessionKey(agent, native_id): next_seq for agent, native_id, next_seq in rows}

    def read(
        self, keys: Sequence[SessionKey], kept: Mapping[SessionKey, Kept] = _NOTHING, before_seq: int = _ALL
    ) -> list[StoredSession]:
        """Return all that is held of these sessions, in their order; less what a `kept` stands for.

        With `before_seq` as if no event from there on had been read yet, nor what was used after the last one.
        """
        sql = "SELECT agent, native_id, id, discovered_ms FROM keys JOIN streams USING (agent, native_id)"
        rows = self._rows(keys, sql)
        streams = {SessionKey(agent, native_id): rest for agent, native_id, *rest in rows}
        steps = {key: self._steps(stream, kept.get(key), before_seq) for key, (stream, _) in streams.items()}
        if before_seq == _ALL:
            responses = self.responses([key for key in keys if key not in kept])
            late = {key: _ALL for key in streams if key in kept}
        else:
            responses = {}
            late = {key: max((step.ts_ms or 0 for step in steps[key]), default=0) for key in streams}
        for key, last_ms in late.items():
            first_ms = kept[key].boundary.cut_ms if key in kept else -1
            responses[key] = self._responses_between(streams[key][0], first_ms, last_ms)
        totals, infos, sources = self.totals(keys), self._streams.infos_of(keys), self._sources(keys)
        return [
            StoredSession(
                key,
                discovered_ms,
                steps[key],
                responses.get(key, []),
                infos.get(key, []),
                totals.get(key, []),
                sources.get(key, []),
                kept.get(key),
            )
            for key in keys
            if key in streams
            for _, discovered_ms in [streams[key]]
        ]

    def of(self, key: SessionKey) -> list[Step]:
        """Return the events that are held of a session, in reading order."""
        streams = self._database.column("SELECT id FROM streams WHERE agent = ? AND native_id = ?", key)
        return [step for stream in streams for step in self._steps(stream, None)]

    def _steps(self, stream: int, kept: Kept | None, before_seq: int = _ALL) -> list[Step]:
        if kept is None:
            rows = self._database.rows(_SELECT_STEPS, (stream, before_seq))
        else:
            bindings = (stream, kept.boundary.seq, kept.boundary.lane, before_seq)
            rows = self._database.rows(_SELECT_LATE_STEPS, bindings)
        places = list(map(_place, rows))
        if not all(map(lt, places, places[1:])):  # most sessions are stored in reading order
            rows.sort(key=_place_and_uid)
        return list(map(_step, rows))

    def responses(self, keys: Collection[SessionKey]) -> dict[SessionKey, list[Response]]:
        """Return what sessions' own responses used; copies are counted where they were made."""
        columns = ", ".join(Response._fields)
        rows = self._rows(
            keys,
            f"SELECT s.agent, s.native_id, {columns} FROM keys CROSS JOIN streams s USING (agent, native_id)"
            " CROSS JOIN usage u ON u.stream = s.id AND NOT u.is_copy ORDER BY u.stream, u.usage_id",
        )
        return _grouped(rows, Response._make)

    def _responses_between(self, stream: int, after_ms: int, last_ms: int) -> list[Response]:
        """What was used after one time and up to another; -1 also has what was used at no time."""
        return self._database.read(
            Response,
            f"SELECT {', '.join(Response._fields)} FROM usage WHERE stream = ?1 AND NOT is_copy"
            " AND (ts_ms > ?2 AND ts_ms <= ?3 OR ?2 < 0 AND ts_ms IS NULL) ORDER BY usage_id",
            (stream, after_ms, last_ms),
        )

    def are_left_behind(self, key: SessionKey, boundary: Boundary, late: Sequence[Step]) -> bool:
        """Check whether a branch that was left behind has events on both sides of a boundary."""
        known = {step.event_uid for step in late}
        requests = {step.parent_uid for step in late if step.base_kind == USER_MSG and step.parent_uid}
        parents = {step.parent_uid for step in late if step.parent_uid} - known
        return any(
            self._database.value(
                # The plus keeps the index by stream out of it: that one leads to all events of the session.
                f"SELECT 1 FROM json_each(?1) p CROSS JOIN events e ON {condition} AND +seq < ?4"
                " AND +stream = (SELECT id FROM streams WHERE agent = ?2 AND native_id = ?3) LIMIT 1",
                (orjson.dumps([uid.hex() for uid in uids]).decode(), *key, boundary.seq),
            )
            for uids, condition in (
                (requests, f"parent_uid = unhex(p.value) AND {IS_REQUEST}"),
                (parents, f"event_uid = unhex(p.value) AND flags & {IS_ABANDONED}"),
            )
        )

    def totals(self, keys: Collection[SessionKey]) -> dict[SessionKey, list[CostTotalRow]]:
        """Return the running totals of sessions whose agent tells any, the least first."""
        rows = self._rows(
            keys,
            "SELECT s.agent, s.native_id, ledger, usd, ts_ms FROM keys CROSS JOIN streams s USING (agent, native_id)"
            " CROSS JOIN cost_totals c ON c.stream = s.id ORDER BY usd",
        )
        return _grouped(rows, CostTotalRow._make)

    def _sources(self, keys: Collection[SessionKey]) -> dict[SessionKey, list[SourceOfSession]]:
        rows = self._rows(
            keys,
            "SELECT r.agent, r.native_id, s.host, s.path, s.size, s.gone_ms"
            " FROM keys CROSS JOIN streams r USING (agent, native_id) CROSS JOIN stream_sources t ON t.stream = r.id"
            " JOIN sources s ON s.id = t.source ORDER BY s.host, s.path",
        )
        return _grouped(rows, SourceOfSession._make)

    def _rows(self, keys: Collection[SessionKey], sql: str) -> list[tuple[Any, ...]]:
        return self._database.rows(KEYS + sql, (json_keys(keys),))

    def payloads(self, key: SessionKey, steps: Iterable[Step]) -> dict[bytes, dict[str, Any]]:
        """Return the payloads of some events, by event; each frame is unpacked once."""
        ordered = sorted(steps, key=lambda step: step.payload_start)
        places = [(step.payload_start, step.payload_bytes) for step in ordered]
        contents = self._payloads.iter(key, places) if places else ()
        pairs = zip(ordered, contents, strict=True)
        return {step.event_uid: orjson.loads(raw) if raw else {} for step, raw in pairs}


def _grouped(rows: Iterable[tuple[Any, ...]], make: Callable[[Sequence[Any]], _T]) -> dict[SessionKey, list[_T]]:
    """Rows that begin with a session's key, by session."""
    groups: dict[tuple[Any, ...], list[_T]] = {}
    for row in rows:
        groups.setdefault(row[:2], []).append(make(row[2:]))
    return {SessionKey._make(key): group for key, group in groups.items()}


class Candidate(NamedTuple):
    """An event that may be a copy of, or copied by, others with the same key and content."""

    key: SessionKey
    copy_key: int | None
    event_uid: bytes
    native_id: str
    position: int
    ts_ms: int | None
    base_kind: str
    content: str
    copy_of: bytes | None


class SharedResponse(NamedTuple):
    """A response that several sessions hold, or that is marked as a copy."""

    key: SessionKey
    usage_id: str
    ts_ms: int | None
    is_copy: int
    figures: tuple[int, ...]


class Request(NamedTuple):
    """An event that a session goes on from though another session holds it."""

    key: SessionKey
    summary: str
    base_kind: str


# What an event of a lane stands in for: a history for any log, a copy of the model's view for the agent's own log.
_BETTER = {HISTORY_LANE: frozenset({MAIN_LANE, STAND_IN_LANE}), STAND_IN_LANE: frozenset({MAIN_LANE})}
_CONTENT = f"coalesce(base_kind, kind), {CONTENT.format('')}"
_CANDIDATE = f"s.agent, s.native_id, copy_key, event_uid, e.native_id, position, ts_ms, {_CONTENT}, copy_of"


class Lineage:
    """Events and responses that several sessions of Tier 1 hold."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def copy_candidates(self) -> list[Candidate]:
        """Events of dirty sessions that share their key with another session, and those others.

        Of a session that need not be read as a whole, only the events since then are looked at.
        """
        rows = self._database.iter_rows(
            "WITH shared AS (SELECT DISTINCT e.copy_key FROM streams s CROSS JOIN events e ON e.stream = s.id"
            " AND e.seq >= coalesce((SELECT max(seq) FROM kept WHERE stream = s.id), 0) WHERE s.is_dirty"
            " AND EXISTS (SELECT 1 FROM events o WHERE o.copy_key = e.copy_key AND o.stream <> e.stream))"
            f" SELECT {_CANDIDATE} FROM shared CROSS JOIN events e USING (copy_key) JOIN streams s ON s.id = e.stream"
        )
        return [Candidate(SessionKey(agent, native_id), *rest) for agent, native_id, *rest in rows]

    def copy_links(self, keys: Collection[SessionKey]) -> set[tuple[SessionKey, SessionKey]]:
        """(session, session it has copies from), of all copies that these sessions made or that were made of them.

        An event's uid begins with a hash of its session: so does what a copy points at, be that held or evicted.
        """
        made = self._database.rows(
            f"SELECT DISTINCT stream, substr(copy_of, 1, {HALF_BYTES}) FROM events"
            f" WHERE stream IN ({CHOSEN}) AND copy_of IS NOT NULL",
            (json_keys(keys),),
        )
        halves = {name_half(*key): key for key in keys}
        taken = self._database.rows(
            f"WITH halves AS MATERIALIZED (SELECT unhex(value) AS half FROM json_each(?))"
            f" SELECT DISTINCT e.stream, half FROM halves CROSS JOIN events e"
            f" ON e.copy_of BETWEEN half AND CAST(half || x'{'ff' * HALF_BYTES}' AS BLOB)",
            (orjson.dumps([half.hex() for half in halves]).decode(),),
        )
        links = {*made, *taken}
        names = Events(self._database).keys({stream for stream, _ in links})
        owners = halves | self._owners({half for _, half in links} - halves.keys())
        return {(names[stream], owners[half]) for stream, half in links if half in owners}

    def _owners(self, halves: Collection[bytes]) -> dict[bytes, SessionKey]:
        """Return the sessions of these hashes, as far as their events or what they used are held."""
        streams = {
            half: self._database.value(
                "SELECT coalesce((SELECT stream FROM events WHERE event_uid BETWEEN ?1 AND ?2 LIMIT 1),"
                " (SELECT stream FROM evicted_streams WHERE uid_half = ?1))",
                (half, half + b"\xff" * HALF_BYTES),
            )
            for half in halves
        }
        held = {stream for stream in streams.values() if stream is not None}
        names = Events(self._database).keys(held)
        return {half: names[stream] for half, stream in streams.items() if stream in names}

    def main_line(self, key: SessionKey) -> list[Candidate]:
        """Return a session's own line, in its order."""
        rows = self._database.iter_rows(
            f"SELECT {_CANDIDATE} FROM streams s CROSS JOIN events e ON e.stream = s.id"
            " WHERE s.agent = ? AND s.native_id = ? AND lane = '' ORDER BY position, event_uid",
            key,
        )
        return [Candidate(SessionKey(agent, native_id), *rest) for agent, native_id, *rest in rows]

    def first_own_ms(self, key: SessionKey) -> int:
        """Return when a session first did what no other session holds; 0 if all it has is shared."""
        own = "NOT EXISTS (SELECT 1 FROM events o WHERE o.copy_key = e.copy_key AND o.stream <> e.stream)"
        first_ms = self._database.value(
            "SELECT min(ts_ms) FROM streams s CROSS JOIN events e ON e.stream = s.id"
            f" WHERE s.agent = ? AND s.native_id = ? AND lane = '' AND {own}",
            key,
        )
        return 0 if first_ms is None else int(first_ms)

    def requests(self, uids: Mapping[SessionKey, bytes]) -> dict[SessionKey, Request]:
        """Return for each session the event it names as the one before its first, if another session holds it.

        An event's uid ends with a hash of the agent's own id for it, which is mostly what it is copied by.
        """
        copy_keys = {key: int.from_bytes(uid[HALF_BYTES:], "big", signed=True) for key, uid in uids.items()}
        rows = self._database.rows(
            "SELECT copy_key, s.agent, s.native_id, summary, coalesce(base_kind, kind) FROM json_each(?) k"
            " CROSS JOIN events e ON e.copy_key = k.value AND e.copy_of IS NULL JOIN streams s ON s.id = e.stream",
            (json_list(copy_keys.values()),),
        )
        requests = {
            copy_key: Request(SessionKey(agent, native_id), *rest) for copy_key, agent, native_id, *rest in rows
        }
        originals = {key: requests[copy_key] for key, copy_key in copy_keys.items() if copy_key in requests}
        return {key: request for key, request in originals.items() if request.key != key}

    def set_copies(self, copies: Sequence[tuple[bytes | None, bytes]]) -> None:
        """Point events (second) at their originals (first), or at none; their sessions become dirty."""
        with self._database.transaction() as connection:
            connection.executemany("UPDATE events SET copy_of = ? WHERE event_uid = ?", copies)
            connection.executemany(
                "UPDATE streams SET is_dirty = 1 WHERE id = (SELECT stream FROM events WHERE event_uid = ?)",
                [(uid,) for _, uid in copies],
            )

    def shared_responses(self, keys: Iterable[SessionKey]) -> list[SharedResponse]:
        """Responses that several of these sessions hold, or that are marked as copies.

        Of a session that need not be read as a whole, those since then, and what is the same before.
        """
        columns = f"agent, native_id, usage_id, ts_ms, is_copy, {', '.join(FIGURES)}"
        rows = self._database.rows(
            f"{KEYS}, members AS MATERIALIZED (SELECT id, agent, native_id, (SELECT max(cut_ms) FROM kept"
            " WHERE stream = id) AS cut_ms FROM keys JOIN streams USING (agent, native_id)),"
            f" late AS MATERIALIZED (SELECT {columns.replace('ts_ms', 'u.ts_ms')} FROM members m"
            " CROSS JOIN usage u ON u.stream = m.id WHERE m.cut_ms IS NULL"
            f" UNION ALL SELECT {columns.replace('ts_ms', 'u.ts_ms')} FROM members m"
            " CROSS JOIN usage u ON u.stream = m.id AND u.ts_ms > m.cut_ms),"
            f" used AS MATERIALIZED (SELECT * FROM late UNION ALL SELECT {columns.replace('usage_id', 'u.usage_id')}"
            " FROM members m CROSS JOIN (SELECT DISTINCT usage_id FROM late) l"
            " CROSS JOIN usage u ON u.stream = m.id AND u.usage_id = l.usage_id"
            " WHERE m.cut_ms IS NOT NULL AND coalesce(u.ts_ms, 0) <= m.cut_ms)"
            " SELECT * FROM used WHERE usage_id IN"
            " (SELECT usage_id FROM used GROUP BY usage_id HAVING count(*) > 1 OR max(is_copy))",
            (json_keys(keys),),
        )
        return [
            SharedResponse(SessionKey(agent, native_id), usage_id, ts_ms, is_copy, tuple(figures))
            for agent, native_id, usage_id, ts_ms, is_copy, *figures in rows
        ]

    def set_usage(
        self, values: Sequence[tuple[tuple[int, ...], SessionKey, str]], columns: Sequence[str] = FIGURES
    ) -> None:
        """Mark responses as copies or not, or give them figures that only a copy has; their sessions become dirty."""
        sets = ", ".join(f"{name} = ?" for name in columns)
        stream = "(SELECT id FROM streams WHERE agent = ? AND native_id = ?)"
        set_dirty = "UPDATE streams SET is_dirty = 1 WHERE agent = ? AND native_id = ?"
        with self._database.transaction() as connection:
            connection.executemany(
                f"UPDATE usage SET {sets} WHERE stream = {stream} AND usage_id = ?",
                [(*figures, *key, usage_id) for figures, key, usage_id in values],
            )
            connection.executemany(set_dirty, {key for _, key, _ in values})

    def stand_ins(self) -> dict[int, tuple[str, str]]:
        """Events that only stood in for what is held itself by now, each with its session.

        A prompt history stands in for any log; a copy of the model's view stands in for the agent's log; a prompt in
        an agent's queue stands in for the record that tells it. An agent that copies a conversation into its own log
        repeats it.
        """
        repeated = self._repeated()
        rows = self._database.rows(
            "SELECT e.id, s.agent, s.native_id, lane, status IS ? FROM streams s CROSS JOIN events e"
            f" ON e.stream = s.id WHERE s.is_dirty AND ({STANDS_IN})",
            (QUEUE_ONLY,),
        )
        if not rows:
            return repeated
        lanes = self._lanes({(agent, native_id) for _, agent, native_id, lane, _ in rows if lane in _BETTER})
        replaced = {
            event: (agent, native_id)
            for event, agent, native_id, lane, _ in rows
            if lane in _BETTER and lanes[agent, native_id] & _BETTER[lane]
        }
        return repeated | replaced | (self._delivered() if any(is_queued for *_, is_queued in rows) else {})

    def drop(self, events: Iterable[int]) -> None:
        self._database.write_all("DELETE FROM events WHERE id = ?", [(event,) for event in events])

    def _repeated(self) -> dict[int, tuple[str, str]]:
        """Events of dirty sessions that may repeat another and say what it says, at its time.

        Of a session that need not be read as a whole, the events since then. The user's own commands have no call ids
        but those of their records.
        """
        rows = self._database.rows(
            "SELECT DISTINCT s.id, s.agent, s.native_id FROM streams s CROSS JOIN events e ON e.stream = s.id"
            " AND e.seq >= coalesce((SELECT max(seq) FROM kept WHERE stream = s.id), 0)"
            f" WHERE s.is_dirty AND e.flags & {MAY_REPEAT}"
        )
        call = "iif(role = 'user', '', call_id)"
        same = f"lane, ts_ms, coalesce(base_kind, kind), role, tool, {call}, {CONTENT.format('')}"
        return {
            event: (agent, native_id)
            for stream, agent, native_id in rows
            for (event,) in self._database.rows(
                f"SELECT id FROM (SELECT id, native_id, flags & {MAY_REPEAT} AS may_repeat,"
                f" first_value(native_id) OVER told AS original, min(flags & {MAY_REPEAT}) OVER told AS all_may"
                " FROM events WHERE stream = ? AND ts_ms IS NOT NULL"
                f" WINDOW told AS (PARTITION BY {same} ORDER BY flags & {MAY_REPEAT}, position, event_uid"
                " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING))"
                " WHERE may_repeat AND (NOT all_may OR native_id <> original)",
                (stream,),
            )
        }

    def _lanes(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], set[str]]:
        """Return where events of these sessions come from: the agent's log, a stand-in for it, a history of prompts."""
        names = f"iif(e.lane IN ('{HISTORY_LANE}', '{STAND_IN_LANE}', '{FILES_LANE}'), e.lane, '')"
        rows = self._database.rows(
            f"{KEYS}SELECT DISTINCT s.agent, s.native_id, {names} FROM keys CROSS JOIN streams s"
            " USING (agent, native_id) CROSS JOIN events e ON e.stream = s.id",
            (json_keys(keys),),
        )
        lanes: dict[tuple[str, str], set[str]] = {}
        for agent, native_id, lane in rows:
            lanes.setdefault((agent, native_id), set()).add(lane)
        return lanes

    def _delivered(self) -> dict[int, tuple[str, str]]:
        """Queued prompts of dirty sessions that another event tells; the same words of days before or later do not."""
        waiting = self._database.rows(
            "SELECT e.id, s.agent, s.native_id, e.stream, hex(retry_key), ts_ms"
            " FROM streams s CROSS JOIN events e ON e.stream = s.id"
            f" WHERE s.is_dirty AND ({STANDS_IN}) AND status = ? AND retry_key IS NOT NULL",
            (QUEUE_ONLY,),
        )
        if not waiting:
            return {}
        streams, keys = {row[3] for row in waiting}, {row[4] for row in waiting}
        delivered = self._database.rows(
            "SELECT stream, hex(retry_key), ts_ms FROM json_each(?) s CROSS JOIN json_each(?) k CROSS JOIN events"
            f" ON stream = s.value AND retry_key = unhex(k.value) AND {IS_TYPED} WHERE status IS NOT ?",
            (json_list(streams), json_list(keys), QUEUE_ONLY),
        )
        times: dict[tuple[int, str], list[int | None]] = {}
        for stream, key, ts_ms in delivered:
            times.setdefault((stream, key), []).append(ts_ms)
        return {
            event: (agent, native_id)
            for event, agent, native_id, stream, key, ts_ms in waiting
            if any(may_tell_queued(told_ms, ts_ms) for told_ms in times.get((stream, key), ()))
        }
