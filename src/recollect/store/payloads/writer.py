"""Appending frames to packs within one transaction of cache.db, and taking them out again."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from recollect.store.payloads import packs
from recollect.store.payloads.live_pack import FIRST_LIVE, Moved, is_in_use
from recollect.store.payloads.packs import SHARED_BYTES, SHARED_PACK_BYTES, Frame, PackReader, StoredFrame
from recollect.store.sqlite.database import Database
from recollect.store.sqlite.files import sync
from recollect.store.sqlite.room import free_bytes

OWN = 0  # the number of a session's own pack in `frames`
_LEAST_USED = 0.5  # of a shared pack: below it, the rest moves elsewhere
_FRAME_KEY = "stream, start, pack, pack_offset"


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


class FrameWriter:
    """Gathers frames and writes each pack once. The caller holds the write lock by its transaction."""

    def __init__(self, connection: apsw.Connection, folder: Path, *, leaving: int = 0) -> None:
        self._connection = connection
        self._folder = folder
        self._leaving = leaving  # a shared pack that is about to be deleted
        self._rows: list[tuple[Any, ...]] = []
        self._moved: list[tuple[int, ...]] = []
        self._own: dict[Path, tuple[int, list[bytes]]] = {}  # known bytes, entries
        self._shared: dict[int, tuple[int, list[bytes]]] = {}
        self._live: dict[int, int] = {}  # how long live packs are with frames that are on the disk already
        self._number = self._bytes = 0

    def _last_shared(self) -> tuple[int, int]:
        """The shared pack to go on with, and its length; a new one if the last is not whole, or is being left."""
        sql = "SELECT number, bytes FROM shared_packs WHERE number < ? ORDER BY number DESC LIMIT 1"
        number, size = next(iter(self._connection.execute(sql, (FIRST_LIVE,))), (0, 0))
        is_sound = number > 0 and packs.has_bytes(packs.shared_pack(self._folder, number), size)
        return (number, size) if is_sound and number != self._leaving else (number + 1, 0)

    def add(self, target: Stream, frames: Sequence[Frame | StoredFrame]) -> None:
        """Place frames at the end of a session; moves its `stream_bytes` and `pack_bytes`."""
        for frame in frames:
            size = len(frame.entry)
            if isinstance(frame, StoredFrame):
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

    def move(self, key: Sequence[int], entry: bytes) -> None:
        """Place a frame of a shared pack anew; `key` is that of its row."""
        number, offset = self._add_shared(entry)
        self._moved.append((number, offset, *key))

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
        shared = {packs.shared_pack(self._folder, number): part for number, part in self._shared.items()}
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
            f"UPDATE frames SET pack = ?, pack_offset = ? WHERE ({_FRAME_KEY}) = (?, ?, ?, ?)", self._moved
        )
        self._connection.executemany(
            "INSERT INTO shared_packs VALUES (?, ?, 0) ON CONFLICT DO UPDATE SET bytes = excluded.bytes",
            [(number, known + sum(map(len, entries))) for number, (known, entries) in self._shared.items()],
        )


def tidy_shared(database: Database, folder: Path) -> None:
    """Leave no byte of frames whose rows are gone: blank them, and drop shared packs that hold too little else."""
    sql = (
        "SELECT number, p.bytes, blank_bytes, coalesce(sum(pack_bytes), 0) FROM shared_packs p"
        " LEFT JOIN frames ON pack = number AND pack > 0 GROUP BY number ORDER BY number"
    )
    for number, size, blank_bytes, used in database.rows(sql):
        if used and not packs.has_bytes(packs.shared_pack(folder, number), size):
            continue  # damaged: a repair takes out what is left of it
        has_room = not used or free_bytes(folder) > 2 * used
        if used < size * _LEAST_USED and has_room and not is_in_use(folder, number, size):
            _drop_shared(database, folder, number)
        elif size - used > blank_bytes:
            _blank_unused(database, folder, number, size)


def _blank_unused(database: Database, folder: Path, number: int, size: int) -> None:
    frames = database.rows("SELECT pack_offset, pack_bytes FROM frames WHERE pack = ? ORDER BY 1", (number,))
    gaps, end = list[tuple[int, int]](), 0
    for offset, length in (*frames, (size, 0)):
        if offset > end:
            gaps.append((end, offset - end))
        end = offset + length
    packs.blank(packs.shared_pack(folder, number), gaps)
    with database.transaction() as connection:
        blank_bytes = sum(length for _, length in gaps)
        connection.execute("UPDATE shared_packs SET blank_bytes = ? WHERE number = ?", (blank_bytes, number))


def _drop_shared(database: Database, folder: Path, number: int) -> None:
    """Move what is left in a shared pack into the last one, or a new one, then unlink it."""
    path = packs.shared_pack(folder, number)
    with database.transaction() as connection, closing(PackReader()) as reader:
        rows = list(connection.execute(f"SELECT {_FRAME_KEY}, pack_bytes FROM frames WHERE pack = ?", (number,)))
        writer = FrameWriter(connection, folder, leaving=number)
        for *key, size in rows:
            writer.move(key, reader.read(path, key[-1], size))
        writer.finish()
        connection.execute("DELETE FROM shared_packs WHERE number = ?", (number,))
    database.checkpoint()  # until this is on the disk, the frames' old places count
    if path.exists():
        path.unlink()
        sync(path.parent)
