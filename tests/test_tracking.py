"""Which projects are remembered: all but the denied ones, or only the allowed ones; settings of other trackers."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.api import Memory, open_memory
from recollect.cli.entry import main
from recollect.config import load_settings
from tests.builders import AGENT, Home, ScriptedAdapter, event


def run(*words: str) -> str:
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Sessions of two projects, and one that names no folder."""
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home = Home(tmp_path / "home")
    monkeypatch.setenv(ScriptedAdapter.home_variable, str(home.folder))
    home.write("a", SessionInfo("shop", cwd="/code/shop"), event("shop", 1, text="zebra in the shop"))
    home.write("b", SessionInfo("diary", cwd="/code/diary"), event("diary", 1, text="zebra in the diary"))
    home.write("c", event("nowhere", 1, text="zebra nowhere"))
    return home


def stored() -> set[str]:
    with open_memory() as memory:
        memory.sweep()
        return {session.native_session_id for session in memory.sessions()}


@pytest.mark.usefixtures("home")
def test_only_allowed_projects_are_stored_when_the_default_is_to_ask(tmp_path: Path) -> None:
    run("config", "capture.default", "ask")
    run("track", "allow", "/code/shop")

    assert stored() == {"shop"}
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert not any(b"diary" in path.read_bytes() and b"zebra in the diary" in path.read_bytes() for path in files)


@pytest.mark.usefixtures("home")
def test_projects_nobody_decided_about_are_counted_by_folder() -> None:
    run("config", "capture.default", "ask")
    swept = run("sweep")

    assert "Left out 3 unlisted sessions" in swept
    assert json.loads(run("track", "--json"))["undecided"] == {"/code/shop": 1, "/code/diary": 1, "": 1}


@pytest.mark.usefixtures("home")
def test_what_is_allowed_later_is_read_then() -> None:
    run("config", "capture.default", "ask")
    assert stored() == set()

    run("track", "allow", "/code/diary")

    assert stored() == {"diary"}
    assert "/code/diary" not in json.loads(run("track", "--json"))["undecided"]


@pytest.mark.usefixtures("home")
def test_a_denied_project_stays_out_and_is_allowed_again() -> None:
    run("track", "deny", "/code/diary")
    assert stored() == {"shop", "nowhere"}

    run("track", "allow", "/code/diary")

    assert load_settings().exclude == ()


@pytest.mark.usefixtures("home")
def test_nothing_is_read_and_nothing_is_lost_while_capture_is_off(memory: Memory) -> None:
    before = stored()
    run("config", "capture.enabled", "false")

    assert "capture.enabled true" in run("sweep")
    assert stored() == before == {"shop", "diary", "nowhere"}
    assert "switched off" in run("doctor")


def test_a_folder_of_logs_is_added_to_its_agent_and_removed_again(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    other.write("d", event("elsewhere", 1))
    os.environ.pop(ScriptedAdapter.home_variable)
    with open_memory() as memory:
        agent = memory.projects.add_logs(other.folder)
        roots = load_settings().roots[agent]

        memory.projects.remove_logs(other.folder)

    assert agent == AGENT
    assert other.folder in roots
    assert other.folder not in load_settings().roots[agent]


TRACKER = """
{
  "global": {"track_session_logs": true},
  "session_tracking": {  // what to keep
    "chunking": {"strategy": "exchange", "max_chunk_tokens": 700},
    "filtering": {"keep_tool_structure": false, "omit_tool_outputs": true, "max_output_summary_chars": 120},
    "indexing": {"frequency": "batch", "batch_interval_minutes": 7},
    "colour": "blue"
  },
  "projects": {
    "host__1": {"project_root": "/code/shop", "session_tracking": {"enabled": true}},
    "host__2": {"project_root": "/code//diary", "session_tracking_enabled": false}
  }
}
"""


def test_the_settings_of_another_tracker_are_taken_over_and_explained(tmp_path: Path) -> None:
    (tmp_path / "tracking-config.json").write_text(TRACKER)

    printed = run("config", "import", str(tmp_path / "tracking-config.json"))

    settings = load_settings()
    assert (settings.exchanges.max_tokens, settings.exchanges.max_result_chars) == (700, 120)
    assert settings.exchanges.keep_tool_calls is False
    assert settings.exclude == ("/code//diary",)
    assert settings.is_capturing
    assert "recollect watch --every 7" in printed
    assert "session_tracking.colour: unknown here: ignored" in printed


def test_a_project_that_is_switched_on_is_remembered_though_all_others_are_not(tmp_path: Path) -> None:
    tracker = {
        "version": "2.0",
        "session_tracking": {
            "enabled": False,
            "filtering": {"keep_user_messages": False, "omit_tool_outputs": False},
        },
        "projects": {"hostname__abc123": {"project_root": "/x/shop", "session_tracking_enabled": True, "mode": "off"}},
    }
    (tmp_path / "t.json").write_text(json.dumps(tracker))

    printed = run("config", "import", str(tmp_path / "t.json"))

    settings = load_settings()
    assert (settings.is_capturing, settings.allow) == (True, ("/x/shop",))
    assert "keep_user_messages: not followed" in printed
    assert "omit_tool_outputs: not followed" in printed
    assert "mode are the same for all projects" in printed
    assert "unknown" not in printed


@pytest.mark.parametrize("text", ["", "[]", "{", '{"global": {"track_session_logs": "maybe"}}'])
def test_a_file_that_is_none_changes_nothing_and_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tracking-config.json"
    path.write_text(text)

    result = CliRunner().invoke(main, ["config", "import", str(path)])

    assert result.exit_code == 1
    assert "Error:" in result.output
    assert load_settings().given == {}
