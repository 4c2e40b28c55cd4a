"""Stores that cannot be written: what is said, and what finishes a forget that could not end."""

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from recollect.api import doctor, make_room, open_memory, repair
from recollect.cli import main
from recollect.model.errors import StoreUnwritable
from tests.builders import Home, event, sweep
from tests.faults.rig import as_nobody, command, needs_nobody, own, run
from tests.forget.traces import left_in, native_ids
from tests.retention.rig import rare_word, write

TURNS = 20
CHANGING = [
    ("forget", "session-1", "--yes"),
    ("forget", "nobody-has-this", "--yes"),
    ("retention",),
    ("redact", "--rescan"),
]


@pytest.fixture
def store(tmp_path: Path, home: Home) -> Path:
    home.write("log", event("session-1", 1, text="outspoken"))
    sweep(tmp_path / "store", home).close()
    return tmp_path / "store"


@pytest.fixture
def nobodys(open_folder: Path, home: Home) -> Path:
    """A store of a user who owns nothing else."""
    home.write("log", event("session-1", 1))
    sweep(open_folder / "store", home).close()
    own(open_folder / "store")
    return open_folder / "store"


def _fill(patched: pytest.MonkeyPatch) -> None:
    patched.setattr("recollect.model.files.SHARED_INDEX_BYTES", 1 << 60)


def test_a_full_disk_is_called_so(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(store))
    _fill(monkeypatch)

    done = CliRunner().invoke(main, ["forget", "session-1", "--yes"])

    assert done.exit_code == StoreUnwritable.exit_code
    assert "Disk full" in done.output
    assert "free some space" in done.output


class SmallDisk(NamedTuple):
    """A file system that is full but for some bytes, with a store on it of sessions with rare words."""

    path: Path
    home: Home
    sessions: list[str]

    @property
    def store(self) -> Path:
        return self.path / "store"

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, words, env={"RECOLLECT_HOME": str(self.store)})

    def words(self, sessions: Sequence[str]) -> list[str]:
        return [rare_word(session, turn) for session in sessions for turn in range(TURNS)]

    def make_room(self) -> None:
        (self.path / "filler").unlink()


@pytest.fixture
def full_disk(small_disk: Callable[[str], Path], home: Home) -> Callable[..., SmallDisk]:
    def make(count: int, left_bytes: int = 0, config: str = "") -> SmallDisk:
        disk = SmallDisk(small_disk("64m"), home, [f"session-{number:02}" for number in range(count)])
        for session in disk.sessions:
            write(home, session, TURNS)
        sweep(disk.store, home).close()
        (disk.store / "config.toml").write_text(config)
        with suppress(OSError), (disk.path / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        os.truncate(disk.path / "filler", (disk.path / "filler").stat().st_size - left_bytes)
        return disk

    return make


@pytest.mark.parametrize("count", [1, 19])
def test_sessions_are_forgotten_on_a_disk_without_a_free_byte(full_disk: Callable[..., SmallDisk], count: int) -> None:
    disk = full_disk(20)
    forgotten = disk.sessions[:count]

    done = disk.run("forget", *forgotten, "--yes")

    assert done.exit_code == 0, done.output
    assert left_in(disk.store, disk.words(forgotten)) == set()
    disk.make_room()
    with sweep(disk.store, disk.home) as memory:
        hits = memory.search("please look", limit=100, exclude=[])
        assert {hit.session_uid.partition(":")[2] for hit in hits} == {*disk.sessions[count:]}
        assert [found for found in doctor(disk.store, [disk.home.flag]) if found.level == "problem"] == []


def test_detail_is_evicted_on_a_disk_without_a_free_byte(full_disk: Callable[..., SmallDisk]) -> None:
    disk = full_disk(20, config="[retention]\nraw_soft_cap = 1\n")

    done = disk.run("retention")

    assert done.exit_code == 0, done.output
    assert "Evicted the raw detail of 20 sessions" in done.output
    assert left_in(disk.store, disk.words(disk.sessions)) == set()


def test_where_there_is_no_room_to_begin_nothing_is_changed(full_disk: Callable[..., SmallDisk]) -> None:
    disk = full_disk(2)

    done = disk.run("forget", disk.sessions[0], "--yes")

    assert done.exit_code == StoreUnwritable.exit_code
    assert "Disk full" in done.output
    disk.make_room()
    with sweep(disk.store, disk.home) as memory:
        assert native_ids(memory) == {*disk.sessions}


def test_what_waits_for_room_is_named_and_goes_when_there_is_some(full_disk: Callable[..., SmallDisk]) -> None:
    disk = full_disk(2, left_bytes=100 * 1024)

    done = disk.run("forget", disk.sessions[0], "--yes")

    assert done.exit_code == StoreUnwritable.exit_code
    assert "Forgetting started but could not finish: rows are not deleted yet" in done.output
    disk.make_room()
    with sweep(disk.store, disk.home) as memory:
        assert native_ids(memory) == {disk.sessions[1]}
    assert left_in(disk.store, disk.words(disk.sessions[:1])) == set()


def test_what_can_be_made_again_is_given_up_only_on_a_full_disk(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_room(store)
    assert (store / "memory.db.zst").exists()

    monkeypatch.setattr("recollect.store.sqlite.room.SHORT_BYTES", 1 << 60)
    make_room(store)

    assert not (store / "memory.db.zst").exists()


def test_what_an_older_version_kept_beside_the_databases_goes(store: Path, home: Home) -> None:
    (store / "ballast").write_bytes(bytes(100))
    (store / "memory.db-copy").write_bytes((store / "memory.db").read_bytes() + b"xxxxoutspoken")

    with open_memory(store, [home.flag]) as memory:
        memory.forget(memory.plan_forgetting("session-1"))

    assert left_in(store, ["xxxxoutspoken"]) == set()
    assert (store / "memory.db.zst").exists()
    assert not (store / "ballast").exists()


def test_doctor_tells_of_a_full_disk(store: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [found for found in doctor(store, [home.flag]) if "Disk full" in found.message] == []
    _fill(monkeypatch)

    (finding,) = [found for found in doctor(store, [home.flag]) if "Disk full" in found.message]

    assert finding.level == "problem"


def test_a_forget_that_could_not_end_says_that_it_was_begun_and_repair_finishes_it(
    store: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full, open_memory(store, [home.flag]) as memory:
        full.setattr("recollect.store.sqlite.snapshot._ROOM", 1e12)
        with pytest.raises(StoreUnwritable, match="could not finish: all rows are deleted, but words may") as told:
            memory.forget(memory.plan_forgetting("session-1"))
        assert "recollect sweep" in str(told.value.hint)
        assert native_ids(memory) == set()
        memory.close()
        with pytest.raises(StoreUnwritable, match="could not finish"):
            repair(store, [home.flag])
        assert [found.advice for found in doctor(store, [home.flag]) if "is unfinished" in found.message]

    report = repair(store, [home.flag])

    assert report.notes == ["Finished an interrupted forget: 1 session"]
    assert left_in(store, ["xxxxoutspoken"]) == set()
    assert [found for found in doctor(store, [home.flag]) if found.level == "problem"] == []
    assert repair(store, [home.flag]).notes == []


@needs_nobody
@pytest.mark.parametrize("arguments", CHANGING)
def test_a_read_only_store_is_called_so_and_no_space_is_asked_for(nobodys: Path, arguments: tuple[str, ...]) -> None:
    nobodys.chmod(0o500)

    done = run(as_nobody(command(*arguments)), nobodys)

    assert done.returncode == StoreUnwritable.exit_code
    assert "Store is read-only" in done.stderr
    assert "space" not in done.stderr
    assert "Traceback" not in done.stderr


@needs_nobody
@pytest.mark.parametrize("arguments", [("status",), ("sweep",), ("doctor",), ("forget", "session-1", "--yes")])
def test_the_store_of_another_user_is_one_clear_sentence(nobodys: Path, arguments: tuple[str, ...]) -> None:
    own(nobodys, 1)

    done = run(as_nobody(command(*arguments)), nobodys)

    assert done.returncode == 1
    told = done.stdout + done.stderr
    assert f"No permission to read the store's folder: {nobodys}" in told
    assert "Errno" not in told
    assert told.count(str(nobodys)) == 1


@needs_nobody
def test_a_new_store_is_the_users_to_write_whatever_the_umask(open_folder: Path, home: Home) -> None:
    home.write("log", event("session-1", 1))
    own(open_folder)
    store = open_folder / "deep" / "store"
    swept = ["sh", "-c", 'umask 277; exec "$@"', "sh", *as_nobody(command("sweep", "--root", f"claude={open_folder}"))]

    for _ in range(2):
        assert run(swept, store).stderr == ""

    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in store.iterdir() if path.is_file()} == {0o600}


def test_the_library_too_makes_a_folder_that_can_be_written(tmp_path: Path, home: Home) -> None:
    before = os.umask(0o277)
    try:
        open_memory(tmp_path / "store", [home.flag]).close()
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
