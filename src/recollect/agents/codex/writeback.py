"""Writing a deleted rollout of Codex again: the conversation as the oldest form that Codex still resumes."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recollect.agentkit.optional import Action, Draft, Item, actions_of, losses_of
from recollect.model.errors import NotFound, Unsupported
from recollect.model.kinds import AUTOMATION
from recollect.model.schema import Session

_LOST = ("the model's thinking, which Codex keeps encrypted", "its plan, its token counts and the limits of a turn")


def fork(source: Path, at: str) -> str:
    raise Unsupported("Codex forks whole sessions only")


def compose(session: Session, items: Sequence[Item], home: Path, introduction: str) -> Draft:
    raise Unsupported("Codex cannot take over another agent's session")


def locate(session: Session, home: Path, sources: Sequence[Path]) -> Path:
    """The rollout of a session, where it was read."""
    known = [path for path in sources if path.name.endswith(f"{session.native_session_id}.jsonl")]
    if not known:
        raise NotFound(f"Unknown location of this Codex session: {session.session_uid}")
    return known[0]


def rebuild(session: Session, items: Sequence[Item], path: Path) -> Draft:
    """A rollout with the prompts, the answers and each call with its result."""
    lines = [_line(session, items[0][0].ts, "session_meta", _meta(session))]
    steps = actions_of(items)
    for step in steps:
        if not step.event.metadata.get("within_call"):  # else a script stands for it
            lines += [_line(session, step.event.ts, "response_item", item) for item in _response_items(step)]
    losses = losses_of(items, {uid for step in steps for uid in step.uids})
    return Draft(session.native_session_id, ((path, b"".join(lines)),), (*_LOST, *losses))


def _line(session: Session, ts: str | None, kind: str, payload: dict[str, Any]) -> bytes:
    record = {"timestamp": ts or session.started_at, "type": kind, "payload": payload}
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _meta(session: Session) -> dict[str, Any]:
    is_script = session.session_class == AUTOMATION
    git = {"git": {"branch": session.git_branch}} if session.git_branch else {}
    return {
        "id": session.native_session_id,
        "timestamp": session.started_at,
        "cwd": session.cwd or "/",
        "originator": "codex_exec" if is_script else "codex_cli_rs",
        "cli_version": session.agent_version or "0.0.0",
        "source": "exec" if is_script else "cli",
        "model_provider": session.provider,
        **git,
    }


def _response_items(step: Action) -> Iterator[dict[str, Any]]:
    if not step.is_call:
        role = "assistant" if step.event.role == "assistant" else "user"
        kind = "output_text" if role == "assistant" else "input_text"
        context = (step.payload.get("native") or {}).get("context")
        text = f"{context}\n\n## My request for Codex:\n{step.text}" if context else step.text
        yield {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        return
    given = step.payload.get("input")
    call: dict[str, Any] = {"name": step.event.tool, "call_id": step.event.call_id}
    if isinstance(given, str):
        yield {"type": "custom_tool_call", **call, "input": given}
    else:
        yield {"type": "function_call", **call, "arguments": json.dumps(given, ensure_ascii=False)}
    answer = "custom_tool_call_output" if isinstance(given, str) else "function_call_output"
    yield {"type": answer, "call_id": step.event.call_id, "output": step.output}
