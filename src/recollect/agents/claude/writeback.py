"""Writing sessions into Claude Code's own storage: forks, files that were deleted, sessions of other agents."""

import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recollect.agentkit.writeback import Draft, Item, Step, steps_of
from recollect.agents.claude.native import Entry, NativeHome, NativeSession, to_entries
from recollect.agents.claude.native.lines import dump
from recollect.agents.claude.rebuild import rebuilt_entries
from recollect.errors import NotFound
from recollect.schema import Session

_TOOL_NAME = re.compile("[^A-Za-z0-9_-]")
_VERSION = "2.1.325"  # the version whose format this is
_OUTPUT_CHARS = 10_000
_LOST = (
    "the context Claude Code attached to prompts (instruction files, listings of tools), which it attaches anew",
    "copies of files for going back to an earlier state, and outputs that were too large for the transcript",
)


def fork(source: Path, at: str) -> str:
    """A new session beside `source` with all up to the entry `at`; returns its id."""
    try:
        return NativeSession(source).fork(at).session_id
    except (KeyError, ValueError):
        raise NotFound(f"Not in {source}: {at}", "the session was changed meanwhile: run `recollect sweep`") from None


def locate(session: Session, home: Path, sources: Sequence[Path]) -> Path:
    """The transcript of a session, where it was read or where Claude Code looks for it."""
    name = f"{session.native_session_id}.jsonl"
    known = (path for path in sources if path.name == name)
    return next(known, NativeHome(home).project(session.cwd or "/") / name)


def rebuild(session: Session, items: Sequence[Item], path: Path) -> Draft:
    """The transcript of a session, entry by entry."""
    return Draft(session.native_session_id, ((path, _content(rebuilt_entries(session, items))),), _LOST)


def compose(session: Session, items: Sequence[Item], home: Path, introduction: str) -> Draft:
    """A new transcript in which the tools of another agent keep their names, and commands are calls of Bash."""
    native_id = str(uuid.uuid4())
    path = NativeHome(home).project(session.cwd or "/") / f"{native_id}.jsonl"
    content = _content(_linked(session, native_id, _messages(session, items, introduction)))
    cut = f"of each output what is beyond {_OUTPUT_CHARS:,} characters"
    return Draft(native_id, ((path, content),), ("what the agent thought, which only its own model may read", cut))


def _content(entries: Iterator[Entry]) -> bytes:
    return b"".join(map(dump, entries))


def _messages(session: Session, items: Sequence[Item], introduction: str) -> Iterator[Entry]:
    yield {"type": "user", "message": {"role": "user", "content": introduction}, "isMeta": True}
    for step in steps_of(items):
        of_step = _call_messages(step) if step.is_call else [_said(step)]
        for message in of_step:
            at = {"timestamp": step.event.ts} if step.event.ts else {}
            model = {"model": step.event.model or session.model or "unknown"} if message["role"] == "assistant" else {}
            yield from ({**entry, **at} for entry in to_entries({**message, **model}))
    yield {"type": "custom-title", "customTitle": session.title or session.session_uid}


def _said(step: Step) -> dict[str, Any]:
    return {"role": "assistant" if step.event.role == "assistant" else "user", "content": step.text}


def _call_messages(step: Step) -> list[dict[str, Any]]:
    name, arguments = _tool(step)
    call_id = f"toolu_{uuid.uuid4().hex[:24]}"  # the service takes only ids of its own kind
    result = {"type": "tool_result", "tool_use_id": call_id, "content": _shortened(step.output)}
    failed = {"is_error": True} if step.result and step.result[0].is_error else {}
    call = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result | failed]}]


def _shortened(output: str) -> str:
    if len(output) <= _OUTPUT_CHARS:
        return output
    return f"{output[:_OUTPUT_CHARS]}\n[… {len(output) - _OUTPUT_CHARS:,} more characters]"


def _tool(step: Step) -> tuple[str, dict[str, Any]]:
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
