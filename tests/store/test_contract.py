"""What code above the store may rely on, through the store's own interface: a second store would be held to it."""

from pathlib import Path

import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.model.errors import NotFound, StoreUnwritable
from recollect.model.kinds import SessionKey
from recollect.store import Exclusion, Tombstone, open_for_reading, open_store
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep, usage
from tests.store.rows import batch, held, new_store, noise, put

FIRST, SECOND = SessionKey(AGENT, "s1"), SessionKey(AGENT, "s2")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A swept store of two sessions."""
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home = Home(tmp_path / "home")
    for session in ("s1", "s2"):
        info = SessionInfo(session, title=f"title of {session}", cwd="/home/x/shop")
        home.write(session, info, event(session, 1, text=f"hello of {session}"), usage(session, f"u-{session}"))
    sweep(tmp_path / "store", home).close()
    return tmp_path / "store"


def test_a_store_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_store(tmp_path / "store")
    with pytest.raises(NotFound):
        open_for_reading(tmp_path / "store")


def test_what_was_put_is_read_in_the_same_order_and_put_again_changes_nothing(tmp_path: Path) -> None:
    texts = {f"e{number}": noise(20_000, number) for number in range(20)}
    with new_store(tmp_path) as store:
        first = put(store, batch(texts))
        second = put(store, batch(texts))

        assert (first.events_new, second.events_new, second.events_replaced) == (20, 0, 0)
        assert held(store) == list(texts.items())


def test_a_reader_has_connections_of_its_own_and_cannot_write(folder: Path) -> None:
    with open_store(folder) as store, open_for_reading(folder) as reader:
        store.exclusions.add([Exclusion(*SECOND, "host", "/home/x/log", "shop")])

        assert [exclusion.native_id for exclusion in reader.exclusions.all()] == ["s2"]
        with pytest.raises(StoreUnwritable):
            reader.exclusions.lift(reader.exclusions.all())


def test_equal_commits_mean_that_nothing_was_written(folder: Path) -> None:
    with open_store(folder) as store:
        before = store.commits()
        store.sessions.find()
        assert store.commits() == before

        store.exclusions.add_folder("hash", "rule")

        assert store.commits() != before


def test_erasing_a_session_leaves_the_others(folder: Path) -> None:
    with open_store(folder) as store:
        store.erasure.drop([FIRST])

        assert store.erasure.keys() == [SECOND]
        assert store.erasure.existing([FIRST, SECOND]) == {SECOND}
        assert store.events.rows(FIRST, ("event_uid",)) == []
        assert list(store.texts.of_session(FIRST)) == []
        assert list(store.lasting.iter_rows(FIRST)) == []
        assert store.check.damage() == []


def test_erasing_twice_is_erasing_once(folder: Path) -> None:
    with open_store(folder) as store:
        store.erasure.drop([FIRST])
        before = store.erasure.size(FIRST)
        store.erasure.drop([FIRST])

        assert store.erasure.size(FIRST) == before
        assert store.erasure.keys() == [SECOND]


def test_the_texts_of_a_session_are_its_own(folder: Path) -> None:
    with open_store(folder) as store:
        texts = " ".join(store.texts.of_session(FIRST))

        assert "title of s1" in texts and "hello of s1" in texts
        assert "s2" not in texts
        assert "u-s1" in list(store.texts.ids(FIRST))


def test_lasting_rows_come_back_as_they_were_and_known_ones_stay(folder: Path, tmp_path: Path) -> None:
    with open_store(folder) as store:
        rows = list(store.lasting.iter_rows(FIRST))

    with open_store(tmp_path / "other", create=True) as other:
        other.lasting.put(FIRST, rows)
        other.lasting.put(
            FIRST, [(table, values | {"title": "another"}) for table, values in rows if table == "sessions"]
        )

        assert list(other.lasting.iter_rows(FIRST)) == rows
        assert other.digests.find(FIRST) is not None


def test_a_tombstone_outlives_memory_db(folder: Path) -> None:
    with open_store(folder) as store:
        store.tombstones.add([Tombstone(*FIRST, b"")])
        store.checkpoint()
    for path in folder.glob("memory.db*"):
        path.unlink()

    with open_store(folder, create=True) as store:
        assert store.tombstones.names() == {FIRST}


def test_records_that_the_ledger_lacks_are_named(folder: Path) -> None:
    with open_store(folder) as store:
        store.tombstones.add([Tombstone(*FIRST, b"")])
        assert store.missing_records() == []
        store.ledger.path.unlink()

        ((kind, data),) = store.missing_records()

        assert (kind, data["native_session_id"]) == ("tombstone", "s1")


def test_a_store_that_was_put_back_raises_an_alarm(folder: Path, tmp_path: Path) -> None:
    old = {path.name: path.read_bytes() for path in folder.glob("memory.db*")}
    with open_store(folder) as store:
        store.exclusions.add_folder("hash", "rule")
        store.checkpoint()
        assert store.check.alarms() == []
    for path in folder.glob("memory.db*"):
        path.unlink()
    for name, content in old.items():
        (folder / name).write_bytes(content)

    with open_store(folder) as store:
        assert store.check.alarms() != []
        store.accept_as_is()
        assert store.check.alarms() == []


def test_files_that_only_earlier_versions_made_go_with_the_next_copy_of_memory(folder: Path) -> None:
    for name in ("cache.db-last", "memory.db-last", "memory.db-copy"):
        (folder / name).write_text("left")

    with open_store(folder) as store:
        store.keep_copy(is_due=True)

    assert list(folder.glob("*.db-last")) == list(folder.glob("*-copy")) == []


def test_sizes_of_the_parts_add_up(folder: Path) -> None:
    with open_store(folder) as store:
        sizes = store.sizes.on_disk()

        assert sizes["total"] == sum(size for part, size in sizes.items() if part != "total")
        assert 0 < store.sizes.raw_bytes() <= sizes["total"]


def test_a_session_that_grew_meanwhile_is_not_marked_as_redacted(folder: Path) -> None:
    with open_store(folder) as store:
        stream, *_ = store.raw.streams()
        store.rewrites.mark([stream._replace(next_seq=stream.next_seq - 1)], "a newer version")

        assert store.raw.streams()[0].redacted_with == stream.redacted_with != "a newer version"
