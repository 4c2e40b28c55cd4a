"""Many processes append at once, and some are killed: nothing acknowledged is lost, nothing is there twice."""

import random
import shutil
import signal
import threading
from pathlib import Path

import pytest
from bench import live as bench

from recollect.api import doctor, open_memory
from recollect.live import Live
from tests.faults.rig import IS_SOAK

WRITERS, MESSAGES, READERS = (10, 10_000, 4) if IS_SOAK else (4, 40, 2)
KILLED = 30 if IS_SOAK else 4


def test_writers_and_readers_at_once_lose_double_and_disorder_nothing(tmp_path: Path) -> None:
    report = bench.measure(tmp_path, WRITERS, MESSAGES, READERS, 0, None)

    assert report["acknowledged"] == WRITERS * MESSAGES
    assert {name: report[name] for name in ("lost", "duplicated", "disordered", "not_found")} == {
        "lost": 0,
        "duplicated": 0,
        "disordered": 0,
        "not_found": 0,
    }
    assert [finding for finding in doctor(tmp_path / "store", []) if finding.level == "problem"] == []


def _kill_writers(store: Path, chance: random.Random) -> dict[int, list[int]]:
    """The messages that each writer acknowledged before it was killed."""
    processes = [bench.start("write", store, number, 100_000) for number in range(KILLED)]
    for process in processes:
        assert process.stdout and process.stdin and process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        threading.Timer(chance.uniform(0.5, 2), process.send_signal, [signal.SIGKILL]).start()
    told = [process.communicate()[0].splitlines(keepends=True) for process in processes]
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * KILLED
    return {number: [int(line) for line in lines if line.endswith("\n")] for number, lines in enumerate(told)}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "store"
    with open_memory(folder) as memory:
        Live(memory).append_message("warm:up", "user", "compiles the rules")
    return folder


def test_what_killed_writers_acknowledged_is_there_and_nothing_is_torn(template: Path, tmp_path: Path) -> None:
    store, chance = tmp_path / "store", random.Random(19)
    shutil.copytree(template, store)
    acknowledged = _kill_writers(store, chance)

    with open_memory(store) as memory:
        live = Live(memory)
        shared = [message.content for message in live.get_history(bench.SHARED, None)]
        for number, stored in acknowledged.items():
            own = [message.content for message in live.get_history(f"bench:{number}", None)]
            expected = [bench.text_of(number, message) for message in stored]
            assert set(expected) <= {*own, *shared}
            assert len(own) == len(set(own))
        memory.sweep()
    assert [finding for finding in doctor(store, []) if finding.level == "problem"] == []
    assert sum(map(len, acknowledged.values())) > KILLED
