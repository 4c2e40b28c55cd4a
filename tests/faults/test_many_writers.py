"""Many processes write one store and many read it: nothing is lost, and nobody sees half of a batch."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from recollect.store import open_store
from tests.conftest import REPOSITORY
from tests.faults.rig import IS_SOAK
from tests.store.rows import held, new_store

WRITERS, BATCHES = (10, 100) if IS_SOAK else (3, 8)
READERS = 4 if IS_SOAK else 2
BATCH_EVENTS = 100


def _start(*words: str) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "tests.faults.one_of_many", *words]
    return subprocess.Popen(program, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def _started(commands: list[list[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are all ready before the first one begins; none is left behind."""
    processes = [_start(*words) for words in commands]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_many_writers_and_readers_lose_and_tear_nothing(tmp_path: Path) -> None:
    new_store(tmp_path).close()
    store = str(tmp_path / "store")
    writers = [["write", store, str(number), str(BATCHES), str(BATCH_EVENTS)] for number in range(WRITERS)]
    readers = [["read", store, str(WRITERS), str(BATCH_EVENTS)] for _ in range(READERS)]

    with _started([*readers, *writers]) as processes:
        written = [process.communicate(timeout=1200)[0] for process in processes[READERS:]]
        seen = [orjson.loads(process.communicate("stop\n", timeout=60)[0]) for process in processes[:READERS]]

    assert [process.returncode for process in processes] == [0] * len(processes)
    assert [int(count) for count in written] == [BATCHES * BATCH_EVENTS] * WRITERS
    assert [told["torn"] for told in seen] == [[]] * READERS
    assert all(told["looks"] > 1 for told in seen)
    print(f"{WRITERS} x {BATCHES * BATCH_EVENTS} events, {sum(told['looks'] for told in seen)} looks")
    _assert_everything_is_there(tmp_path / "store")


def _assert_everything_is_there(folder: Path) -> None:
    sessions = ["shared", *(f"own-{number}" for number in range(WRITERS))]
    with open_store(folder) as store:
        found = [(name, text.partition("|")[0]) for session in sessions for name, text in held(store, session)]
        assert store.check.damage() == []
    events = range(BATCHES * BATCH_EVENTS)
    wanted = [(f"{number}.{event}", f"writer {number} event {event}") for number in range(WRITERS) for event in events]
    assert sorted(found) == sorted(wanted)
