"""Installing into an agent and out of it again: whatever happens in between, the user's settings survive.

The agent is a script that changes its settings as the real one does; the real ones are in `tests/agents`.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from recollect.cli import main

PROGRAM = """#!/usr/bin/env python3
import json, os, signal, sys
path = os.environ["CLAUDE_CONFIG_DIR"] + "/settings.json"
settings = json.load(open(path)) if os.path.exists(path) else {}
if sys.argv[1:3] == ["plugin", "install"]:
    settings["enabledPlugins"] = {"recollect@recollect-local": True}
elif sys.argv[1:3] == ["plugin", "uninstall"]:
    settings["enabledPlugins"] = {}
json.dump(settings, open(path, "w"), indent=2)
if os.path.exists(path + ".kill"):
    os.kill(os.getppid(), signal.SIGKILL)
if os.path.exists(path + ".fail"):
    sys.exit("no disk")
"""
MINE = '{"env": {"MINE":"kept"}}\n'


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file of an agent whose program is found."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    home = tmp_path / "agent home"
    home.mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home))
    (tmp_path / "store").mkdir(mode=0o700)
    path = home / "settings.json"
    path.write_text(MINE)
    return path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def change(settings: Path, **news: Any) -> None:
    settings.write_text(json.dumps(json.loads(settings.read_text()) | news))


def test_what_the_user_changed_after_an_earlier_installation_is_not_undone(settings: Path) -> None:
    invoke("install", "claude", "--yes")
    change(settings, theme="dark")
    invoke("uninstall", "--yes")
    before = settings.read_bytes()

    invoke("install", "claude", "--yes")
    invoke("uninstall", "--yes")

    assert settings.read_bytes() == before and b"dark" in before


def killed(settings: Path, *words: str) -> None:
    """Run a command that is killed once the agent's program has changed the settings."""
    kill = settings.with_name("settings.json.kill")
    kill.touch()
    if os.fork() == 0:
        invoke(*words, "--yes")
        os._exit(0)
    os.wait()
    kill.unlink()


def test_a_removal_that_was_killed_is_completed_by_the_next(settings: Path) -> None:
    invoke("install", "claude", "--yes")
    killed(settings, "uninstall")
    assert settings.read_text() != MINE

    invoke("uninstall", "--yes")

    assert settings.read_text() == MINE


def test_an_installation_that_was_killed_is_taken_back(settings: Path) -> None:
    killed(settings, "install", "claude")
    assert settings.read_text() != MINE

    invoke("uninstall", "--yes")

    assert settings.read_text() == MINE


def test_a_command_that_fails_leaves_nothing_installed(settings: Path) -> None:
    settings.with_name("settings.json.fail").touch()

    failed = invoke("install", "claude", "--yes")

    assert failed.exit_code == 1 and "no disk" in failed.output
    assert settings.read_text() == MINE and invoke("uninstall", "--yes").exit_code == 4


def test_hooks_are_taken_out_of_settings_that_changed_since(settings: Path) -> None:
    own = {"hooks": [{"type": "command", "command": "mine"}]}
    settings.write_text(json.dumps({"hooks": {"Stop": [own]}}))
    invoke("install", "claude", "--no-plugin", "--yes")
    change(settings, theme="dark")

    invoke("uninstall", "--yes")

    assert json.loads(settings.read_text()) == {"hooks": {"Stop": [own]}, "theme": "dark"}


def test_it_says_where_copies_are_and_what_comes_next(settings: Path) -> None:
    shown = invoke("install", "claude", "--yes").output

    assert f"change  {settings}" in shown and "settings.json.before-recollect" in shown
    assert "`recollect doctor`" in shown and settings.with_name("settings.json.before-recollect").read_text() == MINE


def test_without_the_agents_program_nothing_is_written(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (settings.parents[1] / "bin" / "claude").unlink()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    refused = invoke("install", "claude", "--yes")

    assert refused.exit_code == 4 and "Program not found: claude" in refused.output
    assert settings.read_text() == MINE and list((settings.parents[1] / "store").iterdir()) == []


def test_a_skill_is_yaml_and_says_all_of_what_it_asks(settings: Path) -> None:
    assert invoke("install", "claude", "--yes").exit_code == 0

    skills = sorted((settings.parents[1] / "store").rglob("SKILL.md"))
    for skill in skills:
        _, head, text = skill.read_text().split("---\n", 2)
        name, description = head.splitlines()
        assert name == f"name: {skill.parent.name}"
        assert json.loads(description.removeprefix("description: "))  # what JSON quotes, YAML reads
        assert "{" not in text and text.endswith(".\n") and "what the user asks about" not in text
    assert len(skills) == 2


def test_the_server_is_named_only_variables_that_can_be_set(settings: Path) -> None:
    assert invoke("install", "claude", "--yes").exit_code == 0

    plugin = settings.parents[1] / "store" / "plugin" / "recollect"
    names = json.loads((plugin / ".mcp.json").read_text())["mcpServers"]["recollect"]["env_vars"]
    assert all(name.isidentifier() for name in names) and "CLAUDE_CONFIG_DIR" in names
