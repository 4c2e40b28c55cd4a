"""How large the two tiers are, and which sessions make up the first."""

from pathlib import Path
from typing import NamedTuple

import orjson

from recollect.store.ledger import LEDGER_NAME
from recollect.store.sqlite.database import Database
from recollect.store.tables import declared
from recollect.store.tables.table import CACHE

_ROW_BYTES = 500  # about what an event takes beside its words
_LASTING_OF_SESSION = 4096  # about what eviction leaves in cache.db
_SESSIONS_OF_A_LOG = 32  # a file that tells of more is a history of prompts, which brings no session back


class HeldSession(NamedTuple):
    """A session whose raw detail is held. `analyzed_ms` is None unless its digest tells of all that is held.

    `active_ms` is the later of its last activity and its ingest, `ended_ms` its last activity alone; `is_last_copy`
    that the agent's own files are gone; `has_forks` that other held sessions are made from it by reference.
    """

    agent: str
    native_id: str
    session_uid: str
    bytes: int
    active_ms: int
    analyzed_ms: int | None
    is_last_copy: bool = False
    has_forks: bool = False
    ended_ms: int = 0


class Sizes:
    """How much room the parts of a store take."""

    def __init__(self, cache: Database, memory: Database, folder: Path) -> None:
        self._cache = cache
        self._memory = memory
        self._folder = folder

    def raw_bytes(self, enough: int = 0) -> int:
        """Tier 1: packs, and the pages of cache.db that hold raw detail: events and the index of their words.

        If all of cache.db fits into `enough` that counts, for to tell its pages apart many have to be read.
        """
        packed, most = self._packed_bytes(), self.cache_bytes()
        return packed + (most if packed + most <= enough else self._raw_cache_bytes())

    def cache_bytes(self) -> int:
        """The pages of cache.db that are in use."""
        return _used_bytes(self._cache)

    def _raw_cache_bytes(self) -> int:
        return max(0, self.cache_bytes() - self._lasting_bytes())

    def _lasting_bytes(self) -> int:
        """The pages of cache.db that evicting everything would leave: cursors, names, relations, usage."""
        # Not the tables that every database has: they are the file's own, and count against the cap.
        tables = [table.name for table in declared(CACHE) if not table.is_raw and table.database == CACHE]
        # A join, for dbstat then reads the pages of these tables only.
        return int(
            self._cache.value(
                "SELECT coalesce(sum(d.pgsize), 0) FROM sqlite_schema s CROSS JOIN dbstat d ON d.name = s.name"
                " WHERE s.rootpage AND s.tbl_name IN (SELECT value FROM json_each(?)) AND d.aggregate = 1",
                (orjson.dumps(tables).decode(),),
            )
        )

    def _packed_bytes(self) -> int:
        """What packs take, blanked parts of shared ones included.

        Frames without payloads do not count: they hold what an evicted session used, which is no raw detail.
        """
        return int(
            self._cache.value(
                "SELECT (SELECT coalesce(sum(bytes), 0) FROM shared_packs)"
                " + (SELECT coalesce(sum(iif(pack, 0, pack_bytes) - iif(bytes, 0, pack_bytes)), 0) FROM frames)"
            )
        )

    def distilled_bytes(self) -> int:
        """Tier 2: the pages of memory.db that are in use, the ledger, and about what evicting leaves in cache.db."""
        ledger = self._folder / LEDGER_NAME
        ledger_bytes = ledger.stat().st_size if ledger.exists() else 0
        lasting = _LASTING_OF_SESSION * int(self._cache.value("SELECT count(*) FROM streams"))
        return _used_bytes(self._memory) + ledger_bytes + lasting

    def on_disk(self) -> dict[str, int]:
        """Bytes on disk by part of the store."""
        packs = sum(file.stat().st_size for file in (self._folder / "packs").rglob("*.pack"))
        sizes = {database.path.name: _file_bytes(database.path) for database in (self._memory, self._cache)}
        return {**sizes, "packs": packs, "total": packs + sum(sizes.values())}

    def about_bytes(self) -> int:
        """About how large the store is, without a look at every pack."""
        return self._packed_bytes() + sum(_file_bytes(database.path) for database in (self._memory, self._cache))

    def has_older(self, horizon_ms: int) -> bool:
        """Whether any session with raw detail may have been idle since before a moment."""
        return (
            self._memory.value(
                "SELECT 1 FROM sessions WHERE max(coalesce(ended_ms, 0), coalesce(ingested_ms, 0)) < ?"
                " AND (evicted_ms IS NULL OR ingested_ms > evicted_ms) LIMIT 1",
                (horizon_ms,),
            )
            is not None
        )

    def held(self, host: str, now_ms: int) -> list[HeldSession]:
        """Every session with raw detail; what that takes in the database is shared out among them by their size."""
        streams = self._cache.rows(
            f"SELECT id, agent, native_id, stream_bytes + next_seq * {_ROW_BYTES},"
            " (SELECT coalesce(sum(pack_bytes), 0) FROM frames WHERE stream = s.id) FROM streams s"
            " WHERE EXISTS (SELECT 1 FROM events WHERE stream = s.id)"
        )
        per_weight = self._raw_cache_bytes() / (sum(weight for *_, weight, _ in streams) or 1)
        rows = self._rows()
        safe, forked = self._with_sources(host), self._forked()
        return [
            HeldSession(
                agent,
                native_id,
                uid,
                packed + round(weight * per_weight),
                max(min(ended_ms or 0, now_ms), min(ingested_ms or 0, now_ms)),
                analyzed_ms,
                stream not in safe,
                stream in forked,
                min(ended_ms or 0, now_ms),
            )
            for stream, agent, native_id, weight, packed in streams
            for uid, ended_ms, ingested_ms, analyzed_ms in rows.get((agent, native_id), ())
        ]

    def _rows(self) -> dict[tuple[str, str], list[tuple[str, int | None, int | None, int | None]]]:
        rows = self._memory.iter_rows(
            "SELECT s.agent, s.native_session_id, s.session_uid, s.ended_ms, s.ingested_ms,"
            " iif(d.ingested_ms IS s.ingested_ms, s.analyzed_ms, NULL)"
            " FROM sessions s LEFT JOIN digests d USING (agent, native_session_id)"
        )
        return {(agent, native_id): [(uid, *rest)] for agent, native_id, uid, *rest in rows}

    def _with_sources(self, host: str) -> set[int]:
        """Sessions that can be read again from files of this machine."""
        return set(
            self._cache.column(
                "WITH logs AS MATERIALIZED (SELECT t.source FROM stream_sources t JOIN sources s ON s.id = t.source"
                " WHERE s.host = ? AND s.gone_ms IS NULL GROUP BY t.source HAVING count(*) <= ?)"
                " SELECT DISTINCT t.stream FROM stream_sources t JOIN logs USING (source)",
                (host, _SESSIONS_OF_A_LOG),
            )
        )

    def logs(self, name: tuple[str, str], host: str) -> list[str]:
        """Files of this machine from which a session can be read again, as far as is known."""
        return self._cache.column(
            "SELECT s.path FROM streams r JOIN stream_sources t ON t.stream = r.id JOIN sources s ON s.id = t.source"
            " WHERE r.agent = ? AND r.native_id = ? AND s.host = ? AND s.gone_ms IS NULL"
            " AND (SELECT count(*) FROM stream_sources WHERE source = s.id) <= ? ORDER BY s.path",
            (*name, host, _SESSIONS_OF_A_LOG),
        )

    def _forked(self) -> set[int]:
        """Sessions from which others that are held are made, by reference or by copying."""
        return set(
            self._cache.column(
                "SELECT b.id FROM infos i JOIN streams b ON b.agent = i.agent AND b.native_id = i.base_native_id"
                " JOIN streams s ON s.agent = i.agent AND s.native_id = i.native_id AND s.id <> b.id"
                " WHERE i.base_native_id IS NOT NULL AND EXISTS (SELECT 1 FROM events WHERE stream = s.id)"
                " UNION SELECT o.stream FROM events e JOIN events o ON o.event_uid = e.copy_of"
                " WHERE e.copy_of IS NOT NULL AND o.stream <> e.stream"
            )
        )


def _file_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))


def _used_bytes(database: Database) -> int:
    pages, free, size = (
        int(database.value(f"PRAGMA {name}")) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
