"""Stores that released versions wrote, below `tests/data/stores`, opened and changed by the code as it is now."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from recollect.api import repair, restore
from tests import logs
from tests.conftest import REPOSITORY
from tests.forget.traces import left_in
from tests.retention.rig import evict_all
from tests.store.older_stores import (
    EVICTED,
    FORGOTTEN,
    FORGOTTEN_WORD,
    GROWN,
    PLAIN,
    WORDS,
    conversation,
    opened,
    shown,
)

ARCHIVES = sorted((REPOSITORY / "tests" / "data" / "stores").glob("*.tar.xz"))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a store that an older version wrote, what it showed, and the agents' files in another place."""
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path / "older", filter="data")
    (tmp_path / "older" / "store").chmod(0o700)
    return tmp_path / "older"


def _then(older: Path) -> dict[str, Any]:
    then: dict[str, Any] = json.loads((older / "shown.json").read_text())
    return then


def _now(older: Path) -> dict[str, Any]:
    with opened(older) as memory:
        return shown(memory)


def _sweep(older: Path) -> None:
    with opened(older) as memory:
        assert memory.sweep().failures == []


def test_the_archives_hold_what_the_tests_are_about() -> None:
    assert ARCHIVES


def test_it_shows_what_its_own_version_showed(older: Path) -> None:
    assert _now(older) == _then(older)


def test_a_sweep_changes_nothing_although_all_files_have_moved(older: Path) -> None:
    for _ in range(2):
        _sweep(older)

    assert _now(older) == _then(older)


def test_the_cache_is_made_again_from_its_packs(older: Path) -> None:
    (older / "store" / "cache.db").unlink()
    (older / "store" / "cache.db-last").unlink(missing_ok=True)

    _sweep(older)

    assert _now(older) == _then(older)


def test_memory_is_made_again_from_its_copy_and_the_ledger(older: Path) -> None:
    (older / "store" / "memory.db").unlink()

    repair(older / "store")
    _sweep(older)

    assert _now(older) == _then(older)


def test_a_session_that_was_evicted_goes_on(older: Path) -> None:
    grown = [record for first in (1, 7, 13) for record in conversation(GROWN, WORDS[GROWN], first)]
    logs.CLAUDE.write(older / "home" / "claude", logs.lines(grown), GROWN)

    _sweep(older)

    (then,) = (row for row in _then(older)["sessions"] if row["session_uid"].endswith(GROWN))
    with opened(older) as memory:
        session, digest = memory.session(GROWN), memory.digest(memory.session(GROWN))
    assert session.event_count == then["event_count"] * 3 // 2
    assert session.cost.input_tokens == then["cost"]["input_tokens"] * 3 // 2
    assert digest.request_count == 6


def test_an_evicted_session_is_brought_back(older: Path) -> None:
    _sweep(older)

    with opened(older) as memory:
        memory.rehydrate(memory.session(EVICTED))
        assert len(memory.events(memory.session(EVICTED))) == 6


def test_what_it_holds_is_evicted_and_remains_known(older: Path) -> None:
    _sweep(older)

    with opened(older) as memory:
        evict_all(memory)

    then, now = _then(older), _now(older)
    assert [row | {"is_evicted": True} for row in then["sessions"]] == [
        row | {"is_evicted": True} for row in now["sessions"]
    ]
    assert {name: now[name] for name in ("digests", "by agent", "by tool", "decisions", "notes", "bookmarks")} == {
        name: then[name] for name in ("digests", "by agent", "by tool", "decisions", "notes", "bookmarks")
    }
    with opened(older) as memory:
        assert memory.session(PLAIN).evicted_at is not None


@pytest.mark.parametrize("session", [EVICTED, GROWN, PLAIN])
def test_a_session_is_forgotten_in_every_byte(older: Path, session: str) -> None:
    with opened(older) as memory:
        memory.forget(memory.plan_forgetting(session))
    _sweep(older)

    assert left_in(older / "store", [f"xxxx{WORDS[session]}"]) == set()


def test_what_was_forgotten_does_not_come_back(older: Path) -> None:
    with logs.CLAUDE.path(older / "home" / "claude", FORGOTTEN).open("ab") as file:
        file.write(logs.lines(conversation(FORGOTTEN, FORGOTTEN_WORD, 7)))

    _sweep(older)

    assert left_in(older / "store", [FORGOTTEN_WORD]) == set()


def test_a_backup_of_it_is_restored(older: Path, tmp_path: Path) -> None:
    with opened(older) as memory:
        memory.backup(tmp_path / "backup.tar.zst")

    restore(tmp_path / "backup.tar.zst", tmp_path / "restored" / "store")

    with opened(tmp_path / "restored") as memory:
        assert shown(memory) == _then(older)
