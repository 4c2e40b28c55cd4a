"""A transcript from the events that were read from it: each entry under its own id, with the fields that were kept."""

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from recollect.agentkit.writeback import Item
from recollect.agents.claude.native import Entry
from recollect.agents.claude.prompts import USER_SHELL
from recollect.kinds import DECISION, ERROR, HUMAN_INTERVENTION, OTHER, QUEUE_ONLY, THINKING, TOOL_RESULT
from recollect.redact import OPENING
from recollect.schema import Event, Session

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_MARK = OPENING.decode()
_RESULTS = (TOOL_RESULT, ERROR, DECISION, HUMAN_INTERVENTION)
_OF_THE_PAYLOAD = ("blocks", "parts", "command", "toolUseResult", "stderr_chars", "message", "signature", "block")
_NO_MEDIA = "[not kept by Recollect: {kind}, {bytes} bytes]"


def rebuilt_entries(session: Session, items: Sequence[Item]) -> Iterator[Entry]:
    """The entries of a session in their order, and its title."""
    names: dict[str, str | None] = {}  # of every record: the entry that stands for it, or for what it follows
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
