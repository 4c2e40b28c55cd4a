"""What a session did is stored when it stops, by one detached sweep of its file."""

import fcntl
import json
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from recollect.api import open_memory
from recollect.cli import main
from recollect.store import read_sweep_state
from tests.hooks.conftest import SESSION, Desk


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stored(desk: Desk, session: str = SESSION) -> int:
    """How many events of a session are stored."""
    with open_memory(desk.store) as memory:
        return sum(len(memory.events(found)) for found in memory.sessions() if found.native_session_id == session)


def notes(desk: Desk) -> list[str]:
    return [path.name for path in (desk.store / "spool").glob("*.json")]


@pytest.fixture
def worked(desk: Desk) -> Desk:
    """A desk at which a session was swept before it went on."""
    desk.write(SESSION, "feed the walrus")
    desk.sweep()
    desk.write(SESSION, "feed the walrus", "feed the seal")
    return desk


@pytest.mark.parametrize("event", ["Stop", "SessionEnd"])
def test_the_end_of_a_turn_or_session_brings_it_into_the_store(worked: Desk, event: str) -> None:
    before = stored(worked)

    assert worked.hook(event, transcript_path=str(worked.transcript(SESSION))) == ""

    wait_for(lambda: stored(worked) > before and not notes(worked))
    assert not read_sweep_state(worked.store).is_interrupted


def test_before_a_compaction_everything_is_stored_when_the_hook_returns(worked: Desk) -> None:
    path = worked.transcript(SESSION)
    before = stored(worked)

    worked.hook("PreCompact", transcript_path=str(path))
    path.write_bytes(b"")  # as if the agent began its log anew

    assert stored(worked) == before + 2


def test_the_same_event_is_noted_once(worked: Desk) -> None:
    (worked.store / "spool").mkdir()
    with (worked.store / "spool" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # no sweep takes the notes
        for _ in range(3):
            worked.hook("Stop", transcript_path=str(worked.transcript(SESSION)), prompt_id="one")
        worked.hook("Stop", transcript_path=str(worked.transcript(SESSION)), prompt_id="two")

        assert len(notes(worked)) == 2
        written = json.loads((worked.store / "spool" / sorted(notes(worked))[0]).read_text())
        assert set(written) == {"agent", "session", "path", "event", "at_ms"}


def test_the_log_lists_what_was_told(worked: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    worked.added("SessionStart", source="startup")
    monkeypatch.setenv("RECOLLECT_HOME", str(worked.store))

    told = json.loads(CliRunner().invoke(main, ["hooks", "log", "--json"]).stdout)

    assert [(item["agent"], item["session"], item["event"]) for item in told] == [("claude", SESSION, "SessionStart")]
    assert "walrus" in told[0]["text"]
