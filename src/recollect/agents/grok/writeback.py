"""Writing a deleted session of Grok again: its log, from which Grok makes the rest, and the entry in its index."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from recollect.agentkit.optional import Action, Draft, Item, actions_of, losses_of
from recollect.model.clock import as_datetime
from recollect.model.errors import NotFound, Unsupported
from recollect.model.schema import Session

_LANES = ("updates.jsonl", "chat_history.jsonl")
_LOST = (
    "the model's thinking, its plan and its token counts",
    "file states for rewinding, and the full text of outputs that were too long for the log",
)


def fork(source: Path, at: str) -> str:
    raise Unsupported("Grok forks whole sessions only")


def compose(session: Session, items: Sequence[Item], home: Path, introduction: str) -> Draft:
    raise Unsupported("Grok cannot take over another agent's session")


def locate(session: Session, home: Path, sources: Sequence[Path]) -> Path:
    """The log of a session, where it was read."""
    known = [path for path in sources if path.name in _LANES and path.parent.name == session.native_session_id]
    if not known:
        raise NotFound(f"Unknown location of this Grok session: {session.session_uid}")
    return known[0]


def rebuild(session: Session, items: Sequence[Item], path: Path) -> Draft:
    """The log with the prompts, the answers and each call with its result; the index entry unless Grok kept it."""
    steps = actions_of(items)
    updates = b"".join(_line(session, *update) for step in steps for update in _updates(session, step))
    index = path.with_name("summary.json")
    files = ((path.with_name("updates.jsonl"), updates), (index, _summary(session, len(steps))))
    losses = losses_of(items, {uid for step in steps for uid in step.uids})
    return Draft(session.native_session_id, files[:1] if index.exists() else files, (*_LOST, *losses))


def _updates(session: Session, step: Action) -> Iterator[tuple[Item, dict[str, Any]]]:
    said = (step.event, step.payload)
    if not step.is_call:
        kind = "agent_message_chunk" if step.event.role == "assistant" else "user_message_chunk"
        yield said, {"sessionUpdate": kind, "content": {"type": "text", "text": step.text}}
        return
    call = {"toolCallId": step.event.call_id}
    about = {"x.ai/tool": {"version": 1, "name": step.event.tool}}
    given = step.payload.get("input")
    yield said, {"sessionUpdate": "tool_call", **call, "title": step.event.tool, "rawInput": given, "_meta": about}
    failed = step.result is not None and step.result[0].is_error
    output = [{"type": "content", "content": {"type": "text", "text": step.output}}]
    status = {"status": "failed" if failed else "completed"}
    yield step.result or said, {"sessionUpdate": "tool_call_update", **call, **status, "content": output}


def _line(session: Session, item: Item, update: dict[str, Any]) -> bytes:
    """An update under the name that it had: number and moment (see `log`)."""
    event_id, _, moment = item[0].native_id.partition("@")
    at = as_datetime(item[0].ts or session.started_at)
    ms = int(moment) if moment.isdecimal() else int(at.timestamp() * 1000) if at else 0
    meta = {"eventId": event_id, "agentTimestampMs": ms}
    params = {"sessionId": session.native_session_id, "update": update, "_meta": meta}
    return orjson.dumps({"timestamp": ms // 1000, "method": "session/update", "params": params}) + b"\n"


def _summary(session: Session, count: int) -> bytes:
    return orjson.dumps(
        {
            "info": {"id": session.native_session_id, "cwd": session.cwd or "/"},
            "session_summary": session.title or "",
            "generated_title": session.title,
            "created_at": session.started_at,
            "updated_at": session.ended_at,
            "last_active_at": session.ended_at,
            "num_messages": count,
            "num_chat_messages": count,
            "current_model_id": session.model,
            "head_branch": session.git_branch,
            "next_trace_turn": 1,
            "chat_format_version": 1,
        },
        option=orjson.OPT_INDENT_2,
    )
