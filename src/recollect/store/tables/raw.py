"""Tier 1 as it is stored, for looking over, exporting and writing anew; and how large the two tiers are."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import orjson

from recollect.model.errors import StoreDamaged
from recollect.store.batch import EventRow, ProblemRow, SourceRow, hash_payload
from recollect.store.intake import Stored, find_stored
from recollect.store.ledger import LEDGER_NAME
from recollect.store.payloads import packs
from recollect.store.payloads.packs import StreamReader
from recollect.store.sqlite.database import Database, translated
from recollect.store.tables import declared
from recollect.store.tables.events import IS_ABANDONED, IS_RETRY, TOLD_RETRY
from recollect.store.tables.streams import LOST
from recollect.store.tables.table import CACHE

# An event as its adapter read it: what the whole session made of it is derived again from the others.
_AS_READ = {
    "kind": "coalesce(base_kind, kind)",
    "flags": f"iif(flags & {TOLD_RETRY}, flags, flags & ~{IS_RETRY}) & ~{IS_ABANDONED}",
}
EVENT_COLUMNS = ", ".join(_AS_READ.get(name, name) for name in EventRow._fields)


class HeldStream(NamedTuple):
    """One session's events and payloads, as the database knows them."""

    id: int
    agent: str
    native_id: str
    next_seq: int
    stream_bytes: int
    pack_generation: int
    pack_bytes: int
    is_dirty: int
    discovered_ms: int
    redacted_with: str | None  # the rules it was redacted with; None if with none

    @property
    def uid(self) -> str:
        return f"{self.agent}:{self.native_id}"


STREAM_COLUMNS = ", ".join(HeldStream._fields)


class RawCache:
    """The events, payloads and facts of a store."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder

    def streams(self) -> list[HeldStream]:
        return self._database.read(HeldStream, f"SELECT {STREAM_COLUMNS} FROM streams ORDER BY id")

    def find(self, agent: str, native_id: str) -> HeldStream | None:
        sql = f"SELECT {STREAM_COLUMNS} FROM streams WHERE agent = ? AND native_id = ?"
        return next(iter(self._database.read(HeldStream, sql, (agent, native_id))), None)

    def rules(self, agent: str, native_id: str) -> str | None:
        """Return the version of the rules a session was redacted with; None if there is no such session."""
        sql = "SELECT redacted_with FROM streams WHERE agent = ? AND native_id = ?"
        version = self._database.value(sql, (agent, native_id))
        return None if version is None else str(version)

    def rule_versions(self) -> dict[str, int]:
        """Count sessions by the version of the rules they were redacted with."""
        sql = "SELECT redacted_with, count(*) FROM streams WHERE redacted_with IS NOT NULL GROUP BY redacted_with"
        return dict(self._database.rows(sql))

    def reader(self, stream: HeldStream) -> StreamReader:
        return StreamReader(self._database, self._folder, stream.agent, stream.native_id)

    def iter_events(self, stream: HeldStream) -> Iterator[tuple[EventRow, bytes | None]]:
        """A session's events in the order of their payloads, each with its payload; None if that is damaged."""
        sql = f"SELECT {EVENT_COLUMNS} FROM events WHERE stream = ? ORDER BY payload_start, seq"
        with closing(self.reader(stream)) as reader:
            for row in self._database.read(EventRow, sql, (stream.id,)):
                yield row, sound_payload(reader, row)

    def faults(self, stream: HeldStream) -> list[str]:
        """What is wrong with a session's frames, and with the payloads of its events."""
        messages, end = dict[str, None](), 0
        with closing(self.reader(stream)) as reader:
            for row in reader:
                try:
                    reader.content(row)
                except StoreDamaged as error:
                    messages[error.message] = None
                if row.start != end:
                    messages[f"Payloads are missing, bytes {end:,} to {row.start:,}: {stream.uid}"] = None
                end = row.start + row.bytes
        if end != stream.stream_bytes:
            messages[f"Payloads are missing, from byte {end:,} on: {stream.uid}"] = None
        if lost := sum(payload is None for _, payload in self.iter_events(stream)):
            messages[f"The content of {lost:,} events is not what was stored: {stream.uid}"] = None
        now = self.find(stream.agent, stream.native_id) if messages else stream
        if now != stream:  # a sweep has written to it meanwhile
            return self.faults(now) if now else []
        return list(messages)

    def sources(self) -> dict[int, SourceRow]:
        """Every file that was read, by its number."""
        rows = self._database.rows(f"SELECT id, {', '.join(SourceRow._fields)} FROM sources ORDER BY id")
        return {number: SourceRow._make(values) for number, *values in rows}

    def all_sources_of(self, stream: HeldStream) -> list[int]:
        """Every file that has to do with a session."""
        return self._database.column(
            f"SELECT source FROM stream_sources WHERE stream = ? AND source <> {LOST} UNION"
            " SELECT source FROM infos WHERE agent = ? AND native_id = ? ORDER BY 1",
            stream[:3],
        )

    def problems(self) -> dict[int, list[ProblemRow]]:
        """Lines that could not be read, by the number of their source."""
        found: dict[int, list[ProblemRow]] = {}
        sql = f"SELECT source, {', '.join(ProblemRow._fields)} FROM problems ORDER BY id"
        for source, *values in self._database.rows(sql):
            found.setdefault(source, []).append(ProblemRow._make(values))
        return found

    def stored(self, uids: Sequence[bytes]) -> dict[bytes, Stored]:
        """Return those of the events that are held."""
        with translated(self._database.path):
            return find_stored(self._database.connection, uids)

    def event_counts(self) -> dict[tuple[str, str], int]:
        """Count the events held of each session."""
        rows = self._database.rows(
            "SELECT s.agent, s.native_id, count(*) FROM streams s JOIN events e ON e.stream = s.id GROUP BY s.id"
        )
        return {(agent, native_id): count for agent, native_id, count in rows}

    def packs(self) -> Iterator[tuple[Path, int]]:
        """Every pack that is in use, with its length."""
        for stream in self.streams():
            if stream.pack_bytes:
                path = packs.own_pack(self._folder, stream.agent, stream.native_id, stream.pack_generation)
                yield path, stream.pack_bytes
        for number, size in self._database.rows("SELECT number, bytes FROM shared_packs ORDER BY number"):
            yield packs.shared_pack(self._folder, number), size

    def packs_of(self, stream: HeldStream) -> list[Path]:
        """List the packs that have frames of a session, as far as they exist."""
        with closing(self.reader(stream)) as reader:
            return sorted(path for path in {reader.path(row) for row in reader} if path.exists())

    def unknown_packs(self) -> list[Path]:
        """Pack files that the database does not know: left by a process that died, or by a lost database."""
        known = {path for path, _ in self.packs()}
        return [path for path in packs.all_packs(self._folder) if path not in known]


def sound_payload(reader: StreamReader, row: EventRow) -> bytes | None:
    """Read the payload of an event; None if it is not what was stored."""
    try:
        payload = reader.read(row.payload_start, row.payload_bytes)
    except StoreDamaged:
        return None
    return payload if hash_payload(payload) == row.payload_hash else None


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
    """Measures the parts of a store."""

    def __init__(self, cache: Database, memory: Database, folder: Path) -> None:
        self._cache = cache
        self._memory = memory
        self._folder = folder

    def raw_bytes(self, enough: int = 0) -> int:
        """Tier 1: packs with their blanked parts, and the pages of cache.db with raw detail: events, index of words.

        If all of cache.db fits into `enough` that counts, for to tell its pages apart many have to be read.
        """
        most = self.cache_bytes()
        # Frames without payloads do not count: they hold what an evicted session used, which is no raw detail.
        packed = int(
            self._cache.value(
                "SELECT (SELECT coalesce(sum(bytes), 0) FROM shared_packs)"
                " + (SELECT coalesce(sum(iif(pack, 0, pack_bytes) - iif(bytes, 0, pack_bytes)), 0) FROM frames)"
            )
        )
        return packed + (most if packed + most <= enough else self._raw_cache_bytes())

    def cache_bytes(self) -> int:
        """Measure the pages of cache.db that are in use."""
        return _used_bytes(self._cache)

    def _raw_cache_bytes(self) -> int:
        """Measure the pages that evicting everything would free: all but cursors, names, relations, usage."""
        # Not the tables that every database has: they are the file's own, and count against the cap.
        tables = [table.name for table in declared(CACHE) if not table.is_raw and table.database == CACHE]
        # A join, for dbstat then reads the pages of these tables only.
        lasting_bytes = self._cache.value(
            "SELECT coalesce(sum(d.pgsize), 0) FROM sqlite_schema s CROSS JOIN dbstat d ON d.name = s.name"
            " WHERE s.rootpage AND s.tbl_name IN (SELECT value FROM json_each(?)) AND d.aggregate = 1",
            (orjson.dumps(tables).decode(),),
        )
        return max(0, self.cache_bytes() - int(lasting_bytes))

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

    def has_older(self, horizon_ms: int) -> bool:
        """Return True if any session with raw detail may have been idle since before a moment."""
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
