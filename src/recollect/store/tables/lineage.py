"""What sessions hold in common: copied events, and responses that count once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from recollect.kinds import SessionKey
from recollect.store.sqlite.database import Database
from recollect.store.tables.events import CONTENT
from recollect.store.tables.streams import FIGURES, HALF_BYTES
from recollect.store.tables.table import KEYS, json_keys, json_list


class Candidate(NamedTuple):
    """An event that may be a copy of, or copied by, others with the same key and content."""

    key: SessionKey
    copy_key: int
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


class MainLineEvent(NamedTuple):
    """An event of the main line, as far as a copy under another id is recognised by it."""

    event_uid: bytes
    position: int
    base_kind: str
    content: str
    copy_of: bytes | None


class Request(NamedTuple):
    """An event that a session goes on from though another session holds it."""

    key: SessionKey
    summary: str
    base_kind: str


_CONTENT = f"coalesce(base_kind, kind), {CONTENT.format('')}"
_STREAM_OF = "(SELECT id FROM streams WHERE agent = ? AND native_id = ?)"
_SET_DIRTY = "UPDATE streams SET is_dirty = 1 WHERE agent = ? AND native_id = ?"


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
            f" SELECT s.agent, s.native_id, copy_key, event_uid, e.native_id, position, ts_ms, {_CONTENT}, copy_of"
            " FROM shared CROSS JOIN events e USING (copy_key) JOIN streams s ON s.id = e.stream"
        )
        return [Candidate(SessionKey(agent, native_id), *rest) for agent, native_id, *rest in rows]

    def main_line(self, key: SessionKey) -> list[MainLineEvent]:
        """A session's own line, in its order."""
        return self._database.read(
            MainLineEvent,
            f"SELECT event_uid, position, {_CONTENT}, copy_of FROM streams s CROSS JOIN events e ON e.stream = s.id"
            " WHERE s.agent = ? AND s.native_id = ? AND lane = '' ORDER BY position, event_uid",
            key,
        )

    def first_own_ms(self, key: SessionKey) -> int:
        """When a session first did what no other session holds; 0 if all it has is shared."""
        own = "NOT EXISTS (SELECT 1 FROM events o WHERE o.copy_key = e.copy_key AND o.stream <> e.stream)"
        first_ms = self._database.value(
            "SELECT min(ts_ms) FROM streams s CROSS JOIN events e ON e.stream = s.id"
            f" WHERE s.agent = ? AND s.native_id = ? AND lane = '' AND {own}",
            key,
        )
        return 0 if first_ms is None else int(first_ms)

    def requests(self, uids: Mapping[SessionKey, bytes]) -> dict[SessionKey, Request]:
        """For each session the event that it names as the one before its first, if another session holds it.

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

    def set_figures(self, figures: Sequence[tuple[tuple[int, ...], SessionKey, str]]) -> None:
        """Give responses the figures that are complete only in a copy; their sessions become dirty."""
        values = ", ".join(f"{name} = ?" for name in FIGURES)
        with self._database.transaction() as connection:
            connection.executemany(
                f"UPDATE usage SET {values} WHERE stream = {_STREAM_OF} AND usage_id = ?",
                [(*most, *key, usage_id) for most, key, usage_id in figures],
            )
            connection.executemany(_SET_DIRTY, {key for _, key, _ in figures})

    def set_usage_copies(self, marks: Sequence[tuple[bool, SessionKey, str]]) -> None:
        """Mark responses as copies, or take the mark back; their sessions become dirty."""
        with self._database.transaction() as connection:
            connection.executemany(
                f"UPDATE usage SET is_copy = ? WHERE stream = {_STREAM_OF} AND usage_id = ?",
                [(is_copy, *key, usage_id) for is_copy, key, usage_id in marks],
            )
            connection.executemany(_SET_DIRTY, {key for _, key, _ in marks})
