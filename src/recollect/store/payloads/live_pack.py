"""The pack that one process appends to without waiting for others.

What a live host appends is on the disk before its rows are committed, as with every pack; but a disk takes
milliseconds to say so, and nobody should wait for the write lock meanwhile. So each process has a shared pack of its
own, numbered from FIRST_LIVE on, and holds the lock of that file for as long as it writes. A pack that nobody holds is
continued by the next process.

A message counts as stored when its frame is on the disk and its rows are committed; the database's log is not flushed
for it. So a power cut may leave frames behind the end of a pack as the database knows it: `iter_lost` finds them, and
until that is done nobody appends to the pack or drops it.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import orjson

from recollect import failpoints
from recollect.store.batch import Batch, SourceRow, StreamBatch
from recollect.store.payloads.frames import describe
from recollect.store.payloads.packs import (
    SHARED_PACK_BYTES,
    FoundFrame,
    Frame,
    StoredFrame,
    cut_to,
    iter_frames,
    shared_pack,
)
from recollect.store.sqlite.database import Database
from recollect.store.sqlite.files import sync, write_all
from recollect.text import columns_of

HOST = "live"  # the kind, and the path, of a source that is no file but a host
FIRST_LIVE = 1 << 32  # above the numbers of packs that the holder of the write lock appends to


class Moved(Exception):
    """What was to be appended to has another place meanwhile: look it up again."""


class LivePack:
    """Appends frames behind what is committed: frames that never were are overwritten by the next."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self._fd = -1
        self._number = 0
        self._path = folder

    def place(self, batches: Iterable[Batch]) -> None:
        """Have the frames of batches on the disk, so that whoever stores the batches need not wait for it."""
        parts = [part for batch in batches for part in batch.streams]
        placed = iter(self._append([Frame(*frame[:2]) for part in parts for frame in part.frames]))
        for part in parts:
            part.frames = list(islice(placed, len(part.frames)))

    def _append(self, frames: Sequence[Frame]) -> list[StoredFrame]:
        known = self._known_bytes(self._number) if self._fd >= 0 else None
        if known is None or known >= SHARED_PACK_BYTES:
            known = self._open_next()
        cut_to(self._fd, self._path, known)
        stored, offset = [], known
        for frame in frames:
            stored.append(StoredFrame(*frame, self._number, offset, 0, 0))
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
        waiting = self._database.rows(
            "SELECT number FROM shared_packs WHERE number >= ? AND bytes < ?", (FIRST_LIVE, SHARED_PACK_BYTES)
        )
        for (number,) in waiting:
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
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Read only once it is locked: whoever had it before may have added to it, or dropped it.
        known = self._known_bytes(number) if _lock(fd) else None
        if known is None or os.fstat(fd).st_size != known or not _is_at(path, fd):
            os.close(fd)
            return None
        self._fd, self._number, self._path = fd, number, path
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
        return [number for number, known in rows if _size(shared_pack(self._folder, number)) > known]

    def iter_lost(self) -> Iterator[Batch]:
        """What hosts appended behind the known ends of packs that nobody holds; the rest there is then cut off."""
        for number in self.lost():
            path = shared_pack(self._folder, number)
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                known = self._known_bytes(number) if _lock(fd) else None
                if known is not None:
                    found = (frame for frame in iter_frames(path) if frame.offset >= known)
                    yield from filter(None, (_batch(frame, number) for frame in found))
                    cut_to(fd, path, self._known_bytes(number) or known)
            finally:
                os.close(fd)

    def close(self) -> None:
        """Leave the pack to others."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_in_use(folder: Path, number: int, known: int) -> bool:
    """Whether a process may append to this shared pack at any moment, or it holds more than is known."""
    path = shared_pack(folder, number)
    if number < FIRST_LIVE or not path.exists():
        return False
    if _size(path) > known:
        return True
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return not _lock(fd)
    finally:
        os.close(fd)


def _batch(found: FoundFrame, number: int) -> Batch | None:
    """What a host appended, as it was when its frame was made; None for what a sweep can read again."""
    try:
        origin, rows, facts = describe(found.content)
    except ValueError:
        return None  # sound, and still none of ours
    if origin.source_kind != HOST:
        return None
    payloads = found.content.payloads
    ends = [(row.payload_start, row.payload_start + row.payload_bytes) for row in rows]
    texts = [columns_of(row.kind, orjson.loads(payloads[slice(*end)])) for row, end in zip(rows, ends, strict=True)]
    frame = StoredFrame(len(payloads), found.entry, number, found.offset, 0, 0)
    part = StreamBatch(origin.native_id, list(map(tuple, rows)), [frame], texts, facts)
    return Batch(source_of_host(origin.host, origin.agent), [part], redacted_with=origin.redacted_with)


def source_of_host(host: str, agent: str) -> SourceRow:
    """Where appended messages come from: no file that could be read again."""
    return SourceRow(host, agent, HOST, HOST, 0, -1, -1, 0, 0, 0, 0, "", "", "{}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, fd: int) -> bool:
    """Whether the file is still there under its name."""
    try:
        return path.stat().st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False
