"""A deep look notices and names every flipped byte, missing piece and lost log, and cries wolf at none."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from recollect.api import doctor, open_memory, repair
from recollect.care.inspect import inspect_store
from recollect.config import load_settings
from recollect.store import open_store
from tests.builders import Home, event, sweep
from tests.care.rig import copy_while_open, flip, lose_home, pack_of, problems
from tests.conftest import SHARED, needs_shared
from tests.faults.rig import IS_SOAK, command, run
from tests.store.rows import batch, put

FLIPS = 1000 if IS_SOAK else 60
DATABASES = ("cache.db", "memory.db")


def _files(store: Path) -> list[Path]:
    return [store / "cache.db", store / "memory.db", store / "ledger.jsonl", *(store / "packs").rglob("*.pack")]


@pytest.fixture
def noted(store: Path) -> Path:
    """The store, with lines in its ledger."""
    with open_store(store) as opened:
        for number in range(10):
            opened.copies.note_copy("backup", Path(f"/backups/{number}"))
        opened.checkpoint()
    return store


def test_a_sound_store_has_no_problems(noted: Path, home: Home) -> None:
    found = doctor(noted, [home.flag], deep=True)

    assert [finding for finding in found if finding.level != "ok" and finding.subject in ("store", "deep")] == []


def test_every_flipped_byte_is_noticed_and_its_file_named(noted: Path, home: Home) -> None:
    chance = random.Random()
    missed = []
    for number in range(FLIPS):
        path = _files(noted)[number % len(_files(noted))]
        before = path.read_bytes()
        place, bits = chance.randrange(len(before)), chance.randrange(1, 256)
        flip(path, place, bits)

        if not any(path.name in finding.message for finding in problems(noted, home)):
            missed.append((path.name, place, bits))

        path.write_bytes(before)
        for log in noted.glob("*.db-*m"):
            log.unlink()
    assert missed == []


@pytest.mark.parametrize("name", DATABASES)
@pytest.mark.parametrize("place", [30, 4096 * 2 + 99])
def test_a_damaged_page_is_never_read_as_content(store: Path, name: str, place: int) -> None:
    """Not even by ordinary commands: they end with one line that names the file."""
    last = (store / name).stat().st_size
    for page in range(last // 4096):
        flip(store / name, (page * 4096 + place) % last)

    done = run(command("show", "small"), store)

    assert done.returncode == 7
    assert name in done.stderr


@pytest.mark.parametrize(
    ("part", "word"), [(None, "missing"), (0, "truncated"), (0.5, "truncated"), (0.999, "truncated")]
)
def test_a_pack_that_is_missing_or_cut_off_is_named(store: Path, home: Home, part: float | None, word: str) -> None:
    pack = pack_of(store, "largest")
    if part is None:
        pack.unlink()
    else:
        os.truncate(pack, int(pack.stat().st_size * part))

    assert any(word in finding.message and str(pack) in finding.message for finding in problems(store, home))


def test_the_pack_of_another_session_is_named(store: Path, home: Home) -> None:
    pack = pack_of(store, "smallest")
    shutil.copy(pack_of(store, "largest"), pack)

    assert any(str(pack) in finding.message for finding in problems(store, home))


def test_a_frame_that_is_gone_from_the_database_is_noticed(store: Path, home: Home) -> None:
    with open_store(store) as opened, opened.databases[0].transaction() as connection:
        connection.execute("DELETE FROM frames WHERE start > 0 AND pack_offset IS NOT NULL")

    assert any("missing" in finding.message for finding in problems(store, home))


def test_events_that_are_gone_are_noticed_by_their_sessions_hash(store: Path, home: Home) -> None:
    with open_store(store) as opened, opened.databases[0].transaction() as connection:
        connection.execute("DELETE FROM events WHERE id IN (SELECT max(id) FROM events)")

    assert any("do not match its row" in finding.message for finding in problems(store, home))


def test_bytes_behind_the_known_end_of_a_pack_are_no_problem(store: Path, home: Home) -> None:
    with pack_of(store, "largest").open("ab") as pack:
        pack.write(b"left by a process that died")

    assert problems(store, home) == []


def test_a_pack_that_nobody_has_is_a_note(store: Path, home: Home) -> None:
    stray = store / "packs" / "00" / "stray.1.pack"
    stray.parent.mkdir()
    stray.write_bytes(b"x")

    found = doctor(store, [home.flag], deep=True)

    assert [finding.level for finding in found if str(stray) in finding.message] == ["note"]


def test_a_line_edited_in_the_middle_of_a_source_is_a_changed_source_and_no_damage(store: Path, home: Home) -> None:
    path = home.folder / "small.jsonl"
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"small words 3", b"other words 3"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    found = doctor(store, [home.flag], deep=True)

    assert [finding.level for finding in found if str(path) in finding.message] == ["note"]
    assert problems(store, home) == []


def test_a_source_that_has_grown_since_is_not_called_changed(store: Path, home: Home) -> None:
    home.append("small", event("small", 6), event("small", 7))

    found = doctor(store, [home.flag], deep=True)

    assert [finding for finding in found if "changed since" in finding.message] == []


def test_a_store_without_its_sources_is_sound(store: Path, home: Home) -> None:
    lose_home(home)

    assert problems(store, home) == []


@pytest.mark.parametrize("name", DATABASES)
def test_a_missing_database_is_named(store: Path, home: Home, name: str) -> None:
    for path in store.glob(f"{name}*"):
        path.unlink()

    assert any(f"{name} is missing" in finding.message for finding in problems(store, home))


def test_ordinary_commands_do_not_take_a_store_without_memory_for_an_empty_one(store: Path) -> None:
    (store / "memory.db").unlink()

    done = run(command("show", "small"), store)

    assert done.returncode == 7
    assert "memory.db is missing" in done.stderr
    assert "doctor --repair" in done.stderr


def test_a_time_limit_says_what_was_not_looked_at(store: Path, home: Home) -> None:
    found = doctor(store, [home.flag], deep=True, max_seconds=0)

    untold = [finding.message for finding in found if "Not checked" in finding.message]
    assert len(untold) > 3
    assert any("source files" in message for message in untold)


def test_a_look_tells_how_far_it_is(store: Path, home: Home) -> None:
    told: list[tuple[str, int, int]] = []

    inspect_store(load_settings(store, [home.flag]), lambda *step: told.append(step))

    assert {"sessions", "session rows", "source files"} <= {name for name, _, _ in told}
    assert all(done <= total for _, done, total in told)


def test_the_command_prints_findings_as_json(store: Path) -> None:
    pack_of(store, "largest").unlink()

    done = run(command("doctor", "--deep", "--json", "--root", "claude=/nowhere"), store)

    assert done.returncode == 1
    assert any("missing" in finding["message"] for finding in json.loads(done.stdout))


@needs_shared
def test_genuine_sessions_give_no_false_alarm(tmp_path: Path) -> None:
    homes = {agent: sorted(SHARED.glob(f"genuine/{agent}-*/.{agent}")) for agent in ("claude", "codex", "grok")}
    roots = [f"{agent}={path}" for agent, paths in homes.items() for path in paths]
    with open_memory(tmp_path / "store", roots) as memory:
        memory.sweep()

    found = doctor(tmp_path / "store", roots, deep=True)

    assert [finding for finding in found if finding.subject == "deep" and finding.level != "ok"] == []


# Write-ahead logs and old files


def _crashed(store: Path, target: Path) -> Path:
    """A store as it is when a process is killed after its commits, with everything since the sweep in the logs."""
    with open_store(store) as opened:
        for number in range(20):
            put(opened, batch({f"late {number}": "x" * 5000}, session=f"late {number}"))
            opened.copies.note_copy("backup", Path(f"/late/{number}"))
        return copy_while_open(store, target)


def _lose(log: Path, other: Path) -> None:
    log.unlink()


def _empty(log: Path, other: Path) -> None:
    os.truncate(log, 0)


def _cut(log: Path, other: Path) -> None:
    os.truncate(log, log.stat().st_size // 2)


def _blank(log: Path, other: Path) -> None:
    log.write_bytes(bytes(log.stat().st_size))


def _flip_middle(log: Path, other: Path) -> None:
    flip(log, log.stat().st_size // 2)


def _exchange(log: Path, other: Path) -> None:
    shutil.copy(other, log)


@pytest.fixture
def another(tmp_path: Path) -> Path:
    """The crashed store of somebody else."""
    home = Home(tmp_path / "another-home")
    home.write("theirs", *(event("theirs", number) for number in range(1, 40)))
    sweep(tmp_path / "another", home).close()
    return _crashed(tmp_path / "another", tmp_path / "another-crashed")


def test_a_crash_alone_is_no_problem(store: Path, home: Home, tmp_path: Path) -> None:
    crashed = _crashed(store, tmp_path / "crashed")

    assert (crashed / "cache.db-wal").stat().st_size > 0
    assert problems(crashed, home) == []


@pytest.mark.parametrize("name", DATABASES)
@pytest.mark.parametrize("fault", [_lose, _empty, _cut, _blank, _flip_middle, _exchange])
@pytest.mark.parametrize("keeps_index", [True, False])
def test_every_fault_of_a_write_ahead_log_is_noticed(
    store: Path, home: Home, another: Path, tmp_path: Path, name: str, fault: object, keeps_index: bool
) -> None:
    crashed = _crashed(store, tmp_path / "crashed")
    if not keeps_index:
        (crashed / f"{name}-shm").unlink()

    fault(crashed / f"{name}-wal", another / f"{name}-wal")  # type: ignore[operator]

    assert any(name in finding.message for finding in problems(crashed, home))


@pytest.mark.parametrize("name", DATABASES)
def test_an_old_file_put_back_is_noticed_and_stays_so(store: Path, home: Home, name: str) -> None:
    old = (store / name).read_bytes()
    home.append("small", *(event("small", number) for number in range(6, 40)))
    home.write("new", event("new", 1))
    sweep(store, home).close()
    (store / name).write_bytes(old)
    (store / name).with_suffix(".lock").unlink()  # as after a restart of the machine

    first = problems(store, home)
    lose_home(home)
    home.write("newest", event("newest", 1))  # or the folder would be taken for an unmounted one
    sweep(store, home).close()
    second = problems(store, home)

    assert any(f"{name} has lost data since" in finding.message for finding in first)
    assert any(f"{name} has lost data since" in finding.message for finding in second)


def test_another_database_in_its_place_is_noticed(store: Path, home: Home, another: Path) -> None:
    shutil.copy(another / "memory.db", store / "memory.db")

    assert any("memory.db" in finding.message for finding in problems(store, home))


def test_a_cache_that_was_deleted_and_read_again_is_sound(store: Path, home: Home) -> None:
    for path in store.glob("cache.db*"):
        path.unlink()
    shutil.rmtree(store / "packs")

    sweep(store, home).close()

    assert problems(store, home) == []


def test_a_sweep_that_finds_nothing_new_writes_nothing(store: Path, home: Home) -> None:
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}

    sweep(store, home).close()

    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_mark_that_cannot_be_read_is_noticed(store: Path, home: Home) -> None:
    (store / "high-water.json").write_bytes(b"\0" * 300)

    assert any("high-water" in finding.message for finding in problems(store, home))


def test_a_deleted_mark_is_noticed_and_taken_anew(store: Path, home: Home) -> None:
    (store / "high-water.json").unlink()

    noticed = doctor(store, [home.flag], deep=True)
    repair(store, [home.flag])

    assert [finding.level for finding in noticed if "High-water mark is missing" in finding.message] == ["note"]
    assert (store / "high-water.json").exists()
    assert not any("high-water" in finding.message for finding in doctor(store, [home.flag], deep=True))


@pytest.mark.parametrize("is_swept", [True, False])
def test_another_key_of_redaction_is_named_and_no_damage(store: Path, home: Home, is_swept: bool) -> None:
    (store / "redaction.key").write_bytes(os.urandom(32))
    if is_swept:
        home.write("new", event("new", 1))
        sweep(store, home).close()

    found = doctor(store, [home.flag], deep=True)

    (told,) = [finding for finding in found if "a different key" in finding.message]
    assert (told.level, "3 sessions" in told.message) == ("note", True)
    assert told.advice
    assert problems(store, home) == []


def test_after_a_power_cut_the_last_moments_may_be_missing_without_an_alarm(
    store: Path, home: Home, tmp_path: Path
) -> None:
    crashed = _crashed(store, tmp_path / "crashed")
    (crashed / "cache.db-wal").unlink()
    for name in DATABASES:
        lock = (crashed / name).with_suffix(".lock")
        number, token, _ = json.loads(lock.read_bytes())
        lock.write_text(json.dumps((number, token, "another boot")))

    found = [finding for finding in problems(crashed, home) if "commit" in finding.message]

    assert found == []
