"""Named failpoints: each is really on the way of a command, and what is struck there is made good."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from recollect.config import load_settings
from recollect.model import failpoints
from recollect.model.errors import BadConfig
from recollect.model.failpoints import ACTIONS, NAMES
from tests.faults.rig import command, error_lines, examine, run, run_json, sweep
from tests.faults.work import Writers

# The commands that come past failpoints. A new command with commits of its own belongs here.
COMMANDS = (["sweep"],)


@pytest.fixture
def writers(tmp_path: Path) -> Writers:
    """Sessions with payloads for the database and for packs."""
    writers = Writers(tmp_path / "home", seed=8, big_share=0.3)
    writers.write([4] * 6)
    writers.finish()
    return writers


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """For failpoints armed in this process: they are disarmed after the test."""
    monkeypatch.setattr(failpoints, "_armed", None)
    return monkeypatch


def _run(words: list[str], writers: Writers, store: Path, failpoint: str) -> subprocess.CompletedProcess[str]:
    return run(["env", f"RECOLLECT_FAILPOINT={failpoint}", *command(*words, *writers.root_flags)], store)


@pytest.mark.parametrize("name", NAMES)
def test_every_failpoint_is_reached_by_a_command_and_a_kill_there_is_made_good(
    tmp_path: Path, writers: Writers, name: str
) -> None:
    clean = sweep(tmp_path / "clean", *writers.roots)

    done = [_run(words, writers, tmp_path / "store", f"{name}:kill") for words in COMMANDS]

    assert -signal.SIGKILL in [command.returncode for command in done]
    assert examine(tmp_path / "store", writers, clean) == []


@pytest.mark.parametrize(("name", "action"), [*((name, "eio") for name in NAMES), (NAMES[0], "enospc")])
def test_an_error_at_a_failpoint_is_one_line_and_made_good(
    tmp_path: Path, writers: Writers, name: str, action: str
) -> None:
    done = _run(["sweep"], writers, tmp_path / "store", f"{name}:{action}")

    assert done.returncode == 1, done.stderr
    (told,) = error_lines(done)
    reason = "Disk full" if action == "enospc" else "Cannot use the store"
    assert told.startswith(f"Error: {reason}")
    assert examine(tmp_path / "store", writers) == []


def test_the_nth_time_counts(tmp_path: Path, writers: Writers) -> None:
    store = tmp_path / "store"

    done = [_run(["sweep"], writers, store, f"before-cache-checkpoint:kill:{nth}") for nth in (2, 1)]

    assert [one.returncode for one in done] == [0, -signal.SIGKILL]


def test_a_paused_command_goes_on_when_it_is_let(tmp_path: Path, writers: Writers) -> None:
    failpoint = {"RECOLLECT_FAILPOINT": "before-cache-checkpoint:pause", "RECOLLECT_HOME": str(tmp_path / "store")}
    sweeping = command("sweep", *writers.root_flags)

    with subprocess.Popen(sweeping, env=os.environ | failpoint, stdout=subprocess.DEVNULL) as paused:
        _, status = os.waitpid(paused.pid, os.WUNTRACED)
        try:
            busy = run(sweeping, tmp_path / "store")
        finally:
            paused.send_signal(signal.SIGCONT)

    assert os.WIFSTOPPED(status)
    assert busy.returncode == 6
    assert paused.returncode == 0
    assert examine(tmp_path / "store", writers) == []


def test_a_search_answers_while_a_sweep_stands_in_its_transaction(tmp_path: Path, writers: Writers) -> None:
    store = tmp_path / "store"
    sweep(store, *writers.roots)
    writers.write([3] * 6)
    writers.finish()
    failpoint = {"RECOLLECT_FAILPOINT": "before-cache-commit:pause", "RECOLLECT_HOME": str(store)}

    def matches() -> int:
        told = run_json(command("search", "message", "--json", "--limit", "100"), store)
        return sum(len(hit["matches"]) for hit in told["hits"])

    before = matches()
    with subprocess.Popen(
        command("sweep", *writers.root_flags), env=os.environ | failpoint, stdout=subprocess.DEVNULL
    ) as paused:
        _, status = os.waitpid(paused.pid, os.WUNTRACED)
        try:
            meanwhile = matches()
        finally:
            paused.send_signal(signal.SIGCONT)

    assert os.WIFSTOPPED(status)
    assert before == meanwhile > 0
    assert paused.returncode == 0
    assert examine(store, writers) == []


@pytest.mark.parametrize(
    "text", ["nowhere:kill", "before-cache-commit:explode", "before-cache-commit", ":", f"{NAMES[0]}:kill:0", "a:b:c:d"]
)
def test_what_cannot_be_armed_is_one_clear_line(tmp_path: Path, writers: Writers, text: str) -> None:
    done = _run(["sweep"], writers, tmp_path / "store", text)

    assert done.returncode == 1
    (told,) = error_lines(done)
    assert "RECOLLECT_FAILPOINT" in told
    assert not (tmp_path / "store" / "memory.db").exists()


@pytest.mark.parametrize("action", ["eio", "enospc"])
def test_nothing_happens_unless_armed_and_only_once_then(
    armed: pytest.MonkeyPatch, tmp_path: Path, action: str
) -> None:
    failpoints.hit(NAMES[0])
    load_settings(tmp_path, environment={"RECOLLECT_FAILPOINT": f"{NAMES[0]}:{action}"})
    failpoints.hit(NAMES[1])
    with pytest.raises(OSError):
        failpoints.hit(NAMES[0])

    failpoints.hit(NAMES[0])
    load_settings(tmp_path, environment={"RECOLLECT_FAILPOINT": f"{NAMES[0]}:{action}"})
    load_settings(tmp_path, environment={})
    failpoints.hit(NAMES[0])


@pytest.mark.parametrize("action", ACTIONS)
def test_a_failpoint_that_does_not_exist_is_refused_for_every_action(armed: pytest.MonkeyPatch, action: str) -> None:
    with pytest.raises(BadConfig):
        failpoints.arm(f"nowhere:{action}")
