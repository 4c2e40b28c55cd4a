"""How the files of a store are made: who may read them, and the settings that cannot be added later."""

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from recollect.model.errors import NotFound, StoreDamaged, StoreTooNew, StoreUnwritable
from recollect.store import Store, iter_damaged_pages, open_database, open_store
from recollect.store.sqlite.database import file_system_type
from tests.store.rows import batch, held, new_store, noise, put

DATABASES = ("cache.db", "memory.db")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def lax_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def _filled(folder: Path) -> Store:
    store = new_store(folder)
    put(store, batch({"a": noise(100_000)}))
    return store


@pytest.mark.usefixtures("lax_umask")
def test_every_file_of_a_store_is_the_users_alone_even_under_a_lax_umask(tmp_path: Path) -> None:
    with _filled(tmp_path) as store:
        files = [path for path in store.folder.rglob("*") if path.is_file()]

        assert {path.name for path in files} >= {"cache.db", "cache.db-wal", "memory.db", "cache.lock"}
        assert {path.suffix for path in files} >= {".pack"}
        assert {str(path): oct(_mode(path)) for path in files if _mode(path) != 0o600} == {}


@pytest.mark.usefixtures("lax_umask")
def test_every_folder_of_a_store_is_the_users_alone_even_under_a_lax_umask(tmp_path: Path) -> None:
    with _filled(tmp_path) as store:
        folders = [store.folder, *(path for path in store.folder.rglob("*") if path.is_dir())]

        assert len(folders) == 3
        assert {str(path): oct(_mode(path)) for path in folders if _mode(path) != 0o700} == {}


@pytest.mark.parametrize("name", DATABASES)
def test_a_new_database_has_what_cannot_be_added_later(tmp_path: Path, name: str) -> None:
    new_store(tmp_path).close()

    connection = apsw.Connection(str(tmp_path / "store" / name))

    assert connection.pragma("auto_vacuum") == 2
    assert connection.reserve_bytes() == 8
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("application_id") == 0x52636C74
    connection.close()


def test_memory_is_written_more_carefully_than_the_cache(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        assert store._memory.value("PRAGMA synchronous") == 2
        assert store._cache.value("PRAGMA synchronous") == 1


@pytest.mark.parametrize(
    ("pragma", "value"), [("secure_delete", 1), ("trusted_schema", 0), ("cell_size_check", 1), ("mmap_size", 0)]
)
def test_a_connection_takes_the_safe_settings(tmp_path: Path, pragma: str, value: int) -> None:
    with new_store(tmp_path) as store:
        for database in (store._memory, store._cache):
            assert database.value(f"PRAGMA {pragma}") == value


def test_a_folder_without_a_store_is_not_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_store(tmp_path / "store")

    assert not (tmp_path / "store").exists()


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreUnwritable, match="Cannot create the store"):
        open_store(tmp_path / "file" / "store", create=True)


@pytest.mark.parametrize("name", DATABASES)
def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    new_store(tmp_path).close()
    path = tmp_path / "store" / name
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 99)
    connection.close()

    with pytest.raises(StoreTooNew, match="schema 99"):
        open_store(tmp_path / "store")

    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == 99
    connection.close()


def test_a_schema_that_changes_under_an_open_store_is_noticed_by_the_next_write(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        other = apsw.Connection(str(store.folder / "cache.db"))
        other.pragma("user_version", 99)
        other.close()

        with pytest.raises(StoreTooNew):
            put(store, batch({"a": "1"}))


@pytest.mark.parametrize("name", DATABASES)
def test_a_file_that_is_no_database_is_damage(tmp_path: Path, name: str) -> None:
    new_store(tmp_path).close()
    (tmp_path / "store" / name).write_bytes(b"not a database " * 1000)

    with pytest.raises(StoreDamaged):
        open_store(tmp_path / "store")


def test_another_programs_database_is_refused_and_not_written(tmp_path: Path) -> None:
    new_store(tmp_path).close()
    path = tmp_path / "store" / "memory.db"
    path.unlink()
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()

    with pytest.raises(StoreDamaged, match="Not a Recollect database"):
        open_store(tmp_path / "store")

    connection = apsw.Connection(str(path))
    assert [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")] == ["theirs"]
    connection.close()


def test_a_deleted_cache_is_made_again_from_the_packs(tmp_path: Path) -> None:
    texts = {"a": noise(100_000), "b": "short"}
    with new_store(tmp_path) as store:
        put(store, batch(texts))
        put(store, batch({"c": "in a shared pack"}, session="s2"))
    for path in (tmp_path / "store").glob("cache.db*"):
        path.unlink()

    with pytest.raises(StoreDamaged, match="missing beside its packs"):
        open_store(tmp_path / "store")
    with new_store(tmp_path) as store:
        assert dict(held(store)) == texts
        assert held(store, "s2") == [("c", "in a shared pack")]
        assert put(store, batch({**texts, "d": "new"})).events_new == 1


def test_a_checkpoint_leaves_nothing_in_the_write_ahead_logs(tmp_path: Path) -> None:
    with _filled(tmp_path) as store:
        store.checkpoint()

        assert (store.folder / "cache.db-wal").stat().st_size == 0


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="the system does not say")
def test_a_folder_is_on_the_file_system_that_is_mounted_nearest() -> None:
    assert file_system_type(Path("/proc/self/fd")) == "proc"
    assert file_system_type(Path("/processes")) == file_system_type(Path("/"))


def _damaged_pages(path: Path) -> list[int]:
    return [page for page in iter_damaged_pages(path, lambda: open_database(path)) if page is not None]


@pytest.mark.parametrize("name", DATABASES)
def test_every_page_of_a_database_has_a_checksum_after_all_kinds_of_writing(tmp_path: Path, name: str) -> None:
    with _filled(tmp_path) as store:
        put(store, batch({str(number): "x" * 3000 for number in range(60)}, session="other"))
        store.streams.drop_outdated([1], lambda source: set(range(100_000)))
        store.databases[0].connection.execute("PRAGMA incremental_vacuum")
        store.checkpoint()

    assert _damaged_pages(tmp_path / "store" / name) == []


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_written_without_checksums_gets_them_when_it_is_opened(tmp_path: Path, name: str) -> None:
    _filled(tmp_path).close()
    path = tmp_path / "store" / name
    plain = apsw.Connection(str(path), vfs="unix")
    plain.execute("CREATE TABLE filler (x)")
    plain.execute("INSERT INTO filler VALUES (zeroblob(100000))")
    plain.execute("DROP TABLE filler")
    plain.execute("VACUUM")
    plain.close()
    assert _damaged_pages(path)
    plain = apsw.Connection(str(path), vfs="unix")
    plain.execute("UPDATE history SET checksums = 'none'")
    plain.close()

    open_store(tmp_path / "store").close()

    assert _damaged_pages(path) == []
    with closing(open_database(path)) as database:
        assert database.has_checksums()
