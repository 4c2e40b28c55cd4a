"""The ballast is there when there is room, really takes its room, and gives it back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.store import open_store
from recollect.store.sqlite import ballast
from tests.builders import Home, sweep
from tests.faults.rig import needs_root
from tests.store.rows import batch, noise, put

MEGABYTE = 1024 * 1024


def test_a_sweep_leaves_ballast_as_large_as_a_small_store(store: Path) -> None:
    with open_store(store) as opened:
        size = opened.sizes.on_disk()["total"]

    assert size / 2 <= (store / "ballast").stat().st_size <= 2 * size


def test_ballast_has_a_limit(tmp_path: Path) -> None:
    assert ballast.ensure(tmp_path, 100 * ballast.MOST_BYTES)

    assert (tmp_path / "ballast").stat().st_size == ballast.MOST_BYTES


def test_ballast_has_blocks_of_its_own(tmp_path: Path) -> None:
    ballast.ensure(tmp_path, 10 * MEGABYTE)

    found = (tmp_path / "ballast").stat()
    assert found.st_blocks * 512 >= found.st_size
    assert found.st_mode & 0o077 == 0


def test_ballast_grows_with_the_store_and_is_else_left_alone(tmp_path: Path) -> None:
    ballast.ensure(tmp_path, MEGABYTE)
    first = (tmp_path / "ballast").stat()

    ballast.ensure(tmp_path, MEGABYTE + 1)
    assert (tmp_path / "ballast").stat().st_ino == first.st_ino

    ballast.ensure(tmp_path, 8 * MEGABYTE)
    assert (tmp_path / "ballast").stat().st_size == 8 * MEGABYTE


def test_dropping_says_whether_there_was_any(tmp_path: Path) -> None:
    ballast.ensure(tmp_path, MEGABYTE)

    assert [ballast.drop(tmp_path), ballast.drop(tmp_path)] == [True, False]


def test_a_disk_with_little_room_gets_no_ballast(tmp_path: Path) -> None:
    assert not ballast.ensure(tmp_path, MEGABYTE, room_bytes=1 << 60)

    assert not (tmp_path / "ballast").exists()


@needs_root
def test_with_its_ballast_dropped_a_full_disk_takes_a_deletion(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("24m")
    with open_store(disk / "store", create=True) as store:
        put(store, *(batch({str(number): noise(20_000, number)}, session=str(number)) for number in range(200)))
        store.checkpoint()
        ballast.ensure(disk / "store", 6 * MEGABYTE, room_bytes=0)
        _fill(disk / "rest")

        with ballast.more_room(disk / "store", 6 * MEGABYTE), store.databases[0].transaction() as connection:
            connection.execute("DELETE FROM frames")
        store.databases[0].checkpoint()

        assert store.databases[0].value("SELECT count(*) FROM frames") == 0


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return


def test_status_does_not_count_the_ballast(store: Path, home: Home) -> None:
    with sweep(store, home) as memory:
        before = memory.status().size_bytes
        ballast.drop(store)
        assert memory.status().size_bytes == before


@pytest.mark.parametrize("size", [0, 1])
def test_a_store_of_nothing_needs_no_ballast_to_be_sound(tmp_path: Path, size: int) -> None:
    ballast.ensure(tmp_path, size)
