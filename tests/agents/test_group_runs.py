"""The real agents run for a group: pointer, clear, resume, fork, follow-ups, closing, and the text all groups share."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from recollect.api import open_memory
from recollect.api.groups import Prompting
from recollect.care.install import hook_command
from recollect.groups.runner import RunReport
from recollect.model.errors import RecollectError
from tests.agents.conftest import SCRIPTS, mock_model
from tests.conftest import with_key

SHARED_RULE = "marker-of-all-groups"
_PROGRAMS = {
    "claude": "{agents}/claude/node_modules/@anthropic-ai/claude-code-linux-x64/claude",
    "codex": "{agents}/codex/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    "grok": "{agents}/bin/grok",
}
_ENVIRONMENT = (
    "ANTHROPIC_BASE_URL={mock} ANTHROPIC_API_KEY=dummy DISABLE_TELEMETRY=1 DISABLE_AUTOUPDATER=1"
    " DISABLE_ERROR_REPORTING=1 CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 IS_SANDBOX=1"
    " MOCK_API_KEY=dummy XAI_API_KEY=dummy GROK_DISABLE_AUTOUPDATER=1"
)


@dataclass
class Played:
    """What the group's agent did, step by step."""

    agent: str
    folder: Path
    reports: dict[str, RunReport] = field(default_factory=dict)
    requests: dict[str, list[str]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


class Player:
    """Leads one agent through all steps, in one store with one group."""

    def __init__(self, agent: str, folder: Path, port: int) -> None:
        self.played = Played(agent, folder)
        self.agent, self.folder, self.port = agent, folder, port
        (folder / "work" / "skills" / "recall").mkdir(parents=True)
        (folder / "work" / "skills" / "recall" / "SKILL.md").write_text("---\nname: recall\ndescription: x\n---\n")
        self.store = with_key(folder / "store")
        (self.store / "groups").mkdir()
        (self.store / "groups" / "global.md").write_text(f"Always mention {SHARED_RULE}.\n")
        for group in ("work", "main"):
            self._configure(self.store / "groups" / group / f".{agent}")
        self.memory = open_memory(self.store, [f"{agent}={folder / 'nobody'}"])
        self.memory.groups.add("work", folder / "work", agent=agent)

    def _configure(self, home: Path) -> None:
        template = SCRIPTS / f"{self.agent}-config.toml"
        if template.exists():
            home.mkdir(parents=True)
            text = template.read_text().replace("@MOCK@", f"http://127.0.0.1:{self.port}")
            (home / "config.toml").write_text(text.replace("@PROJECT@", str(self.folder / "work")))

    @property
    def sessions(self) -> Any:
        return self.memory.groups.sessions("work")

    def run(self, step: str, prompt: str, group: str = "work", **how: Any) -> RunReport:
        before = self._sent()
        report = self.memory.groups.run(prompt, group, Prompting(agent=self.agent, **how))
        self.played.reports[step] = report
        self.played.requests[step] = [path.read_text() for path in self._sent() if path not in before]
        return report

    def _sent(self) -> list[Path]:
        return sorted((self.folder / "requests").glob("*.json"))

    def follow_up(self, step: str, *texts: str) -> None:
        """Put follow-ups into the input folder while the agent has the first prompt."""
        inputs = Path(self.memory.groups.get("work").ipc) / "input"
        for number, text in enumerate(texts):
            (inputs / f".{number}.tmp").write_text(json.dumps({"text": text}))
            (inputs / f".{number}.tmp").rename(inputs / f"{number}.json")
        self.run(step, "say hello prompt-zero")
        self.played.facts["left in input"] = [path.name for path in inputs.iterdir()]

    def close(self, step: str) -> None:
        """Ask for the end of an agent that waits, and time it."""
        ipc = Path(self.memory.groups.get("work").ipc)
        asked: list[float] = []

        def ask() -> None:
            while not list((ipc / "input").glob("*")) and not asked:
                time.sleep(0.05)
                if (self.folder / "said").exists():
                    asked.append(time.monotonic())
                    (ipc / "_close").touch()

        thread = threading.Thread(target=ask)
        thread.start()
        self.memory.groups.run(
            "say hello before-closing",
            "work",
            Prompting(agent=self.agent, wait_seconds=60),
            say=lambda text: (self.folder / "said").touch(),
        )
        self.played.facts["closed after"] = time.monotonic() - asked[0]
        thread.join()

    def fork(self) -> None:
        """Continue a copy by the agent's own command, as it is printed, then the session itself."""
        session = self.memory.session(self.played.facts["first session"])
        self._type("fork", self.memory.groups.fork(session).command, "say hello marker-fork")
        self.run("after fork", "say hello marker-after-fork")

    def _type(self, step: str, command: str, prompt: str) -> None:
        """Type a command that continues a session into a shell outside the group, made to take one prompt and end."""
        named = {"claude": "claude", "codex": "codex exec --skip-git-repo-check", "grok": "grok"}[self.agent]
        headless = command.replace(f" {self.agent} ", f" {named} ", 1) + f" {'' if self.agent == 'codex' else '-p '}"
        before, folder = self._sent(), self.folder / "work"
        line = ["sh", "-c", f"{headless}'{prompt}'"]
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{headless}: {done.stdout[-500:]}{done.stderr[-500:]}"
        self.played.requests[step] = [path.read_text() for path in self._sent() if path not in before]

    def close_in_a_turn(self) -> None:
        """Ask for the end of an agent in the middle of its answer, in the folder that the help names."""
        close, before = Path(self.memory.groups.get("work").ipc) / "input" / "_close", self._sent()
        asked: list[float] = []

        def ask() -> None:
            while self._sent() == before:
                time.sleep(0.05)
            time.sleep(1)
            asked.append(time.monotonic())
            close.touch()

        thread = threading.Thread(target=ask)
        thread.start()
        report = self.memory.groups.run("tell a long story", "work", Prompting(agent=self.agent, wait_seconds=60))
        self.played.facts["closed in a turn after"] = time.monotonic() - asked[0]
        self.played.reports["closed in a turn"] = report
        thread.join()

    def compact(self) -> None:
        """Compact the group's conversation, with our hook in the home's settings."""
        home, conversations = Path(self.memory.groups.get("work").home), self.folder / "work" / "conversations"
        hook = {"type": "command", "timeout": 10, "command": hook_command(str(self.store))}
        (home / "settings.json").write_text(json.dumps({"hooks": {"PreCompact": [{"hooks": [hook]}]}}))
        before = set(conversations.iterdir())
        session = self.memory.session(self.sessions.require())
        self._type("compact", session.resume_command or "", "/compact keep the decisions")
        deadline = time.monotonic() + 20
        while not (new := set(conversations.iterdir()) - before) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.played.facts["compacted"] = [path.read_text() for path in new]

    def go_back(self) -> None:
        """Drop the last turn of a session, then try to drop two while naming one."""
        self.sessions.delete()
        first = self.run("turn one", "say hello turn-one").last_uuid
        self.run("turn two", "say hello turn-two")
        prompt = self._prompt("turn-two")
        self.run("without turn two", "say hello turn-three", after_uuid=first, drops=prompt)
        self.run("turn four", "say hello turn-four")
        before = self.sessions.get(), self.sessions.last_uuid()
        try:
            self.run("refused", "say hello turn-five", after_uuid=first, drops=self._prompt("turn-three"))
        except RecollectError as error:
            self.played.facts["refusal"] = error.message
        self.played.facts["unchanged"] = (self.sessions.get(), self.sessions.last_uuid()) == before
        session = self.memory.sweep() and self.memory.session(self.sessions.get())
        at = next(event for event in self.memory.events(session) if event.native_id == first)
        forked = self.memory.groups.fork(session, str(at.seq))
        self.sessions.set(f"claude:{forked.new_id}")
        self.run("forked at", "say hello marker-cut")

    def _prompt(self, text: str) -> str:
        """The agent's name for a prompt."""
        home = Path(self.memory.groups.get("work").home)
        lines = (line for path in home.rglob("*.jsonl") for line in path.read_text().splitlines() if text in line)
        entries = map(json.loads, lines)
        return next(str(entry["uuid"]) for entry in entries if entry["type"] == "user")

    def play(self) -> Played:
        facts = self.played.facts
        self.run("new", "say hello marker-one")
        self.run("second", "say hello marker-two")
        facts["first session"] = self.sessions.get()
        facts["cleared"] = self.memory.groups.clear("tax research", "work")
        facts["pointer after clear"] = self.sessions.get()
        self.run("after clear", "say hello marker-three")
        facts["resumed"] = self.memory.groups.resume(Path(facts["cleared"].archive).name, "work", save_as="the third")
        self.run("after resume", "say hello marker-four")
        self.follow_up("follow-ups", "say hello follow-one", "say hello follow-two", "say hello follow-three")
        self.close("closed")
        self.close_in_a_turn()
        self.run("main", "say hello marker-main", "main")
        self.memory.sweep()
        self.fork()
        if self.agent == "claude":
            self.compact()
            self.go_back()
        self.memory.sweep()
        session = self.memory.session(facts["first session"])
        facts["prompts"] = [event.summary for event in self.memory.events(session, "user_msg")]
        facts["groups"] = {session.session_uid: session.group for session in self.memory.sessions()}
        self.memory.close()
        return self.played


def _programs(folder: Path, agents: Path, port: int) -> Path:
    """The agents as they would be on a PATH, bound to the scripted model."""
    (folder / "bin").mkdir()
    settings = _ENVIRONMENT.format(mock=f"http://127.0.0.1:{port}")
    for name, program in _PROGRAMS.items():
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec env HOME={folder} {settings} {program.format(agents=agents)} "$@"\n')
        path.chmod(0o755)
    return folder / "bin"


@pytest.fixture(scope="module", params=sorted(_PROGRAMS))
def played(
    request: pytest.FixtureRequest, agents_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp(f"groups-{request.param}")
    with pytest.MonkeyPatch.context() as patch, mock_model(folder) as port:
        patch.setenv("PATH", f"{_programs(folder, agents_folder, port)}:{os.environ['PATH']}")
        patch.delenv("RECOLLECT_GROUP", raising=False)
        yield Player(request.param, folder, port).play()


def _asked(played: Played, step: str) -> str:
    """All that the agent sent to its model in a step."""
    return "\n".join(played.requests[step])


def test_a_new_session_becomes_the_groups_and_the_second_prompt_resumes_it(played: Played) -> None:
    first, second = played.reports["new"], played.reports["second"]

    assert first.is_new and not second.is_new
    assert first.session_uid == second.session_uid == played.facts["first session"]
    assert "marker-one" in _asked(played, "second")


def test_clear_archives_and_bookmarks_and_the_next_prompt_begins_anew(played: Played) -> None:
    cleared, third = played.facts["cleared"], played.reports["after clear"]

    assert "marker-two" in Path(cleared.archive).read_text()
    assert Path(cleared.archive).parent == played.folder / "work" / "conversations"
    assert Path(cleared.archive).name.endswith("-tax-research.md")
    assert Path(cleared.archive).read_text().startswith("# tax research\n\nArchived: 20")
    assert cleared.bookmark.session_uid == played.facts["first session"]
    assert played.facts["pointer after clear"] is None
    assert third.is_new and third.session_uid != played.facts["first session"]
    assert "marker-one" not in _asked(played, "after clear")


def test_resume_by_the_archive_s_name_sends_the_old_conversation_to_the_model(played: Played) -> None:
    assert played.facts["resumed"].saved_as == "the third"
    assert played.reports["after resume"].session_uid == played.facts["first session"]
    assert all(marker in _asked(played, "after resume") for marker in ("marker-one", "marker-two", "marker-four"))
    assert "marker-three" not in _asked(played, "after resume")


def test_three_follow_ups_reach_the_running_agent_in_order_each_once(played: Played) -> None:
    names = ("prompt-zero", "follow-one", "follow-two", "follow-three")
    last = next(text for text in reversed(played.requests["follow-ups"]) if "follow-three" in text)

    assert played.reports["follow-ups"].turns == 4
    assert sorted(names, key=last.index) == list(names)
    assert [prompt for prompt in played.facts["prompts"] if prompt.endswith(names)] == [
        f"say hello {name}" for name in names
    ]
    assert played.facts["left in input"] == []


def test_an_agent_that_waits_is_closed_within_two_seconds(played: Played) -> None:
    assert played.facts["closed after"] < 2


def test_an_agent_is_closed_within_two_seconds_in_the_middle_of_a_turn(played: Played) -> None:
    report = played.reports["closed in a turn"]

    assert played.facts["closed in a turn after"] < 2
    assert (report.ended, report.turns) == ("closed", 0)


def test_a_compaction_archives_the_conversation(played: Played) -> None:
    if played.agent != "claude":
        pytest.skip("one agent runs the hook in a single prompt")

    (document,) = played.facts["compacted"]
    assert "marker-one" in document and "marker-after-fork" in document


def test_the_shared_text_reaches_groups_but_not_main(played: Played) -> None:
    assert SHARED_RULE in _asked(played, "new")
    assert SHARED_RULE in _asked(played, "after resume")
    assert SHARED_RULE not in _asked(played, "main")


def test_sessions_of_the_groups_home_belong_to_it_and_its_skills_are_there(played: Played) -> None:
    groups = played.facts["groups"]

    assert groups[played.facts["first session"]] == "work"
    assert (played.folder / "store" / "groups" / "work" / f".{played.agent}" / "skills" / "recall").is_dir()


def test_a_fork_and_the_session_it_is_from_both_continue(played: Played) -> None:
    assert "marker-one" in _asked(played, "fork")
    assert "marker-four" in _asked(played, "after fork")
    assert "marker-fork" not in _asked(played, "after fork")
    assert played.reports["after fork"].session_uid == played.facts["first session"]


def test_going_back_drops_the_turn_that_is_named_and_is_refused_for_more(played: Played) -> None:
    if played.agent != "claude":
        pytest.skip("only Claude Code can go back to a message")

    assert "turn-one" in _asked(played, "without turn two") and "turn-two" not in _asked(played, "without turn two")
    assert played.facts["refusal"].startswith("The agent failed") and played.facts["unchanged"]
    assert "turn-one" in _asked(played, "forked at") and "turn-four" not in _asked(played, "forked at")
