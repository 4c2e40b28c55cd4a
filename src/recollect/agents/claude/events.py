"""From an answer of the model, or a result of a tool, to events.

Blocks are numbered in the order of the events they make, so that an entry that makes any has a block 0. Each has a
summary of one line.
"""

import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from recollect.agentkit.calls import error_line, shell_kind
from recollect.agentkit.protocol import EventRecord
from recollect.agentkit.values import (
    as_id,
    as_list,
    as_mapping,
    as_text,
    call_key,
    media_reference,
    positive_int,
    short_hash,
    storable,
    summarise,
    text_in,
    texts_in,
)
from recollect.agents.claude.transcript import Entry, Message, ResultFacts, Transcript, message_of, parse_usage
from recollect.model import kinds
from recollect.model.kinds import SUMMARY_CHARS

SYNTHETIC = "<synthetic>"
EDITING = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
SHELLS = frozenset({"Bash", "bash", "PowerShell"})
ASKING = frozenset({"AskUserQuestion", "ExitPlanMode"})
SPAWNING = frozenset({"Task", "Agent"})

INTERRUPTED = "[Request interrupted by user"
LATE_MS = 1_000  # results of calls that ran side by side come as late as this
_CUT_OFF = "interrupted the call"
_REFUSED = ("The user doesn't want to", INTERRUPTED, "User rejected")

_ASSISTANT_FIELDS = tuple(
    """
    requestId apiBlockIndex thinkingDurationMs effort advisorModel attributionAgent attributionSkill
    attributionPlugin attributionMcpServer attributionMcpTool isAbortedMidStream error errorDetails
    isApiErrorMessage apiErrorStatus apiErrorType
    """.split()  # noqa: SIM905 - a list would take a page
)
_assistant_values = attrgetter(*_ASSISTANT_FIELDS)
# Ids of the model's service, the same in every copy of a record; other services count from 1 in each session.
_is_unique_id = re.compile(r"(?:msg|toolu|srvtoolu)_[0-9A-Za-z_]{16,}").fullmatch
_USUAL = (None,) * (len(_ASSISTANT_FIELDS) - 1)  # mostly the first field is all there is


class Place(msgspec.Struct, gc=False):
    """Where an entry belongs: its session and lane, its identity, what it follows."""

    session: str
    lane: str
    native_id: str
    position: int
    parent: str | None
    ts_ms: int | None
    is_sub_agent: bool = False
    is_lossy: bool = False
    back_ms: int = 0

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
        if self.back_ms:
            event.is_clamped, event.may_repeat = True, self.back_ms > LATE_MS
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
    return [content] if isinstance(content, str) or texts_in(content) else []


def assistant_events(entry: Entry, place: Place, transcript: Transcript) -> list[EventRecord]:
    """One event per block of an answer that is not empty."""
    message = message_of(entry)
    native = _native(entry)
    about: dict[str, Any] = {}
    if message.id is not None:
        about["id"] = message.id
    if message.stop_reason is not None:
        about["stop_reason"] = message.stop_reason
    if message.stop_sequence is not None:
        about["stop_sequence"] = message.stop_sequence
    native["message"] = about
    model = as_text(message.model)
    # Some versions give the records that a resumed session takes over new ids, but not their messages.
    message_id = as_id(message.id)
    copy_key = _copy_key(message_id)
    events: list[EventRecord] = []
    for block in blocks_of(message):
        fields = {"type": "text", "text": block} if isinstance(block, str) else as_mapping(block)
        event = _assistant_block(entry, place, transcript, fields, native, len(events))
        if event is not None:
            event.model = model
            event.copy_key = event.copy_key or copy_key
            events.append(event)
    if events and transcript.is_first_of_message(message_id):
        usage = parse_usage(bytes(message.usage))
        if usage:
            about["usage"] = usage
            events[0].input_tokens = positive_int(usage.get("input_tokens"))
            events[0].output_tokens = positive_int(usage.get("output_tokens"))
    return events


def _native(entry: Entry) -> dict[str, Any]:
    values = _assistant_values(entry)
    if values[1:] != _USUAL:
        return fields_of(_ASSISTANT_FIELDS, values)
    return {} if values[0] is None else {_ASSISTANT_FIELDS[0]: values[0]}


def _assistant_block(
    entry: Entry, place: Place, transcript: Transcript, block: Mapping[str, Any], native: dict[str, Any], index: int
) -> EventRecord | None:
    kind = block.get("type")
    if kind == "text" or "text" in block:
        return _said(entry, place, transcript, block, native, index)
    if kind == "thinking":
        return _thought(place, transcript, block, native, index)
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        return _call(entry, place, transcript, block, native, index)
    if kind == "redacted_thinking":
        transcript.skip("redacted_thinking")
        return None
    if "tool_use_id" in block:
        return result_event(place, transcript, block, Outcome(native), index)
    payload = {"text": "", "native": {**native, "block": storable(block)}}
    return place.event(index, kinds.OTHER, payload, summarise(f"block {kind}"), role="assistant")


def _said(
    entry: Entry, place: Place, transcript: Transcript, block: Mapping[str, Any], native: dict[str, Any], index: int
) -> EventRecord | None:
    text = text_in(block)
    if not text.strip():
        transcript.skip("empty")
        return None
    payload = {"text": text, "native": native}
    summary = summarise(text)
    if message_of(entry).model == SYNTHETIC and entry.isApiErrorMessage is not True:
        return place.event(
            index, kinds.LIFECYCLE, payload, summary, role="system"
        )  # the program's words, not the model's
    if entry.isApiErrorMessage is True:
        return place.event(index, kinds.ERROR, payload, summary, role="assistant", status="failed", is_error=True)
    return place.event(index, kinds.ASSISTANT_MSG, payload, summary, role="assistant")


def _thought(
    place: Place, transcript: Transcript, block: Mapping[str, Any], native: dict[str, Any], index: int
) -> EventRecord | None:
    text = text_in(block.get("thinking"))
    if not text.strip():
        transcript.skip("thinking without text")
        return None
    signature = as_text(block.get("signature"))
    payload = {"text": text, "native": {**native, "signature": signature} if signature else native}
    return place.event(index, kinds.THINKING, payload, summarise(text), role="assistant")


def _call(
    entry: Entry, place: Place, transcript: Transcript, block: Mapping[str, Any], native: dict[str, Any], index: int
) -> EventRecord:
    tool = as_text(block.get("name")) or "unknown"
    arguments = block.get("input")
    arguments, retry_key = call_key(tool, {} if arguments is None else arguments)
    call_id = as_id(block.get("id"))
    if call_id is not None:
        transcript.open_call(call_id, tool)
        prompt = as_mapping(arguments).get("prompt") if tool in SPAWNING else None
        if isinstance(prompt, str):
            transcript.spawn(short_hash(prompt), call_id)
    event = place.event(
        index,
        _call_kind(tool, arguments),
        {"input": arguments, "native": native},
        describe_call(tool, arguments, entry.cwd),
        role="assistant",
        tool=tool,
        call_id=call_id,
        retry_key=retry_key,
    )
    event.copy_key = _copy_key(call_id)
    return event


def _copy_key(native_id: str | None) -> str | None:
    """An id of the model's service, if it names one message or call in all sessions."""
    return native_id if native_id is not None and _is_unique_id(native_id) else None


def _call_kind(tool: str, arguments: Any) -> str:
    if tool in EDITING:
        return kinds.EDIT
    command = as_mapping(arguments).get("command") if tool in SHELLS else None
    return shell_kind(command) if isinstance(command, str) else kinds.TOOL_CALL


class Outcome(msgspec.Struct, gc=False):
    """What an entry holds of a tool's result beside the result itself."""

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


def result_event(
    place: Place, transcript: Transcript, block: Mapping[str, Any], outcome: Outcome, index: int
) -> EventRecord:
    call_id = as_id(block.get("tool_use_id"))
    tool = transcript.close_call(call_id)
    output, text, media = _output(block.get("content"))
    payload: dict[str, Any] = {"output": output, "native": outcome.native}
    if media:
        payload["media"] = media
    kind, role, status, summary = _verdict(block, tool, text, len(media), outcome)
    if transcript.asks_nobody and tool not in ASKING and summary == REFUSED:
        summary = _CUT_OFF  # nobody could refuse it: the call was running
    is_error = status in ("failed", "denied")
    event = place.event(
        index, kind, payload, summary, role=role, tool=tool, call_id=call_id, status=status, is_error=is_error
    )
    event.copy_key = _copy_key(call_id)
    return event


def _verdict(
    block: Mapping[str, Any], tool: str | None, text: str, media: int, outcome: Outcome
) -> tuple[str, str, str, str]:
    """Kind, role, status and summary of a result."""
    has_failed = block.get("is_error") is True
    if outcome.is_cut_off or (has_failed and _was_running(text)):
        return kinds.HUMAN_INTERVENTION, "user", "denied", _CUT_OFF
    if has_failed and (outcome.is_refusal or text.startswith(_REFUSED)):
        reason = outcome.feedback or find_reason(text)
        return kinds.HUMAN_INTERVENTION, "user", "denied", describe_refusal(reason)
    if has_failed or outcome.is_failure:
        return kinds.ERROR, "tool", "failed", describe_failure(text)
    answers = outcome.facts.answers if outcome.facts else None
    if tool in ASKING or answers:
        return kinds.DECISION, "user", "ok", describe_answers(answers)
    return kinds.TOOL_RESULT, "tool", "ok", describe_result(text, media)


def _was_running(text: str) -> bool:
    """Whether the tool had begun to print when it was stopped: such a call was allowed, then cut off."""
    return text.startswith(INTERRUPTED) and bool(text.partition("]")[2].strip())


def _output(content: Any) -> tuple[Any, str, list[dict[str, Any]]]:
    """A result's content: as kept, as plain text, and the media taken out of it."""
    if isinstance(content, str):
        return content, content, []
    if not isinstance(content, list):
        return storable({} if content is None else content) or "", "", []
    texts: list[str] = []
    media: list[dict[str, Any]] = []
    parts: list[Any] = []
    for part in content:
        sort_part(part, texts, media, parts)
    text = "\n".join(texts)
    return (text if not parts else [{"type": "text", "text": text}, *parts] if text else parts), text, media


def sort_part(part: Any, texts: list[str], media: list[dict[str, Any]], parts: list[Any]) -> None:
    block = as_mapping(part)
    if isinstance(part, str):
        texts.append(part)
    elif "text" in block and (text := text_in(part)):
        texts.append(text)
    elif block.get("text") == "":
        return
    elif (reference := find_media(block)) is not None:
        media.append(reference)
    else:
        parts.append(storable(part))


def find_media(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """A reference to the base64 content of an image or document block, if it has any."""
    source = as_mapping(block.get("source"))
    data = source.get("data")
    if source.get("type") != "base64" or not isinstance(data, str):
        return None
    return media_reference(str(block.get("type")), as_text(source.get("media_type")), data)


_HEAD_CHARS = SUMMARY_CHARS + 100
_EXIT = "Exit code "
_TOOL_ERROR = "<tool_use_error>"
REFUSED = "refused the call"
_REASON = "the user said:\n"
_REASON_WITHIN = 2000


def describe_call(tool: str, arguments: Any, cwd: Any) -> str:
    """What a call does: `ran pytest -q`, `edited src/auth.py`."""
    given = as_mapping(arguments)
    describe = _CALLS.get(tool)
    if describe is not None:
        return summarise(describe(given, cwd))
    if tool.startswith("mcp__"):
        return summarise("called " + tool[5:].replace("__", ".", 1))
    return summarise(f"called {tool}")


def _path(given: Mapping[str, Any], cwd: Any) -> str:
    path = str(given.get("file_path") or given.get("notebook_path") or given.get("path") or "a file")
    is_inside = isinstance(cwd, str) and path.startswith((f"{cwd}/", f"{cwd}\\"))
    return path[len(cwd) + 1 :] if is_inside else path


def _first(given: Mapping[str, Any], *names: str) -> str:
    value = next((given[name] for name in names if given.get(name)), "")
    return value[:_HEAD_CHARS] if isinstance(value, str) else str(value)[:_HEAD_CHARS]


def _questions(given: Mapping[str, Any], _: Any) -> str:
    texts = [as_mapping(question).get("question") for question in as_list(given.get("questions"))]
    return "asked: " + " / ".join(text for text in texts if isinstance(text, str))


def _todos(given: Mapping[str, Any], _: Any) -> str:
    todos = given.get("todos")
    return f"updated the to-do list: {len(todos)} items" if isinstance(todos, list) else "updated the to-do list"


def _saying(words: str, *names: str) -> Callable[[Mapping[str, Any], Any], str]:
    return lambda given, _: f"{words} {_first(given, *names)}"


def _on_file(words: str) -> Callable[[Mapping[str, Any], Any], str]:
    return lambda given, cwd: f"{words} {_path(given, cwd)}"


_ran = _saying("ran", "command")
_delegated = _saying("started a sub-agent:", "description", "prompt", "subagent_type")
_CALLS: dict[str, Callable[[Mapping[str, Any], Any], str]] = {
    "Bash": _ran,
    "bash": _ran,
    "PowerShell": _ran,
    "Read": _on_file("read"),
    "Edit": _on_file("edited"),
    "MultiEdit": _on_file("edited"),
    "NotebookEdit": _on_file("edited"),
    "Write": _on_file("wrote"),
    "LS": _on_file("listed"),
    "Grep": _saying("searched for", "pattern"),
    "Glob": _saying("looked for files", "pattern"),
    "WebFetch": _saying("fetched", "url"),
    "WebSearch": _saying("searched the web for", "query"),
    "web_search": _saying("searched the web for", "query"),
    "ToolSearch": _saying("searched for tools:", "query"),
    "Task": _delegated,
    "Agent": _delegated,
    "Skill": _saying("used the skill", "skill", "command"),
    "SlashCommand": _saying("ran", "command"),
    "SendMessage": _saying("sent a message:", "summary", "message", "content"),
    "TaskCreate": _saying("added the task:", "subject", "description"),
    "TaskUpdate": lambda given, _: f"task {_first(given, 'taskId')}: {_first(given, 'status') or 'changed'}",
    "TodoWrite": _todos,
    "AskUserQuestion": _questions,
    "ExitPlanMode": _saying("proposed a plan:", "plan"),
    "BashOutput": _saying("looked at the output of", "bash_id"),
    "TaskOutput": _saying("looked at the output of", "task_id"),
    "KillShell": _saying("stopped", "shell_id"),
    "KillBash": _saying("stopped", "shell_id"),
}


def describe_result(text: str, media: int) -> str:
    return summarise(text) or (f"{media} images" if media > 1 else "an image" if media else "no output")


def describe_failure(text: str) -> str:
    """`exit 1: KeyError: 'x'`: the code, and the line that says what went wrong."""
    if text.startswith(_EXIT):
        code, _, rest = text[len(_EXIT) :].partition("\n")
        reason = error_line(rest)
        return summarise(f"exit {code.strip()}: {reason}" if reason else f"exit {code.strip()}")
    if text.startswith(_TOOL_ERROR):
        return summarise("failed: " + text[len(_TOOL_ERROR) : _HEAD_CHARS].partition("</")[0])
    return summarise(f"failed: {error_line(text)}")


def describe_refusal(reason: str | None) -> str:
    return summarise(f"refused: {reason}") if reason else REFUSED


def find_reason(text: str) -> str | None:
    """The user's own words in a refusal, if it holds any."""
    return text[:_REASON_WITHIN].partition(_REASON)[2].strip() or None


def describe_answers(answers: Any) -> str:
    """`answered: Which colour do you like? Green`."""
    pairs = [f"{question} {answer}" for question, answer in as_mapping(answers).items()]
    return summarise("answered: " + " / ".join(pairs)) if pairs else "approved the plan"
