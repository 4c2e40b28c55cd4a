"""What an agent finds in the home and the folder of its group before its first prompt."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect import HomeSettings, Prompting
from recollect.api import Memory, open_memory
from tests.conftest import with_key


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """A store with the group `work`, and the agent on the PATH."""
    program = tmp_path / "bin" / "claude"
    for folder in (program.parent, tmp_path / "work"):
        folder.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {Path(__file__).with_name("stand_in.py")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    with open_memory(with_key(tmp_path / "store"), [f"claude={tmp_path / 'nobody'}"]) as opened:
        opened.groups.add("work", tmp_path / "work")
        yield opened


def test_a_new_home_has_the_settings_that_were_asked_for_and_keeps_them(memory: Memory, tmp_path: Path) -> None:
    asked = HomeSettings(agent_teams=True, directories=(str(tmp_path / "more"),), auto_memory=False)

    memory.groups.run("hello", "work", Prompting(settings=asked))
    memory.groups.run("again", "work")

    home = tmp_path / "store" / "groups" / "work" / ".claude"
    settings = json.loads((home / "settings.json").read_text())
    assert settings["env"] == {"CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS": "1"}
    assert settings["permissions"] == {"additionalDirectories": [str(tmp_path / "more")]}
    assert settings["autoMemoryEnabled"] is False


def test_the_groups_instructions_say_where_past_conversations_are(memory: Memory) -> None:
    path, text = memory.groups.paragraph("work")

    assert path.name == "CLAUDE.md"
    assert "`conversations/` has past conversations" in text


def test_another_paragraph_of_the_instructions_stays_and_ours_is_there_once(memory: Memory) -> None:
    path, text = memory.groups.paragraph("work")
    path.write_text(f"Be brief.\n\n{text}")

    _, again = memory.groups.paragraph("work")

    assert again.startswith("Be brief.\n")
    assert again.count("## Past conversations") == 1
