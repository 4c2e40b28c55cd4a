"""Lists, messages and forks are those of the official Claude Agent SDK, on every genuine file."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from recollect.agents.claude.native import Entry, NativeHome, NativeSession
from tests.agents.sdk import load_sdk
from tests.conftest import SHARED, needs_shared

pytestmark = needs_shared

HOMES = sorted((SHARED / "genuine").glob("claude-*/.claude"))


@pytest.fixture(scope="module")
def sdk() -> ModuleType:
    return load_sdk()


@pytest.fixture(params=HOMES, ids=lambda home: home.parent.name)
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NativeHome:
    """A copy of a genuine home, which the SDK looks at too: forks are written into it."""
    copy = tmp_path / "home"
    shutil.copytree(request.param / "projects", copy / "projects")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(copy))
    return NativeHome(copy)


def _sessions(home: NativeHome) -> list[NativeSession]:
    return [home.session(summary.session_id) for summary in home.sessions()]


def test_lists_are_equal(home: NativeHome, sdk: ModuleType) -> None:
    ours = [
        (s.session_id, s.summary, s.custom_title, s.first_prompt, s.last_modified_ms, s.created_ms, s.bytes, s.cwd)
        for s in home.sessions()
    ]
    theirs = [
        (s.session_id, s.summary, s.custom_title, s.first_prompt, s.last_modified, s.created_at, s.file_size, s.cwd)
        for s in sdk.list_sessions()
    ]

    assert ours
    assert sorted(ours) == sorted(theirs)
    assert {(s.session_id, s.git_branch, s.tag) for s in home.sessions()} == {
        (s.session_id, s.git_branch, s.tag) for s in sdk.list_sessions()
    }


def test_messages_are_equal_those_of_sub_agents_too(home: NativeHome, sdk: ModuleType) -> None:
    for session in _sessions(home):
        theirs = sdk.get_session_messages(session.session_id)
        assert _ours(session.visible()) == [(m.type, m.uuid, m.session_id, m.message) for m in theirs]
        for agent_id in sdk.list_subagents(session.session_id):
            theirs = sdk.get_subagent_messages(session.session_id, agent_id)
            ours = _ours(next(sub for sub in session.sub_agents() if sub.agent_id == agent_id).visible())
            assert ours == [(m.type, m.uuid, m.session_id, m.message) for m in theirs]


def _ours(entries: list[Entry]) -> list[Any]:
    return [(entry["type"], entry["uuid"], entry.get("sessionId", ""), entry.get("message")) for entry in entries]


@pytest.mark.parametrize("choose", [lambda uuids: None, lambda uuids: uuids[len(uuids) // 2]], ids=["whole", "half"])
def test_forks_are_equal(home: NativeHome, sdk: ModuleType, choose: Callable[[list[str]], str | None]) -> None:
    for session in _sessions(home):
        at = choose([entry["uuid"] for entry in session.visible()])

        if "\u2028" in session.path.read_text():
            continue  # the SDK splits lines there, and loses the entry

        theirs = sdk.fork_session(session.session_id, up_to_message_id=at).session_id
        ours = session.fork(at)

        assert _comparable(ours.entries()) == _comparable(home.session(theirs).entries())


def _comparable(entries: list[Entry]) -> list[Entry]:
    """Entries with the ids that a fork made up replaced by those of the originals."""
    names = {entry["uuid"]: (entry.get("forkedFrom") or {}).get("messageUuid") for entry in entries}
    last = [entry for entry in entries if "forkedFrom" in entry][-1]
    return [
        {
            **entry,
            **{key: names.get(entry[key]) for key in ("uuid", "parentUuid", "logicalParentUuid") if key in entry},
            "sessionId": None,
            **({"timestamp": None} if entry is last or "forkedFrom" not in entry else {}),
        }
        for entry in entries
    ]
