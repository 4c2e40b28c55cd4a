"""Recollect inside the real agents: installed, asked, told what fixed an error, and taken out again.

One home with all three agents, everything active together: the plugin, the same hooks in settings that two agents
read, and a hooks folder. What counts is what reached the model: its scripted server keeps every request.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.agents import find_plugin_host
from recollect.api import Memory, open_memory
from recollect.care.install import hooks_of_agent
from recollect.mcp.door import TOOLS, WRITE_TOOLS
from tests.agents.conftest import PATIENCE_S, SCRIPTS, mock_model, wait_for

AGENTS = ("claude", "codex", "grok")
FIX = "Please fix the failing test of the little calculator, run everything once more, and say what the cause was"
LOOK, GREET = "Please look into the memory", "Please say hello"
BRIEF, MET_BEFORE = "The last session here was", "this error has occurred before"
FENCE = re.compile(r"recollect-[0-9a-f]{16}: history")
PROGRAMS = {
    "claude": "claude/node_modules/@anthropic-ai/claude-code-linux-x64/claude",
    "codex": "codex/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    "grok": "bin/grok",
}
ASK = {
    "claude": ("-p", "{}", "--output-format", "json", "--permission-mode", "bypassPermissions"),
    "codex": ("exec", "--json", "--dangerously-bypass-hook-trust", "{}"),
    "grok": ("-p", "{}", "--output-format", "json", "--always-approve"),
}
ANY_TOOL = {"codex": ("-m", "gpt-6.1-sol")}  # in a script it calls tools that its request does not list
CONFIGS = (".claude/settings.json", ".codex/config.toml", ".grok/config.toml")
# Every tool that an agent is offered outside a group, with a call of it and what its answer begins with.
TOOL_CALLS: dict[str, tuple[dict[str, str], str]] = {
    "session_search": ({"query": "failing"}, "`get_session` reads one"),
    "get_session": ({"session": "{session}"}, "The digest of a session"),
    "recall_error": ({"error": "FAILED test_calc.py::test_add - assert -1 == 5"}, "Fixes of this error"),
    "recall_file": ({"path": "calc.py"}, "used this path: those that edited it first"),
    "list_sessions": ({}, "sessions, newest first"),
    "record_decision": ({"decision": "Keep the signature", "why": "callers"}, "Recorded and marked as the agent's"),
    "recall_decisions": ({}, "Decisions: "),
    "recall_workflows": ({"goal": "fix the failing test"}, "How earlier sessions reached a similar goal"),
    "session_brief": ({}, BRIEF),
    "remember": ({"text": "The tests are right"}, "Recorded and marked as the agent's"),
    "forget_memory": ({"session": "{session}", "reason": "a test"}, "Nothing is deleted yet"),
}
GROUP, ASIDE = "team", "Please put this aside and come back"
GROUP_CALLS: dict[str, tuple[dict[str, str], str]] = {
    "clear_session": ({"name": "for later"}, "Cleared: the next prompt begins a new session"),
    "list_sessions": ({}, "active: none"),
    "resume_session": ({"history_id": "for later"}, "Resumed: the next prompt continues it"),
}
SCENARIO = """

def _call(tool, args):
    return do(("mcp", {"server": "recollect", "tool": tool, "args": args}))
S[PROMPT] = (PROMPT, [*(_call(*call) for call in CALLS), say("Done.")])
_compiled = [(n, re.compile(rx, re.I)) for n, (rx, _) in S.items()]
"""


class Inside:
    """A home, a project and a store, and the agents at work in them."""

    def __init__(self, folder: Path, agents_folder: Path, port: int) -> None:
        self.folder = folder
        self.home, self.project, self.store = folder / "home", folder / "project", folder / "store"
        self.programs = folder / "bin"
        self.environment = {
            **os.environ,
            "AGENTS_DIR": str(agents_folder),
            "AGENT_HOME": str(self.home),
            "HOME": str(self.home),
            "MOCK_PORT": str(port),
            "XENV": f"RECOLLECT_HOME={self.store}",
            "T": str(PATIENCE_S),
        }
        for path in (self.home, self.programs):
            path.mkdir()
        (self.home / ".profile").write_text(f"export PATH={agents_folder}/venv/bin:$PATH\n")
        subprocess.run([SCRIPTS / "mkproj.sh", self.project], env=self.environment, check=True, capture_output=True)
        for name, path in PROGRAMS.items():
            (self.programs / name).write_text(f'#!/bin/sh\nexec {agents_folder / path} "$@"\n')
            (self.programs / name).chmod(0o755)

    def run(self, agent: str, *arguments: str) -> str:
        command = [str(SCRIPTS / f"run-{agent}.sh"), str(self.project), *arguments]
        done = subprocess.run(
            command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"{agent} failed: {done.stdout[-1000:]}{done.stderr[-1000:]}"
        return done.stdout

    def ask(self, agent: str, prompt: str, *options: str) -> list[str]:
        """Have an agent do something; returns the requests its model got, without small ones such as for a title."""
        before = set(self.requests.iterdir())
        self.run(agent, *(word.format(prompt) for word in ASK[agent]), *options)
        return [
            text for path in sorted(set(self.requests.iterdir()) - before) if len(text := path.read_text()) > 10_000
        ]

    @property
    def requests(self) -> Path:
        return self.folder / "requests"

    def recollect(self, *arguments: str) -> str:
        environment = {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "HOME": str(self.home),
            "RECOLLECT_HOME": str(self.store),
            "LANG": "C.UTF-8",
        }
        done = subprocess.run(
            [sys.executable, "-m", "recollect", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode in (0, 1), done.stderr
        return done.stdout + done.stderr

    def memory(self) -> Memory:
        return open_memory(self.store, [f"{agent}={self.home / f'.{agent}'}" for agent in AGENTS])

    def configs(self) -> dict[str, bytes | None]:
        paths = {name: self.home / name for name in (*CONFIGS, ".grok/hooks/recollect.json", ".codex/hooks.json")}
        return {name: path.read_bytes() if path.exists() else None for name, path in paths.items()}

    def script_calls(self, prompt: str, tools: dict[str, tuple[dict[str, str], str]]) -> None:
        """Have the model answer a prompt by calling these tools, with the first session where one is asked for."""
        with self.memory() as memory:
            session = memory.sessions()[-1].session_uid
        calls = [
            (tool, {name: value.format(session=session) for name, value in arguments.items()})
            for tool, (arguments, _) in tools.items()
        ]
        with (self.folder / "mock" / "scenarios.py").open("a") as file:
            file.write(f"\nPROMPT, CALLS = {prompt!r}, {calls!r}\n{SCENARIO}")

    def repeat_settings(self) -> None:
        """The plugin's hooks once more, in the settings that one agent wrote for itself and another reads too."""
        path = self.home / ".claude" / "settings.json"
        host = find_plugin_host("claude")
        assert host is not None
        hooks = hooks_of_agent("claude", host, None, str(self.store))  # as commands: one agent takes no others
        path.write_text(json.dumps(json.loads(path.read_text()) | hooks))


@pytest.fixture(scope="module")
def inside(agents_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    folder = tmp_path_factory.mktemp("inside")
    scripts = folder / "mock"
    shutil.copytree(SCRIPTS / "mock", scripts)
    named = "(f\"mcp__{a['server']}__{a['tool']}\", a[\"args\"], F)"
    # Of most tools the agent's first request has no name; they are called as the one that is always there.
    listed = "next(n for n in names if n.endswith('__session_search')).removesuffix('session_search')"
    offered = f"({listed} + a['tool'], a[\"args\"], F)"
    (scripts / "toolmap.py").write_text((scripts / "toolmap.py").read_text().replace(named, offered))
    with mock_model(folder, scripts) as port:
        made = Inside(folder, agents_folder, port)
        for agent in ("codex", "grok"):
            made.run(agent, "--version")
        (made.home / ".claude").mkdir()
        (made.home / ".claude" / "settings.json").write_text('{"env":   {"MINE": "kept"}}')
        yield made


@pytest.fixture(scope="module")
def played(inside: Inside) -> dict[str, Any]:
    """Everything the agents were made to do, and what their models were sent."""
    told: dict[str, Any] = {"before": inside.configs()}
    told["installed"] = inside.recollect("install", "--write-tools", "--yes")
    told["doctor"] = inside.recollect("doctor")
    installed = inside.configs()
    inside.repeat_settings()
    inside.ask("claude", FIX)
    wait_for(lambda: (inside.store / "prepared" / "fixes").exists(), "the sweep after the first session")
    for agent in AGENTS:
        subprocess.run(["git", "-C", inside.project, "checkout", "-q", "calc.py"], check=True)
        told[f"{agent} fixes"] = inside.ask(agent, FIX)
    inside.script_calls(LOOK, TOOL_CALLS)
    for agent in AGENTS:
        told[f"{agent} looks"] = inside.ask(agent, LOOK, *ANY_TOOL.get(agent, ()))
    (inside.home / ".claude" / "settings.json").write_bytes(installed[".claude/settings.json"] or b"")
    inside.recollect("config", "hooks.prompts", "true")
    for agent in ("claude", "codex"):
        subprocess.run(["git", "-C", inside.project, "checkout", "-q", "calc.py"], check=True)
        told[f"{agent} fixes again"] = inside.ask(agent, FIX)
    return told


def test_install_shows_every_command_and_says_what_is_left_to_do(played: dict[str, Any]) -> None:
    for line in (
        "claude plugin install recollect@recollect-local",
        "codex plugin add",
        "grok plugin install",
        "/hooks",
    ):
        assert line in played["installed"]
    assert "✓ Server and hook respond; installed for claude, codex, grok" in played["doctor"]


@pytest.mark.parametrize("agent", AGENTS)
def test_the_brief_is_exactly_once_in_what_an_agent_sends(played: dict[str, Any], agent: str) -> None:
    requests = played[f"{agent} fixes"]

    assert len(requests) >= 6
    assert [request.count(BRIEF) for request in requests] == [1] * len(requests)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_error_that_was_fixed_before_brings_the_fix_into_the_next_request(
    played: dict[str, Any], agent: str
) -> None:
    requests = played[f"{agent} fixes"]
    failed = next(number for number, request in enumerate(requests) if "1 failed" in request)

    assert all(MET_BEFORE not in request for request in requests[:failed])
    assert [request.count(MET_BEFORE) for request in requests[failed:]] == [1] * len(requests[failed:])
    assert "became `return a + b`" in requests[failed]


@pytest.mark.parametrize("agent", AGENTS)
def test_each_agent_calls_every_tool_and_gets_fenced_history(played: dict[str, Any], agent: str) -> None:
    last = played[f"{agent} looks"][-1]

    assert TOOL_CALLS.keys() == {tool.name for tool in (*TOOLS, *WRITE_TOOLS)}
    assert {tool: text in last for tool, (_, text) in TOOL_CALLS.items()} == dict.fromkeys(TOOL_CALLS, True)
    assert len(FENCE.findall(last)) == len(FENCE.findall(played[f"{agent} looks"][0])) + len(TOOL_CALLS)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_hooks_that_call_the_server_reach_the_model(played: dict[str, Any], agent: str) -> None:
    """Only the plugin is left here: a prompt and a failed call have no hook that is a command."""
    requests = played[f"{agent} fixes again"]
    failed = next(number for number, request in enumerate(requests) if "1 failed" in request)

    assert [request.count("had nearly the same request") for request in requests] == [1] * len(requests)
    assert MET_BEFORE in requests[failed]


def test_the_end_of_each_session_brought_it_into_the_store(inside: Inside, played: dict[str, Any]) -> None:
    def sessions() -> set[tuple[str, str | None]]:
        with inside.memory() as memory:
            return {(session.agent, session.repo) for session in memory.sessions()}

    known = {(agent, "github.com/example/calc-demo") for agent in AGENTS}
    assert wait_for(lambda: sessions() == known, "every agent's session") and played


def test_a_compaction_leaves_everything_in_the_store(inside: Inside, played: dict[str, Any]) -> None:
    output = inside.run("claude", *(word.format(GREET) for word in ASK["claude"]))
    session = json.loads(output)["session_id"]
    (log,) = (inside.home / ".claude" / "projects").rglob(f"{session}.jsonl")
    copy = inside.folder / "copy" / "projects" / log.parent.name / log.name
    copy.parent.mkdir(parents=True)
    shutil.copy(log, copy)
    inside.run("claude", "-p", "/compact keep the decisions", "--resume", session)
    log.write_bytes(b"")

    wait_for(lambda: not list(inside.store.glob("spool/*.json")), "the sweep of the session")
    inside.recollect("sweep")
    with open_memory(inside.folder / "other store", [f"claude={inside.folder / 'copy'}"]) as memory:
        memory.sweep()
        written = [event.event_uid for event in memory.events(memory.session(session), with_copies=True)]
    with inside.memory() as memory:
        kept = {event.event_uid for event in memory.events(memory.session(session), with_copies=True)}
    assert written and set(written) <= kept and played


@pytest.mark.parametrize("agent", ["claude", "grok"])
def test_the_plugin_is_valid(inside: Inside, played: dict[str, Any], agent: str) -> None:
    assert re.search("(?i)valid", inside.run(agent, "plugin", "validate", str(inside.store / "plugin" / "recollect")))
    assert played


def test_a_broken_store_fails_no_agent_and_uninstalling_leaves_no_trace(inside: Inside, played: dict[str, Any]) -> None:
    kept = inside.folder / "kept"
    inside.store.rename(kept)
    inside.store.mkdir()
    for name in ("memory.db", "cache.db", "prepared", "claims", "spool", "told.jsonl"):
        (inside.store / name).write_bytes(b"nonsense" * 100)
    for agent in AGENTS:
        assert all(BRIEF not in request for request in inside.ask(agent, GREET))
    shutil.rmtree(inside.store)
    kept.rename(inside.store)

    shown = inside.recollect("uninstall", "--yes")

    assert f"remove  {inside.store / 'plugin'}\nRemoved from claude, codex, grok" in shown
    assert inside.configs() == played["before"]
    assert not list(inside.home.rglob("*before-recollect"))


def test_without_a_plugin_the_settings_get_the_same_and_come_back(inside: Inside) -> None:
    before = inside.configs()

    shown = inside.recollect("install", "--no-plugin", "--yes")
    settings = json.loads((inside.home / ".claude" / "settings.json").read_text())
    answers = inside.recollect("doctor")
    inside.recollect("install", "--no-plugin", "--yes")  # once more, which must not add anything twice
    again = json.loads((inside.home / ".claude" / "settings.json").read_text())
    inside.recollect("uninstall", "--yes")

    assert "claude mcp add" in shown and "✓ Server and hook respond" in answers
    assert settings["env"] == {"MINE": "kept"} and settings["hooks"]["Stop"][0]["hooks"][0]["server"] == "recollect"
    assert {event: len(entries) for event, entries in again["hooks"].items()}["Stop"] == 1
    assert inside.configs() == before


@pytest.fixture(scope="module")
def in_group(inside: Inside) -> Iterator[str]:
    """Agents that were started for a group, without the plugin; returns the session that the group is at."""
    inside.ask("claude", GREET)
    inside.recollect("install", "--no-plugin", "--yes")
    with inside.memory() as memory:
        memory.sweep()
        memory.groups.add(GROUP, inside.project)
        session = memory.sessions()[-1].session_uid
        memory.groups.sessions(GROUP).set(session)
    inside.script_calls(ASIDE, GROUP_CALLS)
    outside = inside.environment["XENV"]
    inside.environment["XENV"] = f"{outside} RECOLLECT_GROUP={GROUP}"
    yield session
    inside.environment["XENV"] = outside
    inside.recollect("uninstall", "--yes")


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_started_for_a_group_puts_its_conversation_aside_and_comes_back(
    inside: Inside, in_group: str, agent: str
) -> None:
    last = inside.ask(agent, ASIDE, *ANY_TOOL.get(agent, ()))[-1]

    assert {tool: text in last for tool, (_, text) in GROUP_CALLS.items()} == dict.fromkeys(GROUP_CALLS, True)
    assert f"active: {in_group}" in last
    with inside.memory() as memory:
        assert memory.groups.sessions(GROUP).get() == in_group
