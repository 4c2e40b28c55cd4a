"""A repair that was killed is simply run again: nothing is lost on the way."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect.api import open_memory, repair
from recollect.store import open_store
from tests.builders import Home, event, sweep
from tests.care.rig import distilled, evicted_and_held, flip, held, leave_only_its_row, lose_home, problems
from tests.retention.rig import topic

DATABASES = ("cache.db", "memory.db")


def _damage(store: Path) -> None:
    """Both databases, in indexes, which costs no row."""
    with open_store(store) as opened:
        indexes = {"cache.db": "events_by_copy_key", "memory.db": "sessions_by_time"}
        sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        pages = [base.value(sql, (indexes[base.path.name],)) for base in opened.databases]
        paths = [base.path for base in opened.databases]
    for path, page in zip(paths, pages, strict=True):
        flip(path, (page - 1) * 4096 + 4000)


def _killed(store: Path, home: Home, prepare: Callable[[], object]) -> bool:
    """Repair in a process of its own, which `prepare` has killed somewhere; whether it was."""
    child = os.fork()
    if child == 0:
        try:
            prepare()
            repair(store, [home.flag])
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _at_move(nth: int) -> None:
    """Be killed before the nth file is moved into a folder of damaged files."""
    left = nth

    def look(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if name == "os.rename" and "damaged-" in str(arguments[1]):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)


def _at(failpoint: str) -> None:
    os.environ["RECOLLECT_FAILPOINT"] = failpoint


PLACES = [
    *(pytest.param(lambda nth=nth: _at_move(nth), id=f"move {nth}") for nth in range(1, 5)),
    *(
        pytest.param(lambda place=place: _at(place), id=place)
        for place in (
            "before-migration-commit:kill",
            "after-migration-commit:kill",
            "before-memory-commit:kill",
            "before-memory-commit:kill:2",
            "after-memory-commit:kill:2",
            "before-cache-commit:kill:1",
            "before-cache-commit:kill:2",
            "after-cache-commit:kill:2",
            "before-memory-checkpoint:kill",
        )
    ),
]


@pytest.mark.parametrize("prepare", PLACES)
def test_a_repair_after_one_that_was_killed_loses_nothing(
    store: Path, home: Home, prepare: Callable[[], object]
) -> None:
    before = held(store)
    lose_home(home)
    _damage(store)

    was_killed = _killed(store, home, prepare)
    report = repair(store, [home.flag])

    assert was_killed
    assert report.lost == []
    assert held(store) == before
    assert problems(store, home) == []


def test_a_repair_that_is_killed_again_and_again_loses_nothing(store: Path, home: Home) -> None:
    before = held(store)
    lose_home(home)
    _damage(store)

    kills = [_killed(store, home, place.values[0]) for place in PLACES]
    _damage(store)
    kills += [_killed(store, home, place.values[0]) for place in PLACES[2:7]]
    report = repair(store, [home.flag])

    assert sum(kills) > 5
    assert len(list(store.glob("damaged-*"))) > 1
    assert report.lost == []
    assert held(store) == before
    assert problems(store, home) == []


@pytest.mark.parametrize("place", ["before-memory-commit:kill:2", "before-cache-commit:kill:1"])
def test_what_was_forgotten_after_a_repair_was_stopped_does_not_come_back(store: Path, home: Home, place: str) -> None:
    before = held(store)
    _damage(store)
    assert _killed(store, home, lambda: _at(place))
    repair(store, [home.flag])
    home.write("later", event("later", 1, text="later words"))
    sweep(store, home).close()
    with open_memory(store) as memory:
        memory.forget(memory.plan_forgetting("scripted:small"))
    lose_home(home)
    _damage(store)

    repair(store, [home.flag])

    after = held(store)
    assert {*after} == {*before} - {"scripted:small"} | {"scripted:later"}
    assert {uid: after[uid] for uid in before if uid in after} == {
        uid: told for uid, told in before.items() if uid in after
    }
    for path in (*(store / name for name in DATABASES), *(store / "packs").rglob("*.pack")):
        assert b"small words" not in path.read_bytes()


def test_rows_that_only_memory_has_outlast_a_repair_that_was_killed(store: Path, home: Home) -> None:
    """The row and the digest of a session whose events are gone, and of which the ledger has nothing."""
    with open_store(store) as opened:
        leave_only_its_row(opened)
    before, digests = held(store), _digests(store)
    _damage(store)
    assert _killed(store, home, lambda: _at("before-memory-commit:kill:2"))
    lose_home(home)
    repair(store, [home.flag])
    for number in range(3):  # whose digests have the numbers that others had
        home.write(f"later {number}", event(f"later {number}", 1, text="later words"))
    sweep(store, home).close()
    _damage(store)

    repair(store, [home.flag])

    after = _digests(store)
    assert {uid: told for uid, told in held(store).items() if "later" not in uid} == before
    assert {uid: told for uid, told in after.items() if "later" not in uid} == digests
    assert len(after) == len(before) + 3
    assert problems(store, home) == []


def _digests(store: Path) -> dict[str, Any]:
    with open_memory(store) as memory:
        return {session.session_uid: memory.digest(session) for session in memory.sessions()}


def test_digests_of_sessions_that_are_dropped_outlast_a_repair_that_was_killed(tmp_path: Path) -> None:
    home, store = evicted_and_held(tmp_path)
    before = distilled(store)
    _damage(store)

    assert _killed(store, home, lambda: _at("before-memory-commit:kill:2"))
    repair(store, [home.flag])

    assert distilled(store) == before
    with open_memory(store) as memory:
        assert [hit.session_uid for hit in memory.search(topic("evicted"))] == ["scripted:evicted"]
    assert problems(store, home) == []
