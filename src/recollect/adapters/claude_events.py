"""From one record of a Claude Code log to the events it tells.

Blocks are numbered in the order of the events they make, so that a record that makes any has a block 0.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from recollect.adapters import claude_words as words
from recollect.adapters.claude_memory import Memory
from recollect.adapters.claude_records import (
    Line,
    Message,
    ResultFacts,
    as_id,
    as_text,
    message_of,
    parse_usage,
    plain,
)
from recollect.adapters.commands import as_mapping, media_reference, positive_int, retry_key, shell_kind, summarise
from recollect.adapters.protocol import EventRecord
from recollect.schema import (
    ASSISTANT_MSG,
    DECISION,
    EDIT,
    ERROR,
    HUMAN_INTERVENTION,
    LIFECYCLE,
    OTHER,
    THINKING,
    TOOL_CALL,
    TOOL_RESULT,
)

SYNTHETIC = "<synthetic>"
EDITING = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
SHELLS = frozenset({"Bash", "bash", "PowerShell"})
ASKING = frozenset({"AskUserQuestion", "ExitPlanMode"})
SPAWNING = frozenset({"Task", "Agent"})

INTERRUPTED = "[Request interrupted by user"
_CUT_OFF = "interrupted the call"
_REFUSED = ("The user doesn't want to", INTERRUPTED, "User rejected")

_ASSISTANT_FIELDS = (
    "requestId",
    "apiBlockIndex",
    "thinkingDurationMs",
    "effort",
    "advisorModel",
    "attributionAgent",
    "attributionSkill",
    "attributionPlugin",
    "attributionMcpServer",
    "attributionMcpTool",
    "isAbortedMidStream",
    "error",
    "errorDetails",
    "isApiErrorMessage",
    "apiErrorStatus",
    "apiErrorType",
)
_assistant_values = attrgetter(*_ASSISTANT_FIELDS)
_MESSAGE_FIELDS = ("id", "stop_reason", "stop_sequence")
_message_values = attrgetter(*_MESSAGE_FIELDS)


@dataclass(slots=True)
class Place:
    """Where a record stands: its session and lane, its identity, what it follows."""

    session: str
    lane: str
    native_id: str
    position: int
    parent: str | None
    ts_ms: int | None
    is_sub_agent: bool = False
    is_lossy: bool = False

    def event(
        self,
        block: int,
        kind: str,
        payload: Mapping[str, Any],
        summary: str,
        *,
        role: str | None = None,
        tool: str | None = None,
        call_id: str | None = None,
        status: str | None = None,
        is_error: bool = False,
        is_retry: bool = False,
        is_provisional: bool = False,
        retry_key: str | None = None,
    ) -> EventRecord:
        event = EventRecord(
            self.session,
            self.native_id,
            self.position + block,
            self.ts_ms,
            kind,
            payload,
            summary,
            block,
            self.lane,
            self.parent,
            role,
            tool,
            call_id,
            status,
            is_error,
            is_retry,
            is_provisional,
            None,
            retry_key,
        )
        if self.is_lossy:
            event.metadata = {"lossy": True}
        return event


def fields_of(names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def blocks_of(message: Message) -> list[Any]:
    """A message's content as a list of blocks, whatever shape it was written in."""
    content = message.content
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if isinstance(content, str) else []


def assistant_events(line: Line, place: Place, memory: Memory) -> list[EventRecord]:
    """One event per block of an answer that says anything."""
    message = message_of(line)
    native = fields_of(_ASSISTANT_FIELDS, _assistant_values(line))
    about = native["message"] = fields_of(_MESSAGE_FIELDS, _message_values(message))
    model = as_text(message.model)
    events: list[EventRecord] = []
    for block in blocks_of(message):
        event = _assistant_block(line, place, memory, as_mapping(block), native, len(events))
        if event is not None:
            event.model = model
            events.append(event)
    if events and memory.is_first_of_message(as_id(message.id)):
        _add_tokens(events[0], parse_usage(bytes(message.usage)), about)
    return events


def _add_tokens(event: EventRecord, told: dict[str, Any], about: dict[str, Any]) -> None:
    if told:
        about["usage"] = told
        event.input_tokens = positive_int(told.get("input_tokens"))
        event.output_tokens = positive_int(told.get("output_tokens"))


def _assistant_block(
    line: Line, place: Place, memory: Memory, block: Mapping[str, Any], native: dict[str, Any], index: int
) -> EventRecord | None:
    kind = block.get("type")
    if kind == "text":
        return _said(line, place, memory, block, native, index)
    if kind == "thinking":
        return _thought(place, memory, block, native, index)
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        return _call(line, place, memory, block, native, index)
    if kind == "redacted_thinking":
        memory.skip("redacted_thinking")
        return None
    if "tool_use_id" in block:
        return result_event(place, memory, block, Outcome(native), index)
    payload = {"text": "", "native": {**native, "block": plain(block)}}
    return place.event(index, OTHER, payload, summarise(f"block {kind}"), role="assistant")


def _said(
    line: Line, place: Place, memory: Memory, block: Mapping[str, Any], native: dict[str, Any], index: int
) -> EventRecord | None:
    text = as_text(block.get("text"))
    if text is None or not text.strip():
        memory.skip("empty")
        return None
    payload = {"text": text, "native": native}
    summary = summarise(text)
    if message_of(line).model == SYNTHETIC and line.isApiErrorMessage is not True:
        return place.event(index, LIFECYCLE, payload, summary, role="system")  # the program's words, not the model's
    if line.isApiErrorMessage is True:
        return place.event(index, ERROR, payload, summary, role="assistant", status="failed", is_error=True)
    return place.event(index, ASSISTANT_MSG, payload, summary, role="assistant")


def _thought(
    place: Place, memory: Memory, block: Mapping[str, Any], native: dict[str, Any], index: int
) -> EventRecord | None:
    text = as_text(block.get("thinking"))
    if text is None or not text.strip():
        memory.skip("thinking without text")
        return None
    signature = as_text(block.get("signature"))
    payload = {"text": text, "native": {**native, "signature": signature} if signature else native}
    return place.event(index, THINKING, payload, summarise(text), role="assistant")


def _call(
    line: Line, place: Place, memory: Memory, block: Mapping[str, Any], native: dict[str, Any], index: int
) -> EventRecord:
    tool = as_text(block.get("name")) or "unknown"
    arguments = block.get("input")
    arguments, key = _keyed(tool, {} if arguments is None else arguments)
    call_id = as_id(block.get("id"))
    if call_id is not None:
        memory.open_call(call_id, tool)
        if tool in SPAWNING:
            _remember_spawn(memory, arguments, call_id)
    return place.event(
        index,
        _call_kind(tool, arguments),
        {"input": arguments, "native": native},
        words.describe_call(tool, arguments, line.cwd),
        role="assistant",
        tool=tool,
        call_id=call_id,
        retry_key=key,
    )


def _keyed(tool: str, arguments: Any) -> tuple[Any, str]:
    """Arguments that can be stored, with their key; the key is what finds out that they cannot."""
    try:
        return arguments, retry_key(tool, arguments)
    except TypeError:
        text = plain(arguments)
        return text, retry_key(tool, text)


def _call_kind(tool: str, arguments: Any) -> str:
    if tool in EDITING:
        return EDIT
    command = as_mapping(arguments).get("command") if tool in SHELLS else None
    return shell_kind(command) if isinstance(command, str) else TOOL_CALL


def prompt_key(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _remember_spawn(memory: Memory, arguments: Any, call_id: str) -> None:
    prompt = as_mapping(arguments).get("prompt")
    if isinstance(prompt, str):
        memory.spawn(prompt_key(prompt), call_id)


@dataclass(slots=True)
class Outcome:
    """What a record tells of a tool's result beside the result itself."""

    native: dict[str, Any]
    facts: ResultFacts | None = None
    denial: Any = None
    decided_by: Any = None  # "config" where a rule decided and nobody was asked
    feedback: str | None = None

    @property
    def is_refusal(self) -> bool:
        return bool(self.denial == "user-rejected" and self.decided_by != "config")

    @property
    def is_cut_off(self) -> bool:
        return self.facts is not None and self.facts.interrupted is True

    @property
    def is_failure(self) -> bool:
        facts = self.facts
        return facts is not None and bool(facts.status == "failed" or facts.exitCode not in (None, 0))


def result_event(place: Place, memory: Memory, block: Mapping[str, Any], outcome: Outcome, index: int) -> EventRecord:
    call_id = as_id(block.get("tool_use_id"))
    tool = memory.close_call(call_id)
    output, text, media = _output(block.get("content"))
    payload: dict[str, Any] = {"output": output, "native": outcome.native}
    if media:
        payload["media"] = media
    kind, role, status, summary = _verdict(block, tool, text, len(media), outcome)
    if memory.asks_nobody and tool not in ASKING and summary == words.REFUSED:
        summary = _CUT_OFF  # nobody was asked who could refuse: the call was running
    is_error = status in ("failed", "denied")
    return place.event(
        index, kind, payload, summary, role=role, tool=tool, call_id=call_id, status=status, is_error=is_error
    )


def _verdict(
    block: Mapping[str, Any], tool: str | None, text: str, media: int, outcome: Outcome
) -> tuple[str, str, str, str]:
    """Kind, role, status and summary of a result."""
    has_failed = block.get("is_error") is True
    if outcome.is_cut_off or (has_failed and _was_running(text)):
        return HUMAN_INTERVENTION, "user", "denied", _CUT_OFF
    if has_failed and (outcome.is_refusal or text.startswith(_REFUSED)):
        reason = outcome.feedback or words.find_reason(text)
        return HUMAN_INTERVENTION, "user", "denied", words.describe_refusal(reason)
    if has_failed or outcome.is_failure:
        return ERROR, "tool", "failed", words.describe_failure(text)
    answers = outcome.facts.answers if outcome.facts else None
    if tool in ASKING or answers:
        return DECISION, "user", "ok", words.describe_answers(answers)
    return TOOL_RESULT, "tool", "ok", words.describe_result(text, media)


def _was_running(text: str) -> bool:
    """Whether a stop came when the tool had begun to print: such a call was allowed, and then cut off."""
    return text.startswith(INTERRUPTED) and bool(text.partition("]")[2].strip())


def _output(content: Any) -> tuple[Any, str, list[dict[str, Any]]]:
    """A result's content: as kept, as plain text, and the media taken out of it."""
    if isinstance(content, str):
        return content, content, []
    if not isinstance(content, list):
        return plain({} if content is None else content) or "", "", []
    texts: list[str] = []
    media: list[dict[str, Any]] = []
    parts: list[Any] = []
    for part in content:
        sort_part(part, texts, media, parts)
    text = "\n".join(texts)
    return (text if not parts else [{"type": "text", "text": text}, *parts] if text else parts), text, media


def sort_part(part: Any, texts: list[str], media: list[dict[str, Any]], parts: list[Any]) -> None:
    told = as_mapping(part)
    if isinstance(part, str):
        texts.append(part)
    elif told.get("type") == "text" and isinstance(told.get("text"), str):
        texts.append(told["text"])
    elif (reference := find_media(told)) is not None:
        media.append(reference)
    else:
        parts.append(plain(part))


def find_media(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """A reference to the base64 content of an image or document block, if it has any."""
    source = as_mapping(block.get("source"))
    data = source.get("data")
    if source.get("type") != "base64" or not isinstance(data, str):
        return None
    return media_reference(str(block.get("type")), as_text(source.get("media_type")), data)
