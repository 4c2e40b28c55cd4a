"""Making frames, appending them to packs, and taking them out again.

A frame describes itself: whose it is, which rules of redaction it went through, its events as the adapter read them,
and what was read along with them of tokens, money and the session. So cache.db can be made again from the packs alone.

Sweeps append within one transaction of cache.db. A live host must not wait for the write lock until a disk has what it
appended, so each such process has a shared pack of its own, numbered from FIRST_LIVE on, and holds the lock of that
file for as long as it writes. A pack that nobody holds is continued by the next process.

A message counts as stored when its frame is on the disk and its rows are committed; the database's log is not flushed
for it. So a power cut may leave frames behind the end of a pack as the database knows it: `iter_lost` finds them, and
until that is done nobody appends to the pack or drops it.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import orjson

from recollect.model import failpoints
from recollect.model.files import sync, write_all
from recollect.model.text import columns_of
from recollect.store.batch import Batch, CostTotalRow, EventRow, Facts, SourceRow, StreamBatch, UsageRow
from recollect.store.payloads import packs
from recollect.store.payloads.packs import (
    OWN,
    SHARED_BYTES,
    SHARED_PACK_BYTES,
    Content,
    Frame,
    iter_frames,
    pack_frame,
    shared_pack,
    unpack_entry,
)
from recollect.store.sqlite.database import Database
from recollect.store.sqlite.room import free_bytes

if TYPE_CHECKING:
    from msgspec import msgpack


FRAME_BYTES = 256 * 1024
HOST = "live"  # the kind, and the path, of a source that is no file but a host
FIRST_LIVE = 1 << 32  # above the numbers of packs that the holder of the write lock appends to
_LEAST_USED = 0.5  # of a shared pack: below it, the rest moves elsewhere


class Origin(NamedTuple):
    """Whose frame it is, and which file it was read from."""

    agent: str
    native_id: str
    redacted_with: str
    host: str
    source_kind: str
    source_hash: bytes  # of its path, which may be renamed


Description = tuple[Origin, list[EventRow], Facts]  # what a frame says of itself


@cache
def _codec() -> "tuple[msgpack.Encoder, msgpack.Decoder[tuple[Any, ...]]]":
    from msgspec import msgpack  # takes time to load, and most sweeps make no frame

    facts = tuple[str | None, list[UsageRow], list[CostTotalRow]]
    return msgpack.Encoder(), msgpack.Decoder(tuple[Origin, list[EventRow], facts])


def origin_of(batch: Batch, native_id: str) -> Origin:
    source = batch.source
    source_hash = hash_source(source.host, source.path)
    return Origin(source.agent, native_id, batch.redacted_with, source.host, source.kind, source_hash)


def hash_source(host: str, path: str) -> bytes:
    return sha256(f"{host}\0{path}".encode()).digest()[:8]


def make_frames(
    origin: Origin, rows: Sequence[tuple[Any, ...]], payloads: Sequence[bytes], facts: Facts
) -> list[Frame]:
    """Frames for rows, each with its payload beside it; the facts are in the last one, which may hold nothing else."""
    encode, frames = _codec()[0].encode, list[Frame]()
    begin = size = 0
    for number, payload in enumerate(payloads, start=1):
        size += len(payload)
        if size >= FRAME_BYTES and number < len(payloads):
            frames.append(pack_frame(encode((origin, rows[begin:number], Facts())), payloads[begin:number]))
            begin, size = number, 0
    if begin < len(payloads) or not facts.is_empty:
        frames.append(pack_frame(encode((origin, rows[begin:], facts)), payloads[begin:]))
    return frames


def take_rows(
    origin: Origin, part: StreamBatch, rows: Sequence[tuple[Any, ...]]
) -> tuple[list[tuple[Any, ...]], list[Frame]]:
    """Some rows of a batch, numbered and placed one after another, in frames with their payloads and the facts."""
    stream = b"".join(content.payloads for frame in part.frames if (content := unpack_entry(frame.entry)))
    kept: list[tuple[Any, ...]] = []
    payloads: list[bytes] = []
    start = 0
    for row in map(EventRow._make, rows):
        payloads.append(stream[row.payload_start : row.payload_start + row.payload_bytes])
        kept.append(tuple(row._replace(seq=len(kept), payload_start=start)))
        start += row.payload_bytes
    return kept, make_frames(origin, kept, payloads, part.facts)


def leave_out_events(batch: Batch, part: StreamBatch, rows: list[tuple[Any, ...]]) -> StreamBatch:
    """A session's part of a batch with these of its rows only, and only their payloads."""
    if len(rows) == len(part.rows):
        return part
    kept, frames = take_rows(origin_of(batch, part.native_id), part, rows)
    return StreamBatch(part.native_id, kept, frames, facts=part.facts, named=part.named, has_events=True)


def describe(content: Content) -> Description:
    """What a frame says of itself, its rows placed from its own beginning on; raises ValueError if it is not ours."""
    origin, rows, facts = _codec()[1].decode(content.head)
    start = 0
    for number, row in enumerate(rows):
        rows[number] = row._replace(seq=number, payload_start=start)
        start += row.payload_bytes
    if start != len(content.payloads) or any(row.payload_bytes < 0 for row in rows):
        raise ValueError("rows and payloads of a frame do not fit")
    return origin, rows, Facts(*facts)


def iter_described(pack: Path) -> Iterator[tuple[Frame, Content, Description]]:
    """Every frame of ours in a pack, whatever is between them."""
    for frame, content in iter_frames(pack):
        with suppress(ValueError):  # sound, and still none of ours
            yield frame, content, describe(content)


@dataclass(slots=True)
class Stream:
    """One session as the writer sees it before it appends."""

    id: int
    agent: str
    native_id: str
    next_seq: int
    stream_bytes: int
    pack_generation: int
    pack_bytes: int
    redacted_with: str | None
    indexed_bytes: int
    sources: set[int] = field(default_factory=set)


class Moved(Exception):
    """What was to be appended to has another place meanwhile: look it up again."""


class FrameWriter:
    """Gathers frames and writes each pack once. The caller holds the write lock by its transaction."""

    def __init__(self, connection: apsw.Connection, folder: Path, *, leaving: int = 0) -> None:
        self._connection = connection
        self._folder = folder
        self._leaving = leaving  # a shared pack that is about to be deleted
        self._rows: list[tuple[Any, ...]] = []
        self._own: dict[Path, tuple[int, list[bytes]]] = {}  # known bytes, entries
        self._shared: dict[int, tuple[int, list[bytes]]] = {}
        self._live: dict[int, int] = {}  # how long live packs are with frames that are on the disk already
        self._number = self._bytes = 0

    def _last_shared(self) -> tuple[int, int]:
        """The shared pack to go on with, and its length; a new one if the last is not whole, or is being left."""
        sql = "SELECT number, bytes FROM shared_packs WHERE number < ? ORDER BY number DESC LIMIT 1"
        number, size = next(iter(self._connection.execute(sql, (FIRST_LIVE,))), (0, 0))
        is_sound = number > 0 and packs.has_bytes(shared_pack(self._folder, number), size)
        return (number, size) if is_sound and number != self._leaving else (number + 1, 0)

    def add(self, target: Stream, frames: Sequence[Frame]) -> None:
        """Place frames at the end of a session; moves its `stream_bytes` and `pack_bytes`."""
        for frame in frames:
            size = len(frame.entry)
            if frame.pack is not None:
                pack, offset = frame.pack, frame.offset
                if pack >= FIRST_LIVE:
                    self._live[pack] = max(self._live.get(pack, 0), offset + size)
                if pack == OWN:
                    target.pack_generation = frame.generation
                    target.pack_bytes = max(target.pack_bytes, frame.file_bytes)
            elif size <= SHARED_BYTES:
                pack, offset = self._add_shared(frame.entry)
            else:
                path = packs.own_pack(self._folder, target.agent, target.native_id, target.pack_generation)
                self._own.setdefault(path, (target.pack_bytes, []))[1].append(frame.entry)
                pack, offset = OWN, target.pack_bytes
                target.pack_bytes += size
            self._rows.append((target.id, target.stream_bytes, frame.payload_bytes, pack, offset, size))
            target.stream_bytes += frame.payload_bytes

    def move(self, stream: int, start: int, payload_bytes: int, entry: bytes) -> None:
        """Place a frame of a shared pack anew, where it was in its session."""
        self._rows.append((stream, start, payload_bytes, *self._add_shared(entry), len(entry)))

    def _add_shared(self, entry: bytes) -> tuple[int, int]:
        if not self._number:
            self._number, self._bytes = self._last_shared()
        if self._bytes >= SHARED_PACK_BYTES:
            self._number, self._bytes = self._number + 1, 0
        self._shared.setdefault(self._number, (self._bytes, []))[1].append(entry)
        offset = self._bytes
        self._bytes += len(entry)
        return self._number, offset

    def finish(self) -> None:
        """Have all frames on the disk, then the rows that say where they are."""
        shared = {shared_pack(self._folder, number): part for number, part in self._shared.items()}
        grown = self._own | shared
        for path, (known_bytes, entries) in grown.items():
            packs.append(path, known_bytes, entries)
        for number, size in self._live.items():
            self._connection.execute("UPDATE shared_packs SET bytes = max(bytes, ?) WHERE number = ?", (size, number))
            if not self._connection.changes():
                raise Moved  # it was dropped since they were written
        packs.make_durable({path: known_bytes == 0 for path, (known_bytes, _) in grown.items()})
        self._connection.executemany("INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?)", self._rows)
        self._connection.executemany(
            "INSERT INTO shared_packs VALUES (?, ?, 0) ON CONFLICT DO UPDATE SET bytes = excluded.bytes",
            [(number, known + sum(map(len, entries))) for number, (known, entries) in self._shared.items()],
        )


def old_packs(cache: Database, folder: Path) -> list[Path]:
    """Packs of sessions that were framed again since."""
    rows = cache.rows("SELECT agent, native_id, pack_generation FROM streams WHERE pack_generation > 1")
    older = (packs.own_pack(folder, agent, name, old) for agent, name, last in rows for old in range(1, last))
    return [path for path in older if path.exists()]


def tidy_packs(database: Database, folder: Path) -> None:
    """Leave no byte of frames whose rows are gone; the database says so on the disk already.

    Own packs that were replaced go. Shared ones have the bytes blanked, and go if they hold too little else.
    """
    for path in old_packs(database, folder):
        path.unlink()
    sql = (
        "SELECT number, p.bytes, blank_bytes, coalesce(sum(pack_bytes), 0) FROM shared_packs p"
        " LEFT JOIN frames ON pack = number AND pack > 0 GROUP BY number ORDER BY number"
    )
    for number, size, blank_bytes, used in database.rows(sql):
        path = shared_pack(folder, number)
        if used and not packs.has_bytes(path, size):
            continue  # damaged: a repair takes out what is left of it
        has_room = not used or free_bytes(folder) > 2 * used
        if used < size * _LEAST_USED and has_room and not _is_in_use(path, number, size):
            _drop_shared(database, folder, number)
        elif size - used > blank_bytes:
            _blank_unused(database, path, number, size)


def _blank_unused(database: Database, path: Path, number: int, size: int) -> None:
    """Overwrite with zeros what belongs to no frame. It needs no room and can be done again."""
    frames = database.rows("SELECT pack_offset, pack_bytes FROM frames WHERE pack = ? ORDER BY 1", (number,))
    end = blank_bytes = 0
    with path.open("r+b") as file:
        file_bytes = os.fstat(file.fileno()).st_size
        for offset, length in (*frames, (size, 0)):
            file.seek(end)
            file.write(bytes(max(0, min(offset, file_bytes) - end)))
            blank_bytes += max(0, offset - end)
            end = offset + length
        file.flush()
        os.fsync(file.fileno())
    database.write("UPDATE shared_packs SET blank_bytes = ? WHERE number = ?", (blank_bytes, number))


def _drop_shared(database: Database, folder: Path, number: int) -> None:
    """Move what is left in a shared pack into the last one, or a new one, then unlink it."""
    path = shared_pack(folder, number)
    with database.transaction() as connection:
        sql = "SELECT stream, start, bytes, pack_offset, pack_bytes FROM frames WHERE pack = ?"
        rows = list(connection.execute(sql, (number,)))
        writer, content = FrameWriter(connection, folder, leaving=number), path.read_bytes() if rows else b""
        for stream, start, payload_bytes, offset, size in rows:
            writer.move(stream, start, payload_bytes, content[offset : offset + size])
        connection.execute("DELETE FROM frames WHERE pack = ?", (number,))
        writer.finish()
        connection.execute("DELETE FROM shared_packs WHERE number = ?", (number,))
    database.checkpoint()  # until this is on the disk, the frames' old places count
    if path.exists():
        path.unlink()
        sync(path.parent)


class LivePack:
    """Appends frames behind what is committed: frames that never were are overwritten by the next."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self._fd = -1
        self._number = 0

    def place(self, batches: Iterable[Batch]) -> None:
        """Have the frames of batches on the disk, so that whoever stores the batches need not wait for it."""
        parts = [part for batch in batches for part in batch.streams]
        placed = iter(self._append([frame for part in parts for frame in part.frames]))
        for part in parts:
            part.frames = list(islice(placed, len(part.frames)))

    def _append(self, frames: Sequence[Frame]) -> list[Frame]:
        known = self._known_bytes(self._number) if self._fd >= 0 else None
        if known is None or known >= SHARED_PACK_BYTES:
            known = self._open_next()
        packs.cut_to(self._fd, shared_pack(self._folder, self._number), known)
        stored, offset = [], known
        for frame in frames:
            stored.append(frame._replace(pack=self._number, offset=offset))
            offset += len(frame.entry)
        write_all(self._fd, b"".join(frame.entry for frame in frames))
        failpoints.hit("after-pack-append")
        failpoints.hit("before-packs-durable")
        os.fdatasync(self._fd)
        failpoints.hit("after-packs-durable")
        return stored

    def _open_next(self) -> int:
        """Take a pack that has room and nobody holds, or a new one; returns its length."""
        self.close()
        sql = "SELECT number FROM shared_packs WHERE number >= ? AND bytes < ?"
        for number in self._database.column(sql, (FIRST_LIVE, SHARED_PACK_BYTES)):
            if (known := self._take(number)) is not None:
                return known
        while (known := self._take(self._reserve())) is None:
            pass  # another process saw the new number first
        return known

    def _reserve(self) -> int:
        with self._database.transaction() as connection:
            sql = "INSERT INTO shared_packs SELECT max(?, coalesce(max(number), 0) + 1), 0, 0 FROM shared_packs"
            connection.execute(sql, (FIRST_LIVE,))
            number = int(connection.last_insert_rowid())
        self._database.make_durable()  # what is appended to a pack that is not known would be lost
        return number

    def _take(self, number: int) -> int | None:
        """Lock a pack; its length, or None if another process has it, or it is not as the database knows it."""
        path = shared_pack(self._folder, number)
        fd = _lock(path)
        if fd is None:
            return None
        # Read only once it is locked: whoever had it before may have added to it, or dropped it.
        known = self._known_bytes(number)
        is_there = path.exists() and path.stat().st_ino == os.fstat(fd).st_ino
        if known is None or not is_there or os.fstat(fd).st_size != known:
            os.close(fd)
            return None
        self._fd, self._number = fd, number
        if known == 0:
            for place in path.parents[:3]:
                sync(place)
        return known

    def _known_bytes(self, number: int) -> int | None:
        known: int | None = self._database.value("SELECT bytes FROM shared_packs WHERE number = ?", (number,))
        return known

    def lost(self) -> list[int]:
        """The packs that have bytes behind their known ends, as those do that are just appended to."""
        rows = self._database.rows("SELECT number, bytes FROM shared_packs WHERE number >= ?", (FIRST_LIVE,))
        return [number for number, known in rows if packs.has_bytes(shared_pack(self._folder, number), known + 1)]

    def iter_lost(self) -> Iterator[Batch]:
        """What hosts appended behind the known ends of packs that nobody holds; the rest there is then cut off."""
        for number in self.lost():
            path = shared_pack(self._folder, number)
            fd = _lock(path)
            if fd is None:
                continue
            try:
                known = self._known_bytes(number)
                if known is not None:
                    for frame, content, description in iter_described(path):
                        # What a sweep has read, a sweep can read again.
                        if frame.offset >= known and description[0].source_kind == HOST:
                            yield _batch_of_host(frame._replace(pack=number), content, description)
                    packs.cut_to(fd, path, self._known_bytes(number) or known)
            finally:
                os.close(fd)

    def close(self) -> None:
        """Leave the pack to others."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _batch_of_host(frame: Frame, content: Content, description: Description) -> Batch:
    """What a host appended, as it was when its frame was made."""
    origin, rows, facts = description
    ends = [(row.payload_start, row.payload_start + row.payload_bytes) for row in rows]
    texts = [
        columns_of(row.kind, orjson.loads(content.payloads[slice(*end)])) for row, end in zip(rows, ends, strict=True)
    ]
    part = StreamBatch(origin.native_id, list(map(tuple, rows)), [frame], texts, facts)
    return Batch(source_of_host(origin.host, origin.agent), [part], redacted_with=origin.redacted_with)


def source_of_host(host: str, agent: str) -> SourceRow:
    """Where appended messages come from: no file that could be read again."""
    return SourceRow(host, agent, HOST, HOST, 0, -1, -1, 0, 0, 0, 0, "", "", "{}")


def _is_in_use(path: Path, number: int, known: int) -> bool:
    """True if a process may append to this shared pack at any moment, or it holds more than is known."""
    if number < FIRST_LIVE or not path.exists():
        return False
    if path.stat().st_size > known:
        return True
    fd = _lock(path)
    if fd is None:
        return True
    os.close(fd)
    return False


def _lock(path: Path) -> int | None:
    """Open a live pack and lock it; None if another process appends to it."""
    fd = packs.open_to_append(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd
