"""A backup holds the store of one moment, and gives it back whole or changes nothing."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from recollect.api import open_memory, restore
from recollect.model.errors import BadBackup, Busy, RecollectError, StoreUnusable, StoreUnwritable, UsageError
from recollect.store import Tombstone, open_store, sweep_lock
from tests.builders import Home, event, sweep
from tests.care.rig import flip, hashes, held, lose_home, problems, tree
from tests.faults.rig import IS_SOAK, as_nobody, command, needs_nobody, needs_root, own, run, run_json

KILLS = 40 if IS_SOAK else 4


def _back_up(store: Path, path: Path) -> Path:
    with open_memory(store, create=False) as memory:
        memory.backup(path)
    return path


@pytest.fixture
def backup(store: Path, tmp_path: Path) -> Path:
    (store / "redaction.key").write_bytes(b"k" * 32)
    return _back_up(store, tmp_path / "backup.tar.zst")


def test_a_restored_backup_is_the_store_it_was_made_from(store: Path, home: Home, backup: Path, tmp_path: Path) -> None:
    before = held(store)
    lose_home(home)

    report = restore(backup, tmp_path / "elsewhere")

    assert held(tmp_path / "elsewhere") == before
    assert (report.sessions, report.set_aside) == (len(before), None)
    assert (tmp_path / "elsewhere" / "redaction.key").read_bytes() == b"k" * 32
    assert problems(tmp_path / "elsewhere", home) == []


def test_restoring_sets_the_store_that_is_there_aside(store: Path, home: Home, backup: Path) -> None:
    before = held(store)
    home.write("later", event("later", 1))
    sweep(store, home).close()

    report = restore(backup, store)

    assert held(store) == before
    assert problems(store, home) == []
    aside = Path(report.set_aside or "")
    assert {"memory.db", "cache.db", "packs"} <= {path.name for path in aside.iterdir()}


def test_a_sweep_after_a_restore_reads_what_came_later(store: Path, home: Home, backup: Path) -> None:
    home.append("small", event("small", 6))
    home.write("later", event("later", 1))
    sweep(store, home).close()
    newest = hashes(store)

    restore(backup, store)
    sweep(store, home).close()

    assert hashes(store) == newest


def test_only_the_user_may_read_a_backup_and_what_it_gives_back(backup: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        restore(backup, tmp_path / "elsewhere")
    finally:
        os.umask(before)

    places = [backup, tmp_path / "elsewhere", *(tmp_path / "elsewhere").rglob("*")]
    assert {path.stat().st_mode & 0o077 for path in places} == {0}


def test_a_backup_never_overwrites(store: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("dear diary")

    with pytest.raises(UsageError):
        _back_up(store, tmp_path / "mine")

    assert (tmp_path / "mine").read_text() == "dear diary"


def test_backups_are_remembered_and_failed_ones_are_not(store: Path, backup: Path, tmp_path: Path) -> None:
    with pytest.raises(RecollectError):
        _back_up(store, tmp_path / "no" / "such" / "folder.tar.zst")

    with open_store(store) as opened:
        assert [(copy.kind, copy.path) for copy in opened.copies.noted()] == [("backup", str(backup))]


def test_a_backup_made_while_a_sweep_writes_is_whole(store: Path, home: Home, tmp_path: Path) -> None:
    for number in range(30):
        home.write(f"more-{number}", *(event(f"more-{number}", place) for place in range(1, 200)))
    made: list[Path] = []

    def back_up(stage: str, done: int, total: int) -> None:
        made.append(_back_up(store, tmp_path / f"{len(made)}.tar.zst"))

    with open_memory(store, [home.flag]) as memory:
        memory.sweep(back_up)

    assert len(made) > 1
    wanted = hashes(store)
    for path in made:
        folder = tmp_path / path.stem
        restore(path, folder)
        assert problems(folder, home) == []
        sweep(folder, home).close()
        assert hashes(folder) == wanted


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_backup_that_is_cut_off_changes_nothing(store: Path, backup: Path, part: float) -> None:
    os.truncate(backup, int(backup.stat().st_size * part))
    before = tree(store)

    with pytest.raises(BadBackup):
        restore(backup, store)

    assert tree(store) == before


def test_a_backup_with_a_flipped_byte_changes_nothing(store: Path, backup: Path) -> None:
    chance, before, sound = random.Random(), tree(store), backup.read_bytes()
    for _ in range(200 if IS_SOAK else 20):
        # Before it stands how much memory unpacking takes: with more the same comes out, and is restored.
        flip(backup, chance.randrange(6, len(sound)), chance.randrange(1, 256))

        with pytest.raises(BadBackup):
            restore(backup, store)

        backup.write_bytes(sound)
        assert tree(store) == before


@pytest.mark.parametrize("content", [b"", b"no tar", b"x" * 100_000])
def test_something_that_is_no_backup_changes_nothing(store: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    before = tree(store)

    with pytest.raises(BadBackup):
        restore(tmp_path / "file", store)

    assert tree(store) == before


def test_a_restore_while_a_sweep_runs_is_refused_and_changes_nothing(store: Path, backup: Path) -> None:
    before = hashes(store)

    with sweep_lock(store), pytest.raises(Busy):
        restore(backup, store)

    assert hashes(store) == before
    assert not (store / "replacement").exists()


def test_a_program_that_had_the_store_open_does_not_write_into_the_old_one(store: Path, backup: Path) -> None:
    with open_store(store) as opened:
        restore(backup, store)

        with pytest.raises(StoreUnusable, match="replaced"):
            opened.copies.note_copy("backup", Path("/x"))


class _Died(BaseException):
    pass


def _dying(real: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """A step that is not taken any more once as many as are left have been."""

    def step(*arguments: Any, **options: Any) -> Any:
        if not left[0]:
            raise _Died
        left[0] -= 1
        return real(*arguments, **options)

    return step


def test_a_restore_that_dies_at_any_step_leaves_the_old_store_or_the_new_one(
    store: Path, home: Home, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = hashes(store)
    home.write("later", event("later", 1))
    sweep(store, home).close()
    old = hashes(store)
    seen = []
    for steps in range(200):
        folder = shutil.copytree(store, tmp_path / f"try-{steps}")
        left = [steps]
        with monkeypatch.context() as patch, suppress(_Died):
            for name in ("rename", "replace", "unlink", "rmdir", "mkdir"):
                patch.setattr(Path, name, _dying(getattr(Path, name), left))
            restore(backup, folder)

        seen.append(hashes(folder))
        assert seen[-1] in (old, new)
        assert problems(folder, home) == []
        if left[0]:
            break
    assert left[0] > 0  # the last one went through
    assert seen[0] == old
    assert seen[-1] == new


def _killed_after(arguments: list[str], store: Path, seconds: float) -> None:
    environment = os.environ | {"RECOLLECT_HOME": str(store)}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(arguments, env=environment, stdout=quiet, stderr=quiet)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_killed_backup_leaves_nothing_under_its_name(store: Path, home: Home, tmp_path: Path) -> None:
    chance = random.Random()
    for number in range(KILLS):
        path = tmp_path / "killed.tar.zst"
        _killed_after(command("backup", str(path)), store, chance.uniform(0.1, 0.6))

        if path.exists():
            restore(path, tmp_path / f"whole-{number}")
            assert hashes(tmp_path / f"whole-{number}") == hashes(store)
            path.unlink()
    assert problems(store, home) == []
    _back_up(store, tmp_path / "killed.tar.zst")
    assert [path.name for path in tmp_path.glob(".killed*")] == []


def test_a_killed_restore_leaves_a_whole_store(store: Path, home: Home, backup: Path) -> None:
    chance, wanted = random.Random(), hashes(store)
    for _ in range(KILLS):
        _killed_after(command("restore", "--yes", str(backup)), store, chance.uniform(0.1, 0.6))

        assert hashes(store) == wanted
    restore(backup, store)
    assert [path.name for path in store.glob(".unpacking*")] == []


@needs_root
def test_no_room_for_a_backup_is_one_line_and_leaves_nothing(store: Path, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("300k")

    with pytest.raises(StoreUnwritable):
        _back_up(store, disk / "backup.tar.zst")

    assert list(disk.iterdir()) == []


@needs_root
def test_no_room_for_a_restore_is_one_line_and_changes_nothing(
    store: Path, backup: Path, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("500k")

    with pytest.raises(StoreUnwritable):
        restore(backup, disk)

    assert [path for path in disk.rglob("*") if path.is_file() and not path.name.endswith(".lock")] == []


@needs_nobody
def test_a_read_only_store_can_be_backed_up(home: Home, store: Path) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(store, folder / "store", ignore=shutil.ignore_patterns("*.lock"))
        (folder / "target").mkdir()
        own(folder)
        for path in (folder / "store", *(folder / "store").rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)

        done = run(as_nobody(command("backup", "--json", str(folder / "target" / "backup"))), folder / "store")

        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["is_noted"] is False


@pytest.mark.parametrize("has_settings", [False, True])
def test_settings_of_a_backup_are_shown_and_never_applied(store: Path, tmp_path: Path, has_settings: bool) -> None:
    ran = tmp_path / "ran"
    (store / "config.toml").write_text(f"[notify]\ncommand = ['touch', '{ran}']\n[retention]\ndistilled_cap = 1\n")
    path = _back_up(store, tmp_path / "with-settings.tar.zst")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if has_settings:
        (elsewhere / "config.toml").write_text('[domains]\n"a/b" = "mine"\n')
    before = tree(elsewhere)

    report = restore(path, elsewhere)
    sweep(elsewhere, Home(tmp_path / "none")).close()

    assert not ran.exists()
    assert {name: content for name, content in tree(elsewhere).items() if name == "config.toml"} == before
    shown = Path(report.settings or "")
    assert shown.read_text() == (store / "config.toml").read_text()
    assert shown.stat().st_mode & 0o077 == 0


def test_settings_that_are_in_force_are_not_shown(store: Path, tmp_path: Path) -> None:
    (store / "config.toml").write_text('[domains]\n"a/b" = "mine"\n')
    path = _back_up(store, tmp_path / "with-settings.tar.zst")

    report = restore(path, store)

    assert report.settings is None
    assert [file.name for file in store.glob("*.toml")] == ["config.toml"]


def test_what_must_outlive_a_restore_is_carried_over(store: Path, backup: Path) -> None:
    with open_store(store) as opened:
        opened.tombstones.add([Tombstone("scripted", "small", b"")])
        opened.ledger.append("of-the-old-store", {"text": "made after the backup"})

    restore(backup, store)

    with open_store(store) as opened:
        kinds = [record.kind for record in opened.ledger.records()]
    assert "tombstone" in kinds
    assert "of-the-old-store" not in kinds


def test_the_commands_ask_and_speak_json(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "backup"

    made = run_json(command("backup", "--json", str(path)), store)
    asked = run(command("restore", str(path)), store)
    done = run_json(command("restore", "--yes", "--json", str(path)), store)

    assert made["sessions"] == done["sessions"] > 0
    assert asked.returncode == 1
    assert "--yes" in asked.stderr


def test_a_damaged_page_is_called_so_wherever_it_is(tmp_path: Path) -> None:
    home = Home(tmp_path / "small home")
    home.write("small", event("small", 1))
    sweep(tmp_path / "whole", home).close()
    found = 0
    for page in range(1, (tmp_path / "whole" / "cache.db").stat().st_size // 4096):
        folder = tmp_path / f"damaged {page}"
        shutil.copytree(tmp_path / "whole", folder)
        with (folder / "cache.db").open("r+b") as file:
            file.seek(page * 4096)
            file.write(os.urandom(4096))

        try:
            _back_up(folder, tmp_path / f"{page}.tar.zst")
        except StoreUnusable as error:
            found += "is damaged" in error.message
        shutil.rmtree(folder)

    assert found > 3
