"""All code in the docs runs as it is printed: each block alone, in a folder that has what its page speaks of.

Commands of docs/daily-use.md have a test of their own, which compares all that they print.
"""

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from recollect.api import open_memory
from recollect.config import load_settings
from recollect.live import Backfill, Live
from tests.agents.sdk import load_sdk
from tests.conftest import REPOSITORY, with_key
from tests.logs import CLAUDE, claude_answer, claude_user, lines

SAMPLES = REPOSITORY / "src" / "recollect" / "samples"
PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
_GENERATED = re.compile(r"<!-- \[\[\[cog.*?\[\[\[end\]\]\]", re.DOTALL)  # signatures
_BLOCKS = [
    pytest.param(page, code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(
        re.findall(r"^```python\n(.*?)^```", _GENERATED.sub("", page.read_text()), re.M | re.S)
    )
]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the bundled sessions in its store, a photo, and an agent that answers a group."""
    programs, home = tmp_path / "bin", tmp_path / "home"
    for folder in (programs, home / "uploads", home / "family"):
        folder.mkdir(parents=True)
    (home / "uploads" / "ticket.png").write_bytes(b"a ticket")
    stand_in = REPOSITORY / "tests" / "groups" / "stand_in.py"
    (programs / "claude").write_text(f'#!/bin/sh\nexec {sys.executable} -S {stand_in} "$@"\n')
    (programs / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    roots = [f"{path.name}={path}" for path in SAMPLES.iterdir() if path.is_dir()]
    with open_memory(with_key(tmp_path / "store"), roots) as memory:  # which RECOLLECT_HOME is in tests
        memory.sweep()
    return home


def test_there_is_code_on_every_page_for_programs() -> None:
    pages = {param.id.rpartition("-")[0] for param in _BLOCKS}

    assert pages >= {
        "README",
        "library",
        "agent-hosts",
        "native",
        "archives",
        "forgetting",
        "handover",
        "search",
        "groups",
    }


@pytest.mark.parametrize(("page", "code"), _BLOCKS)
def test_code_of_the_docs_runs_as_printed(prepared: Path, page: Path, code: str) -> None:
    if "claude_agent_sdk" in code:
        load_sdk()

    with redirect_stdout(StringIO()):
        exec(compile(code, str(page), "exec"), {"__name__": "docs"})


def _blocks(language: str) -> list[tuple[str, str]]:
    blocks = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [(page.stem, code) for page in PAGES for code in blocks.findall(page.read_text())]


@pytest.mark.parametrize(("page", "code"), [block for block in _blocks("toml") if block[0] != "adding-an-agent"])
def test_settings_of_the_docs_are_valid(tmp_path: Path, page: str, code: str) -> None:
    (tmp_path / "config.toml").write_text(code)

    load_settings(environment={"RECOLLECT_HOME": str(tmp_path)})


@pytest.mark.parametrize(("page", "code"), _blocks("json"))
def test_every_line_of_json_in_the_docs_can_be_read(page: str, code: str) -> None:
    lines = [code] if code.startswith('{"hooks"') else code.splitlines()  # settings are one document

    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_the_lines_that_a_host_may_write_are_imported(tmp_path: Path) -> None:
    (code,) = [code for page, code in _blocks("json") if page == "agent-hosts"]
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "telegram%3A42.jsonl").write_text(code)

    with open_memory(with_key(tmp_path / "store")) as memory:
        report = Backfill(Live(memory)).run(tmp_path / "files")

    assert (report.messages_new, report.skipped) == (1, [])


_CONSOLE = [pytest.param(page, code, id=page) for page, code in _blocks("console") if page != "daily-use"]
_TALK = "5fac35d1-9b1e-4c39-a3b5-5f2f0fbd8b3e"  # the session that docs/handover.md continues


@pytest.fixture
def at_home(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, with a deleted session that named two secrets, an error that was fixed, and a host's files."""
    home, data = prepared / ".claude", REPOSITORY / "tests" / "data"
    for variable, agent in (("CLAUDE_CONFIG_DIR", "claude"), ("CODEX_HOME", "codex"), ("GROK_HOME", "grok")):
        monkeypatch.setenv(variable, str(prepared / f".{agent}"))
    said = [
        (claude_user, "The password is password=Xk29-fuse-Lamp!7 and the key AKIAQ3EGT5IY7LKWN2PX"),
        (claude_answer, "Noted."),
    ]
    records = [speaker(_TALK, number, text) for number, (speaker, text) in enumerate(said, start=1)]
    path = CLAUDE.write(home, lines(record | {"cwd": "/home/devbox/shop"} for record in records), _TALK)
    (prepared / ".my-host" / "sessions").mkdir(parents=True)
    (prepared / ".my-host" / "sessions" / "cli%3A1.jsonl").write_text('{"role": "user", "content": "hello"}\n')
    versions = [f"{folder.parent.name}={folder}" for folder in data.glob("[cg]*/*") if folder.is_dir()]
    with open_memory(prepared.parent / "store", [f"claude={home}", *versions]) as memory:
        memory.sweep()
    path.unlink()
    unread = "11111111-0000-4000-8000-000000000002"
    CLAUDE.write(home, lines([claude_user(unread, 1, "Please add a multiply function")]), unread)
    (home / "settings.json").write_text("{}")
    return prepared


def _run(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command line as a person does: at a terminal on which `y` is typed."""
    keyboard, terminal = pty.openpty()
    os.write(keyboard, b"y\n")
    bash = ["bash", "-c", f'recollect() {{ {sys.executable} -m recollect "$@"; }}; {command}']
    try:
        return subprocess.run(
            bash, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
        )
    finally:
        os.close(keyboard)
        os.close(terminal)


@pytest.mark.parametrize(("page", "code"), _CONSOLE)
def test_commands_of_the_docs_run_as_printed(at_home: Path, page: str, code: str) -> None:
    for command, shown in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", code, re.MULTILINE):
        done = _run(command)

        assert done.returncode == 0, done.stdout
        # What differs from store to store has digits in it.
        first_words = {line.split()[0] for line in shown.splitlines() if line.strip()} - {"…"}
        steady = {word for word in first_words if not re.search(r"\d", word)}
        assert {word for word in steady if word not in done.stdout} == set(), done.stdout
