"""The loop that every log is read by, and what it does with damaged lines.

An adapter subclasses `Log` and says what one sound line yields; `read_log` does the rest. A line that `read` refuses is
salvaged, and each record found in it is read on its own; what is left is a `BadLine`. `PackedLineReader` has the lines
of a log that its agent compressed with zstd when it was done with it.
"""

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import fdopen
from typing import Any, BinaryIO

import msgspec
import orjson
import zstandard

from recollect.agentkit.files import open_beneath
from recollect.agentkit.lines import (
    BUFFER_BYTES,
    FINGERPRINT_CHARS,
    KEPT_BAD_BYTES,
    Line,
    LineReader,
    fingerprint,
    salvage,
)
from recollect.agentkit.protocol import BadLine, Checkpoint, Cursor, EventRecord, Record, SessionInfo, Skipped, Source
from recollect.agentkit.values import parse_time_ms

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


NOTHING: Sequence[Record] = ()
# The end of a line that Recollect wrote itself: agents take no notice of a field that they do not know.
REBUILT = b',"recollect":true}'


def as_rebuilt(log: bytes) -> bytes:
    """A log with each line marked as written by Recollect."""
    return b"".join(line[:-2] + REBUILT + b"\n" for line in log.splitlines(keepends=True))


class Unreadable(ValueError):
    """A sound line that is no record of the agent's; the text says why."""


# What a damaged record makes a reader raise: most of it decoders, the rest code that met a value of another type.
# Whatever it was, it costs that line and not the file.
MALFORMED = (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
EMPTY_LINE = "empty line"
LEAST_RECORD_BYTES = 8


class Log:
    """One file that grows by lines. Subclasses keep what later lines need, and return it by `dump`."""

    skipped = 0

    def __init__(self) -> None:
        self._skips: dict[str, int] = {}

    def read(self, offset: int, raw: bytes, is_lossy: bool = False) -> Iterable[Record]:
        """What a line yields. Raises Unreadable or one of MALFORMED before it changes anything."""
        raise NotImplementedError

    def dump(self) -> Mapping[str, Any]:
        """What the next reading needs: JSON, bounded."""
        return {}

    def skip(self, name: str, count: int = 1) -> None:
        """Count records that make no event, by their name in docs/formats/<agent>.md."""
        self.skipped += count
        self._skips[name] = self._skips.get(name, 0) + count

    def skip_without_event(self, name: str, records: Iterable[Record], skipped: int) -> None:
        """Count a record that made no event, unless it was counted since `skipped` records were."""
        if self.skipped == skipped and not any(record.__class__ is EventRecord for record in records):
            self.skip(f"{name} (no event)")

    def drain_skips(self) -> Iterator[Skipped]:
        skips, self._skips = self._skips, {}
        return (Skipped(name, count) for name, count in skips.items())

    def settle(self, reader: LineReader) -> Iterable[Record]:
        """What waits for a checkpoint, and the checkpoint."""
        yield from self.drain_skips()
        yield reader.checkpoint(self.dump())

    def finish(self, reader: LineReader) -> Iterable[Record]:
        """The last records of a reading."""
        return self.settle(reader)

    def read_damaged(self, number: int, offset: int, raw: bytes) -> list[Record]:
        """What can be read of a damaged line; records glued together count as a byte apart."""
        if raw.isspace():
            self.skip(EMPTY_LINE)
            return []
        # Salvaging takes time, and lines that hold nothing come by the million.
        is_hopeless = (b'"' not in raw or len(raw) < LEAST_RECORD_BYTES) and b"\x00" not in raw
        if is_hopeless:
            return [BadLine(number, offset, _fault_of(raw), raw[:KEPT_BAD_BYTES])]
        salvaged = salvage(raw)
        reason = salvaged.bad
        records: list[Record] = []
        for shift, value in enumerate(salvaged.records):
            try:
                records += self.read(offset + shift, msgspec.json.encode(value), salvaged.is_lossy)
            except Unreadable as error:
                reason = reason or str(error)
            except MALFORMED as error:
                reason = reason or _explain(value, error)
        if reason:
            records.append(BadLine(number, offset, reason, raw[:KEPT_BAD_BYTES]))
        return records


def _fault_of(raw: bytes) -> str:
    """What is wrong with a short line that holds no record."""
    try:
        return "not a record" if isinstance(orjson.loads(raw), dict) else "not an object"
    except orjson.JSONDecodeError:
        return "not JSON"


def _explain(value: Any, error: Exception) -> str:
    if not isinstance(value, dict):
        return "not an object"
    if isinstance(error, msgspec.EncodeError | RecursionError):
        return "nested too deeply"
    return "not a record" if isinstance(error, msgspec.MsgspecError) else f"not a record: {error}"[:200]


def read_log(reader: LineReader, log: Log) -> Iterator[Record]:
    """Yield what a log holds from the reader's cursor on."""
    read = log.read
    for number, offset, raw in reader:
        try:
            records = read(offset, raw)
        except MALFORMED:
            records = log.read_damaged(number, offset, raw)
        if raw.endswith(REBUILT):
            for record in records:
                if isinstance(record, EventRecord):
                    record.is_rebuilt = True
                elif isinstance(record, SessionInfo):
                    record.born_ms = None  # the file is younger than what it was made of
        del raw  # it may be large, and what is yielded is worked on before the next line is read
        if records:
            yield from records
        if reader.is_due:
            yield from log.settle(reader)
    if reader.empty_lines:
        log.skip(EMPTY_LINE, reader.empty_lines)
    yield from reader.too_long
    yield from log.finish(reader)


def read_rewritten(
    source: Source,
    cursor: Cursor | None,
    read: Callable[[Source, bytes], Iterable[Record]],
    limit: int = 64 * 1024 * 1024,
) -> Iterator[Record]:
    """Yield what `read` makes of a file that its agent replaces as a whole; nothing if it was read already."""
    with fdopen(open_beneath(source.root, source.path), "rb") as file:
        content = file.read(limit)
    head = fingerprint(content)
    if cursor is None or cursor.head != head:
        yield from read(source, content)
        yield Checkpoint(Cursor(offset=len(content), head=head), content.count(b"\n") or 1, len(content))


_MOMENT = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)|(?<![\d.])\d{10}(?:\d{3})?(?![\d.])"
)


def moments_in(source: Source) -> set[int]:
    """Every moment that a log names, in ms, but for what Recollect wrote itself."""
    make = PackedLineReader if source.path.suffix == ".zst" else LineReader
    lines = (raw for *_, raw in make(source, None) if not raw.endswith(REBUILT))
    moments = {text.decode() for raw in lines for text in _MOMENT.findall(raw)}
    given = (int(text.ljust(13, "0")) if text.isdecimal() else parse_time_ms(text) for text in moments)
    return {moment for moment in given if moment is not None}


def parse_document(content: bytes) -> Any:
    """The one JSON value of a small file; None if it is damaged."""
    return next(iter(salvage(content).records), None)


def bad_document(content: bytes, reason: str = "not a JSON object") -> BadLine:
    """A file that is not what its name says."""
    return BadLine(1, 0, salvage(content).bad or reason, content[:KEPT_BAD_BYTES])
