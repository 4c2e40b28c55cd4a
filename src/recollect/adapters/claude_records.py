"""What is decoded of a line of a Claude Code log, and how a damaged line is read all the same.

Every field is `Any`: a string where an object is usual must not cost the record. Fields that are not named
here are never built, which is what makes the bulk of a log (wire requests, twins of tool results) cheap.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from recollect.adapters import jsonl

ID_CHARS = 128


# Every JSON value that is no object: with it a field takes whatever a log holds.
_NoObject = str | int | float | bool | list[msgspec.Raw] | None


class ResultFacts(msgspec.Struct, gc=False, omit_defaults=True):
    """What `toolUseResult` tells beyond the text of the result, whose twin it otherwise is."""

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
    answers: Any = None
    annotations: Any = None
    taskId: Any = None
    shellId: Any = None
    exitCode: Any = None


class Attachment(msgspec.Struct, gc=False):
    """The attachments that are read: queued prompts, instruction files, hooks' reports."""

    type: Any = None
    prompt: Any = None
    commandMode: Any = None
    origin: Any = None
    files: Any = None


class Message(msgspec.Struct, gc=False):
    """A message as the model's service has it. `usage` stays as written: it is mostly that of the record before."""

    id: Any = None
    model: Any = None
    content: Any = None
    stop_reason: Any = None
    stop_sequence: Any = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


class Line(msgspec.Struct, gc=False):
    """One record of a transcript, its fields in about the order Claude Code writes them."""

    parentUuid: Any = None
    logicalParentUuid: Any = None
    isSidechain: Any = None
    promptId: Any = None
    agentId: Any = None
    attachment: Attachment | _NoObject = None
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


REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
decode_line = msgspec.json.Decoder(Line).decode


@dataclass(frozen=True, slots=True)
class Rescued:
    """The records of a damaged line, each with its JSON, and what was wrong with the line."""

    records: list[tuple[Line, bytes]]
    bad: str | None
    is_lossy: bool


def rescue_line(raw: bytes) -> Rescued:
    """Read what the decoder refused; never raises."""
    try:
        salvaged = jsonl.salvage(raw)
    except RecursionError:
        return Rescued([], "nested too deeply", False)
    records, bad = [], salvaged.bad
    for record in salvaged.records:
        try:
            clean = msgspec.json.encode(record)
            records.append((decode_line(clean), clean))
        except (*REFUSED, OverflowError):
            bad = bad or ("nested too deeply" if isinstance(record, dict) else "not an object")
    return Rescued(records, bad, salvaged.is_lossy)


def parse_whole(raw: bytes) -> Any:
    """Every field of a record, for kinds of record this version does not know."""
    try:
        return plain(msgspec.json.decode(raw))
    except REFUSED:
        return raw.decode("utf-8", "replace")


_NO_MESSAGE = Message()


def message_of(line: Line) -> Message:
    """A record's message; an empty one where the log has something else there."""
    return line.message if line.message.__class__ is Message else _NO_MESSAGE


@lru_cache(maxsize=1)  # asked for the event and for the account, record after record the same
def parse_usage(raw: bytes) -> dict[str, Any]:
    """The tokens a message tells; what is no object tells none. Not to be changed: it is shared."""
    try:
        told = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}


def join_spread_text(line: Line, raw: bytes) -> None:
    """Put together a text that some versions spread into the message: {"0": "A", "1": "P", …}."""
    whole = parse_whole(raw)
    message = whole.get("message") if isinstance(whole, dict) else None
    if isinstance(message, dict) and "0" in message:
        line.message = Message(content="".join(str(message[key]) for key in message if key.isdecimal()))


def as_id(value: Any) -> str | None:
    """An identity as the log gives it.

    What is no text, longer than any real one, or would be escaped in JSON is none: so ids never blow up a state.
    """
    return value if value.__class__ is str and _is_id(value) else None


_is_id = re.compile(rf"[!#-\[\]-~]{{1,{ID_CHARS}}}").fullmatch


def as_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def plain(value: Any) -> Any:
    """The value if it can be stored as JSON, else its JSON as text (too deep, or a number of 30 digits)."""
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    if not isinstance(value, dict | list | int):
        return value
    try:
        orjson.dumps(value)
    except TypeError:
        return _as_json_text(value)
    return value


def _as_json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "nested too deeply"
