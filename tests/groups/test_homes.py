"""A command that continues a session names the home that the session is in, in every interface, and runs with it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recollect.agents import get_adapter
from recollect.api import Memory, open_memory
from recollect.mcp.door import Door, Scope
from recollect.model.schema import to_json
from tests import logs
from tests.conftest import with_key

AGENTS = {log.agent: log for log in logs.AGENT_LOGS}
SESSION = logs.session_id(1)


@pytest.fixture(params=sorted(AGENTS))
def memory(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session in the group's home."""
    log, store = AGENTS[request.param], with_key(tmp_path / "store")
    monkeypatch.setenv("RECOLLECT_HOME", str(store))
    monkeypatch.setenv("HOME", str(tmp_path))
    (work := tmp_path / "work").mkdir()
    with open_memory(store) as memory:
        home = memory.groups.add("fam", work, agent=log.agent).home
        content = log.content(3, SESSION, "everybodysays").replace(b"/home/devbox/proj/calc-demo", os.fsencode(work))
        log.write(Path(home), content, SESSION)
        memory.sweep()
        memory.groups.sessions("fam").set(f"{log.agent}:{SESSION}")
        yield memory


def _expected(memory: Memory) -> str:
    (session,) = memory.sessions()
    home = memory.groups.get("fam").home
    return f"{get_adapter(session.agent).home_variable}={shlex.quote(home)} {session.agent} "


def _recollect(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "recollect", *words], capture_output=True, text=True, check=True)
    return done.stdout


def _call(tool: str, **arguments: Any) -> tuple[str, bool]:
    return Door(Scope(Path("/"), group="fam", has_wall=True)).call(tool, arguments, {})


def test_the_library_the_command_line_and_mcp_name_the_home(memory: Memory) -> None:
    session, expected = memory.session(SESSION), _expected(memory)
    (hit,) = memory.search("everybodysays")
    (entry,) = memory.timeline()

    commands = [session.resume_command, hit.resume_command, entry.resume_command, memory.groups.fork(session).command]
    commands += [hit.to_json()["resume_command"], to_json(session)["resume_command"]]
    typed = (
        ["resume", SESSION],
        ["resume", SESSION, "--json"],
        ["resume", "--fork", SESSION],
        ["search", "everybodysays", "--json"],
    )
    text, _ = _call("list_sessions")

    assert all((command or "").startswith(expected) for command in commands), commands
    assert all(expected in _recollect(*words) for words in typed)
    assert expected in text


def test_a_usual_home_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", _PRINT.format(home=tmp_path, session=SESSION)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["claude", "--resume", SESSION]


_PRINT = """
from recollect.agents import resume_command
print(resume_command("claude", "{session}", "{home}/.claude/projects/-x/{session}.jsonl"))
"""


@pytest.mark.parametrize("target", ["the session", "the archive", "the bookmark"])
def test_run_starts_the_agent_with_the_home(memory: Memory, tmp_path: Path, target: str) -> None:
    """One command goes back to an archived conversation, from anywhere."""
    (session,) = memory.sessions()
    program, variable = tmp_path / "bin" / session.agent, get_adapter(session.agent).home_variable
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "home=${variable} group=$RECOLLECT_GROUP args=$*"\n')
    program.chmod(0o755)
    cleared = memory.groups.clear("tax research", "fam")
    names = {"the session": [SESSION], "the archive": [Path(cleared.archive or "").name]}
    words = names.get(target, ["tax research", "--group", "fam"])
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}

    line = [sys.executable, "-m", "recollect", "resume", *words, "--run"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)

    said = next(line for line in done.stdout.splitlines() if line.startswith("home="))
    assert said.split()[0] == f"home={memory.groups.get('fam').home}"
    assert SESSION in said
    assert ("group=fam" in said) == (target == "the bookmark")


def test_a_bookmark_s_number_may_be_a_number_over_mcp(memory: Memory) -> None:
    mark = memory.groups.clear("tax research", "fam").bookmark

    text, is_error = Door(Scope(Path("/"), group="fam", has_wall=True)).call(
        "resume_session", {"history_id": mark.id}, {}
    )

    assert not is_error, text
    assert memory.groups.sessions("fam").get() == mark.session_uid
