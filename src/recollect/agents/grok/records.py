"""The lines of Grok's updates.jsonl, decoded without what is a twin or bulk.

A line holds command output three times, once as a list of integers, one per byte: fields that no struct here names, or
that are kept as `msgspec.Raw`, are never built. Where Grok writes an object a real log may hold anything (`Odd`);
scalar fields are `Any` for the same reason, and every reader of one checks it first.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
from msgspec import Raw, Struct, field

from recollect.agentkit.log import Unreadable, salvage
from recollect.agentkit.values import as_id, as_mapping, media_reference
from recollect.agents.grok.discover import ID_CHARS

NOTHING = Raw()
LAST_MS = 253_402_300_799_000  # the year 9999

Odd = str | int | float | bool | list[Any] | None


class Meta(Struct, gc=False):
    """Facts about one update: its number, its moment, the prompt and stream it belongs to."""

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
    """Text or media; in a list a piece of a result, which has its own `content` unless it repeats the call's input."""

    content: "Content | Odd" = None
    type: Any = None
    text: Any = None
    data: Any = None
    mimeType: Any = None
    uri: Any = None
    resource: Any = None
    meta: Any = field(default=None, name="_meta")


class Facts(Struct, gc=False):
    """What the agent adds to an update: the index and model of a prompt, the tool of a call."""

    tool: Any = field(default=None, name="x.ai/tool")
    bash_mode: Any = None
    modelId: Any = None
    promptIndex: Any = None
    hideFromScrollback: Any = None


class Update(Struct, gc=False):
    """One ACP update; the kinds that are rare are read again as plain objects."""

    sessionUpdate: Any = None
    toolCallId: Any = None
    title: Any = None
    status: Any = None
    content: Content | list[Content | Odd] | str | int | float | bool | None = None
    rawInput: Raw = NOTHING
    rawOutput: Output | Odd = None
    meta: Facts | Odd = field(default=None, name="_meta")
    prompt_id: Any = None
    stop_reason: Any = None
    agent_result: Any = None
    usage: Any = None
    elapsed_ms: Any = None

    @property
    def facts(self) -> Facts:
        return self.meta if isinstance(self.meta, Facts) else _NO_FACTS

    @property
    def tool(self) -> Mapping[str, Any]:
        return as_mapping(self.facts.tool)


class Params(Struct, gc=False):
    sessionId: Any = None
    update: Update | Odd = None
    meta: Meta | Odd = field(default=None, name="_meta")


class Notification(Params, gc=False):
    """A line; the oldest ones have the fields of `params` at the top."""

    timestamp: Any = None
    params: Params | Odd = None


_decode = msgspec.json.Decoder(Notification).decode
_NO_META = Meta()
_NO_FACTS = Facts()


class UpdateRecord(Struct, gc=False):
    """One update and its place in the log."""

    kind: str
    session: Any
    event_id: str | None
    moment: int | None  # by the agent's clock
    written_at: Any  # when the line was written, in whole seconds
    update: Update
    meta: Meta
    raw: bytes
    number: int
    offset: int
    is_lossy: bool

    @property
    def ts_ms(self) -> int | None:
        """When it happened, else when it was written."""
        if self.moment is None and type(self.written_at) is int:
            return moment_ms(self.written_at * 1000)
        return self.moment

    def plain(self) -> dict[str, Any]:
        """The whole update as an object, for kinds too rare for fields of their own."""
        line = as_mapping(loads(self.raw))
        params = as_mapping(line.get("params")) or line
        return dict(as_mapping(params.get("update")))


def parse_line(raw: bytes, number: int, offset: int, is_lossy: bool) -> UpdateRecord:
    """The update in a line. Raises Unreadable if it holds something else."""
    line = _decode(raw)
    params: Any = line.params if line.params.__class__ is Params else line
    update, meta = params.update, params.meta
    if update.__class__ is not Update or update.sessionUpdate.__class__ is not str or not update.sessionUpdate:
        raise Unreadable("not an update")
    if meta.__class__ is not Meta:
        meta = _NO_META
    moment = meta.agentTimestampMs
    return UpdateRecord(
        update.sessionUpdate,
        params.sessionId,
        grok_id(meta.eventId),
        moment if moment.__class__ is int and 0 < moment <= LAST_MS else None,
        line.timestamp,
        update,
        meta,
        raw,
        number,
        offset,
        is_lossy,
    )


def grok_id(value: Any) -> str | None:
    """An id as the log has it; None for what Grok does not write."""
    return as_id(value, ID_CHARS)


def loads(raw: Raw | bytes) -> Any:
    """Parse a piece that was left unparsed; None if it is absent or cannot be read."""
    if not raw:
        return None
    try:
        return orjson.loads(memoryview(raw))
    except orjson.JSONDecodeError:
        return next(iter(salvage(bytes(raw)).records), None)


def moment_ms(value: Any) -> int | None:
    """Milliseconds since 1970 from a log; None for what no clock shows."""
    return value if type(value) is int and 0 < value <= LAST_MS else None


def media_of(block: Content) -> dict[str, Any]:
    """A reference to inline media; only for a block whose `data` is text."""
    kind, mime, uri = (value if isinstance(value, str) else None for value in (block.type, block.mimeType, block.uri))
    return media_reference(kind or "media", mime, block.data, uri)
