"""Tier 1 read as it is stored: for looking over, exporting, and writing anew."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from recollect.errors import StoreDamaged
from recollect.store.batch import EventRow, ProblemRow, SourceRow, hash_payload
from recollect.store.intake import Stored, find_stored
from recollect.store.payloads import packs
from recollect.store.payloads.packs import StreamReader
from recollect.store.sqlite.database import Database, translated
from recollect.store.tables.events import IS_ABANDONED, IS_RETRY, TOLD_RETRY
from recollect.store.tables.streams import LOST

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
        """The version of the rules a session was redacted with; None if there is no such session."""
        sql = "SELECT redacted_with FROM streams WHERE agent = ? AND native_id = ?"
        version = self._database.value(sql, (agent, native_id))
        return None if version is None else str(version)

    def rule_versions(self) -> dict[str, int]:
        """The versions of the rules that sessions were redacted with, and how many were with each."""
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
        """Those of the events that are held."""
        with translated(self._database.path):
            return find_stored(self._database.connection, uids)

    def event_counts(self) -> dict[tuple[str, str], int]:
        """How many events of each session are held."""
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
        """The packs that have frames of a session, as far as they exist."""
        with closing(self.reader(stream)) as reader:
            return sorted(path for path in {reader.path(row) for row in reader} if path.exists())

    def unknown_packs(self) -> list[Path]:
        """Pack files that the database does not know: left by a process that died, or by a lost database."""
        known = {path for path, _ in self.packs()}
        return [path for path in packs.all_packs(self._folder) if path not in known]


def sound_payload(reader: StreamReader, row: EventRow) -> bytes | None:
    """The payload of an event; None if it is not what was stored."""
    try:
        payload = reader.read(row.payload_start, row.payload_bytes)
    except StoreDamaged:
        return None
    return payload if hash_payload(payload) == row.payload_hash else None
