"""Several processes write to one store: each waits for its turn, and nobody's rows are lost."""

import subprocess
import sys
from pathlib import Path

from recollect.store import open_store
from tests.conftest import REPOSITORY
from tests.store.rows import held, new_store, noise

_WRITERS = 3
_BATCHES = 25
_PROGRAM = f"""
import sys
from pathlib import Path
from recollect.store import open_store
from tests.store.rows import batch, noise, put

name = sys.argv[2]
with open_store(Path(sys.argv[1]), create=True) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range({_BATCHES}):
        text = noise(100_000) + name if number % 5 == 0 else str(number)
        put(store, batch({{f"{{name}}.{{number}}": text}}, offset=number))
"""


def test_writers_in_several_processes_lose_nothing_of_one_shared_session(tmp_path: Path) -> None:
    new_store(tmp_path).close()
    names = [chr(ord("a") + number) for number in range(_WRITERS)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(tmp_path / "store"), name],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for process in processes:  # all are open before the first one writes
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.communicate("go\n", timeout=60)

    assert [process.returncode for process in processes] == [0] * _WRITERS
    with open_store(tmp_path / "store") as store:
        found = dict(held(store))
        assert store.check.damage() == []
    assert set(found) == {f"{name}.{number}" for name in names for number in range(_BATCHES)}
    assert all(found[f"{name}.5"] == noise(100_000) + name for name in names)
