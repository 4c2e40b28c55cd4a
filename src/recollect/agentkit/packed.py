"""The lines of a log that its agent compressed with zstd when it was done with it."""

import hashlib
import io
import os
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import zstandard

from recollect.agentkit.files import open_beneath
from recollect.agentkit.lines import BUFFER_BYTES, FINGERPRINT_CHARS, Line, LineReader
from recollect.agentkit.protocol import Checkpoint, Cursor, Source

# Zeros pack 32,000 to one: what this many bytes hold at most is unpacked at once.
PIECE_BYTES = 1024
# Logs pack 3 to 30 to one. What unpacks to more than this is no log but a bomb.
MOST_TIMES = 200
SMALL_BYTES = 4 * 1024 * 1024  # unless it is little in any case


class PackedLineReader(LineReader):
    """The lines of a compressed file from its start; offsets are those of the log before it was compressed.

    Such a file is replaced and never grows: its cursor names the content that was read to its end.
    """

    def __init__(self, source: Source, cursor: Cursor | None) -> None:
        packed = os.fdopen(open_beneath(source.root, source.path), "rb")
        content = hashlib.file_digest(packed, lambda: hashlib.blake2b(digest_size=FINGERPRINT_CHARS // 2))
        self._end = Cursor(offset=packed.tell(), head=content.hexdigest())
        self.is_as_read = cursor is not None and cursor.head == self._end.head
        self._is_at_end = self.is_as_read
        packed.seek(0)
        self._unpacked = _Unpacked(packed, max(SMALL_BYTES, MOST_TIMES * self._end.offset))
        self._begin(io.BufferedReader(self._unpacked, BUFFER_BYTES), Cursor())

    def __iter__(self) -> Iterator[Line]:
        if not self.is_as_read:
            yield from super().__iter__()
            self.failure = self._unpacked.failure
            self._is_at_end = self.failure is None

    def checkpoint(self, state: Mapping[str, Any], at: tuple[int, int] | None = None) -> Checkpoint:
        """Before the end a cursor is empty: reading cannot begin in the middle of a compressed file."""
        return self._checkpoint(self._end if self._is_at_end else Cursor())


class _Unpacked(io.RawIOBase):
    """The content of a file of zstd frames, piece by piece; ends early with a `failure` where the file is damaged."""

    def __init__(self, packed: BinaryIO, most_bytes: int) -> None:
        self._packed = packed
        self._left_bytes = most_bytes
        self._decoder = zstandard.ZstdDecompressor().decompressobj()
        self._waiting = memoryview(b"")
        self._rest = b""
        self.failure: str | None = None

    def close(self) -> None:
        self._packed.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._waiting and self.failure is None and self._unpack():
            pass
        size = min(len(buffer), len(self._waiting))
        buffer[:size] = self._waiting[:size]
        self._waiting = self._waiting[size:]
        return size

    def _unpack(self) -> bool:
        """Unpack the next piece, if there is one."""
        piece = self._rest or self._packed.read(PIECE_BYTES)
        if not piece:
            self.failure = None if self._decoder.eof else "is cut off"
            return False
        if self._decoder.eof:  # another frame was appended
            self._decoder = zstandard.ZstdDecompressor().decompressobj()
        try:
            self._waiting = memoryview(self._decoder.decompress(piece))
        except zstandard.ZstdError:
            self.failure = "is damaged"
        self._left_bytes -= len(self._waiting)
        if self._left_bytes < 0:
            self._waiting = memoryview(b"")
            self.failure = f"unpacks to more than {MOST_TIMES} times its size"
        self._rest = self._decoder.unused_data
        return self.failure is None
