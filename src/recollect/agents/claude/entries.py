"""What is decoded of a line of a Claude Code log.

Every field is `Any`: a string where an object is usual must not cost the entry. Fields without a name here are never
built, which makes the bulk of a log (wire requests, twins of tool results) cheap.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from recollect.agentkit.log import MALFORMED
from recollect.agentkit.values import as_mapping, storable

# Every JSON value but an object: with it a field takes whatever a log holds.
_NoObject = str | int | float | bool | list[msgspec.Raw] | None


_NOTHING = msgspec.Raw()


class ResultFacts(msgspec.Struct, gc=False, omit_defaults=True):
    """The fields of `toolUseResult` that the text of the result, its twin, does not have."""

    status: Any = None
    isAsync: Any = None
    agentId: Any = None
    agentType: Any = None
    resolvedModel: Any = None
    totalDurationMs: Any = None
    totalTokens: Any = None
    totalToolUseCount: Any = None
    interrupted: Any = None
    returnCodeInterpretation: Any = None
    backgroundTaskId: Any = None
    persistedOutputPath: Any = None
    persistedOutputSize: Any = None
    type: Any = None
    filePath: Any = None
    userModified: Any = None
    structuredPatch: Any = None
    # The texts that `structuredPatch` is from: needed to restore its tabs, and not kept.
    originalFile: msgspec.Raw = _NOTHING
    originalFileContents: msgspec.Raw = _NOTHING
    content: msgspec.Raw = _NOTHING
    oldString: Any = None
    newString: Any = None
    replaceAll: Any = None
    edits: Any = None
    answers: Any = None
    annotations: Any = None
    taskId: Any = None
    shellId: Any = None
    exitCode: Any = None
    durationSeconds: Any = None
    searchCount: Any = None


_TEXTS = ("originalFile", "originalFileContents", "content", "oldString", "newString", "replaceAll", "edits")


def take_texts(facts: ResultFacts) -> dict[str, Any]:
    """The texts of an edit, taken out of the facts that are kept; empty for one that has none."""
    texts = {name: getattr(facts, name) for name in _TEXTS}
    for name, value in texts.items():
        setattr(facts, name, _NOTHING if isinstance(value, msgspec.Raw) else None)
    return {name: _parsed(value) for name, value in texts.items()} if facts.structuredPatch else {}


def _parsed(value: Any) -> Any:
    if not isinstance(value, msgspec.Raw):
        return value
    try:
        return msgspec.json.decode(value) if value else None
    except MALFORMED:
        return None


class Attachment(msgspec.Struct, gc=False):
    """The attachments that are read: queued prompts, instruction files, reports of hooks."""

    type: Any = None
    prompt: Any = None
    commandMode: Any = None
    origin: Any = None
    files: Any = None


class Progress(msgspec.Struct, gc=False):
    """What a running tool reports: of a sub-agent each of its messages, as its own log has them."""

    type: Any = None
    agentId: Any = None
    message: msgspec.Raw = _NOTHING


class Message(msgspec.Struct, gc=False):
    """A message of the model's service. `usage` stays as written: it is mostly that of the entry before."""

    id: Any = None
    model: Any = None
    content: Any = None
    stop_reason: Any = None
    stop_sequence: Any = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


class Entry(msgspec.Struct, gc=False):
    """One line of a transcript, its fields in about the order Claude Code writes them."""

    parentUuid: Any = None
    logicalParentUuid: Any = None
    isSidechain: Any = None
    promptId: Any = None
    agentId: Any = None
    attachment: Attachment | _NoObject = None
    data: Progress | _NoObject = None
    parentToolUseID: Any = None
    message: Message | _NoObject = None
    thinkingDurationMs: Any = None
    apiBlockIndex: Any = None
    requestId: Any = None
    type: Any = None
    subtype: Any = None
    uuid: Any = None
    timestamp: Any = None
    isMeta: Any = None
    isCompactSummary: Any = None
    isVisibleInTranscriptOnly: Any = None
    toolUseResult: ResultFacts | _NoObject = None
    toolDenialKind: Any = None
    userFeedback: Any = None
    interruptedMessageId: Any = None
    interruptedByShutdown: Any = None
    permissionMode: Any = None
    origin: Any = None
    promptSource: Any = None
    turnOrigin: Any = None
    thinkingMetadata: Any = None
    imagePasteIds: Any = None
    sandboxed: Any = None
    sourceToolAssistantUUID: Any = None
    sourceToolUseID: Any = None
    permissionDecision: Any = None
    effort: Any = None
    advisorModel: Any = None
    attributionAgent: Any = None
    attributionSkill: Any = None
    attributionPlugin: Any = None
    attributionMcpServer: Any = None
    attributionMcpTool: Any = None
    isAbortedMidStream: Any = None
    error: Any = None
    errorDetails: Any = None
    isApiErrorMessage: Any = None
    apiErrorStatus: Any = None
    apiErrorType: Any = None
    entrypoint: Any = None
    cwd: Any = None
    sessionId: Any = None
    version: Any = None
    gitBranch: Any = None
    forkedFrom: Any = None
    summary: Any = None
    leafUuid: Any = None
    aiTitle: Any = None
    customTitle: Any = None
    totalCostUSD: Any = None
    startTime: Any = None


decode_entry = msgspec.json.Decoder(Entry).decode


def parse_whole(raw: bytes) -> Any:
    """Every field of an entry, for kinds that this version does not know."""
    try:
        return storable(msgspec.json.decode(raw))
    except MALFORMED:
        return raw.decode("utf-8", "replace")


_NO_MESSAGE = Message()


def message_of(entry: Entry) -> Message:
    """An entry's message; an empty one where the log has something else."""
    return entry.message if entry.message.__class__ is Message else _NO_MESSAGE


@lru_cache(maxsize=1)  # needed for the event and for the account, and the same in entry after entry
def parse_usage(raw: bytes) -> dict[str, Any]:
    """The tokens of a message; empty for what is no object. Not to be changed: it is shared."""
    return _parse_object(raw)


def join_spread_text(entry: Entry, raw: bytes) -> None:
    """Join a text that some versions spread over the message: {"0": "A", "1": "P", …}.

    Where the service's answer was not read as a stream, the text is that stream: then the answer in it is taken.
    """
    whole = parse_whole(raw)
    message = whole.get("message") if isinstance(whole, dict) else None
    if isinstance(message, dict) and "0" in message:
        text = "".join(str(message[key]) for key in message if key.isdecimal())
        answer = _read_stream(text)
        entry.message = msgspec.convert(answer, Message) if answer else Message(content=text)


def _read_stream(text: str) -> dict[str, Any]:
    """The message that a stream of server-sent events holds; empty if it is none."""
    message: dict[str, Any] = {}
    blocks: dict[Any, dict[str, Any]] = {}
    for line in text.splitlines():
        event = _parse_object(line.removeprefix("data:")) if line.startswith("data:") else {}
        if event.get("type") == "message_start":
            message |= as_mapping(event.get("message"))
        elif event.get("type") == "content_block_start":
            blocks[event.get("index")] = dict(as_mapping(event.get("content_block")))
        elif event.get("type") == "content_block_delta":
            _extend(blocks.setdefault(event.get("index"), {"type": "text"}), as_mapping(event.get("delta")))
        elif event.get("type") == "message_delta":
            message |= as_mapping(event.get("delta"))
            message["usage"] = {**as_mapping(message.get("usage")), **as_mapping(event.get("usage"))}
    for block in blocks.values():
        if partial := block.pop("partial_json", ""):
            block["input"] = _parse_object(partial) or partial
    usage = msgspec.Raw(orjson.dumps(message.get("usage")))
    return {**message, "content": list(blocks.values()), "usage": usage} if message and blocks else {}


def _extend(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name in ("text", "thinking", "signature", "partial_json"):
        if isinstance(delta.get(name), str):
            block[name] = f"{block.get(name) or ''}{delta[name]}"


def _parse_object(text: str | bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
