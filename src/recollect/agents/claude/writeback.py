"""Writing sessions into Claude Code's own storage: forks, files that were deleted, sessions of other agents.

What is rebuilt from its events has each entry under its own id, with the fields that were kept.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from recollect.agentkit.optional import Action, Draft, Item, actions_of, losses_of
from recollect.agents.claude.native import Entry, NativeHome, NativeSession, to_entries
from recollect.agents.claude.native.conversation import dump
from recollect.agents.claude.prompts import USER_SHELL
from recollect.model.errors import NotFound, UsageError
from recollect.model.kinds import DECISION, ERROR, HUMAN_INTERVENTION, OTHER, QUEUE_ONLY, THINKING, TOOL_RESULT
from recollect.model.schema import Event, Session
from recollect.redact import OPENING

_UUID = re.compile(r"(?:request_)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MARK = OPENING.decode()
_RESULTS = (TOOL_RESULT, ERROR, DECISION, HUMAN_INTERVENTION)
_OF_THE_PAYLOAD = (
    "blocks",
    "parts",
    "context",
    "command",
    "toolUseResult",
    "stderr_chars",
    "message",
    "signature",
    "block",
)
_NO_MEDIA = "[not kept by Recollect: {kind}, {bytes} bytes]"


def rebuilt_entries(session: Session, items: Sequence[Item]) -> Iterator[Entry]:
    """The entries of a session in their order, and its title."""
    names: dict[str, str | None] = {}  # of every record: its entry, or that of the record it follows
    by_uid = {event.event_uid: event for event, _ in items}
    usages: dict[str, Any] = {}
    for native_id, group in groupby(items, key=lambda item: item[0].native_id):
        record = list(group)
        parent_uid = record[0][0].parent_event_uid
        parent = names.get(by_uid[parent_uid].native_id) if parent_uid in by_uid else None
        entry = _entry(record, usages) if _UUID.fullmatch(native_id) else None  # others are of files beside it
        names[native_id] = native_id if entry else parent
        if entry is None:
            continue
        is_boundary = entry.get("subtype") == "compact_boundary"
        links = {"parentUuid": None, "logicalParentUuid": parent} if is_boundary else {"parentUuid": parent}
        yield {**links, **_envelope(session, record[0][0]), **entry, "uuid": native_id}
    if session.title:
        yield {"type": "ai-title", "aiTitle": session.title, "sessionId": session.native_session_id}


def _envelope(session: Session, event: Event) -> Entry:
    return {
        "isSidechain": False,
        "userType": "external",
        "cwd": session.cwd,
        "sessionId": session.native_session_id,
        "version": session.agent_version,
        "gitBranch": session.git_branch or "",
        "timestamp": event.ts or session.started_at,
    }


def _entry(record: Sequence[Item], usages: dict[str, Any]) -> Entry | None:
    """What an entry said, without what every entry has; None for one that the conversation can do without."""
    event, payload = record[0]
    native = payload.get("native") or {}
    if event.kind == OTHER or event.status == QUEUE_ONLY or str(native.get("type", "")).startswith(("hook_", "async")):
        return None
    fields = {key: value for key, value in native.items() if key not in _OF_THE_PAYLOAD}
    if "subtype" in native:
        return {"type": "system", "content": payload.get("text"), **fields}
    if "message" in native:
        return _answer(record, fields, native["message"], usages)
    content = [block for item in record for block in _user_blocks(*item)]
    if not content:
        return None
    is_plain = len(content) == 1 and content[0]["type"] == "text"
    return {
        "type": "user",
        "message": {"role": "user", "content": content[0]["text"] if is_plain else content},
        **fields,
    }


def _is_message(item: Item) -> bool:
    """Whether it is no block of an answer: those are written only as far as the model's service takes them."""
    return "message" not in (item[1].get("native") or {})


def _answer(record: Sequence[Item], fields: Entry, about: Mapping[str, Any], usages: dict[str, Any]) -> Entry | None:
    content = [block for item in record for block in _answer_blocks(*item)]
    if not content:
        return None
    name = about.get("id") or f"msg_{uuid.uuid4().hex[:24]}"
    usages.setdefault(name, about.get("usage") or {"input_tokens": 0, "output_tokens": 0})
    message = {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": record[0][0].model,
        "stop_reason": None,
        "stop_sequence": None,
        **about,
        "usage": usages[name],
        "content": content,
    }
    return {"type": "assistant", "message": message, **fields}


def _answer_blocks(event: Event, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    text, native = payload.get("text"), payload.get("native") or {}
    if event.kind == THINKING:
        # A signature is for the words as they were: without them the service refuses it.
        if native.get("signature") and _MARK not in str(text):
            yield {"type": "thinking", "thinking": text, "signature": native["signature"]}
    elif "input" in payload and event.call_id and not event.call_id.startswith("srvtoolu"):
        yield {"type": "tool_use", "id": event.call_id, "name": event.tool, "input": payload["input"]}
    elif isinstance(text, str) and text:
        yield {"type": "text", "text": text}


def _user_blocks(event: Event, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    media = [{"type": "text", "text": _NO_MEDIA.format(**part)} for part in payload.get("media") or ()]
    if event.tool == USER_SHELL:
        yield {"type": "text", "text": _shell_text(payload)}
    elif "output" in payload and event.call_id:
        output = payload["output"]
        content = [{"type": "text", "text": output}, *media] if media and isinstance(output, str) else output
        failed = {"is_error": True} if event.is_error else {}
        yield {"type": "tool_result", "tool_use_id": event.call_id, "content": content, **failed}
    else:
        yield from _prompt_blocks(payload)
        yield from media


def _shell_text(payload: Mapping[str, Any]) -> str:
    if "input" in payload:
        return f"<bash-input>{payload['input'].get('command', '')}</bash-input>"
    return f"<bash-stdout>{payload.get('output', '')}</bash-stdout><bash-stderr></bash-stderr>"


def _prompt_blocks(payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A prompt as it was: its text split into its blocks again, a slash command with what the program adds."""
    text, native = payload.get("text") or "", payload.get("native") or {}
    yield from ({"type": "text", "text": words} for words in native.get("context") or ())
    if command := native.get("command"):
        name, _, arguments = text.partition(" ")
        words = f"<command-message>{command.get('message')}</command-message>\n<command-name>{name}</command-name>"
        text = f"{words}\n<command-args>{arguments}</command-args>{command.get('rest') or ''}"
    if sum(native.get("blocks") or ()) + len(native.get("blocks") or ()) - 1 != len(text):
        yield from [{"type": "text", "text": text}] if text else []
    else:
        start = 0
        for length in native["blocks"]:
            yield {"type": "text", "text": text[start : start + length]}
            start += length + 1
    yield from (part for part in native.get("parts") or () if isinstance(part, dict))


_TOOL_NAME = re.compile("[^A-Za-z0-9_-]")
_VERSION = "2.1.325"  # the version whose format this is
_OUTPUT_CHARS = 10_000
_LOST = (
    "the context that Claude Code attached to prompts (instruction files, tool lists); it attaches it again",
    "file copies for rewinding, and outputs that were too large for the transcript",
)


def fork(source: Path, at: str) -> str:
    """A new session beside `source` with all up to the entry `at`; returns its id."""
    try:
        return NativeSession(source).fork(at).session_id
    except (NotFound, UsageError):
        raise NotFound(f"Not in {source}: {at}", "the session has changed since: run `recollect sweep`") from None


def locate(session: Session, home: Path, sources: Sequence[Path]) -> Path:
    """The transcript of a session, where it was read or where Claude Code looks for it."""
    name = f"{session.native_session_id}.jsonl"
    known = (path for path in sources if path.name == name)
    return next(known, NativeHome(home).project(session.cwd or "/") / name)


def rebuild(session: Session, items: Sequence[Item], path: Path) -> Draft:
    """The transcript of a session, entry by entry."""
    entries = list(rebuilt_entries(session, items))
    names = {entry.get("uuid") for entry in entries}
    written = [
        item for item in items if item[0].native_id in names and (_is_message(item) or any(_answer_blocks(*item)))
    ]
    losses = losses_of(items, {event.event_uid for event, _ in written})
    return Draft(session.native_session_id, ((path, _content(entries)),), (*_LOST, *losses))


def compose(session: Session, items: Sequence[Item], home: Path, introduction: str) -> Draft:
    """A new transcript in which the tools of another agent keep their names, and commands are calls of Bash."""
    native_id = str(uuid.uuid4())
    path = NativeHome(home).project(session.cwd or "/") / f"{native_id}.jsonl"
    content = _content(_linked(session, native_id, _messages(session, items, introduction)))
    cut = f"the part of each output after {_OUTPUT_CHARS:,} characters"
    return Draft(native_id, ((path, content),), ("the agent's thinking, which only its own model may read", cut))


def _content(entries: Iterable[Entry]) -> bytes:
    return b"".join(map(dump, entries))


def _messages(session: Session, items: Sequence[Item], introduction: str) -> Iterator[Entry]:
    yield {"type": "user", "message": {"role": "user", "content": introduction}, "isMeta": True}
    for step in actions_of(items):
        role = "assistant" if step.event.role == "assistant" else "user"
        of_step = _call_messages(step) if step.is_call else [{"role": role, "content": step.text}]
        for message in of_step:
            at = {"timestamp": step.event.ts} if step.event.ts else {}
            model = {"model": step.event.model or session.model or "unknown"} if message["role"] == "assistant" else {}
            yield from ({**entry, **at} for entry in to_entries({**message, **model}))
    yield {"type": "custom-title", "customTitle": session.title or session.session_uid}


def _call_messages(step: Action) -> list[dict[str, Any]]:
    name, arguments = _tool(step)
    call_id = f"toolu_{uuid.uuid4().hex[:24]}"  # the service accepts only ids of this form
    result = {"type": "tool_result", "tool_use_id": call_id, "content": _shortened(step.output)}
    failed = {"is_error": True} if step.result and step.result[0].is_error else {}
    call = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result | failed]}]


def _shortened(output: str) -> str:
    if len(output) <= _OUTPUT_CHARS:
        return output
    return f"{output[:_OUTPUT_CHARS]}\n[… {len(output) - _OUTPUT_CHARS:,} more characters]"


def _tool(step: Action) -> tuple[str, dict[str, Any]]:
    given = step.payload.get("input")
    arguments = given if isinstance(given, dict) else {"input": given}
    command = next((arguments[key] for key in ("command", "cmd") if key in arguments), None)
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        command = command[-1] if command[:2] in (["bash", "-lc"], ["bash", "-c"]) else " ".join(command)
    if isinstance(command, str):
        return "Bash", {"command": command}
    return _TOOL_NAME.sub("_", step.event.tool or "tool")[:64], arguments


def _linked(session: Session, native_id: str, entries: Iterator[Entry]) -> Iterator[Entry]:
    """Entries of a new session, each following the one before."""
    parent = None
    moment = session.started_at
    for entry in entries:
        if entry["type"] == "custom-title":
            yield {**entry, "sessionId": native_id}
            continue
        moment = entry.get("timestamp") or moment
        name = str(uuid.uuid4())
        yield {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": session.cwd,
            "sessionId": native_id,
            "version": _VERSION,
            "gitBranch": session.git_branch or "",
            **entry,
            "uuid": name,
            "timestamp": moment,
        }
        parent = name
