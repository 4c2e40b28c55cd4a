"""Killed before any step: what was begun is finished by the next sweep, and what was not is whole.

That it is so at every single write is for `tests/faults/test_every_write.py`.
"""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from recollect.api import doctor, open_memory
from recollect.cli import main
from tests.faults.rig import run
from tests.forget.traces import Planted, left_in, native_ids, rare_words

# Each is about to be done when the process dies.
STEPS = (
    "recollect.store.tables.tombstones:TombstoneTable.add",
    "recollect.store.tables.tombstones:_put",
    "recollect.store.tables.erase:Erasure.drop",
    "recollect.store.tables.erase:_scrub_sources",
    "recollect.store.payloads.packs:drop_own_packs",
    "recollect.store.tables.erase:Erasure._drop_files",
    "recollect.store.ledger:Ledger.rewrite",
    "recollect.store.tables.erase:Erasure.scrub",
    "recollect.store.sqlite.snapshot:_require_room",
    "recollect.store.sqlite.snapshot:_empty_log",
    "recollect.store.tables.tombstones:TombstoneTable.finish",
    "recollect.lifecycle.erase:expire_answers",
    "recollect.sessions:settle_sessions",
    "recollect.sessions:name_repos",
)
# And of those on a disk with little room.
STEPS_WITHOUT_ROOM = (
    "recollect.store.tables.erase:delete_in_steps",
    "recollect.store.tables.fulltext:without_overwriting",
    "recollect.store.tables.fulltext:give_back_pages",
    "recollect.store.tables.erase:tidy_packs",
    "recollect.store.tables.erase:rewrite",
)
_DYING = """
import importlib, os, signal, sys
from functools import reduce
from recollect.store.sqlite import room
from recollect.store.tables import fulltext
if sys.argv[1] in sys.argv[2].split():
    room.SHORT_BYTES, fulltext._ROOM_TO_WRITE = 1 << 60, 1 << 60
module, _, path = sys.argv[1].partition(":")
*owners, name = path.split(".")
owner = reduce(getattr, owners, importlib.import_module(module))
getattr(owner, name)
setattr(owner, name, lambda *given, **named: os.kill(os.getpid(), signal.SIGKILL))
from recollect.api import open_memory
with open_memory(sys.argv[3]) as memory:
    memory.forget(memory.plan_forgetting(*sys.argv[4:]))
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("planted"), rare_words(3, 45))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, planted: Planted) -> Path:
    store = tmp_path_factory.mktemp("swept") / "store"
    with open_memory(store, planted.roots) as memory:
        memory.sweep()
    return store


@pytest.fixture
def store(tmp_path: Path, swept: Path) -> Path:
    return shutil.copytree(swept, tmp_path / "store")


def _forget_dying(step: str, store: Path, planted: Planted) -> subprocess.CompletedProcess[str]:
    return run(
        [sys.executable, "-P", "-c", _DYING, step, " ".join(STEPS_WITHOUT_ROOM), str(store), *planted.forgotten], store
    )


def _forget(store: Path, planted: Planted) -> Result:
    words = ["forget", "--yes", *planted.forgotten]
    return CliRunner().invoke(main, words, env={"RECOLLECT_HOME": str(store)}, catch_exceptions=False)


def _assert_all_or_nothing(store: Path, planted: Planted) -> bool:
    """Whether the sessions are gone: wholly, or not at all."""
    with open_memory(store, planted.roots) as memory:
        memory.sweep()
        names = native_ids(memory)
    is_gone = not names & set(planted.forgotten)
    assert names == {*planted.kept, *(() if is_gone else planted.forgotten)}
    assert left_in(store, planted.words) == (set() if is_gone else set(planted.words))
    assert [finding for finding in doctor(store, planted.roots) if finding.level == "problem"] == []
    return is_gone


@pytest.mark.parametrize("step", STEPS + STEPS_WITHOUT_ROOM)
def test_a_forget_killed_before_a_step_is_finished_by_the_next_sweep_or_by_the_same_command(
    tmp_path: Path, store: Path, planted: Planted, step: str
) -> None:
    killed = _forget_dying(step, store, planted)
    asked_again = shutil.copytree(store, tmp_path / "asked-again")

    again = _forget(asked_again, planted)

    assert killed.returncode == -signal.SIGKILL
    assert _assert_all_or_nothing(store, planted) is (step != STEPS[0])
    assert again.exit_code == 0, again.output
    assert left_in(asked_again, planted.words) == set()


def test_a_forget_that_was_done_can_be_asked_for_again(store: Path, planted: Planted) -> None:
    first, second = (_forget(store, planted) for _ in range(2))

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert second.output == "Nothing is left to delete\n"


def test_step_by_step_the_same_goes(store: Path, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short:
        short.setattr("recollect.store.sqlite.room.SHORT_BYTES", 1 << 60)
        short.setattr("recollect.store.tables.fulltext._ROOM_TO_WRITE", 1 << 60)
        done = _forget(store, planted)

    assert done.exit_code == 0, done.output
    assert left_in(store, planted.words) == set()
    with open_memory(store, planted.roots) as memory:
        assert memory._store.fulltext.sizes()["index"] == 0  # it did not fit, and the next sweep makes it again
        memory.sweep()
        assert memory._store.fulltext.sizes()["index"] > 0
        assert {hit.session_uid.partition(":")[2] for hit in memory.search("stays", limit=100, exclude=[])} == {
            *planted.kept
        }


def test_a_large_database_is_written_anew_beside_itself(
    store: Path, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.store.sqlite.snapshot._IN_MEMORY_BYTES", 0)

    done = _forget(store, planted)

    assert done.exit_code == 0, done.output
    assert left_in(store, planted.words) == set()
    assert list(store.glob("*.new")) == []
    assert [found for found in doctor(store, planted.roots, deep=True) if found.level == "problem"] == []


def test_a_forget_can_be_finished_by_asking_again(store: Path, planted: Planted) -> None:
    _forget_dying("recollect.store.tables.erase:_scrub_sources", store, planted)

    with open_memory(store, planted.roots) as memory:
        memory.forget(memory.plan_forgetting(*planted.forgotten))

    assert left_in(store, planted.words) == set()
