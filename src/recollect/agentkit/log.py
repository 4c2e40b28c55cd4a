"""The loop that every log is read by, and what it does with damaged lines.

An adapter subclasses `Log` and says what one sound line yields; `read_log` does the rest. A line that `read` refuses is
salvaged, and each record found in it is read on its own; what is left is a `BadLine`. `PackedLineReader` has the lines
of a log that its agent compressed with zstd when it was done with it.

Lines end at the byte `\n` only: agents write U+2028 and its kin raw inside strings. An unfinished last line is left
for the next sweep; one that only lacks its line end is finished. What orjson refuses is tried again more patiently: NUL
blocks, glued records, lone surrogates and numbers of 5,000 digits are all real.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import BufferedReader, FileIO
from os import fdopen
from typing import Any, BinaryIO, NamedTuple

import msgspec
import orjson
import zstandard

from recollect.agentkit.files import open_beneath
from recollect.agentkit.protocol import BadLine, Checkpoint, Cursor, EventRecord, Record, SessionInfo, Skipped, Source
from recollect.agentkit.values import parse_time_ms, without_surrogates

BUFFER_BYTES = 1024 * 1024
FINGERPRINT_BYTES = 256
FINGERPRINT_CHARS = 16
LINE_LIMIT_BYTES = 256 * 1024 * 1024
BATCH_LINES = 1000
BATCH_BYTES = 1024 * 1024  # stored at once: 20 ms of processor time, for which others wait
KEPT_BAD_BYTES = 64 * 1024

Line = tuple[int, int, bytes]  # number from 1, offset, content without its line end


class LineReader:
    """The complete lines of a source from a cursor on, read through one descriptor.

    If the file is not the one the cursor was made for, reading starts at 0 with an empty `state`. `is_due` is set when
    enough has been read for a checkpoint; `failure` is why a file could not be read to its end. Empty lines are passed
    over and counted in `empty_lines`.
    """

    failure: str | None = None
    is_due = False
    empty_lines = 0

    def __init__(self, source: Source, cursor: Cursor | None) -> None:
        self._fd = open_beneath(source.root, source.path)
        file = BufferedReader(FileIO(self._fd), BUFFER_BYTES)
        continues = (
            cursor is not None
            and os.fstat(self._fd).st_size >= cursor.offset
            and (self._head(cursor.offset), self._tail(cursor.offset)) == (cursor.head, cursor.tail)
        )
        cursor = cursor if cursor is not None and continues else Cursor()
        file.seek(cursor.offset)
        self._begin(file, cursor)
        # A last line without its end was read as it was: the end that comes later is no new line.
        self._ends_line = bool(self.offset) and os.pread(self._fd, 1, self.offset - 1) != b"\n"

    def _begin(self, file: "BufferedReader[Any]", cursor: Cursor) -> None:
        # Closed with the reader itself: a checkpoint after the last line still needs it.
        self._file = file
        self.state: dict[str, Any] = dict(cursor.state)
        self.offset = cursor.offset
        self.line = cursor.line
        self._ends_line = False
        self._reported = (cursor.line, cursor.offset)
        self._due_line, self._due_offset = cursor.line + BATCH_LINES, cursor.offset + BATCH_BYTES
        self.too_long: list[BadLine] = []

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def _head(self, offset: int) -> str:
        return fingerprint(os.pread(self._fd, min(FINGERPRINT_BYTES, offset), 0))

    def _tail(self, offset: int) -> str:
        start = max(0, offset - FINGERPRINT_BYTES)
        return fingerprint(os.pread(self._fd, offset - start, start))

    def __iter__(self) -> Iterator[Line]:
        """Yield complete lines; `offset` and `line` are already past the line that is yielded."""
        handed_over: list[bytes] = []  # so that no large line is held here while the caller works on it
        for line in iter(partial(self._file.readline, LINE_LIMIT_BYTES), b""):
            if line == b"\n":
                self._pass_empty_lines()
                continue
            if line.endswith(b"\n"):
                raw = line[:-1]
            elif len(line) == LINE_LIMIT_BYTES:
                self._pass_over(line)
                continue
            elif _is_whole(line):
                raw = line
            else:
                break  # the agent is still writing this line
            start = self.offset
            self.offset = offset = start + len(line)
            if self._ends_line:
                self._ends_line = False
            else:
                self.line += 1
            if offset >= self._due_offset or self.line >= self._due_line:
                self.is_due = True
            handed_over.append(raw)
            del line, raw
            yield self.line, start, handed_over.pop()

    def _pass_empty_lines(self) -> None:
        """Count an empty line and those that follow it at once: a small compressed file may hold a billion of them."""
        count = 1
        while (waiting := self._file.peek()) and waiting.startswith(b"\n"):
            size = len(waiting) - len(waiting.lstrip(b"\n"))
            self._file.read(size)
            count += size
        self.offset += count
        lines = count - self._ends_line
        self._ends_line = False
        self.line += lines
        self.empty_lines += lines

    def _pass_over(self, line: bytes) -> None:
        """Keep the first bytes of an endless line and count the rest, so that memory stays bounded."""
        self.too_long.append(BadLine(self.line + 1, self.offset, "line too long", line[:KEPT_BAD_BYTES]))
        while line and not line.endswith(b"\n"):
            self.offset += len(line)
            line = self._file.readline(BUFFER_BYTES)
        self.offset += len(line)
        self.line += 1

    def checkpoint(self, state: Mapping[str, Any], at: tuple[int, int] | None = None) -> Checkpoint:
        """Everything before the end of the current line was yielded.

        `at` (line, offset) moves the cursor back before lines that are not settled, such as those of an open message.
        """
        line, offset = at or (self.line, self.offset)
        return self._checkpoint(Cursor(offset, line, self._head(offset), self._tail(offset), state))

    def _checkpoint(self, cursor: Cursor) -> Checkpoint:
        line, offset = self._reported
        self._reported = (self.line, self.offset)
        self._due_line, self._due_offset = self.line + BATCH_LINES, self.offset + BATCH_BYTES
        self.is_due = False
        return Checkpoint(cursor, self.line - line, self.offset - offset)


def _is_whole(last: bytes) -> bool:
    """Whether a last line without its end is a whole record, as in exports: an object is, with its last brace."""
    if not last.endswith(b"}"):
        return False
    try:
        return isinstance(orjson.loads(last), dict)
    except orjson.JSONDecodeError:
        return False


def fingerprint(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=FINGERPRINT_CHARS // 2).hexdigest()


class Salvaged(NamedTuple):
    """What could be read of a line. `bad` is what was wrong with the rest; `is_lossy` means that U+FFFD replaces
    characters that are no Unicode."""

    records: list[Any]
    bad: str | None = None
    is_lossy: bool = False


def salvage(raw: bytes) -> Salvaged:
    """Parse a line that may be damaged: every complete record in it, and what was wrong."""
    text = raw.strip(b"\r \t\x00").removeprefix(b"\xef\xbb\xbf")
    if not text:
        return Salvaged([], "block of NUL bytes" if b"\x00" in raw else None)
    nul = "block of NUL bytes" if b"\x00" in raw else None
    try:
        return Salvaged([orjson.loads(text)], nul)
    except orjson.JSONDecodeError:
        return _salvage_patiently(text, nul)


def _salvage_patiently(text: bytes, bad: str | None) -> Salvaged:
    """Read record after record, by position: a line may have 50 MB, too much to copy."""
    decoded = text.decode("utf-8", "replace")
    records: list[Any] = []
    at = 0
    while at < len(decoded):
        try:
            record, end = _DECODER.raw_decode(decoded, at)
        except RecursionError:
            bad = "nested too deeply"
            break
        except ValueError:
            record = _find_glued(decoded, at + 1)
            bad = "not JSON" if record is None else "cut off, the next record glued to it"
            records += [] if record is None else [record]
            break
        records.append(record)
        at = _skip_blank(decoded, end)
    try:
        cleaned = [_clean(record) for record in records]
    except RecursionError:
        return Salvaged([], "nested too deeply")
    is_lossy = "\ufffd" in decoded or any(lossy for _, lossy in cleaned)
    return Salvaged([record for record, _ in cleaned], bad, is_lossy)


# A record glued to a torn one begins with a key that agents begin records with, and has a key that only whole records
# have: a block inside the torn record has none.
_RECORD_START = re.compile(r'\{"(?:parentUuid|type|uuid|timestamp|method|params|sessionId|id|display|session_id|ts)":')
_SEARCHES = 50  # how many times its own length a damaged line is searched through
_RECORD_KEYS = frozenset({"uuid", "parentUuid", "sessionId", "session_id", "timestamp", "method", "leafUuid", "ts"})


def _find_glued(decoded: str, start: int) -> Any | None:
    """The whole record that a damaged line ends with, if any; one begun a thousand times over is not looked for."""
    budget = _SEARCHES * len(decoded)
    for match in _RECORD_START.finditer(decoded, start):
        try:
            record, end = _DECODER.raw_decode(decoded, match.start())
        except json.JSONDecodeError as error:
            budget -= error.pos  # making the error searches all that is before it for line ends
        except RecursionError:
            budget -= len(decoded)
        else:
            if _skip_blank(decoded, end) == len(decoded) and not _RECORD_KEYS.isdisjoint(record):
                return record
            budget -= end - match.start()
        if budget < 0:
            break
    return None


def _skip_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


_BLANK = re.compile(r"[\s\x00]*")


def _integer(digits: str) -> int | str:
    """A number too long for 64 bits as text: no database column takes it."""
    if len(digits) > 19:
        return digits
    value = int(digits)
    return value if -(2**63) <= value < 2**63 else digits


_DECODER = json.JSONDecoder(parse_int=_integer, parse_constant=str)


def _clean(value: Any) -> tuple[Any, bool]:
    """The value without lone surrogates, which SQLite refuses, and whether it had any."""
    if isinstance(value, str):
        clean = without_surrogates(value)
        return clean, clean != value
    if isinstance(value, list):
        parts = [_clean(part) for part in value]
        return [part for part, _ in parts], any(lossy for _, lossy in parts)
    if isinstance(value, dict):
        pairs = [(_clean(name), _clean(part)) for name, part in value.items()]
        clean_pairs = {name: part for (name, _), (part, _) in pairs}
        return clean_pairs, any(lossy or part_lossy for (_, lossy), (_, part_lossy) in pairs)
    return value, False


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
            try:
                fault = "not a record" if isinstance(orjson.loads(raw), dict) else "not an object"
            except orjson.JSONDecodeError:
                fault = "not JSON"
            return [BadLine(number, offset, fault, raw[:KEPT_BAD_BYTES])]
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
