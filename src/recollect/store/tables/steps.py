"""Whole sessions of cache.db as they are accounted for and distilled: events, responses, what their sources say."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter, lt
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

import orjson

from recollect.kinds import USER_MSG, SessionKey
from recollect.store.batch import CostTotalRow
from recollect.store.sqlite.database import Database
from recollect.store.tables.events import IS_ABANDONED, IS_ERROR, IS_REQUEST, IS_RETRY, Payloads
from recollect.store.tables.kept import Boundary, Kept
from recollect.store.tables.session_rows import SourceOfSession
from recollect.store.tables.streams import Streams
from recollect.store.tables.table import KEYS, json_keys

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
