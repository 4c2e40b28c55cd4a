"""From the entries in which a user, or the harness in the user's name, speaks to events."""

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from msgspec import to_builtins

from recollect.agentkit.protocol import EventRecord
from recollect.agentkit.values import as_id, as_mapping, as_text, call_key, short_hash, storable, summarise, text_in
from recollect.agents.claude.edits import restore_tabs
from recollect.agents.claude.events import (
    INTERRUPTED,
    Outcome,
    Place,
    blocks_of,
    describe_result,
    fields_of,
    result_event,
    sort_part,
)
from recollect.agents.claude.transcript import (
    Attachment,
    Entry,
    ResultFacts,
    Transcript,
    message_of,
    parse_whole,
    take_texts,
)
from recollect.model.kinds import (
    HANDED_PLAN,
    HUMAN_INTERVENTION,
    LIFECYCLE,
    OPENED_PULL_REQUEST,
    OTHER,
    QUEUE_ONLY,
    RETRY,
    TOOL_CALL,
    TOOL_RESULT,
    USER_MSG,
)

USER_SHELL = "shell"
TIME_CHARS = 40
_KEY_CHARS = 2000
_START_CHARS = 200
SLASH_COMMAND = re.compile(r"/[A-Za-z][\w:-]*(?:\s|$)")

# Text that the harness, not a person, put into a user entry.
_HARNESS = (
    "<command-name>",
    "<local-command-",
    "<task-notification>",
    "<agent-notification>",
    "<bash-notification>",
    "<system-reminder>",
    "<teammate-message",
    "<user-prompt-submit-hook>",
    "<session-start-hook>",
    "<user-memory-input>",
    "<fork-boilerplate>",
    "<tick>",
    "Caveat: The messages below",
    "This session is being continued from a previous conversation",
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# A slash command that goes to the model: a skill, or a command file. Commands of the program itself (`/exit`) begin
# with their name, and skills that the model calls have no slash before it.
_COMMAND = re.compile(
    r"\s*<command-message>(?P<message>.*?)</command-message>\s*<command-name>(?P<name>/.*?)</command-name>\s*"
    r"(?:<command-args>(?P<arguments>.*?)</command-args>)?(?P<rest>.*)",
    re.DOTALL,
)
# What the program queues or answers in the user's name: the state of a task as JSON, and why a command did not run.
_NOTICE = re.compile(
    r'\[?\{\s*"(?:(?:task|agent|shell)_id"\s*:|type"\s*:\s*"task_notification").*[}\]]\s*\Z'
    r"|(?:Unknown (?:skill|slash command|command)|Args from unknown skill): \S[^\n]*\Z"
    r"|This (?:skill|slash command) can only be invoked by Claude, not directly by users\b"
    r"|Operation stopped by hook: ",
    re.DOTALL,
)
# An approved plan that Claude Code carries into a fresh conversation; its heading says what the work is.
_PLAN = re.compile(
    r"Implement the following plan:\s*#+[ \t]*(?:(?:implementation )?plan\b:?[ \t]*)?(?P<heading>\S[^\n]*)", re.I
)
# Blocks that an editor or the program adds beside what was typed; an editor's may be in one text with it.
_BESIDE = ("<ide_", "<system-reminder>")
_OF_EDITOR = re.compile(r"(?:\s*<(ide_\w+)>.*?</\1>\s*)+", re.DOTALL)

_ASKS_NOBODY = "bypassPermissions"

_USER_FIELDS = tuple(
    """
    promptId isMeta isCompactSummary isVisibleInTranscriptOnly toolDenialKind userFeedback interruptedMessageId
    interruptedByShutdown permissionMode origin promptSource turnOrigin thinkingMetadata imagePasteIds sandboxed
    sourceToolAssistantUUID sourceToolUseID permissionDecision
    """.split()  # noqa: SIM905 - a list would take a page
)
_user_values = attrgetter(*_USER_FIELDS)


def user_events(entry: Entry, place: Place, transcript: Transcript) -> list[EventRecord]:
    """A prompt is one event, whatever blocks it has; each tool result is one of its own."""
    native = fields_of(_USER_FIELDS, _user_values(entry))
    blocks = blocks_of(message_of(entry))
    if entry.permissionMode is not None:
        transcript.asks_nobody = entry.permissionMode == _ASKS_NOBODY
    outcome: Outcome | None = None
    events: list[EventRecord] = []
    prompt: list[Any] = []
    for block in blocks:
        if isinstance(block, dict) and "tool_use_id" in block:
            # `toolUseResult` belongs to the entry: only its first result can be meant.
            outcome = Outcome(native) if outcome else _outcome(entry, native)
            events.append(result_event(place, transcript, block, outcome, len(events)))
        else:
            prompt.append(block)
    if prompt or not blocks:
        event = _prompt(entry, place, transcript, prompt, native, len(events))
        events += [event] if event else []
    return events


def _outcome(entry: Entry, native: dict[str, Any]) -> Outcome:
    facts = entry.toolUseResult if isinstance(entry.toolUseResult, ResultFacts) else None
    if facts is not None:
        restore_tabs(facts.structuredPatch, take_texts(facts))
        values = to_builtins(facts)  # without defaults: only what the log holds
        native = {**native, "toolUseResult": values} if values else native
    decided_by = as_mapping(entry.permissionDecision).get("source")
    return Outcome(native, facts, entry.toolDenialKind, decided_by, as_text(entry.userFeedback))


def _prompt(
    entry: Entry, place: Place, transcript: Transcript, blocks: list[Any], native: dict[str, Any], index: int
) -> EventRecord | None:
    texts: list[str] = []
    media: list[dict[str, Any]] = []
    parts: list[Any] = []
    for block in blocks:
        sort_part(block, texts, media, parts)
    texts, beside = _split_beside(texts, is_alone=not media)
    text = "\n".join(texts)
    if beside:
        native = {**native, "context": beside}
    if not text.strip() and not media and not parts:
        transcript.skip("empty")
        return None
    payload: dict[str, Any] = {"text": text, "native": native}
    if media:
        payload["media"] = media
    if len(blocks) > 1 or parts:
        # Enough to split the text again: the lengths of its blocks, and what was no text.
        payload["native"] = {**native, "blocks": [len(part) for part in texts], "parts": parts}
    typed = next((text for text in texts if not text.startswith(_BESIDE)), "")
    event = _prompt_event(entry, place, payload, texts, typed, index)
    if event.kind in (USER_MSG, LIFECYCLE):
        event.retry_key = _typed_key(typed or text)
    return event


def _split_beside(texts: list[str], *, is_alone: bool) -> tuple[list[str], list[str]]:
    """What was typed, and what was put beside it; with nothing else there, that is all there is to keep."""
    typed, beside = [], []
    for text in texts:
        block = _OF_EDITOR.match(text)
        rest = text[block.end() :] if block else text
        beside += [block[0].strip()] if block else []
        if rest.startswith(_BESIDE):
            beside.append(rest)
        elif rest or not block:
            typed.append(rest)
    return (texts, []) if is_alone and not any(map(str.strip, typed)) else (typed, beside)


def _typed_key(text: str) -> str:
    """Equal for a prompt or slash command as it was queued and as its own entry has it."""
    command = between(text[:_KEY_CHARS], "<command-name>", "</command-name>")
    if command:
        text = f"{command} {between(text, '<command-args>', '</command-args>')}"
    # White space is normalised at the beginning only: a list of all words of a huge text takes many times its size.
    return short_hash(" ".join(text[:_KEY_CHARS].split()) + text[_KEY_CHARS:].rstrip())


def _prompt_event(
    entry: Entry, place: Place, payload: dict[str, Any], texts: list[str], typed: str, index: int
) -> EventRecord:
    start = typed[:_START_CHARS].lstrip()
    if start.startswith(INTERRUPTED):
        return place.event(
            index, HUMAN_INTERVENTION, payload, "interrupted the agent", role="user", status="interrupted"
        )
    if _is_harness(entry, place, texts, typed):
        return place.event(index, LIFECYCLE, payload, _describe_harness(entry, typed or payload["text"]), role="system")
    if (command := _COMMAND.match(typed)) is not None:
        return _command_request(place, payload, command, index)
    if start.startswith("<bash-input>"):
        return _user_shell(place, payload, typed, index)
    if start.startswith(("<bash-stdout>", "<bash-stderr>")):
        return _user_shell_output(entry, place, payload, typed, index)
    plan = _PLAN.match(start)
    summary = (
        summarise(f"{HANDED_PLAN}{plan['heading']}" if plan else typed) or summarise(payload["text"]) or "an image"
    )
    return place.event(index, USER_MSG, payload, summary, role="user")


def _is_harness(entry: Entry, place: Place, texts: list[str], typed: str) -> bool:
    start = typed[:_START_CHARS].lstrip()
    if entry.isMeta is True or entry.isCompactSummary is True:
        return True
    if place.is_sub_agent and entry.parentUuid is None:
        return False  # however it is wrapped, it is what the parent asked for
    if entry.promptSource == "system" or as_mapping(entry.origin).get("kind") == "task-notification":
        return True
    if start.startswith("<command-message>"):
        return entry.sourceToolUseID is not None or not any(map(_COMMAND.match, texts))
    if start.startswith(_HARNESS) or (start and _NOTICE.match(typed.lstrip())):
        return True
    return bool(texts) and not start and all(text.startswith(_BESIDE) for text in texts)


def _command_request(place: Place, payload: dict[str, Any], command: re.Match[str], index: int) -> EventRecord:
    """A slash command as it was typed; what the program wrote around it is kept for a rebuild."""
    text = f"{command['name'].strip()} {(command['arguments'] or '').strip()}".strip()
    around = {"message": command["message"], "rest": command["rest"]}
    request = {**payload, "text": text, "native": {**payload["native"], "command": around}}
    return place.event(index, USER_MSG, request, summarise(text), role="user")


def _describe_harness(entry: Entry, text: str) -> str:
    start = _COLOURS.sub("", text[:2000])
    if entry.isCompactSummary is True:
        return summarise("summary of the conversation so far: " + start)
    command = between(start, "<command-name>", "</command-name>")
    if command:
        arguments = between(start, "<command-args>", "</command-args>")
        return summarise(f"{command} {arguments}")
    if start.startswith("<task-notification>"):
        start = between(start, "<summary>", "</summary>") or start
    elif start.startswith("<"):
        start = between(start, ">", "</")
    return summarise(start) or "a note without text"


def between(text: str, start: str, end: str) -> str:
    """The text between two marks, or after the first if the second is missing."""
    return text.partition(start)[2].partition(end)[0].strip()


def _user_shell(place: Place, payload: dict[str, Any], text: str, index: int) -> EventRecord:
    command = between(text, "<bash-input>", "</bash-input>")
    arguments = {"command": command}
    call = {"input": arguments, "native": payload["native"]}
    return place.event(
        index,
        TOOL_CALL,
        call,
        summarise(f"ran {command}"),
        role="user",
        tool=USER_SHELL,
        call_id=place.native_id,
        retry_key=call_key(USER_SHELL, arguments)[1],
    )


def _user_shell_output(entry: Entry, place: Place, payload: dict[str, Any], text: str, index: int) -> EventRecord:
    output = between(text, "<bash-stdout>", "</bash-stdout>")
    errors = between(text, "<bash-stderr>", "</bash-stderr>")
    # The log has no exit code, and many a command that succeeds writes to stderr: not known to have failed.
    both = "\n".join(part for part in (output, errors) if part)
    return place.event(
        index,
        TOOL_RESULT,
        {"output": both, "native": {**payload["native"], "stderr_chars": len(errors)}},
        describe_result(both, 0),
        role="user",
        tool=USER_SHELL,
        call_id=as_id(entry.parentUuid),
        status="ok",
    )


_ENVELOPE = frozenset(
    """
    agentId content cwd entrypoint forkedFrom gitBranch isSidechain parentUuid sessionId session_id slug timestamp
    type userType uuid version
    """.split()  # noqa: SIM905 - a list would take a page
)


def system_events(entry: Entry, place: Place, raw: bytes) -> list[EventRecord]:
    """A notice of the harness with every field of its own; a failed request tried again is a retry."""
    whole = as_mapping(parse_whole(raw))
    native = {name: value for name, value in whole.items() if name not in _ENVELOPE and value is not None}
    text = text_in(whole.get("content"))
    if entry.subtype == "api_error":
        summary = summarise(f"the model service failed, trying again: {_error_text(whole)}")
        payload = {"text": _error_text(whole), "native": native}
        return [place.event(0, RETRY, payload, summary, role="system", status="retrying", is_error=True, is_retry=True)]
    payload = {"text": text, "native": native}
    return [place.event(0, LIFECYCLE, payload, _describe_notice(entry, whole, text), role="system")]


def _error_text(whole: Mapping[str, Any]) -> str:
    error = as_mapping(whole.get("error"))
    inner = as_mapping(as_mapping(error.get("error")).get("error"))
    cause = as_mapping(whole.get("cause"))
    reasons = (
        error.get("formatted"),
        error.get("message"),
        inner.get("message"),
        cause.get("code"),
        error.get("status"),
    )
    return str(next(filter(None, reasons), "no reason given"))


def _describe_notice(entry: Entry, whole: Mapping[str, Any], text: str) -> str:
    milliseconds = whole.get("durationMs")
    if entry.subtype == "turn_duration" and isinstance(milliseconds, int | float):
        return f"turn ended after {milliseconds / 1000:.1f} s"
    if entry.subtype == "local_command":
        return _describe_harness(entry, text)
    return summarise(text) or summarise(str(entry.subtype or "notice").replace("_", " "))


def queued_event(entry: Entry, place: Place, transcript: Transcript, attachment: Attachment) -> list[EventRecord]:
    """A prompt typed while the agent worked, delivered inside the turn without an entry of its own."""
    native = {"origin": storable(attachment.origin), "commandMode": storable(attachment.commandMode)}
    prompt = attachment.prompt
    entry.origin = attachment.origin
    event = _prompt(entry, place, transcript, prompt if isinstance(prompt, list) else [prompt or ""], native, 0)
    if event is None:
        return []
    if attachment.commandMode == "task-notification":
        event.kind, event.role = LIFECYCLE, "system"
    if event.kind == USER_MSG:
        event.status = "queued"
        if transcript.is_delivered_again(event.retry_key, event.ts_ms):
            transcript.skip("attachment/queued_command (again)")
            return []
    return [event]


def waiting_event(entry: Entry, place: Place, transcript: Transcript, text: str) -> EventRecord | None:
    """A prompt as it was queued, in case it never gets an entry of its own."""
    # Named by its time, not by its offset: an older copy of the log may have begun elsewhere.
    if isinstance(entry.timestamp, str) and len(entry.timestamp) <= TIME_CHARS:
        place.native_id = f"{place.session}:{entry.timestamp}"
    event = _prompt(entry, place, transcript, [text], {}, 0)
    if event is None or event.kind not in (USER_MSG, LIFECYCLE):
        return None
    if event.kind == USER_MSG and SLASH_COMMAND.match(text):
        event.kind, event.role = LIFECYCLE, "system"
    event.status = QUEUE_ONLY
    return event


def hook_event(place: Place, whole: Any) -> list[EventRecord]:
    """What a hook reported, with all it printed."""
    fields = as_mapping(whole)
    texts = (fields.get(name) for name in ("content", "message", "systemMessage", "blockingError", "stdout"))
    text = next((_hook_text(value) for value in texts if value), "")
    name = fields.get("hookName") or fields.get("hookEvent") or "hook"
    report = str(fields.get("type")).removeprefix("hook_").replace("_", " ")
    summary = summarise(f"hook {name}: {report} {text[:400]}")
    native = {key: value for key, value in fields.items() if value not in (None, "", text)}
    return [place.event(0, LIFECYCLE, {"text": text, "native": native}, summary, role="system")]


def _hook_text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return str(as_mapping(value).get("blockingError") or value)


def pull_request_event(place: Place, raw: bytes) -> list[EventRecord]:
    """A pull request that the session opened, named by its address: the record comes again in copies of the log."""
    fields = as_mapping(parse_whole(raw))
    address = fields.get("prUrl")
    if not isinstance(address, str):
        return [other_event(place, raw, "pr-link")]
    place.native_id = f"{place.session}:{address}"
    payload = {"text": address, "native": fields}
    return [place.event(0, LIFECYCLE, payload, summarise(f"{OPENED_PULL_REQUEST}{address}"), role="system")]


def other_event(place: Place, raw: bytes, name: Any) -> EventRecord:
    """An entry of a kind this version does not know, kept whole so that a later one can read it."""
    return place.event(0, OTHER, {"native": parse_whole(raw)}, summarise(f"record {name}"))
