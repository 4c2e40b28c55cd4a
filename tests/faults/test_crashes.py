"""Killed at any instant: no complete line is lost or held twice."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from recollect.api import open_memory
from tests.faults.crashes import kill_at_random
from tests.faults.rig import IS_LONG, IS_SOAK, Struck, command
from tests.faults.work import Writers

SEEDS, KILLS = (40, 25) if IS_LONG else (8, 25) if IS_SOAK else (1, 2)


def _events_after_a_whole_sweep(store: Path, writers: Writers) -> int:
    with open_memory(store, writers.roots) as memory:
        memory.sweep()
        return sum(session.event_count for session in memory.sessions())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_sweeps_killed_at_random_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    struck = kill_at_random(tmp_path, seed, KILLS)

    assert struck == Struck(KILLS, [])


def test_a_sweep_that_stopped_inside_a_file_is_gone_on_with_though_the_file_stays_as_it_is(tmp_path: Path) -> None:
    store, writers = tmp_path / "store", Writers(tmp_path / "home", seed=2)
    writers.write([2400, 10, 10, 10, 10, 10])
    writers.finish()

    class Stopped(Exception):
        pass

    def stop(stage: str, done: int, total: int) -> None:
        raise Stopped

    with open_memory(store, writers.roots) as memory, pytest.raises(Stopped):
        memory.sweep(stop)

    assert _events_after_a_whole_sweep(store, writers) == writers.complete


def _readers() -> list[int]:
    """The reader processes this process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and b"recollect.ingest.pool" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the readers in /proc")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="readers are processes of their own on several cores only")
def test_what_a_killed_reader_was_reading_is_read_by_the_next_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.ingest.pool.BATCH_EVENTS", 100)  # the kill comes while most is still to be read
    store, writers = tmp_path / "store", Writers(tmp_path / "home", seed=4, padding=4000)
    writers.write([1500, 1500, 10, 1500, 10, 10])  # enough that it is worth starting readers
    writers.finish()
    killed: list[int] = []

    def kill(stage: str, done: int, total: int) -> None:
        if not killed:
            killed.extend(_readers())
            for reader in killed:
                os.kill(reader, signal.SIGKILL)

    with open_memory(store, writers.roots) as memory:
        report = memory.sweep(kill)

    assert killed
    assert report.failures
    assert _events_after_a_whole_sweep(store, writers) == writers.complete


def test_an_interrupt_ends_the_sweep_in_one_word(tmp_path: Path) -> None:
    store, writers = tmp_path / "store", Writers(tmp_path / "home", seed=6, padding=4000)
    writers.write([1500, 1500, 10, 1500, 10, 10])  # enough that it is worth starting readers
    writers.finish()
    sweeping = subprocess.Popen(
        command("sweep", *writers.root_flags),
        env={**os.environ, "RECOLLECT_HOME": str(store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(0.6)
    os.killpg(sweeping.pid, signal.SIGINT)  # as a terminal does
    _, told = sweeping.communicate(timeout=60)

    assert "Traceback" not in told
    assert _events_after_a_whole_sweep(store, writers) == writers.complete
