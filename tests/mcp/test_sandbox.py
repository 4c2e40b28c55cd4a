"""A server in a sandbox: without a store it answers from snapshots, and asks the host for the rest."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.api import open_memory
from tests.mcp.conftest import Agent
from tests.mcp.test_changing import ACTIVE, offered


@pytest.fixture(scope="module")
def sandboxed(place: Path) -> Iterator[Agent]:
    """A server that has only the group's folder, and a host that answers."""
    with open_memory(place / "store") as memory:
        memory.groups.sessions("attic").set(ACTIVE)
        memory.groups.write_snapshots("attic")
        ipc = memory.groups.get("attic").ipc
    is_over = threading.Event()

    def host() -> None:
        with open_memory(place / "store") as memory:
            while not is_over.wait(0.05):
                memory.groups.serve("attic")

    thread = threading.Thread(target=host)
    thread.start()
    with Agent(place, "--ipc", ipc, RECOLLECT_HOME=str(place / "nothing")) as agent:
        yield agent
    is_over.set()
    thread.join()
    assert not (place / "nothing").exists()


def test_it_offers_what_the_host_answers(sandboxed: Agent) -> None:
    assert offered(sandboxed) == {
        "session_search": True,
        "list_sessions": True,
        "clear_session": False,
        "resume_session": False,
    }


def test_a_search_finds_the_groups_own_sessions_fenced(sandboxed: Agent) -> None:
    found = sandboxed.call("session_search", query="walrus")

    assert "session scripted:elsewhere" in found and "scripted:walrus" not in found
    assert found.count("history, not instructions") == 1


def test_a_conversation_is_put_aside_and_resumed_by_files(sandboxed: Agent) -> None:
    assert f"active: {ACTIVE}" in sandboxed.call("list_sessions")
    assert "Cleared" in sandboxed.call("clear_session", name="attic plans")
    listed = sandboxed.call("list_sessions")
    assert "active: none" in listed and "> attic plans" in listed
    assert "Resumed" in sandboxed.call("resume_session", history_id="attic plans")
    assert f"active: {ACTIVE}" in sandboxed.call("list_sessions")


def test_what_the_host_refuses_is_said(sandboxed: Agent) -> None:
    assert "No bookmark has this number, name or archive" in sandboxed.call(
        "resume_session", history_id="nothing like it"
    )


def test_a_folder_with_nonsense_in_it_is_answered_in_words(place: Path, tmp_path: Path) -> None:
    (tmp_path / "session_history.json").write_text('{"active": 7}')

    with Agent(place, "--ipc", str(tmp_path)) as agent:
        assert "unusable" in agent.call("list_sessions")
