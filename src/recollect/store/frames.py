"""A session's payloads read with suspicion: what is damaged is named, what is sound is still given."""

import os
from bisect import bisect_right
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import zstandard

from recollect.errors import StoreDamaged
from recollect.store import packs
from recollect.store.sqlite import Database, translated

_UNUSED_BIT = 0x10  # of a frame's fifth byte: no reader of zstd looks at it, and we never set it
_decompressor = zstandard.ZstdDecompressor()


class HeldStream(NamedTuple):
    """One session's stream of payloads, as the database tells of it."""

    id: int
    agent: str
    native_id: str
    stream_bytes: int
    pack_generation: int
    pack_bytes: int
    is_dirty: int
    discovered_ms: int


class SuspectFrames:
    """Access to one session's stream that notes faults instead of ending at the first."""

    def __init__(self, database: Database, folder: Path, stream: HeldStream) -> None:
        self._database = database
        self._stream = stream
        self.pack_path = packs.pack_path(folder, stream.agent, stream.native_id, stream.pack_generation)
        self.faults: list[str] = []
        self._frames = self._rows()
        self._starts = [frame[0] for frame in self._frames]
        self._decoded: dict[int, bytes | None] = {}
        self._judged: set[int] = set()
        self._fd = self._open_pack()

    def _rows(self) -> list[tuple[Any, ...]]:
        sql = "SELECT start, bytes, pack_offset, pack_bytes FROM frames WHERE stream = ? ORDER BY start"
        try:
            return self._database.rows(sql, (self._stream.id,))
        except StoreDamaged as error:
            self.faults.append(error.message)
            return []

    def _open_pack(self) -> int | None:
        if not self._stream.pack_bytes:
            return None
        try:
            fd = os.open(self.pack_path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.faults.append(f"Pack is missing ({error.strerror}): {self.pack_path}")
            return None
        size = os.fstat(fd).st_size
        if size < self._stream.pack_bytes:
            self.faults.append(
                f"Pack is cut off, {size:,} of {self._stream.pack_bytes:,} bytes are left: {self.pack_path}"
            )
        return fd

    def read(self, start: int, length: int) -> bytes | None:
        """The bytes at a place of the stream; None if any of them cannot be had."""
        pieces, at, end = [], start, start + length
        while at < end:
            index = bisect_right(self._starts, at) - 1
            content = self._content(index) if index >= 0 else None
            piece = content[at - self._starts[index] : end - self._starts[index]] if content else b""
            if not piece:
                return None
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    def _content(self, index: int) -> bytes | None:
        if index not in self._decoded:
            self._decoded = {index: self._decode(*self._frames[index])}  # the last one only: payloads mostly ascend
        return self._decoded[index]

    def _decode(self, start: int, length: int, pack_offset: int | None, pack_bytes: int) -> bytes | None:
        raw = self._raw(start, pack_offset, pack_bytes)
        content = None
        if raw is not None and len(raw) == pack_bytes and len(raw) > 4 and not raw[4] & _UNUSED_BIT:
            try:
                content = _decompressor.decompress(raw, allow_extra_data=False)
            except zstandard.ZstdError:
                content = None
        is_sound = content is not None and len(content) == length
        if not is_sound and start not in self._judged and (self._fd is not None or pack_offset is None):
            place = (
                f"{self._database.path.name}" if pack_offset is None else f"at byte {pack_offset:,} of {self.pack_path}"
            )
            self.faults.append(f"Payloads are damaged, {place}")
        self._judged.add(start)
        return content if is_sound else None

    def _raw(self, start: int, pack_offset: int | None, pack_bytes: int) -> bytes | None:
        if pack_offset is not None:
            return os.pread(self._fd, pack_bytes, pack_offset) if self._fd is not None else None
        sql = "SELECT content FROM frames WHERE stream = ? AND start = ?"
        try:
            with translated(self._database.path):
                found: bytes | None = self._database.connection.execute(sql, (self._stream.id, start)).get
                return found
        except (StoreDamaged, apsw.Error):
            return None

    def check_rest(self) -> None:
        """Look at the frames nobody asked for, and whether all together are the whole stream."""
        for index, frame in enumerate(self._frames):
            if frame[0] not in self._judged:
                self._content(index)
        at = 0
        for start, length, pack_offset, pack_bytes in self._frames:
            if start != at:
                self.faults.append(f"A part of the payloads is missing, bytes {at:,} to {start:,}: {self._name}")
            if pack_offset is not None and pack_offset + pack_bytes > self._stream.pack_bytes:
                self.faults.append(f"A frame lies behind the end of its pack: {self.pack_path}")
            at = start + length
        if at != self._stream.stream_bytes:
            self.faults.append(f"A part of the payloads is missing, from byte {at:,} on: {self._name}")

    @property
    def _name(self) -> str:
        return f"{self._stream.agent}:{self._stream.native_id}"

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
