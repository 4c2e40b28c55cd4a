"""Full, read-only and foreign stores, and two programs at once: one clear line and no half state."""

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from recollect.api import open_memory
from recollect.model.errors import Busy, StoreDamaged, StoreTooNew
from tests.faults.rig import as_nobody, command, error_lines, needs_nobody, needs_root, own, run, run_json, sweep
from tests.logs import CLAUDE, claude_user, lines, session_id

DATABASES = ("memory.db", "cache.db")
FORMS = [
    ["sessions"],
    ["status"],
    ["show", session_id()],
    ["status", "--problems"],
    ["search", "hello"],
    ["recent"],
]


@pytest.fixture
def home(open_folder: Path) -> Path:
    """Two sessions."""
    home = open_folder / "home"
    CLAUDE.write(home, CLAUDE.content(3))
    CLAUDE.write(home, CLAUDE.content(5, session_id(2)), session_id(2))
    return home


@pytest.fixture
def big_home(home: Path) -> Path:
    """One of the sessions has more text than a small disk takes."""
    chance, big = random.Random(7), session_id(2)
    texts = [chance.randbytes(40_000).hex() for _ in range(100)]
    records = [claude_user(big, number, text) for number, text in enumerate(texts, start=1)]
    CLAUDE.write(home, lines(records), big)
    return home


@pytest.fixture
def swept(open_folder: Path, home: Path) -> Path:
    """A store with the sessions of `home` in it."""
    store = open_folder / "store"
    sweep(store, CLAUDE.root_flag(home))
    return store


def _sweeping(home: Path) -> list[str]:
    return command("sweep", "--root", CLAUDE.root_flag(home))


def _assert_one_line(done: subprocess.CompletedProcess[str], exit_code: int) -> None:
    """A command that failed says one thing, and what to do about it."""
    assert done.returncode == exit_code, done.stderr
    (told,) = error_lines(done)
    assert told.startswith("Error: ")


def _bytes_of(store: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


# Disks

Mount = Callable[[Path, str], None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mounts file systems in memory, or mounts them anew with other options; gone after the test."""
    points: list[Path] = []

    def mount_at(point: Path, options: str) -> None:
        is_new = point not in points
        point.mkdir(exist_ok=True)
        words = ["-t", "tmpfs", "-o", f"{options},mode=700"] if is_new else ["-o", f"remount,{options}"]
        done = subprocess.run(["mount", *words, "tmpfs", str(point)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot mount: {done.stderr.strip()}")
        if is_new:
            points.append(point)

    yield mount_at
    for point in points:
        subprocess.run(["umount", "-l", str(point)], check=True)


@needs_root
@pytest.mark.parametrize("limit", ["size=3m", "size=600k", "size=60k", "size=64m,nr_inodes=9"])
def test_a_full_disk_is_one_line_and_the_next_sweep_goes_on(
    open_folder: Path, big_home: Path, mount: Mount, limit: str
) -> None:
    store = open_folder / "full"
    clean = sweep(open_folder / "clean", CLAUDE.root_flag(big_home))
    mount(store, limit)

    full = run(_sweeping(big_home), store)
    mount(store, "size=200m,nr_inodes=1000")
    held = sweep(store, CLAUDE.root_flag(big_home))

    _assert_one_line(full, 1)
    assert held.hashes == clean.hashes
    assert len(held.texts) == len(clean.texts)


@needs_root
def test_what_is_held_can_be_read_while_the_disk_is_full(open_folder: Path, mount: Mount) -> None:
    store, home = open_folder / "full", open_folder / "home"
    CLAUDE.write(home, CLAUDE.content(3))
    mount(store, "size=3m")
    sweep(store, CLAUDE.root_flag(home))
    _fill(store / "filler")

    done = [run(command(*words), store) for words in FORMS]

    assert [(form.returncode, form.stderr) for form in done] == [(0, "")] * len(FORMS)
    assert "hello 3" in done[2].stdout


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return


@needs_root
def test_a_store_on_a_read_only_disk_can_be_read_and_is_not_changed(
    open_folder: Path, home: Path, mount: Mount
) -> None:
    store = open_folder / "read-only"
    mount(store, "size=64m")
    sweep(store, CLAUDE.root_flag(home))
    mount(store, "ro")
    before = _bytes_of(store)

    done = [run(command(*words), store) for words in FORMS]
    refused = run(_sweeping(home), store)

    assert [(form.returncode, form.stderr) for form in done] == [(0, "")] * len(FORMS)
    assert "hello 3" in done[2].stdout
    _assert_one_line(refused, 1)
    assert _bytes_of(store) == before


@needs_nobody
def test_a_store_of_another_user_can_be_read_where_its_modes_allow_it(open_folder: Path, home: Path) -> None:
    store = open_folder / "store"
    sweep(store, CLAUDE.root_flag(home))
    for path in (store, *store.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    own(home)
    before = _bytes_of(store)

    done = [run(as_nobody(command(*words)), store) for words in FORMS]
    refused = run(as_nobody(_sweeping(home)), store)

    assert [(form.returncode, form.stderr) for form in done] == [(0, "")] * len(FORMS)
    _assert_one_line(refused, 1)
    assert _bytes_of(store) == before


@needs_nobody
def test_a_store_that_may_not_be_looked_into_is_one_line(open_folder: Path, home: Path) -> None:
    store = open_folder / "store"
    sweep(store, CLAUDE.root_flag(home))
    store.chmod(0o700)

    done = [run(as_nobody(command(*words)), store) for words in (*FORMS, ["sweep"])]

    for form in done:
        assert form.returncode in (1, 4)
        assert "Traceback" not in form.stderr
        assert len(error_lines(form)) == 1


def test_the_write_ahead_logs_are_empty_after_a_sweep(swept: Path) -> None:
    with open_memory(swept):
        sizes = [log.stat().st_size for log in swept.glob("*.db-wal")]

    assert sum(sizes) == 0


def test_only_the_user_may_look_into_a_store(swept: Path) -> None:
    modes = {path.stat().st_mode & 0o077 for path in (swept, *swept.rglob("*"))}

    assert modes == {0}


# Two at once


def test_a_second_sweep_leaves_with_one_line(open_folder: Path, home: Path) -> None:
    store = open_folder / "store"
    others: list[subprocess.CompletedProcess[str]] = []

    def start_another(stage: str, done: int, total: int) -> None:
        if not others:
            others.append(run(_sweeping(home), store))

    with open_memory(store, [CLAUDE.root_flag(home)]) as memory:
        memory.sweep(start_another)

    _assert_one_line(others[0], 6)


def test_a_second_sweep_in_the_same_process_is_refused_too(open_folder: Path, home: Path) -> None:
    roots = [CLAUDE.root_flag(home)]

    def sweep_again(stage: str, done: int, total: int) -> None:
        with open_memory(open_folder / "store", roots) as second, pytest.raises(Busy):
            second.sweep()

    with open_memory(open_folder / "store", roots) as memory:
        report = memory.sweep(sweep_again)

    assert report.sessions == 2


def test_sweeps_started_together_hold_what_one_would(open_folder: Path, big_home: Path) -> None:
    store = open_folder / "store"
    environment = os.environ | {"RECOLLECT_HOME": str(store)}
    quiet = subprocess.DEVNULL
    started = [
        subprocess.Popen(_sweeping(big_home), env=environment, stdout=quiet, stderr=subprocess.PIPE) for _ in range(4)
    ]

    said = [process.communicate()[1] for process in started]

    assert {process.returncode for process in started} <= {0, 6}, said
    assert 0 in {process.returncode for process in started}
    clean = sweep(open_folder / "clean", CLAUDE.root_flag(big_home))
    held = sweep(store, CLAUDE.root_flag(big_home))
    assert held.hashes == clean.hashes
    assert held.report.events_new == 0


def test_reading_goes_on_while_a_sweep_writes(open_folder: Path, home: Path) -> None:
    store = open_folder / "store"
    CLAUDE.write(home, CLAUDE.content(2, session_id(9)), session_id(9))
    sweep(store, CLAUDE.root_flag(home))
    CLAUDE.write(home, CLAUDE.content(9, session_id(9)), session_id(9))
    seen: list[int] = []

    def look(stage: str, done: int, total: int) -> None:
        with open_memory(store, create=False) as other:
            seen.append(len(other.sessions()))

    with open_memory(store, [CLAUDE.root_flag(home)]) as memory:
        memory.sweep(look)

    assert set(seen) == {3}


@pytest.mark.parametrize("name", ["sweep.lock", "cache.lock", "memory.lock"])
def test_a_lock_that_cannot_be_had_is_one_line(swept: Path, home: Path, name: str) -> None:
    (swept / name).unlink()
    (swept / name).mkdir()

    _assert_one_line(run(_sweeping(home), swept), 1)


# Stores this program cannot use


def _set_version(path: Path, add: int) -> None:
    connection = apsw.Connection(str(path))
    version = connection.pragma("user_version")
    connection.pragma("user_version", version + add)
    connection.pragma("journal_mode", "delete")  # so that the file alone is the whole database
    connection.close()


@pytest.mark.parametrize("name", DATABASES)
def test_a_store_of_a_newer_version_is_refused_and_not_changed(swept: Path, home: Path, name: str) -> None:
    _set_version(swept / name, 1)
    before = (swept / name).read_bytes()

    done = [run(_sweeping(home), swept), *(run(command(*words), swept) for words in FORMS)]

    for form in done:
        _assert_one_line(form, 7)
        assert "newer version" in form.stderr
    assert (swept / name).read_bytes() == before
    with pytest.raises(StoreTooNew):
        open_memory(swept)


def test_a_store_made_newer_under_an_open_program_is_not_written(swept: Path, home: Path) -> None:
    CLAUDE.write(home, CLAUDE.content(4))
    with open_memory(swept, [CLAUDE.root_flag(home)]) as memory:
        other = apsw.Connection(str(swept / "cache.db"))
        other.pragma("user_version", other.pragma("user_version") + 1)
        other.close()

        with pytest.raises(StoreTooNew):
            memory.sweep()


@pytest.mark.parametrize("name", DATABASES)
def test_a_file_that_is_no_database_is_refused_and_not_changed(swept: Path, home: Path, name: str) -> None:
    for log in swept.glob(f"{name}-*"):
        log.unlink()
    content = b"this is a shopping list\n" * 500
    (swept / name).write_bytes(content)

    done = [run(_sweeping(home), swept), *(run(command(*words), swept) for words in FORMS)]

    for form in done:
        _assert_one_line(form, 7)
    assert (swept / name).read_bytes() == content
    with pytest.raises(StoreDamaged):
        open_memory(swept)


@pytest.mark.parametrize("name", DATABASES)
def test_the_database_of_another_program_is_refused_and_not_changed(open_folder: Path, home: Path, name: str) -> None:
    store = open_folder / "store"
    store.mkdir()
    foreign = apsw.Connection(str(store / name))
    foreign.pragma("application_id", 42)
    foreign.execute("CREATE TABLE recipes (name TEXT)")
    foreign.close()
    before = (store / name).read_bytes()

    done = run(_sweeping(home), store)

    _assert_one_line(done, 7)
    assert (store / name).read_bytes() == before


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_cut_in_half_is_named_and_not_taken_for_empty(swept: Path, name: str) -> None:
    for log in swept.glob(f"{name}-*"):
        log.unlink()
    os.truncate(swept / name, (swept / name).stat().st_size // 2 // 4096 * 4096)

    done = run(command("doctor", "--json", "--root", "claude=/nowhere"), swept)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert any(word in done.stdout for word in ("amaged", "malformed"))


def test_a_lost_cache_is_read_again_to_the_same_hashes(swept: Path, home: Path) -> None:
    before = sweep(swept, CLAUDE.root_flag(home))
    for path in swept.glob("cache.db*"):
        path.unlink()
    shutil.rmtree(swept / "packs")

    after = sweep(swept, CLAUDE.root_flag(home))

    assert after.hashes == before.hashes
    assert after.texts == before.texts


@needs_root
@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
def test_a_store_on_a_network_file_system_is_refused(open_folder: Path, home: Path, kind: str) -> None:
    """The kernel's list of mounts is covered by one that says so, in a name space of the command's own."""
    store, mounts = open_folder / "store", open_folder / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/x rw\n2 1 0:2 / {open_folder} rw - {kind} server:/x rw\n")
    script = 'mount --bind "$0" /proc/$$/mountinfo || exit 99; exec "$@"'
    covered = ["unshare", "--mount", "sh", "-c", script, str(mounts)]

    done = run([*covered, *_sweeping(home)], store)

    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip(f"cannot cover the list of mounts: {done.stderr.strip()}")
    _assert_one_line(done, 7)
    assert kind in done.stderr
    assert not (store / "memory.db").exists()


def test_errors_of_a_store_are_json_where_asked_for(swept: Path) -> None:
    _set_version(swept / "memory.db", 1)

    told = run_json(command("status", "--json"), swept)

    assert told["error"]["code"] == "store_too_new"
