"""Small logs in the shape each agent writes, for tests that need a file nobody would find in the wild.

Every agent's `message` becomes exactly one event with the given text; what else a file needs is in `opening`.
"""

import json
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Record = dict[str, Any]

_BEGIN = datetime(2026, 11, 15, 18, 0, tzinfo=UTC)
CWD = "/home/devbox/proj/calc-demo"


def session_id(number: int = 1) -> str:
    return f"01a1e082-0000-7000-8000-{number:012x}"


def record_id(session: str, number: int) -> str:
    """The id of a session's nth record, the same every time it is asked for."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{session}/{number}"))


def moment(number: int) -> datetime:
    return _BEGIN + timedelta(seconds=number)


def timestamp(number: int) -> str:
    return moment(number).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def line(record: Any) -> bytes:
    """A record as the agents write it: compact JSON, text as it is, one line end."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def lines(records: Iterable[Any]) -> bytes:
    return b"".join(map(line, records))


@dataclass(frozen=True, slots=True)
class AgentLog:
    """How one agent's log looks: where a session lies below its home, and the records in it."""

    agent: str
    path: Callable[[Path, str], Path]
    opening: Callable[[str], list[Record]]
    message: Callable[[str, int, str], Record]
    tokens: Callable[[str, int, Any], Record]

    def write(self, root: Path, content: bytes, session: str | None = None) -> Path:
        """Put a session's file with this content below `root`, its folders included."""
        path = self.path(root, session or session_id())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def content(self, count: int, session: str | None = None, words: str = "hello") -> bytes:
        """A whole session of `count` messages."""
        session = session or session_id()
        messages = [self.message(session, number, f"{words} {number}") for number in range(1, count + 1)]
        return lines([*self.opening(session), *messages])

    def root_flag(self, root: Path) -> str:
        return f"{self.agent}={root}"


def _claude_path(root: Path, session: str) -> Path:
    return root / "projects" / "-home-devbox-proj-calc-demo" / f"{session}.jsonl"


def claude_user(session: str, number: int, text: Any) -> Record:
    return {
        "parentUuid": record_id(session, number - 1) if number > 1 else None,
        "isSidechain": False,
        "type": "user",
        "message": {"role": "user", "content": text},
        "uuid": record_id(session, number),
        "timestamp": timestamp(number),
        "userType": "external",
        "entrypoint": "cli",
        "cwd": CWD,
        "sessionId": session,
        "version": "2.1.325",
        "gitBranch": "main",
    }


def claude_answer(session: str, number: int, text: str, input_tokens: Any = 7) -> Record:
    record = claude_user(session, number, text)
    usage = {"input_tokens": input_tokens, "output_tokens": 3, "cache_read_input_tokens": 0}
    message = {
        "model": "claude-sonnet-4-5",
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "usage": usage,
    }
    return record | {"type": "assistant", "message": message, "requestId": f"req_{number}"}


def claude_call(session: str, number: int, command: str) -> Record:
    record = claude_answer(session, number, "")
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": command}}
    return record | {"message": record["message"] | {"content": [call]}}


def claude_result(session: str, number: int, output: str) -> Record:
    """The result of the call that is the record before it."""
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number - 1}", "content": output, "is_error": False}
    return claude_user(session, number, [result]) | {"toolUseResult": {"stdout": output, "interrupted": False}}


def _codex_path(root: Path, session: str) -> Path:
    return root / "sessions" / "2026" / "11" / "15" / f"rollout-2026-11-15T18-00-00-{session}.jsonl"


def _codex_opening(session: str) -> list[Record]:
    meta = {
        "session_id": session,
        "id": session,
        "timestamp": timestamp(0),
        "cwd": CWD,
        "originator": "codex_exec",
        "cli_version": "0.166.0",
        "source": "exec",
        "history_mode": "paginated",
    }
    return [{"timestamp": timestamp(0), "ordinal": 0, "type": "session_meta", "payload": meta}]


def codex_user(session: str, number: int, text: str) -> Record:
    item = {"type": "UserMessage", "id": record_id(session, number), "content": [{"type": "text", "text": text}]}
    payload = {"type": "item_completed", "thread_id": session, "turn_id": record_id(session, 0), "item": item}
    return {"timestamp": timestamp(number), "ordinal": number, "type": "event_msg", "payload": payload}


def codex_tokens(session: str, number: int, input_tokens: Any) -> Record:
    usage = {"input_tokens": input_tokens, "cached_input_tokens": 0, "output_tokens": 3, "total_tokens": 10}
    payload = {"thread_id": session, "session_id": session, "response_id": f"resp_{number}", "usage": usage}
    return {"timestamp": timestamp(number), "ordinal": number, "type": "token_usage_record", "payload": payload}


def _grok_path(root: Path, session: str) -> Path:
    return root / "sessions" / "%2Fhome%2Fdevbox%2Fproj%2Fcalc-demo" / session / "updates.jsonl"


def grok_update(session: str, number: int, update: Record) -> Record:
    moment_ms = int(moment(number).timestamp() * 1000)
    params = {
        "sessionId": session,
        "update": update,
        "_meta": {"eventId": f"{session}-{number}", "agentTimestampMs": moment_ms},
    }
    return {"timestamp": moment_ms // 1000, "method": "session/update", "params": params}


def grok_user(session: str, number: int, text: str) -> Record:
    content = {"type": "text", "text": text}
    meta = {"modelId": "grok-4.6", "promptIndex": number}
    return grok_update(session, number, {"sessionUpdate": "user_message_chunk", "content": content, "_meta": meta})


def grok_tokens(session: str, number: int, input_tokens: Any) -> Record:
    usage = {"inputTokens": input_tokens, "outputTokens": 3, "cachedReadTokens": 0, "totalTokens": 10}
    update = {
        "sessionUpdate": "turn_completed",
        "prompt_id": record_id(session, number),
        "stop_reason": "end_turn",
        "usage": usage,
    }
    return grok_update(session, number, update)


CLAUDE = AgentLog(
    "claude",
    _claude_path,
    lambda session: [],
    claude_user,
    lambda session, number, tokens: claude_answer(session, number, "done", tokens),
)
CODEX = AgentLog("codex", _codex_path, _codex_opening, codex_user, codex_tokens)
GROK = AgentLog("grok", _grok_path, lambda session: [], grok_user, grok_tokens)
AGENT_LOGS = (CLAUDE, CODEX, GROK)


def tell_places(home: Path) -> None:
    """Put beside each log that does not say where its session ran the file that does."""
    for path in home.rglob("updates.jsonl"):
        summary = {"info": {"id": path.parent.name, "cwd": CWD}, "session_summary": "a summary"}
        (path.parent / "summary.json").write_bytes(line(summary))
