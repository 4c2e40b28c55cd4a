"""The lines of Grok's updates.jsonl, decoded without building what is a twin or bulk.

Command output stands in a line three times, once as a list of integers, one per byte: the fields left out
here, or kept as `msgspec.Raw`, are never built. Fields are `Any` because real logs hold strings where
objects are usual; every reader of one looks before it trusts.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import orjson
from msgspec import Raw, Struct, field

from recollect.adapters.commands import as_mapping
from recollect.adapters.jsonl import salvage

NOTHING = Raw()
ID_CHARS = 80  # longer ids are not Grok's; they would also break the bound on a cursor's state
LAST_MS = 253_402_300_799_000  # the year 9999


class Meta(Struct):
    """What the agent says about one update: its number, its moment, the prompt and stream it belongs to."""

    eventId: Any = None
    agentTimestampMs: Any = None
    promptId: Any = None
    streamStartMs: Any = None
    cancellationCategory: Any = None
    cancelTrigger: Any = None


class Output(Struct):
    """A tool's own result. `output` is text, an object or a list of byte values, by `type`."""

    type: Any = None
    exit_code: Any = None
    signal: Any = None
    timed_out: Any = None
    truncated: Any = None
    total_bytes: Any = None
    is_error: Any = None
    current_dir: Any = None
    server_name: Any = None
    tool_name: Any = None
    subagent_id: Any = None
    output: Raw = NOTHING
    output_for_prompt: Raw = NOTHING
    stdout: Raw = NOTHING
    TodosUpdated: Raw = NOTHING
    EditsApplied: Raw = NOTHING
    Content: Raw = NOTHING
    Result: Raw = NOTHING


class Update(Struct):
    """One ACP update; the kinds that are rare are read again as plain objects."""

    sessionUpdate: Any = None
    toolCallId: Any = None
    title: Any = None
    status: Any = None
    content: Any = None
    rawInput: Raw = NOTHING
    rawOutput: Output | str | int | float | bool | list[Any] | None = None
    meta: Any = field(default=None, name="_meta")
    prompt_id: Any = None
    stop_reason: Any = None
    agent_result: Any = None
    usage: Any = None
    elapsed_ms: Any = None


class Params(Struct):
    sessionId: Any = None
    update: Update | str | int | float | bool | list[Any] | None = None
    meta: Meta | str | int | float | bool | list[Any] | None = field(default=None, name="_meta")


class Line(Params):
    """A line; the oldest ones are a bare notification, with the fields of `params` at the top."""

    timestamp: Any = None
    params: Params | str | int | float | bool | list[Any] | None = None


_DECODER = msgspec.json.Decoder(Line)
_NO_UPDATE = Update()
_NO_META = Meta()


class Record:
    """One update with what every reader of it asks for, already checked."""

    __slots__ = (
        "event_id",
        "is_lossy",
        "kind",
        "meta",
        "moment",
        "number",
        "offset",
        "raw",
        "session",
        "update",
    )

    def __init__(self, line: Line, raw: bytes, number: int, offset: int, is_lossy: bool = False) -> None:
        params = line.params if isinstance(line.params, Params) else line
        self.update = params.update if isinstance(params.update, Update) else _NO_UPDATE
        self.meta = params.meta if isinstance(params.meta, Meta) else _NO_META
        kind = self.update.sessionUpdate
        self.kind = kind if isinstance(kind, str) else ""
        self.session = params.sessionId
        self.event_id = safe_id(self.meta.eventId)
        self.moment = moment_ms(self.meta.agentTimestampMs)
        if self.moment is None and isinstance(line.timestamp, int):
            self.moment = moment_ms(line.timestamp * 1000)
        self.raw = raw
        self.number = number
        self.offset = offset
        self.is_lossy = is_lossy

    @property
    def has_own_moment(self) -> bool:
        """Whether the agent told the moment; the line's own is that of writing, in whole seconds."""
        return self.moment is not None and self.moment == self.meta.agentTimestampMs

    def plain(self) -> dict[str, Any]:
        """The whole update as an object, for the kinds that are too rare for a field of their own."""
        line = as_mapping(loads(self.raw))
        params = as_mapping(line.get("params")) or line
        return dict(as_mapping(params.get("update")))


def safe_id(value: Any) -> str | None:
    """An id as the log gives it; None for what no agent wrote."""
    return value if isinstance(value, str) and 0 < len(value) <= ID_CHARS and value.isascii() else None


def parse_line(raw: bytes, number: int, offset: int) -> list[Record | str]:
    """The line's records, and as text what was wrong with it."""
    try:
        line = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return list(_parse_damaged(raw, number, offset))
    return [_checked(Record(line, raw, number, offset))]


def _checked(record: Record) -> Record | str:
    return record if record.kind else "not an update"


def _parse_damaged(raw: bytes, number: int, offset: int) -> Iterator[Record | str]:
    saved = salvage(raw)
    for index, record in enumerate(saved.records):
        try:
            clean = orjson.dumps(record)
            line = _DECODER.decode(clean)
        except (orjson.JSONEncodeError, msgspec.DecodeError, RecursionError):
            yield "not an update"
            continue
        # Two records glued into one line must not share an id made from its offset.
        yield _checked(Record(line, clean, number, offset + index, saved.is_lossy))
    if saved.bad:
        yield saved.bad


def loads(raw: Raw | bytes) -> Any:
    """Parse a piece that was left unparsed; None if it is absent or damaged beyond reading."""
    if not raw:
        return None
    try:
        return orjson.loads(memoryview(raw))
    except orjson.JSONDecodeError:
        return next(iter(salvage(bytes(raw)).records), None)


def moment_ms(value: Any) -> int | None:
    """Milliseconds since 1970 as told by a log; None for what no clock shows."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LAST_MS else None
