"""Taking over what was read elsewhere: from an export, or from a database that was set aside.

What is held already stays as it is. A source that is taken over has no cursor: its file, if it is ever found here,
is read from its start.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import apsw
import orjson

from recollect.clock import now_ms
from recollect.store import Store
from recollect.store.batch import Batch, CostTotalRow, EventRow, SourceRow, StreamBatch, UsageRow
from recollect.store.frames import HeldStream
from recollect.store.holdings import HeldProblem, HeldSource, Holdings
from recollect.store.intake import Written
from recollect.store.packs import compress
from recollect.store.tombstones import Tombstones, without_forgotten

# Newer than any version of an adapter: such a source is read from its start, and nothing of it is dropped before.
READ_ELSEWHERE = 1 << 30

_PAYLOAD_BYTES_AT_ONCE = 16 * 1024 * 1024
_LINKS = ("parent_native_id", "root_native_id", "base_native_id", "born_ms")


@dataclass(frozen=True, slots=True)
class AdoptedSource:
    """A file that somebody else read, what it tells of a session (JSON), and its lines that could not be read."""

    row: SourceRow
    info: str | None = None
    problems: Sequence[tuple[Any, ...]] = ()  # line, offset, reason, raw, found_ms


@dataclass(slots=True)
class Adoption:
    """A session to take over. Rows have their payloads beside them, in the same order."""

    agent: str
    native_id: str
    sources: list[AdoptedSource]
    rows: list[EventRow] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    usage: list[UsageRow] = field(default_factory=list)
    cost_totals: list[CostTotalRow] = field(default_factory=list)
    redacted_with: str = ""  # the version of this store's rules; without, the next sweep applies them


def adopt(store: Store, adoption: Adoption, tombstones: Tombstones) -> Written:
    """Store what is new of a session, all of it or nothing; the next account makes its row; nothing forgotten."""
    sources = adoption.sources or _remembered(store, adoption) or [_source("unknown", adoption, adoption.native_id)]
    tombstones.inherit(adoption.agent, [(adoption.native_id, source.info) for source in sources if source.info])
    if tombstones.hold(adoption.agent, adoption.native_id):
        return Written(0, 0)
    told = {(source.row.host, source.row.path): source for source in sources}
    return store.intake.put(
        [without_forgotten(batch, tombstones) for batch in _batches(adoption, sources)],
        lambda connection, batch: _save(
            connection, batch, adoption.native_id, told[batch.source.host, batch.source.path]
        ),
    )


def _batches(adoption: Adoption, sources: list[AdoptedSource]) -> Iterator[Batch]:
    """The session's events with its first source; the others are only linked to it."""
    first, *others = [_without_cursor(source.row) for source in sources]
    batch = partial(Batch, redacted_with=adoption.redacted_with, is_adopted=True)
    for stream in _pieces(adoption):
        yield batch(source=first, streams=[stream])
    for source in others:
        yield batch(source=source, streams=[StreamBatch(adoption.native_id)])
    yield batch(
        source=first,
        streams=[StreamBatch(adoption.native_id)],
        usage=list(adoption.usage),
        cost_totals=adoption.cost_totals,
    )


def _pieces(adoption: Adoption) -> Iterator[StreamBatch]:
    rows: list[tuple[Any, ...]] = []
    payloads: list[bytes] = []
    size = 0
    for row, payload in zip(adoption.rows, adoption.payloads, strict=True):
        rows.append(row._replace(seq=len(rows), payload_start=size, payload_bytes=len(payload)))
        payloads.append(payload)
        size += len(payload)
        if size >= _PAYLOAD_BYTES_AT_ONCE:
            yield StreamBatch(adoption.native_id, rows, compress(b"".join(payloads)))
            rows, payloads, size = [], [], 0
    if rows:
        yield StreamBatch(adoption.native_id, rows, compress(b"".join(payloads)))


def _without_cursor(row: SourceRow) -> SourceRow:
    return row._replace(
        mtime_ns=-1, ctime_ns=-1, inode=0, reader=READ_ELSEWHERE, offset=0, line=0, head="", tail="", state="{}"
    )


def _remembered(store: Store, adoption: Adoption) -> list[AdoptedSource]:
    """The files that a session's row tells of."""
    session = store.sessions.find_named(adoption.agent, adoption.native_id)
    return [_source(source.host, adoption, source.path) for source in session.sources] if session else []


def _source(host: str, adoption: Adoption, path: str) -> AdoptedSource:
    return AdoptedSource(SourceRow(host, adoption.agent, path, "unknown", 0, 0, 0, 0, 0, 0, 0, "", "", "{}"))


def _save(connection: apsw.Connection, batch: Batch, native_id: str, told: AdoptedSource) -> int:
    """The number of a source that is taken over; one that is known keeps its cursor and what it tells."""
    row = batch.source
    columns = (*SourceRow._fields, "read_ms", "gone_ms")
    connection.execute(
        f"INSERT OR IGNORE INTO sources ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
        (*row, now_ms(), now_ms()),
    )
    sql = "SELECT id FROM sources WHERE host = ? AND agent = ? AND path = ?"
    source = int(connection.execute(sql, (row.host, row.agent, row.path)).get)
    _save_info(connection, (row.agent, native_id), source, told.info)
    for line, offset, *rest in told.problems:
        connection.execute(
            "INSERT INTO problems (source, line, offset, reason, raw, found_ms) SELECT ?1, ?2, ?3, ?4, ?5, ?6"
            " WHERE NOT EXISTS (SELECT 1 FROM problems WHERE source = ?1 AND line IS ?2 AND offset IS ?3)",
            (source, line, offset, *rest),
        )
    return source


def _save_info(connection: apsw.Connection, name: tuple[str, str], source: int, info: str | None) -> None:
    if info is None:
        return
    first = orjson.loads(info)["first"]
    connection.execute(
        "INSERT OR IGNORE INTO infos VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*name, source, *(first.get(name) for name in _LINKS), info),
    )
    if connection.changes():
        sql = "UPDATE streams SET is_dirty = 1 WHERE agent = ? AND native_id = ?"
        connection.execute(sql, name)


def adopted_sources(
    holdings: Holdings, stream: HeldStream, sources: dict[int, HeldSource], problems: dict[int, list[HeldProblem]]
) -> Iterator[AdoptedSource]:
    """A session's sources with what each tells of it."""
    infos = {info.source: info.info for info in holdings.infos(stream)}
    for number in dict.fromkeys([*holdings.sources_of(stream.id), *infos]):
        if number in sources:
            bad = tuple(problem[1:] for problem in problems.get(number, ()))
            yield AdoptedSource(sources[number].row, infos.get(number), bad)
