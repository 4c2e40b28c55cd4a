"""The lines of Grok's updates.jsonl, decoded without building what is a twin or bulk.

Command output stands in a line three times, once as a list of integers, one per byte: fields that no struct here
names, or that are kept as `msgspec.Raw`, are never built. Where Grok writes an object a real log may hold
anything (`Odd`); scalar fields are `Any` for the same reason, and every reader of one looks before it trusts.
"""

from typing import Any

import msgspec
import orjson
from msgspec import Raw, Struct, field

from recollect.adapters.commands import as_mapping
from recollect.adapters.jsonl import salvage

NOTHING = Raw()
ID_CHARS = 80  # longer ids are not Grok's; they would also break the bound on a cursor's state
LAST_MS = 253_402_300_799_000  # the year 9999

Odd = str | int | float | bool | list[Any] | None


class Meta(Struct, gc=False):
    """What the agent says about one update: its number, its moment, the prompt and stream it belongs to."""

    eventId: Any = None
    agentTimestampMs: Any = None
    promptId: Any = None
    streamStartMs: Any = None
    cancellationCategory: Any = None
    cancelTrigger: Any = None


class Output(Struct, gc=False):
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


class Content(Struct, gc=False):
    """Text or media."""

    type: Any = None
    text: Any = None
    data: Any = None
    mimeType: Any = None
    uri: Any = None
    resource: Any = None
    meta: Any = field(default=None, name="_meta")


class Block(Struct, gc=False):
    """A piece of a result; diffs, which repeat the call's input, have no content."""

    content: Content | Odd = None


class Tool(Struct, gc=False):
    name: Any = None
    kind: Any = None
    namespace: Any = None
    label: Any = None


class Facts(Struct, gc=False):
    """What the agent adds to an update: of a prompt its index and model, of a call its tool."""

    tool: Tool | Odd = field(default=None, name="x.ai/tool")
    bash_mode: Any = None
    modelId: Any = None
    promptIndex: Any = None
    hideFromScrollback: Any = None


class Tokens(Struct, gc=False):
    inputTokens: Any = None
    outputTokens: Any = None
    cachedReadTokens: Any = None
    cacheCreationTokens: Any = None
    reasoningTokens: Any = None
    costUsdTicks: Any = None
    modelUsage: Any = None


class Update(Struct, gc=False):
    """One ACP update; the kinds that are rare are read again as plain objects."""

    sessionUpdate: Any = None
    toolCallId: Any = None
    title: Any = None
    status: Any = None
    content: Content | list[Block | Odd] | str | int | float | bool | None = None
    rawInput: Raw = NOTHING
    rawOutput: Output | Odd = None
    meta: Facts | Odd = field(default=None, name="_meta")
    prompt_id: Any = None
    stop_reason: Any = None
    agent_result: Any = None
    usage: Tokens | Odd = None
    elapsed_ms: Any = None

    @property
    def facts(self) -> Facts:
        return self.meta if isinstance(self.meta, Facts) else _NO_FACTS

    @property
    def tool(self) -> Tool:
        tool = self.facts.tool
        return tool if isinstance(tool, Tool) else _NO_TOOL


class Params(Struct, gc=False):
    sessionId: Any = None
    update: Update | Odd = None
    meta: Meta | Odd = field(default=None, name="_meta")


class Line(Params, gc=False):
    """A line; the oldest ones are a bare notification, with the fields of `params` at the top."""

    timestamp: Any = None
    params: Params | Odd = None


_DECODER = msgspec.json.Decoder(Line)
_NO_META = Meta()
_NO_FACTS = Facts()
_NO_TOOL = Tool()


class Record(Struct, gc=False):
    """One update and where it stands."""

    kind: str
    session: Any
    event_id: str | None
    moment: int | None  # as the agent tells it
    written_at: Any  # when the line was written, in whole seconds
    update: Update
    meta: Meta
    raw: bytes
    number: int
    offset: int
    is_lossy: bool

    @property
    def ts_ms(self) -> int | None:
        """When it happened; if the agent does not say, when it was written."""
        if self.moment is None and type(self.written_at) is int:
            return moment_ms(self.written_at * 1000)
        return self.moment

    def plain(self) -> dict[str, Any]:
        """The whole update as an object, for the kinds that are too rare for a field of their own."""
        line = as_mapping(loads(self.raw))
        params = as_mapping(line.get("params")) or line
        return dict(as_mapping(params.get("update")))


def parse_line(raw: bytes, number: int, offset: int, is_lossy: bool = False) -> Record | None:
    """The update a line holds; None if it is damaged or holds something else."""
    try:
        line = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    params = line.params if isinstance(line.params, Params) else line
    update = params.update
    if not isinstance(update, Update) or not isinstance(update.sessionUpdate, str) or not update.sessionUpdate:
        return None
    meta = params.meta if isinstance(params.meta, Meta) else _NO_META
    return Record(
        update.sessionUpdate,
        params.sessionId,
        safe_id(meta.eventId),
        moment_ms(meta.agentTimestampMs),
        line.timestamp,
        update,
        meta,
        raw,
        number,
        offset,
        is_lossy,
    )


def salvage_line(raw: bytes, number: int, offset: int) -> tuple[list[Record], list[str]]:
    """The updates in a line that `parse_line` refused, and what was wrong with it."""
    saved = salvage(raw)
    # Two records glued into one line must not share an id made from its offset.
    found = [_parse_again(record, number, offset + index, saved.is_lossy) for index, record in enumerate(saved.records)]
    wrong = ["not an update" for record in found if record is None]
    return [record for record in found if record], [*wrong, saved.bad] if saved.bad else wrong


def _parse_again(told: Any, number: int, offset: int, is_lossy: bool) -> Record | None:
    try:
        clean = orjson.dumps(told)
    except orjson.JSONEncodeError:
        return None
    return parse_line(clean, number, offset, is_lossy)


def safe_id(value: Any) -> str | None:
    """An id as the log gives it; None for what no agent wrote."""
    return value if isinstance(value, str) and 0 < len(value) <= ID_CHARS and value.isascii() else None


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
    return value if type(value) is int and 0 < value <= LAST_MS else None
