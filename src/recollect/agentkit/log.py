"""The loop that every log is read by, and what it does with damaged lines.

An adapter subclasses `Log` and says what one sound line yields; `read_log` does the rest. A line that `read` refuses is
salvaged, and each record found in it is read on its own; what is left is a `BadLine`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import fdopen
from typing import Any

import msgspec
import orjson

from recollect.agentkit.files import open_beneath
from recollect.agentkit.lines import KEPT_BAD_BYTES, LineReader, fingerprint, salvage
from recollect.agentkit.protocol import BadLine, Checkpoint, Cursor, EventRecord, Record, Skipped, Source

NOTHING: Sequence[Record] = ()


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


def parse_document(content: bytes) -> Any:
    """The one JSON value of a small file; None if it is damaged."""
    return next(iter(salvage(content).records), None)


def bad_document(content: bytes, reason: str = "not a JSON object") -> BadLine:
    """A file that is not what its name says."""
    return BadLine(1, 0, salvage(content).bad or reason, content[:KEPT_BAD_BYTES])
