"""The files that hold sessions' payloads: one per session and generation, zstd frames one after another.

Only the holder of the write lock appends. The database says how long a pack is: what lies beyond was
written by a process that died before its commit, and is cut off before the next append.
"""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import zstandard

from recollect import failpoints
from recollect.errors import StoreDamaged
from recollect.store.durable import write_all

FRAME_BYTES = 256 * 1024
COMPRESSION_LEVEL = 1  # level 2 takes 20 % longer and saves 3 %
_SYNCS_AT_ONCE = 16

_compressor = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=True)
_decompressor = zstandard.ZstdDecompressor()


class Frame(NamedTuple):
    """A piece of a session's payload stream: its length, and its content compressed."""

    length: int
    content: bytes


def compress(stream: bytes) -> list[Frame]:
    """Cut a piece of a payload stream into compressed frames."""
    view = memoryview(stream)
    pieces = (view[start : start + FRAME_BYTES] for start in range(0, len(view), FRAME_BYTES))
    return [Frame(len(piece), _compressor.compress(piece)) for piece in pieces]


def decompress(frames: Iterator[bytes]) -> bytes:
    return b"".join(_decompressor.decompress(frame) for frame in frames)


def pack_path(folder: Path, agent: str, native_id: str, generation: int) -> Path:
    import hashlib  # takes milliseconds to load, and most of what a search shows lies in the database

    name = hashlib.blake2b(f"{agent}:{native_id}".encode(), digest_size=16).hexdigest()
    return folder / "packs" / name[:2] / f"{name}.{generation}.pack"


def _find_all(folder: Path, agent: str, native_id: str) -> list[Path]:
    """A session's packs of every generation."""
    path = pack_path(folder, agent, native_id, 0)
    return list(path.parent.glob(f"{path.name.partition('.')[0]}.*"))


def find_newest(folder: Path, agent: str, native_id: str) -> tuple[int, int]:
    """The newest generation of a session's pack and its size, for those whose row in the database is lost."""
    found = [(int(path.suffixes[0][1:]), path.stat().st_size) for path in _find_all(folder, agent, native_id)]
    return max(found, default=(1, 0))


def drop_all(folder: Path, agent: str, native_id: str) -> None:
    """Delete a session's packs of every generation, for good."""
    found = _find_all(folder, agent, native_id)
    for pack in found:
        pack.unlink()
    if found:
        _sync(found[0].parent)


def append(path: Path, known_bytes: int, frames: Sequence[bytes]) -> None:
    """Add frames behind the pack's first `known_bytes`; `make_durable` must follow before a commit."""
    if known_bytes == 0:
        for folder in (path.parent.parent, path.parent):  # `parents=True` would give the upper one any mode
            folder.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _cut_to(fd, path, known_bytes)
        write_all(fd, b"".join(frames))
        failpoints.hit("after-pack-append")
    finally:
        os.close(fd)


def make_durable(paths: Collection[Path]) -> None:
    """Have the packs' bytes, and their names up to the store's folder, on the disk before returning.

    All at once: a file system writes many waiting files with one commit of its journal.
    """
    from concurrent.futures import ThreadPoolExecutor  # slow to load, and nobody who only reads needs it

    places = [*paths, *{folder for path in paths for folder in path.parents[:3]}]
    if places:
        failpoints.hit("before-packs-durable")
        with ThreadPoolExecutor(min(len(places), _SYNCS_AT_ONCE)) as pool:
            list(pool.map(_sync, places))
        failpoints.hit("after-packs-durable")


def _cut_to(fd: int, path: Path, known_bytes: int) -> None:
    size = os.fstat(fd).st_size
    if size < known_bytes:
        raise StoreDamaged(
            f"Pack is shorter than the database says: {path}", "`recollect doctor` says what can be done"
        )
    if size > known_bytes:
        os.ftruncate(fd, known_bytes)
    os.lseek(fd, known_bytes, os.SEEK_SET)


def _sync(place: Path) -> None:
    fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class PackReader:
    """Reads frames of one pack; the file is opened at the first use."""

    def __init__(self, find: Callable[[], Path]) -> None:
        self._find = find
        self._fd: int | None = None

    @cached_property
    def path(self) -> Path:
        return self._find()

    def read(self, offset: int, length: int) -> bytes:
        if self._fd is None:
            self._fd = self._open()
        content = os.pread(self._fd, length, offset)
        if len(content) != length:
            raise StoreDamaged(
                f"Pack is shorter than the database says: {self.path}",
                "`recollect doctor` says what can be done",
            )
        return content

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StoreDamaged(f"Pack is missing: {self.path}", "`recollect doctor` says what can be done") from None

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
