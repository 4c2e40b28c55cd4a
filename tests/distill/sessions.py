"""Sessions told in a line each, and what is distilled from them without a store."""

import hashlib
from collections.abc import Sequence
from typing import Any

from recollect.analysis import VERSION
from recollect.analysis.distiller import distil
from recollect.digest import Part, Subject
from recollect.digest.trace import read_trace
from recollect.model import schema
from recollect.model.schema import MAIN_LANE, SUMMARY_CHARS, Covers
from recollect.store import IS_ABANDONED, IS_ERROR, IS_RETRY, Response, Step
from tests.builders import BEGIN_MS

UID = "scripted:s"
MINUTE_MS = 60_000
_ROLES = {
    schema.USER_MSG: "user",
    schema.TOOL_RESULT: "tool",
    schema.ERROR: "tool",
    schema.HUMAN_INTERVENTION: "user",
    schema.DECISION: "user",
    schema.LIFECYCLE: "system",
}


class Script:
    """A session in the making: each method adds one event, or a call with its result."""

    def __init__(self, name: str = "s") -> None:
        self.name = name
        self.steps: list[Step] = []
        self.payloads: dict[bytes, dict[str, Any]] = {}
        self.spent: list[Response] = []
        self.now_ms = BEGIN_MS

    def add(self, kind: str, text: str = "", payload: dict[str, Any] | None = None, **fields: Any) -> Step:
        self.now_ms += 1000
        uid = hashlib.blake2b(f"{self.name}/{len(self.steps)}".encode(), digest_size=16).digest()
        line = " ".join(text.split())
        summary = line if len(line) <= SUMMARY_CHARS else line[: SUMMARY_CHARS - 1] + "…"
        told: dict[str, Any] = {
            "id": len(self.steps) + 1,
            "event_uid": uid,
            "parent_uid": None,
            "lane": MAIN_LANE,
            "position": len(self.steps),
            "ts_ms": self.now_ms,
            "kind": kind,
            "base_kind": kind,
            "role": _ROLES.get(kind, "assistant"),
            "tool": None,
            "call_id": None,
            "status": None,
            "flags": 0,
            "copy_of": None,
            "retry_key": None,
            "summary": summary,
            "payload_start": len(self.steps),
            "payload_bytes": 300 + len(text),
            "payload_hash": uid,
            "model": None,
            "metadata": None,
        }
        step = Step(**(told | fields))
        self.steps.append(step)
        self.payloads[uid] = {"text": text} if payload is None else payload
        return step

    def user(self, text: str, **fields: Any) -> Step:
        return self.add(schema.USER_MSG, text, **fields)

    def answer(self, text: str, **fields: Any) -> Step:
        return self.add(schema.COMPLETION, text, **fields)

    def say(self, text: str, **fields: Any) -> Step:
        return self.add(schema.ASSISTANT_MSG, text, **fields)

    def call(
        self,
        summary: str,
        result: str | None = "ok",
        kind: str = schema.TOOL_CALL,
        *,
        tool: str = "shell",
        has_failed: bool = False,
        is_retry: bool = False,
        given: dict[str, Any] | None = None,
    ) -> tuple[Step, Step | None]:
        """A call and its result (none if `result` is None)."""
        call_id = f"call-{len(self.steps)}"
        key = hashlib.blake2b(summary.encode(), digest_size=8).digest() if is_retry else None
        flags = IS_RETRY if is_retry else 0
        payload = {"input": given or {"command": summary.removeprefix("ran ")}}
        call = self.add(kind, summary, payload, tool=tool, call_id=call_id, flags=flags, retry_key=key)
        if result is None:
            return call, None
        told = schema.ERROR if has_failed else schema.TOOL_RESULT
        flags = IS_ERROR if has_failed else 0
        return call, self.add(told, result, {"output": result}, tool=tool, call_id=call_id, flags=flags)

    def run(self, command: str, result: str | None = "ok", **fields: Any) -> tuple[Step, Step | None]:
        return self.call(f"ran {command}", result, **fields)

    def test(self, result: str, *, has_failed: bool = False, command: str = "pytest -q") -> None:
        self.run(command, result, kind=schema.TEST_RUN, has_failed=has_failed)

    def edit(self, path: str, *, has_failed: bool = False) -> None:
        self.call(f"edited {path}", "done", schema.EDIT, tool="Edit", has_failed=has_failed, given={"file_path": path})

    def stop(self, text: str = "interrupted the agent", status: str = "interrupted", call: Step | None = None) -> Step:
        call_id = call.call_id if call else None
        return self.add(schema.HUMAN_INTERVENTION, text, status=status, call_id=call_id, flags=IS_ERROR)

    def todos(self, *items: tuple[str, str]) -> None:
        listed = [{"content": content, "status": status} for content, status in items]
        self.call("updated the to-do list", "ok", tool="TodoWrite", given={"todos": listed})

    def wait(self, minutes: int) -> None:
        self.now_ms += minutes * MINUTE_MS

    def spend(self, tokens: int) -> None:
        self.spent.append(Response(self.now_ms, "some-model", tokens, 0, 0, 0, 0, None))


def abandoned(step: Step) -> Step:
    return step._replace(flags=step.flags | IS_ABANDONED)


def distilled(
    script: Script,
    session_class: str = schema.HUMAN,
    steps: Sequence[Step] | None = None,
    sub_agents: Sequence[str] = (),
    **fields: Any,
) -> Part:
    """All that is distilled from a script, or from some of its steps."""
    steps = script.steps if steps is None else steps
    trace = read_trace(steps)
    used = sum(response.input_tokens for response in script.spent)
    wanted = {step.event_uid: script.payloads[step.event_uid] for step in trace.wanted()}
    times = [step.ts_ms for step in steps if step.ts_ms is not None]
    told: dict[str, Any] = {
        "session_uid": UID,
        "title": "a title",
        "cwd": "/proj",
        "tokens": {"input_tokens": used, "output_tokens": 2, "cache_read_tokens": 3, "cache_write_tokens": 4},
        "usd": 1.5,
        "usd_is_estimate": True,
        "started_ms": min(times, default=None),
        "ended_ms": max(times, default=None),
        "covers": Covers(len(steps), steps[-1].uid if steps else None, VERSION),
        "sub_agents": sub_agents,
    }
    return distil(Subject(**(told | fields)), session_class, trace, wanted, script.spent)
