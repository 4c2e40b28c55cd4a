"""Everything Tier 1 holds, read as it is stored: for looking over, taking out, and saving from a damaged file."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from recollect.store import packs
from recollect.store.batch import CostTotalRow, EventRow, SourceRow, UsageRow, hash_payload
from recollect.store.flags import IS_ABANDONED, IS_RETRY, TOLD_RETRY
from recollect.store.frames import HeldStream, SuspectFrames
from recollect.store.sqlite import Database

_UIDS_AT_ONCE = 500

# An event as its adapter told it: what the whole session made of it is found again from the others.
_TOLD = {
    "kind": "coalesce(base_kind, kind)",
    "flags": f"iif(flags & {TOLD_RETRY}, flags, flags & ~{IS_RETRY}) & ~{IS_ABANDONED}",
}
_EVENT_COLUMNS = ", ".join(_TOLD.get(name, name) for name in EventRow._fields)


class HeldEvent(NamedTuple):
    """An event with its payload, which is None if it cannot be had as it was stored."""

    row: EventRow
    payload: bytes | None


class HeldSource(NamedTuple):
    id: int
    row: SourceRow
    failure: str | None
    gone_ms: int | None


class HeldInfo(NamedTuple):
    """What one source tells of one session, as stored."""

    native_id: str
    source: int
    info: str


class HeldProblem(NamedTuple):
    source: int
    line: int | None
    offset: int | None
    reason: str
    raw: bytes
    found_ms: int


class Stored(NamedTuple):
    payload_hash: bytes
    flags: int


class Holdings:
    """Tier 1 of a store, or of one that was set aside: `folder` is where its packs lie."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder

    def streams(self) -> list[HeldStream]:
        columns = ", ".join(HeldStream._fields)
        return [HeldStream(*row) for row in self._database.rows(f"SELECT {columns} FROM streams ORDER BY id")]

    def find(self, agent: str, native_id: str) -> HeldStream | None:
        columns = ", ".join(HeldStream._fields)
        sql = f"SELECT {columns} FROM streams WHERE agent = ? AND native_id = ?"
        return next((HeldStream(*row) for row in self._database.rows(sql, (agent, native_id))), None)

    def rules(self, agent: str, native_id: str) -> str | None:
        """The version of the rules a session was redacted with; None if there is no such session."""
        sql = "SELECT redacted_with FROM streams WHERE agent = ? AND native_id = ?"
        found = self._database.value(sql, (agent, native_id))
        return None if found is None else str(found)

    def rule_versions(self) -> dict[str, int]:
        """The versions of the rules that sessions were redacted with, and how many were with each."""
        sql = "SELECT redacted_with, count(*) FROM streams WHERE redacted_with IS NOT NULL GROUP BY redacted_with"
        return dict(self._database.rows(sql))

    def frames(self, stream: HeldStream) -> SuspectFrames:
        return SuspectFrames(self._database, self._folder, stream)

    def iter_events(self, stream: HeldStream, frames: SuspectFrames) -> Iterator[HeldEvent]:
        """A session's events in the order of their payloads, each payload compared with its hash."""
        sql = f"SELECT {_EVENT_COLUMNS} FROM events WHERE stream = ? ORDER BY payload_start, seq"
        for values in self._database.rows(sql, (stream.id,)):
            row = EventRow._make(values)
            yield HeldEvent(row, _payload(row, frames))

    def iter_all_events(self) -> Iterator[tuple[HeldStream, HeldEvent]]:
        """Every event, in the order they were stored, with its payload if that can be had."""
        streams = {stream.id: stream for stream in self.streams()}
        frames: dict[int, SuspectFrames] = {}
        last: int | None = None
        for number, *values in self._database.iter_rows(f"SELECT stream, {_EVENT_COLUMNS} FROM events ORDER BY id"):
            if number not in streams:
                continue
            if number != last and last is not None and last in frames:
                frames.pop(last).close()  # sessions mostly lie one after another
            last = number
            if number not in frames:
                frames[number] = self.frames(streams[number])
            row = EventRow._make(values)
            yield streams[number], HeldEvent(row, _payload(row, frames[number]))
        for opened in frames.values():
            opened.close()

    def sources(self) -> dict[int, HeldSource]:
        """Every file that was read, by its number."""
        columns = ", ".join(SourceRow._fields)
        rows = self._database.rows(f"SELECT id, {columns}, failure, gone_ms FROM sources ORDER BY id")
        size = len(SourceRow._fields)
        return {row[0]: HeldSource(row[0], SourceRow._make(row[1 : size + 1]), *row[size + 1 :]) for row in rows}

    def sources_of(self, stream: int) -> list[int]:
        rows = self._database.rows("SELECT source FROM stream_sources WHERE stream = ? ORDER BY source", (stream,))
        return [source for (source,) in rows]

    def infos(self, stream: HeldStream) -> list[HeldInfo]:
        sql = "SELECT native_id, source, info FROM infos WHERE agent = ? AND native_id = ? ORDER BY source"
        return [HeldInfo(*row) for row in self._database.rows(sql, (stream.agent, stream.native_id))]

    def usage(self, stream: HeldStream) -> list[UsageRow]:
        columns = ", ".join(UsageRow._fields[1:])
        rows = self._database.rows(f"SELECT {columns} FROM usage WHERE stream = ?", (stream.id,))
        return [UsageRow(stream.native_id, *row) for row in rows]

    def cost_totals(self, stream: HeldStream) -> list[CostTotalRow]:
        rows = self._database.rows("SELECT ledger, usd, ts_ms FROM cost_totals WHERE stream = ?", (stream.id,))
        return [CostTotalRow(stream.native_id, *row) for row in rows]

    def problems(self) -> dict[int, list[HeldProblem]]:
        """Lines that could not be read, by the number of their source."""
        found: dict[int, list[HeldProblem]] = {}
        for row in self._database.rows(f"SELECT {', '.join(HeldProblem._fields)} FROM problems ORDER BY id"):
            found.setdefault(row[0], []).append(HeldProblem(*row))
        return found

    def stored(self, uids: Sequence[bytes]) -> dict[bytes, Stored]:
        """Those of the events that are held."""
        found: dict[bytes, Stored] = {}
        for start in range(0, len(uids), _UIDS_AT_ONCE):
            some = uids[start : start + _UIDS_AT_ONCE]
            marks = ", ".join("?" * len(some))
            sql = f"SELECT event_uid, payload_hash, flags FROM events WHERE event_uid IN ({marks})"
            found |= {uid: Stored(*told) for uid, *told in self._database.rows(sql, some)}
        return found

    def event_counts(self) -> dict[tuple[str, str], int]:
        """How many events of each session are held."""
        rows = self._database.rows(
            "SELECT s.agent, s.native_id, count(*) FROM streams s JOIN events e ON e.stream = s.id GROUP BY s.id"
        )
        return {(agent, native_id): count for agent, native_id, count in rows}

    def unknown_packs(self, streams: Iterable[HeldStream]) -> list[Path]:
        """Pack files that no session of the database has: left by a process that died, or by a lost database."""
        known = {
            packs.pack_path(self._folder, stream.agent, stream.native_id, stream.pack_generation)
            for stream in streams
            if stream.pack_bytes
        }
        return sorted(path for path in (self._folder / "packs").rglob("*.pack") if path not in known)


def _payload(row: EventRow, frames: SuspectFrames) -> bytes | None:
    payload = frames.read(row.payload_start, row.payload_bytes)
    return payload if payload is not None and hash_payload(payload) == row.payload_hash else None
