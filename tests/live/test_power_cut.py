"""Messages whose transactions a power cut took: they are in the packs, and whoever writes next stores them again."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.api import doctor, open_memory
from recollect.live import Live


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose database knows the first of three messages of two sessions."""
    folder = tmp_path / "store"
    for number in range(3):
        with open_memory(folder) as memory:
            for key in ("chat:1", "chat:2"):
                Live(memory).append_message(key, "user", f"said{number} {key}")
        if number == 0:
            shutil.copy(folder / "cache.db", tmp_path / "cache.db")
    shutil.copy(tmp_path / "cache.db", folder / "cache.db")
    (folder / "cache.lock").unlink()  # it counts until the machine starts again
    return folder


def _host(store: Path) -> None:
    with open_memory(store) as memory:
        Live(memory)


def _sweep(store: Path) -> None:
    with open_memory(store) as memory:
        memory.sweep()


@pytest.mark.parametrize("work", [_host, _sweep])
def test_the_next_host_or_sweep_stores_them_again(store: Path, work: Callable[[Path], None]) -> None:
    work(store)

    with open_memory(store) as memory:
        live = Live(memory)
        for key in ("chat:1", "chat:2"):
            assert [message.content for message in live.get_history(key)] == [f"said{n} {key}" for n in range(3)]
            assert live.search("said2", session=key).hits
        assert [session.message_count for session in live.list_sessions()] == [3, 3]
    assert [finding for finding in doctor(store, []) if finding.level == "problem"] == []


def test_those_of_a_forgotten_session_stay_gone(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store / "packs", tmp_path / "packs")
    with open_memory(store) as memory:
        Live(memory).delete("chat:1")
    shutil.copy(tmp_path / "cache.db", store / "cache.db")  # as if the removal had not reached the disk either
    shutil.copytree(tmp_path / "packs", store / "packs", dirs_exist_ok=True)
    (store / "cache.lock").unlink()

    _sweep(store)

    with open_memory(store) as memory:
        live = Live(memory)
        assert live.find("chat:1") is None
        assert [message.content for message in live.get_history("chat:2")] == [f"said{n} chat:2" for n in range(3)]
