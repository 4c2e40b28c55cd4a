"""The watcher sweeps what agents write as they write it, and keeps on through whatever goes wrong meanwhile."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recollect import api, watch
from recollect.agents import adapters
from recollect.api import Memory, open_memory
from recollect.model.errors import Busy
from recollect.store import sweep_lock
from recollect.watch import Attempt
from tests.builders import AGENT, Home, ScriptedAdapter, event
from tests.logs import claude_user, lines, session_id

PATIENCE_S = 60


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home = Home(tmp_path / "home")
    home.write("project/one", event("s1", 1, text="first words"))
    home.write("project/two", event("s2", 1, text="other words"))
    return home


class Watching:
    """A watcher in a thread, with the sweeps it has made."""

    def __init__(self, folder: Path, home: Home) -> None:
        self.attempts: list[Attempt] = []
        self._folder, self._home, self._stop = folder, home, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.wait_for(lambda: len(self.attempts) > 0)  # of everything

    def _run(self) -> None:
        api.watch(self._stop, self.attempts.append, self._folder, [self._home.flag])

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, self.attempts
            time.sleep(0.02)

    def wait_for_text(self, word: str) -> None:
        self.wait_for(lambda: bool(self._search(word)))

    def _search(self, word: str) -> list[object]:
        with open_memory(self._folder, read_only=True) as memory:
            return list(memory.search(word))

    def close(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def watching(tmp_path: Path, home: Home) -> Iterator[Watching]:
    watching = Watching(tmp_path / "store", home)
    yield watching
    watching.close()


def test_a_new_line_is_found_and_only_its_file_is_swept(watching: Watching, home: Home) -> None:
    before = len(watching.attempts)
    home.append("project/one", event("s1", 2, text="zebra crossing"))

    watching.wait_for_text("zebra")
    watching.wait_for(lambda: len(watching.attempts) > before)
    new = watching.attempts[before]

    assert new.files == 1
    assert new.report is not None
    assert new.report.lines_read == 1


def test_a_session_in_a_new_folder_is_found(watching: Watching, home: Home) -> None:
    home.write("fresh/deep/three", event("s3", 1, text="zebra crossing"))

    watching.wait_for_text("zebra")


def test_files_that_are_no_sources_start_no_sweep(watching: Watching, home: Home) -> None:
    before = len(watching.attempts)
    (home.folder / "notes.txt").write_text("not a log")
    home.append("project/one", event("s1", 2, text="zebra crossing"))

    watching.wait_for(lambda: len(watching.attempts) > before)

    assert [attempt.files for attempt in watching.attempts[before:]] == [1]


def test_a_home_that_appears_later_is_watched_too(tmp_path: Path, home: Home) -> None:
    later = home.folder.rename(tmp_path / "later")
    watching = Watching(tmp_path / "store", home)
    try:
        later.rename(home.folder)

        watching.wait_for_text("first")
    finally:
        watching.close()


def test_what_changes_while_another_sweep_runs_is_swept_after_it(
    watching: Watching, home: Home, tmp_path: Path
) -> None:
    with sweep_lock(tmp_path / "store"):
        home.append("project/one", event("s1", 2, text="zebra crossing"))
        watching.wait_for(lambda: isinstance(watching.attempts[-1].error, Busy))

    watching.wait_for_text("zebra")


def test_a_folder_moved_in_while_another_sweep_runs_is_swept_after_it(
    watching: Watching, home: Home, tmp_path: Path
) -> None:
    elsewhere = Home(tmp_path / "elsewhere")
    elsewhere.write("fresh/three", event("s3", 1, text="zebra crossing"))
    with sweep_lock(tmp_path / "store"):
        (elsewhere.folder / "fresh").rename(home.folder / "fresh")
        watching.wait_for(lambda: isinstance(watching.attempts[-1].error, Busy))

    watching.wait_for_text("zebra")


def test_a_second_watcher_of_a_store_is_refused(watching: Watching, tmp_path: Path, home: Home) -> None:
    with pytest.raises(Busy, match=f"process {os.getpid()}"):
        api.watch(threading.Event(), print, tmp_path / "store", [home.flag])


def test_after_a_sleep_everything_is_looked_at(watching: Watching, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(watching.attempts)
    monkeypatch.setattr(watch, "_ASLEEP_SECONDS", 0)

    watching.wait_for(lambda: len(watching.attempts) > before)

    assert watching.attempts[before].files is None


def test_the_status_shows_who_watches(watching: Watching, tmp_path: Path) -> None:
    with open_memory(tmp_path / "store") as memory:
        running = memory.status().watch

    assert running is not None
    assert running.pid == os.getpid()


def test_the_command_ends_on_a_signal_and_leaves_the_store_free(tmp_path: Path) -> None:
    log = tmp_path / "claude" / "projects" / "-p" / f"{session_id()}.jsonl"
    log.parent.mkdir(parents=True)
    log.write_bytes(lines([claude_user(session_id(), 1, "zebra crossing")]))
    command = [sys.executable, "-m", "recollect", "watch", "--root", f"claude={tmp_path / 'claude'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "1 new event" in process.stdout.readline()

        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE_S) == 0
    with open_memory(tmp_path / "store") as memory:
        assert memory.status().watch is None
        assert _titles(memory) == ["zebra crossing"]


def _titles(memory: Memory) -> list[str | None]:
    return [session.title for session in memory.sessions()]


def test_watching_once_sweeps_and_ends(tmp_path: Path, home: Home) -> None:
    stop, attempts = threading.Event(), []

    def note(attempt: Attempt) -> None:
        attempts.append(attempt)
        stop.set()

    api.watch(stop, note, tmp_path / "store", [home.flag], every_minutes=1)

    assert [attempt.files for attempt in attempts] == [None]
    with open_memory(tmp_path / "store") as memory:
        assert len(memory.sessions()) == 2
