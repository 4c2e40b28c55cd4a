"""The lines of a JSON-lines file from a cursor on, whatever state the file is in.

Lines end at the byte `\\n` only: agents write U+2028 and its kin raw inside strings. An unfinished last line is left
for the next sweep; one that only lacks its line end is finished. What orjson refuses is tried again more patiently: NUL
blocks, glued records, lone surrogates and numbers of 5,000 digits are all real.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from io import BufferedReader, FileIO
from typing import Any

import orjson

from recollect.agentkit.files import open_beneath
from recollect.agentkit.protocol import BadLine, Checkpoint, Cursor, Source
from recollect.agentkit.values import without_surrogates

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
        cursor = cursor if cursor is not None and self._continues(cursor) else Cursor()
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

    def _continues(self, cursor: Cursor) -> bool:
        return (
            os.fstat(self._fd).st_size >= cursor.offset
            and self._head(cursor.offset) == cursor.head
            and self._tail(cursor.offset) == cursor.tail
        )

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


@dataclass(frozen=True, slots=True)
class Salvaged:
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
