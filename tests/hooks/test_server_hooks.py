"""A hook that calls the running server is answered as a command is, without a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.agents import BUILT_IN, find_plugin_host
from recollect.api import open_memory
from recollect.care.install import hooks_of_agent
from recollect.hooks.answers import all_hooks
from tests.hooks.conftest import SESSION, Desk
from tests.hooks.test_fixes import ERROR, _prepare
from tests.hooks.test_news import stored, wait_for

FAILURES = ("UserPromptSubmit", "PostToolUse", "PostToolUseFailure")
EARLIER = "5f0c2f6e-0000-4000-8000-000000000009"


class Server:
    """The server as an agent starts it, and its hooks as they call it."""

    def __init__(self, desk: Desk, *options: str) -> None:
        self._desk = desk
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-m", "recollect", "mcp", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=desk.project,
            env=desk.environment,
        )

    def ask(self, method: str, **params: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        frame = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._process.stdin.write(json.dumps(frame).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def hook(self, event: str, agent: str = "claude", **fields: Any) -> Any:
        """The hook's answer."""
        payload = {"agent": agent, "hook_event_name": event, "session_id": SESSION, "cwd": str(self._desk.project)}
        answer = self.ask("tools/call", name="hook_event", arguments=payload | fields)
        return json.loads(answer["result"]["content"][0]["text"])

    def added(self, event: str, **fields: Any) -> str:
        answer = self.hook(event, **fields)
        return str(answer["hookSpecificOutput"]["additionalContext"]) if answer else ""

    def children(self) -> str:
        """States of the processes that it started and that are not gone."""
        pid = self._process.pid
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return "".join(Path(f"/proc/{child}/stat").read_text().rpartition(") ")[2][0] for child in below)

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@pytest.fixture
def server(desk: Desk) -> Iterator[Server]:
    desk.store.mkdir(mode=0o700)
    started = Server(desk)
    yield started
    started.close()


@pytest.mark.parametrize(
    ("agent", "event", "fields"),
    [
        ("claude", "PostToolUseFailure", {"error": ERROR, "is_interrupt": "false", "tool_use_id": "1"}),
        ("codex", "PostToolUse", {"tool_name": "Bash", "tool_response": ERROR, "tool_use_id": "1"}),
    ],
)
def test_the_fix_comes_by_the_server_once(
    desk: Desk, server: Server, agent: str, event: str, fields: dict[str, str]
) -> None:
    _prepare(desk)

    assert "edited walrus.py" in server.added(event, agent=agent, **fields)
    assert server.hook(event, agent=agent, **fields) == {}


def test_an_interrupted_call_brings_nothing(desk: Desk, server: Server) -> None:
    _prepare(desk)

    assert server.hook("PostToolUseFailure", error=ERROR, is_interrupt="true") == {}


def test_the_end_of_a_turn_is_stored_and_its_sweep_leaves_no_zombie(desk: Desk, server: Server) -> None:
    for number in range(3):
        path = desk.write(SESSION, *("feed the walrus",) * (number + 1))
        server.hook("Stop", transcript_path=str(path), prompt_id=str(number))
        wait_for(lambda count=number + 1: stored(desk) == 2 * count)  # type: ignore[misc]
    wait_for(lambda: "Z" in server.children() or not server.children())

    server.hook("Stop", transcript_path=str(path), prompt_id="last")

    assert "Z" not in server.children()


def test_no_model_is_offered_the_tool_of_hooks(server: Server) -> None:
    assert "hook_event" not in json.dumps(server.ask("tools/list"))


@pytest.mark.parametrize(
    "payload",
    [{}, {"agent": "nobody"}, {"agent": 7}, {"agent": "claude"}, {"agent": "claude", "hook_event_name": ["Stop"]}],
)
def test_what_is_no_event_is_answered_with_nothing(desk: Desk, server: Server, payload: dict[str, Any]) -> None:
    _prepare(desk)

    answer = server.ask("tools/call", name="hook_event", arguments=payload)

    assert answer["result"]["content"][0]["text"] == "{}"
    assert not list(desk.store.glob("spool/*.json"))


def test_behind_a_wall_hooks_are_told_nothing(desk: Desk) -> None:
    _prepare(desk)
    walled = Server(desk, "--repo", str(desk.project))

    assert walled.hook("PostToolUseFailure", error=ERROR) == {}
    walled.close()


@pytest.mark.parametrize("event", ["Stop", "PreCompact"])
def test_in_a_group_a_session_is_stored_and_its_hooks_are_answered_with_nothing(
    desk: Desk, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _prepare(desk)
    with open_memory(desk.store) as memory:
        memory.groups.add("family", desk.project)
    monkeypatch.setattr(Desk, "environment", desk.environment | {"RECOLLECT_GROUP": "family"})
    path = desk.write(SESSION, "feed the walrus")
    server = Server(desk)
    told = [server.hook(name, error=ERROR, prompt=ERROR, source="startup") for name in ("SessionStart", *FAILURES)]

    told.append(server.hook(event, transcript_path=str(path)))
    if event == "PreCompact":
        path.write_bytes(b"")  # as if the agent began its log anew

    wait_for(lambda: stored(desk, group="family") == 2)
    server.close()
    assert told == [{}] * len(told)


@pytest.mark.parametrize("state", ["damaged", "read-only"])
def test_a_store_that_cannot_be_used_is_answered_with_nothing(desk: Desk, state: str) -> None:
    desk.write(EARLIER, "feed the walrus")
    desk.sweep()
    server = Server(desk)
    if state == "damaged":
        for path in (path for path in desk.store.rglob("*") if path.is_file()):
            path.write_bytes(b"\0nonsense" * 20)
    else:
        desk.store.chmod(0o500)

    events = ("SessionStart", "UserPromptSubmit", "PostToolUseFailure", "Stop", "Nonsense")
    answers = [server.hook(event, error=ERROR, prompt=ERROR, transcript_path="/nowhere") for event in events]
    server.close()
    desk.store.chmod(0o700)

    assert answers == [{}] * 5 or state == "read-only"


@pytest.mark.parametrize("agent", list(filter(find_plugin_host, BUILT_IN)))
def test_hooks_are_installed_for_what_an_agent_hears_and_only_text_is_asked_for(agent: str) -> None:
    host = find_plugin_host(agent)
    assert host is not None
    (heard,) = (hooks for hooks in all_hooks() if hooks.agent == agent)

    hooks = hooks_of_agent(agent, host, host.plugin_server, None)["hooks"]
    calls = [entry["hooks"][0] for entries in hooks.values() for entry in entries]

    assert ("UserPromptSubmit" in hooks) <= heard.hears_prompt
    assert ("SessionStart" in hooks) == heard.hears_start
    assert {call["type"] for call in calls} == ({"command", "mcp_tool"} if host.plugin_server else {"command"})
    assert all(
        isinstance(value, str) for call in calls if call["type"] == "mcp_tool" for value in call["input"].values()
    )
