"""Pack files: compressed frames one after another, each with a header by which it can be found and checked alone.

A session's large frames are in a pack of its own, `packs/<xx>/<hash>.<generation>.pack`. Small ones of all sessions
share `packs/shared/<number>.pack`: thousands of tiny files cost more than they hold. Only the holder of the write lock
appends. The database knows how long a pack is: bytes beyond that were written by a process that died before its commit,
and are cut off before the next append.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import zstandard

from recollect.model import failpoints
from recollect.model.errors import StoreDamaged
from recollect.model.files import sync, write_all
from recollect.store.sqlite.database import Database

COMPRESSION_LEVEL = 1  # level 2 takes 20 % longer and saves 3 %
SHARED_BYTES = 32 * 1024  # a frame up to this size goes into a shared pack
SHARED_PACK_BYTES = 4 * 1024 * 1024  # a shared pack of this size is full

MOST_FRAME_BYTES = 512 * 1024 * 1024  # unpacked; twice the longest line that is read

SHARED = "shared"  # the folder of shared packs
OWN = 0  # the number of a session's own pack in `frames`

_MAGIC = b"RcF1"
_FIELDS = Struct("<III")  # bytes compressed, of the head, of the payloads
_CHECKED_BYTES = len(_MAGIC) + _FIELDS.size
_HEADER_BYTES = _CHECKED_BYTES + 4  # a checksum of the fields and of the compressed bytes is the last of a header
_SYNCS_AT_ONCE = 16
ADVICE = "`recollect doctor` says what can be done"


class _Codec(threading.local):
    """One for each thread: two threads in the same one crash the process."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL, write_checksum=False).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_codec = _Codec()


class Frame(NamedTuple):
    """A piece of a session: how many bytes of payloads it holds, itself as it stands in a pack, and where it is.

    `pack` is the number of a shared pack, OWN for the session's own, None while it is in none. Of an own pack there is
    also its generation, and its length: what is appended must not overwrite other frames.
    """

    payload_bytes: int
    entry: bytes
    pack: int | None = None
    offset: int = 0
    generation: int = 0
    file_bytes: int = 0


class Content(NamedTuple):
    """What a frame holds: the description of its events, and their payloads one after another."""

    head: memoryview
    payloads: memoryview


def pack_frame(head: bytes, payloads: Sequence[bytes]) -> Frame:
    compressed = _codec.compress(b"".join((head, *payloads)))
    payload_bytes = sum(map(len, payloads))
    fields = _FIELDS.pack(len(compressed), len(head), payload_bytes)
    return Frame(payload_bytes, b"".join((_MAGIC, fields, _checksum(fields, compressed), compressed)))


def unpack_entry(entry: bytes) -> Content | None:
    """What a frame holds; None if the entry is damaged, or is not one."""
    fields, compressed = entry[len(_MAGIC) : _CHECKED_BYTES], memoryview(entry)[_HEADER_BYTES:]
    if not entry.startswith(_MAGIC) or entry[_CHECKED_BYTES:_HEADER_BYTES] != _checksum(fields, compressed):
        return None
    _, head_bytes, payload_bytes = _FIELDS.unpack(fields)
    try:
        # A forged frame could ask for any amount of memory.
        size = zstandard.frame_content_size(compressed)
        if size != head_bytes + payload_bytes or size > MOST_FRAME_BYTES:
            return None
        content = memoryview(_codec.decompress(compressed))
    except zstandard.ZstdError:
        return None
    return Content(content[:head_bytes], content[head_bytes:])


def _checksum(fields: bytes, compressed: bytes | memoryview) -> bytes:
    return crc32(compressed, crc32(fields)).to_bytes(4, "little")


def iter_frames(pack: Path) -> Iterator[tuple[Frame, Content]]:
    """Every sound frame of a pack with what it holds, whatever is between them."""
    data = pack.read_bytes()
    offset = data.find(_MAGIC)
    while offset >= 0:
        fields, size = data[offset + len(_MAGIC) : offset + _CHECKED_BYTES], 1
        if len(fields) == _FIELDS.size:
            entry = data[offset : offset + _HEADER_BYTES + _FIELDS.unpack(fields)[0]]
            if content := unpack_entry(entry):
                yield Frame(len(content.payloads), entry, offset=offset), content
                size = len(entry)
        offset = data.find(_MAGIC, offset + size)


def own_pack(folder: Path, agent: str, native_id: str, generation: int) -> Path:
    """The pack of one session."""
    from _blake2 import blake2b  # as `hashlib` has it, which also loads OpenSSL: milliseconds of a search

    name = blake2b(f"{agent}:{native_id}".encode(), digest_size=16).hexdigest()
    return folder / "packs" / name[:2] / f"{name}.{generation}.pack"


def shared_pack(folder: Path, number: int) -> Path:
    return folder / "packs" / SHARED / f"{number}.pack"


def all_packs(folder: Path) -> list[Path]:
    """Every pack of a store: those of sessions, the newest of each first, then the shared ones in their order."""
    own = sorted((folder / "packs").glob("??/*.*.pack"), key=own_name, reverse=True)
    return own + sorted((folder / "packs" / SHARED).glob("*.pack"), key=lambda path: int(path.stem))


def own_name(path: Path) -> tuple[str, int]:
    """Which session's pack it is, by the hash in its name, and of which generation."""
    name, _, generation = path.stem.partition(".")
    return name, int(generation)


def drop_own_packs(folder: Path, agent: str, native_id: str, but_for: int = 0) -> None:
    """Delete a session's own packs of every generation but one, for good."""
    path = own_pack(folder, agent, native_id, 0)
    old_packs = [pack for pack in path.parent.glob(f"{own_name(path)[0]}.*.pack") if own_name(pack)[1] != but_for]
    for pack in old_packs:
        pack.unlink()
    if old_packs:
        sync(path.parent)


def open_to_append(path: Path) -> int:
    """Open a pack, which is made if it is not there."""
    for folder in (path.parent.parent, path.parent):  # `parents=True` would give the upper one any mode
        folder.mkdir(mode=0o700, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def append(path: Path, known_bytes: int, entries: Sequence[bytes]) -> None:
    """Add entries behind the pack's first `known_bytes`; `make_durable` must follow before a commit."""
    fd = open_to_append(path)
    try:
        cut_to(fd, path, known_bytes)
        write_all(fd, b"".join(entries))
        failpoints.hit("after-pack-append")
    finally:
        os.close(fd)


def has_bytes(path: Path, known_bytes: int) -> bool:
    """Whether a pack is as long as the database says; a damaged one may be shorter, or gone."""
    try:
        return path.stat().st_size >= known_bytes
    except FileNotFoundError:
        return known_bytes == 0


def cut_to(fd: int, path: Path, known_bytes: int) -> None:
    """Drop what is behind the known end, and go on there."""
    size = os.fstat(fd).st_size
    if size < known_bytes:
        raise StoreDamaged(f"Pack is truncated: {path}", ADVICE)
    if size > known_bytes:
        os.ftruncate(fd, known_bytes)
    os.lseek(fd, known_bytes, os.SEEK_SET)


def make_durable(grown: Mapping[Path, bool]) -> None:
    """Have the packs' bytes on the disk before returning, and of each that is new (True) its name and its folders'.

    All at once: a file system writes many waiting files with one commit of its journal.
    """
    places = [*grown, *{folder for path, is_new in grown.items() if is_new for folder in path.parents[:3]}]
    if not places:
        return
    from concurrent.futures import ThreadPoolExecutor  # slow to load, and nobody who only reads needs it

    failpoints.hit("before-packs-durable")
    with ThreadPoolExecutor(min(len(places), _SYNCS_AT_ONCE)) as pool:
        list(pool.map(sync, places))
    failpoints.hit("after-packs-durable")


class FrameRow(NamedTuple):
    """Where a frame is: its payloads in the session's, and itself in a pack."""

    start: int
    bytes: int
    pack: int
    pack_offset: int
    pack_bytes: int


class StreamReader:
    """Random access to one session's payloads, remembering the frame read last."""

    def __init__(self, database: Database, folder: Path, agent: str, native_id: str) -> None:
        sql = "SELECT id, pack_generation FROM streams WHERE agent = ? AND native_id = ?"
        rows = database.rows(sql, (agent, native_id))
        self.is_held = bool(rows)
        self._stream, generation = rows[0] if rows else (0, 0)
        self._database = database
        self._folder = folder
        self._session = agent, native_id, generation
        self._open: dict[Path, int] = {}  # packs, from their first use on
        self._last: tuple[FrameRow | None, Content] = None, Content(memoryview(b""), memoryview(b""))

    def read(self, start: int, length: int) -> bytes:
        """The payload at a place; raises StoreDamaged if it cannot be had."""
        row = self._last[0]
        if row is None or not _holds(row, start, length):
            row = next(iter(self._select("start <= ? AND bytes > 0 ORDER BY start DESC LIMIT 1", start)), None)
        if row is None or not _holds(row, start, length):
            raise StoreDamaged(f"A payload is in no pack: {':'.join(self._session[:2])}", ADVICE)
        return bytes(self.content(row).payloads[start - row.start : start - row.start + length])

    def __iter__(self) -> Iterator[FrameRow]:
        return iter(self._select("true ORDER BY start, bytes, pack, pack_offset"))

    def _select(self, condition: str, *bindings: int) -> list[FrameRow]:
        sql = f"SELECT {', '.join(FrameRow._fields)} FROM frames WHERE stream = ? AND {condition}"
        return self._database.read(FrameRow, sql, (self._stream, *bindings))

    def content(self, row: FrameRow) -> Content:
        """What a frame holds; raises StoreDamaged if it is not what was stored."""
        if self._last[0] != row:
            path = self.path(row)
            content = unpack_entry(self._read_entry(path, row))
            if content is None or len(content.payloads) != row.bytes:
                raise StoreDamaged(f"Payloads are damaged, at byte {row.pack_offset:,} of {path}", ADVICE)
            self._last = row, content
        return self._last[1]

    def _read_entry(self, path: Path, row: FrameRow) -> bytes:
        try:
            fd = self._open[path] if path in self._open else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise StoreDamaged(f"Pack is missing: {path}", ADVICE) from None
        self._open[path] = fd
        entry = os.pread(fd, row.pack_bytes, row.pack_offset)
        if len(entry) != row.pack_bytes:
            raise StoreDamaged(f"Pack is truncated: {path}", ADVICE)
        return entry

    def path(self, row: FrameRow) -> Path:
        return shared_pack(self._folder, row.pack) if row.pack else self._own_pack

    @cached_property
    def _own_pack(self) -> Path:
        return own_pack(self._folder, *self._session)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


def _holds(row: FrameRow, start: int, length: int) -> bool:
    return row.start <= start <= start + length <= row.start + row.bytes
