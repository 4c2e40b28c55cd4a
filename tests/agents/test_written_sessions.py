"""Sessions that Recollect wrote are gone on with by the real agents: what they send to their model has the history."""

import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from recollect.agents.claude.native import NativeHome, encode_path
from recollect.api import open_memory
from recollect.model.schema import USER_MSG, Session
from tests.agents.conftest import CRASH, FIX
from tests.agents.desk import Desk, opened_desk
from tests.conftest import with_key

AGENTS = ("claude", "codex", "grok")

HELLO_AGAIN = "Please say hello again"
FOUND = "used `-` instead of `+`"  # in what the scripted model says at the end of its work


@dataclass(frozen=True)
class Watched:
    """A store that has seen one session of every agent: each fixed the failing test."""

    store: Path
    sessions: dict[str, Session]


@pytest.fixture(scope="module")
def watched(desk: Desk) -> Watched:
    folder = with_key(desk.folder / "store")
    with open_memory(folder, [desk.root(agent) for agent in AGENTS]) as memory:
        for agent in AGENTS:
            subprocess.run(["git", "checkout", "-q", "calc.py"], cwd=desk.project, check=True)
            desk.run(agent, desk.real(agent).ask, FIX, str(uuid.uuid4()))
        assert memory.sweep().failures == []
        sessions = memory.sessions(roots_only=True)
        return Watched(folder, {session.agent: session for session in sessions if session.sources})


def _recollect(desk: Desk, watched: Watched, *words: str) -> subprocess.CompletedProcess[str]:
    homes = {"CLAUDE_CONFIG_DIR": ".claude", "CODEX_HOME": ".codex", "GROK_HOME": ".grok"}
    environment = {**desk.environment, "RECOLLECT_HOME": str(watched.store)}
    environment |= {variable: str(desk.home / name) for variable, name in homes.items()}
    command = [sys.executable, "-m", "recollect", *words]
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("agent", AGENTS)
def test_a_deleted_transcript_is_rebuilt_and_the_agent_goes_on(desk: Desk, watched: Watched, agent: str) -> None:
    session = watched.sessions[agent]
    for path in (Path(source.path) for source in session.sources):
        if path.parent.name == session.native_session_id:  # the agent gives every session a folder
            shutil.rmtree(path.parent, ignore_errors=True)
        else:
            path.unlink()
    with open_memory(watched.store) as memory:
        before = memory.events(session, with_copies=True)

    refused = _recollect(desk, watched, "resume", session.native_session_id)
    done = _recollect(desk, watched, "resume", session.native_session_id, "--yes")
    desk.run(agent, desk.real(agent).resume, HELLO_AGAIN, session.native_session_id)

    assert refused.returncode == 1
    assert "Refusing to write" in refused.stderr
    assert done.returncode == 0, done.stderr
    assert f"new file: {session.sources[0].path}" in done.stderr
    request = desk.last_request(HELLO_AGAIN)
    assert FIX in request
    assert FOUND in request
    assert "test_add" in request  # in the output of the tests that failed
    with open_memory(watched.store, [desk.root(agent)]) as memory:
        memory.sweep()
        after = memory.events(session, with_copies=True)
    known = {event.event_uid for event in before}
    added = [event.summary for event in after if event.event_uid not in known and event.kind == USER_MSG]
    assert known <= {event.event_uid for event in after}
    assert added == [HELLO_AGAIN]  # and nothing of what was written from the store


def _rewritten(desk: Desk, agent: str, store: Path, change: Callable[[str], str]) -> tuple[str, Path]:
    """A new session of an agent as another program would have written it, read and then deleted."""
    before = set((desk.home / f".{agent}").rglob("*.jsonl"))
    desk.run(agent, desk.real(agent).ask, CRASH, str(uuid.uuid4()))
    (log,) = (
        path for path in (desk.home / f".{agent}").rglob("*.jsonl") if path not in before and CRASH in path.read_text()
    )
    log.write_text(change(log.read_text()))
    with open_memory(store, [desk.root(agent)]) as memory:
        memory.sweep()
        session = next(one for one in memory.sessions() if str(log) in {source.path for source in one.sources})
    log.unlink()
    return session.native_session_id, log


def test_claude_code_goes_on_from_prompts_named_after_their_request(desk: Desk, tmp_path: Path) -> None:
    store = with_key(tmp_path / "store")
    prompt = re.compile(r'"type":"user","message":{"role":"user","content":"Please.*?"uuid":"([^"]+)"')

    def named_after_its_request(log: str) -> str:
        (name,) = prompt.findall(log)
        return log.replace(name, f"request_{name}")

    native_id, log = _rewritten(desk, "claude", store, named_after_its_request)

    done = _recollect(desk, Watched(store, {}), "resume", native_id, "--yes")
    desk.run("claude", desk.real("claude").resume, HELLO_AGAIN, native_id)

    assert done.returncode == 0, done.stderr
    assert "request_" in log.read_text()
    assert CRASH in desk.last_request(HELLO_AGAIN)


def test_codex_gets_back_what_an_editor_put_before_a_request(desk: Desk, tmp_path: Path) -> None:
    store = with_key(tmp_path / "store")
    context = r"# Context from my IDE setup:\n\n## Active file: calc.py\n\n## My request for Codex:\n"
    native_id, _ = _rewritten(desk, "codex", store, lambda text: text.replace(f'"{CRASH}"', f'"{context}{CRASH}"'))

    done = _recollect(desk, Watched(store, {}), "resume", native_id, "--yes")
    desk.run("codex", desk.real("codex").resume, HELLO_AGAIN, native_id)

    assert done.returncode == 0, done.stderr
    assert "## Active file: calc.py" in desk.last_request(HELLO_AGAIN)
    assert CRASH in desk.last_request(HELLO_AGAIN)


@pytest.mark.parametrize("agent", ["codex", "grok"])
def test_a_session_of_another_agent_is_handed_to_claude_code(desk: Desk, watched: Watched, agent: str) -> None:
    session = watched.sessions[agent]

    done = _recollect(desk, watched, "handoff", session.native_session_id, "--to", "claude", "--yes")
    told = re.search(r"claude --resume (\S+)", done.stdout)
    assert told is not None, done.stderr
    desk.run("claude", desk.real("claude").resume, HELLO_AGAIN, told[1])

    request = desk.last_request(HELLO_AGAIN)
    assert "handed over by Recollect" in request
    assert FIX in request
    assert FOUND in request
    assert "python -m pytest -q" in request


def test_other_agents_are_handed_a_brief(desk: Desk, watched: Watched) -> None:
    session = watched.sessions["codex"]

    done = _recollect(desk, watched, "handoff", session.native_session_id, "--to", "grok")

    assert done.returncode == 0, done.stderr
    assert f'grok "$(recollect digest {session.native_session_id} --for-agent)"' in done.stdout


@pytest.fixture(scope="module")
def desk(agents_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with opened_desk(tmp_path_factory.mktemp("desk"), agents_folder) as desk:
        yield desk


def test_a_session_of_the_native_library_is_resumed_by_claude_code(desk: Desk) -> None:
    session = NativeHome(desk.home / ".claude").create(desk.project)
    call = {"type": "tool_use", "id": "toolu_01abcdefghijklmnopqrstuv", "name": "Bash", "input": {"command": "echo x"}}
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "the output of that day"}
    for message in (
        {"role": "user", "content": "Remember the heron by the pond"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look for the heron."}, call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "The heron is grey."},
    ):
        session.append_message(message, cwd=str(desk.project), version="2.1.325")

    desk.run("claude", desk.real("claude").resume, HELLO_AGAIN, session.session_id)

    request = desk.last_request(HELLO_AGAIN)
    for text in ("the heron by the pond", "I look for the heron", "the output of that day", "The heron is grey"):
        assert text in request
    assert len(session.messages()) > 4  # Claude Code went on in the same file
    assert session.live_branch()[0]["message"]["content"] == "Remember the heron by the pond"


def test_a_fork_at_a_message_goes_on_without_what_came_after(desk: Desk) -> None:
    session = NativeHome(desk.home / ".claude").create(desk.project)
    for role, text in (("user", "Count the larks"), ("assistant", "Three larks."), ("user", "Count the rooks")):
        session.append_message({"role": role, "content": text}, cwd=str(desk.project), version="2.1.325")

    fork = session.fork(session.entries()[1]["uuid"])
    desk.run("claude", desk.real("claude").resume, HELLO_AGAIN, fork.session_id)

    request = desk.last_request(HELLO_AGAIN)
    assert "Three larks." in request
    assert "Count the rooks" not in request


def test_claude_code_names_a_long_folder_as_the_library_does(desk: Desk, tmp_path: Path) -> None:
    folder = tmp_path.joinpath("größe_🧠", *["abcdefghij.klm"] * 16)
    folder.mkdir(parents=True)

    printed = desk.run("claude", desk.real("claude").ask[:-2], HELLO_AGAIN, cwd=folder)

    told = re.search(desk.real("claude").tells_session, printed)
    assert told is not None
    path = desk.home / ".claude" / "projects" / encode_path(str(folder.resolve())) / f"{told[1]}.jsonl"
    assert path.is_file()
