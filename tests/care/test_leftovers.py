"""What killed commands leave holds whole sessions: it is named, and gone before anything is called forgotten."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.api import Memory, doctor, open_memory, repair
from recollect.store import open_store, sweep_lock, work_folder
from tests.builders import Home, event
from tests.faults.rig import command, run
from tests.forget.traces import forget, left_in

WORD = "zqzqwordtoforget"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.write("secret", event("secret", 1, text=f"say {WORD}"))
    home.write("other", event("other", 1, text="hello"))
    return home


@pytest.fixture
def dead() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.fixture
def left_over(store: Path, home: Home, tmp_path: Path) -> Path:
    """The folder of an import that was killed while it took sessions over, in a store that holds them already."""
    with open_memory(store) as memory:
        memory.export(tmp_path / "export.tar.zst")
    failpoint = "RECOLLECT_FAILPOINT=before-cache-commit:kill"
    run(["env", failpoint, *command("import", str(tmp_path / "export.tar.zst"))], store)
    (folder,) = store.glob(".importing.*.tmp")
    assert left_in(folder, [WORD]) == {WORD}
    return folder


def test_forgetting_reaches_what_a_killed_import_left(store: Path, left_over: Path) -> None:
    with open_memory(store) as memory:
        forget(memory, "secret")

    assert left_in(store, [WORD]) == set()
    assert not left_over.exists()


@pytest.mark.parametrize("act", [Memory.sweep, Memory.rescan, Memory.keep_within_budget])
def test_every_command_that_has_the_store_for_itself_removes_it(
    store: Path, left_over: Path, act: Callable[[Memory], object]
) -> None:
    with open_memory(store) as memory:
        act(memory)

    assert not left_over.exists()


def test_doctor_names_it_and_repair_removes_it(store: Path, home: Home, left_over: Path) -> None:
    told = [finding for finding in doctor(store, [home.flag]) if str(left_over) in finding.message]
    steps: list[str] = []

    repair(store, [home.flag], confirm=steps.extend)

    assert [finding.level for finding in told] == ["note"]
    assert any(left_over.name in step for step in steps)
    assert not left_over.exists()
    assert doctor(store, [home.flag], deep=True)[-1].level == "ok"


def test_a_deep_look_names_it_once(store: Path, home: Home, left_over: Path) -> None:
    told = [finding for finding in doctor(store, [home.flag], deep=True) if str(left_over) in finding.message]

    assert len(told) == 1


def test_a_folder_that_somebody_works_in_is_left_alone(store: Path) -> None:
    with work_folder(store, "importing") as folder:
        (folder / "text").write_text("half")

        with sweep_lock(store):
            pass

        assert (folder / "text").exists()
        assert [finding for finding in doctor(store) if str(folder) in finding.message] == []
    assert not folder.exists()


@pytest.mark.parametrize("name", [".unpacking.{}.tmp", ".importing.{}.tmp", ".ledger.jsonl.{}.tmp"])
@pytest.mark.parametrize("is_reused", [False, True])
def test_the_number_of_a_dead_process_may_be_used_again(store: Path, dead: int, name: str, is_reused: bool) -> None:
    left = store / name.format(os.getpid() if is_reused else dead)
    if "ledger" in name:
        left.write_text(WORD)
    else:
        (left / "packs").mkdir(parents=True)

    with sweep_lock(store):
        pass

    assert not left.exists()


def _killed_backup(store: Path, path: Path, dead: int) -> list[Path]:
    """What lies there when a backup was killed: it was noted before it was begun."""
    with open_store(store) as opened:
        opened.copies.note_copy("backup", path)
    names = [f".{path.name}.{dead}.tmp{ending}" for ending in ("", ".db", ".db-journal")]
    left = [path.with_name(name) for name in names]
    for one in left:
        one.write_text(WORD)
    return left


def test_forgetting_names_what_a_killed_backup_left(store: Path, tmp_path: Path, dead: int) -> None:
    left = _killed_backup(store, tmp_path / "b[1].tar.zst", dead)

    with open_memory(store) as memory:
        planned = memory.plan_forgetting("secret")

    assert {str(one) for one in left} <= {copy.path for copy in planned.copies}


@pytest.mark.parametrize("action", ["backup", "export"])
def test_the_next_copy_in_the_folder_removes_it_and_nothing_of_others(
    store: Path, tmp_path: Path, dead: int, action: str
) -> None:
    left = _killed_backup(store, tmp_path / "b[1].tar.zst", dead)
    (tmp_path / f".mine.{dead}.tmp").write_text("of another program")

    with open_memory(store) as memory:
        getattr(memory, action)(tmp_path / "next.tar.zst")

    assert [one for one in left if one.exists()] == []
    assert (tmp_path / f".mine.{dead}.tmp").exists()


def test_a_backup_that_fails_leaves_no_work_file(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recollect.care import backup

    def fail(database: object, target: Path, advance: object) -> None:
        target.with_name(target.name + "-journal").write_text(WORD)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "copy_database", fail)
    (tmp_path / "target").mkdir()

    with open_memory(store) as memory, pytest.raises(Exception, match="No space"):
        memory.backup(tmp_path / "target" / "b.tar.zst")

    assert list((tmp_path / "target").iterdir()) == []
