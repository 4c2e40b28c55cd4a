"""What a session did is stored when it stops, by one detached sweep of its file."""

import fcntl
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from recollect.api import open_memory
from recollect.cli import main
from recollect.store import read_sweep_state
from tests.conftest import REPOSITORY
from tests.hooks.conftest import SESSION, Desk

GROK_HOME = REPOSITORY / "tests" / "data" / "grok" / "1.0.41"
GROK_SESSION = "01a1e08d-8906-7563-9cfd-ced0b1b56674"
OTHER = "5f0c2f6e-0000-4000-8000-000000000009"
SECRET = "ghp_" + "a1B2c3D4e5F6" * 3


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stored(desk: Desk, session: str = SESSION, group: str | None = None) -> int:
    """How many events of a session are stored, as a group sees it."""
    with open_memory(desk.store, group=group) as memory:
        return sum(len(memory.events(found)) for found in memory.sessions() if found.native_session_id == session)


def notes(desk: Desk) -> list[str]:
    return [path.name for path in (desk.store / "spool").glob("*.json")]


@contextmanager
def _held(desk: Desk) -> Iterator[None]:
    """Keep the sweep that a hook starts from its work."""
    (desk.store / "spool").mkdir(exist_ok=True)
    with (desk.store / "spool" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def worked(desk: Desk) -> Desk:
    """A desk at which a session was swept before it went on."""
    desk.write(SESSION, "feed the walrus")
    desk.sweep()
    desk.write(SESSION, "feed the walrus", "feed the seal")
    return desk


@pytest.mark.parametrize("group", ["main", "family"])
@pytest.mark.parametrize("event", ["Stop", "SessionEnd"])
def test_the_end_of_a_turn_or_session_brings_it_into_the_store(
    worked: Desk, event: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored(worked)
    with open_memory(worked.store) as memory:
        memory.groups.add("family", worked.project)
    monkeypatch.setattr(Desk, "environment", worked.environment | {"RECOLLECT_GROUP": group})

    assert worked.hook(event, transcript_path=str(worked.transcript(SESSION))) == ""

    wait_for(lambda: stored(worked) > before and not notes(worked))
    assert not read_sweep_state(worked.store).is_interrupted


def test_the_logs_of_sub_agents_come_with_the_session(worked: Desk) -> None:
    log = worked.transcript(SESSION)
    written = log.read_bytes()
    folder = log.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    worked.write(SESSION, "count the fish").rename(folder / "agent-a1b2c3.jsonl")
    log.write_bytes(written)

    worked.hook("Stop", transcript_path=str(log))

    wait_for(lambda: stored(worked, f"{SESSION}/a1b2c3") > 0)


def test_a_session_whose_folder_is_in_another_file_is_stored_with_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = desk.folder / "grok"
    monkeypatch.setattr(Desk, "environment", desk.environment | {"GROK_HOME": str(home)})
    desk.sweep()
    shutil.copytree(GROK_HOME, home, copy_function=shutil.copyfile)
    (log,) = home.rglob(f"{GROK_SESSION}/updates.jsonl")

    desk.hook("Stop", agent="grok", session=GROK_SESSION, transcript_path=str(log))

    wait_for(lambda: stored(desk, GROK_SESSION) > 0 and not notes(desk))
    with open_memory(desk.store) as memory:
        assert memory.session(GROK_SESSION).cwd  # which only `summary.json` knows


@pytest.mark.parametrize("is_known", [True, False])
def test_a_log_cut_off_right_after_the_hook_still_gives_a_whole_archive(desk: Desk, is_known: bool) -> None:
    texts = ["feed the walrus", f"feed the seal, its tag is {SECRET}", "feed the penguin"]
    desk.write(OTHER, "count the fish")
    path = desk.write(SESSION, *texts[:1]) if is_known else desk.transcript(SESSION)
    desk.sweep()
    path = desk.write(SESSION, *texts)

    with _held(desk):  # no sweep reads it before it is gone
        desk.hook("PreCompact", transcript_path=str(path))
        path.write_bytes(b"")  # as if the agent began its log anew
        copied = b"".join(file.read_bytes() for file in (desk.store / "rescued").rglob("*") if file.is_file())
    desk.sweep()

    assert b"penguin" in copied and SECRET.encode() not in copied
    with open_memory(desk.store) as memory:
        archive = memory.archives.render(memory.session(SESSION))
    assert [text.partition(",")[0] in archive for text in texts] == [True] * 3
    assert not (desk.store / "rescued").exists()


def test_a_log_that_is_still_whole_is_read_itself_and_its_copy_dropped(worked: Desk) -> None:
    path = worked.transcript(SESSION)
    with _held(worked):
        worked.hook("PreCompact", transcript_path=str(path))
        assert list((worked.store / "rescued").iterdir())
    before = stored(worked)

    worked.sweep()

    assert stored(worked) == before + 2
    assert not (worked.store / "rescued").exists()


def test_a_log_without_news_is_not_copied(worked: Desk) -> None:
    worked.sweep()

    worked.hook("PreCompact", transcript_path=str(worked.transcript(SESSION)))

    assert not (worked.store / "rescued").exists()


def test_what_was_copied_of_a_forgotten_session_goes_with_it(worked: Desk) -> None:
    with _held(worked):
        worked.hook("PreCompact", transcript_path=str(worked.transcript(SESSION)))
        with open_memory(worked.store) as memory:
            memory.forget(memory.plan_forgetting(SESSION))
    worked.transcript(SESSION).unlink()
    worked.sweep()

    files = [path for path in worked.store.rglob("*") if path.is_file()]
    assert not [path for path in files if b"feed the seal" in path.read_bytes()]


def test_the_same_event_is_noted_once(worked: Desk) -> None:
    with _held(worked):
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
