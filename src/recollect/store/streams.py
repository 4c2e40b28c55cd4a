"""What the steps around ingest read and write: whole sessions' event marks, copies, tokens."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.kinds import may_tell_queued
from recollect.schema import (
    FILES_LANE,
    HISTORY_LANE,
    LIFECYCLE,
    QUEUE_ONLY,
    STAND_IN_LANE,
    USER_MSG,
)
from recollect.store import packs
from recollect.store.flags import IS_ABANDONED, IS_RETRY
from recollect.store.sqlite import Database, translated


class StreamName(NamedTuple):
    id: int
    agent: str
    native_id: str
    discovered_ms: int


class Relations(NamedTuple):
    """Where a session says it comes from, in native ids, and when its file was begun."""

    parent: str | None
    root: str | None
    base: str | None
    born_ms: int | None


class EventMark(NamedTuple):
    """The part of an event that whole-session rules look at, in reading order."""

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
    flags: int
    copy_of: bytes | None
    retry_key: bytes | None
    summary: str  # of requests, notices and commits only: the others are long and nobody asks
    payload_hash: bytes
    model: str | None
    metadata: str | None


class Candidate(NamedTuple):
    """An event that may be a copy of, or copied by, others with the same key."""

    copy_key: int
    stream: int
    event_uid: bytes
    ts_ms: int | None
    base_kind: str
    summary: str
    copy_of: bytes | None


class UsageMark(NamedTuple):
    stream: int
    usage_id: str
    ts_ms: int | None
    model: str | None
    provider: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    usd: float | None
    includes_sub_agents: int
    is_copy: int


class CostMark(NamedTuple):
    stream: int
    ledger: str
    usd: float
    ts_ms: int | None


class SourceMark(NamedTuple):
    stream: int
    host: str
    path: str
    size: int
    gone_ms: int | None


_STAND_INS = (
    (f"'{HISTORY_LANE}', '{STAND_IN_LANE}'", f"NOT IN ('{HISTORY_LANE}', '{STAND_IN_LANE}', '{FILES_LANE}')"),
    (f"'{HISTORY_LANE}'", f"= '{STAND_IN_LANE}'"),
)
_STREAMS_AT_ONCE = 50  # others wait to write meanwhile
_MARK_SQL = {
    "base_kind": "coalesce(base_kind, kind)",
    "summary": f"iif(kind IN ('{USER_MSG}', '{LIFECYCLE}') OR summary LIKE '%git commit%', summary, '')",
}
_MARK_COLUMNS = ", ".join(_MARK_SQL.get(name, name) for name in EventMark._fields)


class Streams:
    """Whole sessions of Tier 1, for the steps that need more than one event at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def dirty(self) -> list[StreamName]:
        """Sessions that hold something their row in memory.db does not tell yet."""
        rows = self._database.rows("SELECT id, agent, native_id, discovered_ms FROM streams WHERE is_dirty ORDER BY id")
        return [StreamName(*row) for row in rows]

    def find(self, agent: str, native_id: str) -> int | None:
        """The number of a session's stream, if any of its events are held."""
        found = self._database.value("SELECT id FROM streams WHERE agent = ? AND native_id = ?", (agent, native_id))
        return None if found is None else int(found)

    def name(self, stream: int) -> tuple[str, str]:
        agent, native_id = self._database.rows("SELECT agent, native_id FROM streams WHERE id = ?", (stream,))[0]
        return agent, native_id

    def set_dirty(self, streams: Iterable[int], is_dirty: bool) -> None:
        with self._database.transaction() as connection:
            connection.executemany(
                "UPDATE streams SET is_dirty = ? WHERE id = ?", [(is_dirty, stream) for stream in streams]
            )

    def set_all_dirty(self) -> None:
        with self._database.transaction() as connection:
            connection.execute("UPDATE streams SET is_dirty = 1")

    def events(self, stream: int) -> list[EventMark]:
        rows = self._database.rows(
            f"SELECT {_MARK_COLUMNS} FROM events WHERE stream = ? ORDER BY lane, position, event_uid",
            (stream,),
        )
        return list(map(EventMark._make, rows))

    def infos(self, agent: str, native_id: str) -> list[dict[str, Any]]:
        """What each source tells of a session, in an order that does not depend on when it was read."""
        rows = self._database.rows(
            "SELECT i.info FROM infos i JOIN sources s ON s.id = i.source WHERE i.agent = ? AND i.native_id = ?"
            " ORDER BY s.kind, s.host, s.path",
            (agent, native_id),
        )
        with translated(self._database.path):
            return [orjson.loads(info) for (info,) in rows]

    def names(self) -> dict[tuple[str, str], int]:
        """The streams of all sessions, by agent and native id."""
        rows = self._database.iter_rows("SELECT id, agent, native_id FROM streams")
        return {(agent, native_id): stream for stream, agent, native_id in rows}

    def relations(self, agent: str, native_id: str) -> Relations:
        """What a session says of its origin: the first source that says anything counts, in a stable order."""
        return self._relations(" AND i.agent = ? AND i.native_id = ?", (agent, native_id)).get(
            (agent, native_id), Relations(None, None, None, None)
        )

    def all_relations(self) -> dict[tuple[str, str], Relations]:
        return self._relations("", ())

    def _relations(self, condition: str, bindings: Sequence[Any]) -> dict[tuple[str, str], Relations]:
        rows = self._database.iter_rows(
            "SELECT i.agent, i.native_id, i.parent_native_id, i.root_native_id, i.base_native_id, i.born_ms"
            " FROM infos i JOIN sources s ON s.id = i.source"
            f" WHERE coalesce(i.parent_native_id, i.root_native_id, i.base_native_id, i.born_ms) IS NOT NULL{condition}"
            " ORDER BY s.kind, s.host, s.path",
            bindings,
        )
        found: dict[tuple[str, str], Relations] = {}
        for agent, native_id, *told in rows:
            known: Sequence[Any] = found.get((agent, native_id)) or (None,) * len(told)
            news = [value if value != native_id else None for value in told]
            merged = [new if old is None else old for old, new in zip(known, news, strict=True)]
            found[agent, native_id] = Relations._make(merged)
        return found

    def spawned(self, agent: str, native_id: str) -> list[str]:
        """Sessions that name this one as their parent."""
        rows = self._database.rows(
            "SELECT DISTINCT native_id FROM infos WHERE agent = ? AND parent_native_id = ?", (agent, native_id)
        )
        return [name for (name,) in rows if name != native_id]

    def descendants(self, agent: str, native_id: str) -> list[int]:
        """Streams of sessions that name this one as their parent, root or base."""
        rows = self._database.rows(
            "SELECT s.id FROM streams s WHERE s.agent = ?1 AND s.native_id <> ?2 AND s.native_id IN ("
            " SELECT native_id FROM infos WHERE agent = ?1 AND parent_native_id = ?2 UNION"
            " SELECT native_id FROM infos WHERE agent = ?1 AND root_native_id = ?2 UNION"
            " SELECT native_id FROM infos WHERE agent = ?1 AND base_native_id = ?2)",
            (agent, native_id),
        )
        return [stream for (stream,) in rows]

    def copy_candidates(self) -> list[Candidate]:
        """Events of dirty sessions that share their key with another session, and those others."""
        return [
            Candidate(*row)
            for row in self._database.iter_rows(
                "WITH shared AS (SELECT DISTINCT e.copy_key FROM streams s JOIN events e ON e.stream = s.id"
                " WHERE s.is_dirty"
                " AND EXISTS (SELECT 1 FROM events o WHERE o.copy_key = e.copy_key AND o.stream <> e.stream))"
                " SELECT copy_key, stream, event_uid, ts_ms, coalesce(base_kind, kind), summary, copy_of"
                " FROM events WHERE copy_key IN (SELECT copy_key FROM shared)"
            )
        ]

    def set_copies(self, copies: Sequence[tuple[bytes | None, bytes]]) -> None:
        """Point events (second) at their originals (first), or at none; their sessions become dirty."""
        with self._database.transaction() as connection:
            connection.executemany("UPDATE events SET copy_of = ? WHERE event_uid = ?", copies)
            connection.executemany(
                "UPDATE streams SET is_dirty = 1 WHERE id = (SELECT stream FROM events WHERE event_uid = ?)",
                [(uid,) for _, uid in copies],
            )

    def copy_links(self) -> set[tuple[int, int]]:
        """(session, session it has copies from, be its own events held or not), for all sessions: copies are few."""
        rows = self._database.iter_rows(
            "SELECT DISTINCT e.stream, o.stream FROM events e JOIN events o ON o.event_uid = e.copy_of"
            " WHERE e.copy_of IS NOT NULL UNION"
            " SELECT DISTINCT e.stream, v.stream FROM events e JOIN evicted_streams v"
            " ON v.uid_half = substr(e.copy_of, 1, 8) AND v.stream <> e.stream WHERE e.copy_of IS NOT NULL"
        )
        return {(stream, owner) for stream, owner in rows}

    def shared_usage(self, streams: Iterable[int]) -> list[UsageMark]:
        """Responses that several of these sessions hold, or that are marked as copies."""
        columns = ", ".join(UsageMark._fields)
        rows = self._database.rows(
            "WITH held AS MATERIALIZED (SELECT * FROM usage WHERE stream IN (SELECT value FROM json_each(?)))"
            f" SELECT {columns} FROM held WHERE usage_id IN"
            " (SELECT usage_id FROM held GROUP BY usage_id HAVING count(*) > 1 OR max(is_copy))",
            (_json(streams),),
        )
        return [UsageMark(*row) for row in rows]

    def set_usage_copies(self, marks: Sequence[tuple[bool, int, str]]) -> None:
        with self._database.transaction() as connection:
            connection.executemany("UPDATE usage SET is_copy = ? WHERE stream = ? AND usage_id = ?", marks)
            connection.executemany(
                "UPDATE streams SET is_dirty = 1 WHERE id = ?", [(stream,) for _, stream, _ in marks]
            )

    def usage(self, stream: int) -> list[UsageMark]:
        columns = ", ".join(UsageMark._fields)
        return [
            UsageMark._make(row)
            for row in self._database.rows(f"SELECT {columns} FROM usage WHERE stream = ?", (stream,))
        ]

    def cost_totals(self, stream: int) -> list[CostMark]:
        columns = ", ".join(CostMark._fields)
        return [
            CostMark(*row)
            for row in self._database.rows(
                f"SELECT {columns} FROM cost_totals WHERE stream = ? ORDER BY usd", (stream,)
            )
        ]

    def sources(self, stream: int) -> list[SourceMark]:
        rows = self._database.rows(
            "SELECT t.stream, s.host, s.path, s.size, s.gone_ms FROM stream_sources t JOIN sources s ON s.id = t.source"
            " WHERE t.stream = ? ORDER BY s.host, s.path",
            (stream,),
        )
        return [SourceMark(*row) for row in rows]

    def set_marks(self, changes: Sequence[tuple[str, str | None, bool, bool, int]]) -> None:
        """Write derived kinds and marks: (kind, base kind if other, is_retry, is_abandoned, event id)."""
        if not changes:
            return
        mask = ~(IS_RETRY | IS_ABANDONED)
        with self._database.transaction() as connection:
            connection.executemany(
                f"UPDATE events SET kind = ?, base_kind = ?, flags = (flags & {mask})"
                f" | iif(?, {IS_RETRY}, 0) | iif(?, {IS_ABANDONED}, 0) WHERE id = ?",
                changes,
            )

    def stand_ins(self) -> dict[int, tuple[str, str]]:
        """Events that only stood in for what is held itself by now, each with its session.

        A prompt history stands in for any log; a copy of the model's view stands in for the agent's log; a prompt in
        an agent's queue stands in for the record that tells it.
        """
        found: dict[int, tuple[str, str]] = {}
        for lanes, better in _STAND_INS:
            rows = self._database.rows(
                "SELECT e.id, s.agent, s.native_id FROM streams s JOIN events e ON e.stream = s.id"
                f" WHERE s.is_dirty AND e.lane IN ({lanes})"
                f" AND EXISTS (SELECT 1 FROM events o WHERE o.stream = s.id AND o.lane {better})"
            )
            found |= {event: (agent, native_id) for event, agent, native_id in rows}
        return found | self._delivered()

    def drop_events(self, events: Iterable[int]) -> None:
        with self._database.transaction() as connection:
            connection.executemany("DELETE FROM events WHERE id = ?", [(event,) for event in events])

    def _delivered(self) -> dict[int, tuple[str, str]]:
        """Queued prompts of dirty sessions that another event tells; the same words of days before or later do not."""
        waiting = self._database.rows(
            "SELECT e.id, s.agent, s.native_id, e.stream, hex(retry_key), ts_ms"
            " FROM streams s JOIN events e ON e.stream = s.id"
            " WHERE s.is_dirty AND status = ? AND retry_key IS NOT NULL",
            (QUEUE_ONLY,),
        )
        if not waiting:
            return {}
        streams, keys = {row[3] for row in waiting}, {row[4] for row in waiting}
        told = self._database.rows(
            "SELECT stream, hex(retry_key), ts_ms FROM events"
            " WHERE stream IN (SELECT value FROM json_each(?)) AND status IS NOT ?"
            " AND hex(retry_key) IN (SELECT value FROM json_each(?))",
            (_json(streams), QUEUE_ONLY, orjson.dumps(sorted(keys)).decode()),
        )
        times: dict[tuple[int, str], list[int | None]] = {}
        for stream, key, ts_ms in told:
            times.setdefault((stream, key), []).append(ts_ms)
        return {
            event: (agent, native_id)
            for event, agent, native_id, stream, key, ts_ms in waiting
            if any(may_tell_queued(told_ms, ts_ms) for told_ms in times.get((stream, key), ()))
        }

    def drop_outdated(self, sources: Collection[int]) -> None:
        """Forget what an older version of an adapter told of these sources, which are read again from their start.

        A session that another source tells of too keeps its events: that one may be gone and the only copy.
        If the process dies on the way nothing is lost, for the sources still count as outdated.
        """
        if not sources:
            return
        with self._database.transaction() as connection:
            for table in ("infos", "problems"):
                connection.execute(
                    f"DELETE FROM {table} WHERE source IN (SELECT value FROM json_each(?))", (_json(sources),)
                )
        outdated = self._database.rows(
            "SELECT id, agent, native_id, pack_generation FROM streams WHERE id IN"
            " (SELECT stream FROM stream_sources GROUP BY stream"
            " HAVING min(source IN (SELECT value FROM json_each(?))))",
            (_json(sources),),
        )
        for start in range(0, len(outdated), _STREAMS_AT_ONCE):
            some = outdated[start : start + _STREAMS_AT_ONCE]
            with self._database.transaction() as connection:
                _empty(connection, [stream for stream, *_ in some])
            for _, *pack in some:
                packs.pack_path(self._database.path.parent, *pack).unlink(missing_ok=True)

    def emptied(self) -> list[tuple[str, str]]:
        """Agent and native id of sessions that only an older version of an adapter told of."""
        rows = self._database.rows(
            "SELECT agent, native_id FROM streams s WHERE pack_generation > 1"
            " AND NOT EXISTS (SELECT 1 FROM events WHERE stream = s.id)"
        )
        return [(agent, native_id) for agent, native_id in rows]


def _json(numbers: Iterable[int]) -> str:
    return orjson.dumps(sorted(numbers)).decode()


def _empty(connection: apsw.Connection, streams: list[int]) -> None:
    """Delete all that is held of these sessions; copies of their events elsewhere are to be judged anew."""
    chosen = f"({', '.join(map(str, streams))})"
    copies = f"copy_of IS NOT NULL AND copy_of IN (SELECT event_uid FROM events WHERE stream IN {chosen})"
    connection.execute(f"UPDATE streams SET is_dirty = 1 WHERE id IN (SELECT stream FROM events WHERE {copies})")
    connection.execute(f"UPDATE events SET copy_of = NULL WHERE {copies}")
    for table in ("events", "frames", "usage", "cost_totals", "stream_sources"):
        connection.execute(f"DELETE FROM {table} WHERE stream IN {chosen}")
    connection.execute(
        "UPDATE streams SET next_seq = 1, stream_bytes = 0, pack_generation = pack_generation + 1, pack_bytes = 0,"
        f" is_dirty = 1 WHERE id IN {chosen}"
    )
