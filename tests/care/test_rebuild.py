"""A damaged database costs nothing, though all sources are gone: packs and copy make it again."""

import os
import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.api import open_memory, repair
from recollect.model.errors import StoreUnwritable
from recollect.model.kinds import SessionKey
from recollect.store import (
    ANY_SESSION,
    PAGE_BYTES,
    Eviction,
    HeldSession,
    SessionFilter,
    Store,
    Tombstone,
    open_store,
)
from tests.builders import AGENT, Home, event, sweep, usage
from tests.care import damage
from tests.care.rig import copy_while_open, held, lose_home, problems, tree
from tests.faults.rig import IS_SOAK
from tests.retention.rig import evict_all, grow, opened, raw_names, row, write
from tests.store.rows import noise

SESSIONS = 6
EVENTS = 20  # of each session, in one frame
PAGES_TRIED = 12


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Sessions large enough for tables of several pages."""
    home = Home(tmp_path / "home")
    for name in (f"s{number}" for number in range(SESSIONS)):
        texts = [f"{name}word{number} {noise(400, number)}" for number in range(EVENTS)]
        events = [event(name, number, text=text) for number, text in enumerate(texts, start=1)]
        home.write(name, SessionInfo(name, cwd="/proj/demo"), *events, usage(name, "u", input_tokens=7))
    home.write("packed", SessionInfo("packed"), *(event("packed", n, text=noise(60_000, n)) for n in range(1, 4)))
    return home


@pytest.fixture
def lone(store: Path, home: Home) -> Path:
    """The store; its sources are gone."""
    lose_home(home)
    return store


def _destroy(path: Path, pages: Iterable[int]) -> None:
    """Write noise over whole pages, counted from 1."""
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE_BYTES)
            file.write(random.randbytes(PAGE_BYTES))


def _pages_of(path: Path, table: str, kind: str | None = None) -> list[int]:
    return [page for page, told in damage.places(path).items() if told[0] == table and kind in (None, told[1])]


def _root(path: Path, table: str) -> int:
    return min(_pages_of(path, table))


def _hits(store: Path, word: str) -> list[str]:
    with open_memory(store) as memory:
        return [hit.session_uid for hit in memory.search(word)]


@pytest.mark.parametrize(
    "tables",
    [("events",), ("frames",), ("streams",), ("sources",), ("sqlite_schema",), ("events", "frames", "events_by_uid")],
    ids="+".join,
)
def test_the_root_of_a_table_hides_nothing(lone: Path, home: Home, tables: tuple[str, ...]) -> None:
    before = held(lone)
    _destroy(lone / "cache.db", [_root(lone / "cache.db", table) for table in tables])

    report = repair(lone, [home.flag])

    assert (report.lost, held(lone)) == ([], before)
    assert _hits(lone, "s3word7") == ["scripted:s3"]
    assert problems(lone, home) == []


@pytest.mark.parametrize("name", ["cache.db", "memory.db"])
def test_a_blank_first_page_hides_nothing(lone: Path, home: Home, name: str) -> None:
    before = held(lone)
    with (lone / name).open("r+b") as file:
        file.write(bytes(PAGE_BYTES))

    report = repair(lone, [home.flag])

    assert (report.lost, held(lone)) == ([], before)
    assert problems(lone, home) == []


@pytest.mark.parametrize("name", ["cache.db", "memory.db"])
def test_whatever_page_is_destroyed_nothing_is_lost(lone: Path, home: Home, tmp_path: Path, name: str) -> None:
    before = held(lone)
    pages = range(1, (lone / name).stat().st_size // PAGE_BYTES + 1)
    for page in pages if IS_SOAK else random.sample(pages, PAGES_TRIED):
        store = tmp_path / f"without-{page}"
        shutil.copytree(lone, store)
        _destroy(store / name, [page])

        repair(store, [home.flag])

        assert held(store) == before, page
        assert problems(store, home) == [], page
        shutil.rmtree(store)


def test_without_room_for_the_rows_nothing_is_moved(lone: Path, home: Home, small_disk: Callable[[str], Path]) -> None:
    needed = (lone / "cache.db").stat().st_size
    used = sum(path.stat().st_size for path in lone.rglob("*") if path.is_file())
    store = small_disk(str(used + needed // 2)) / "store"
    shutil.copytree(lone, store)
    _destroy(store / "cache.db", [_root(store / "cache.db", "events")])
    before = _lasting(store)

    with pytest.raises(StoreUnwritable, match="a repair needs"):
        repair(store, [home.flag])

    assert _lasting(store) == before


def _lasting(store: Path) -> dict[str, bytes]:
    """Every file but those that are made by a look."""
    return {name: content for name, content in tree(store).items() if not name.endswith(("-shm", "-wal"))}


def test_without_memory_and_its_copy_the_packs_and_sources_bring_all_back(store: Path, home: Home) -> None:
    before = held(store)
    for name in ("memory.db", "memory.db.zst"):
        _destroy(store / name, [1])

    report = repair(store, [home.flag])

    assert (report.lost, held(store)) == ([], before)
    assert problems(store, home) == []


def test_a_copy_that_is_cut_off_is_not_put_in_place(store: Path, home: Home) -> None:
    before = held(store)
    _destroy(store / "memory.db", [1])
    os.truncate(store / "memory.db.zst", (store / "memory.db.zst").stat().st_size // 2)

    report = repair(store, [home.flag])

    assert (report.lost, held(store)) == ([], before)
    assert problems(store, home) == []


# What must not come back


def test_a_forgotten_session_does_not_come_back(store: Path, home: Home) -> None:
    with open_memory(store) as memory:
        memory.forget(memory.plan_forgetting("scripted:s2"))
    lose_home(home)
    before = held(store)
    _destroy(store / "cache.db", [_root(store / "cache.db", "events")])

    repair(store, [home.flag])

    assert "scripted:s2" not in before
    assert held(store) == before


def test_a_session_whose_removal_was_stopped_does_not_come_back(lone: Path, home: Home) -> None:
    with open_store(lone) as opened_store:
        opened_store.tombstones.add([Tombstone(AGENT, "s2", b"")])
        opened_store.checkpoint()
    for name in ("cache.db", "memory.db"):
        _destroy(lone / name, [_root(lone / name, "events" if name == "cache.db" else "tombstones")])

    report = repair(lone, [home.flag])

    assert report.events_saved == (SESSIONS - 1) * EVENTS + 3
    assert "scripted:s2" not in held(lone)


@pytest.mark.parametrize("is_finished", [True, False])
def test_an_evicted_session_does_not_come_back_by_itself(tmp_path: Path, is_finished: bool) -> None:
    home, store = Home(tmp_path / "home"), tmp_path / "store"
    write(home, "gone", turns=12)
    with opened(store, home) as memory:
        memory.sweep()
        if is_finished:
            evict_all(memory)
        else:
            with open_store(store) as other:
                digest = other.digest_rows.read_back(AGENT, "gone")
                held = HeldSession(AGENT, "gone", f"{AGENT}:gone", 1, 1, 1)
                other.evictions.add([Eviction(held, "age", digest)], 1)
        write(home, "held", turns=12)
        memory.sweep()
    lose_home(home)
    _destroy(store / "cache.db", [_root(store / "cache.db", "events")])

    report = repair(store, [home.flag])

    with opened(store, home) as memory:
        assert report.events_saved == len(memory.events(memory.session("scripted:held")))
        assert raw_names(memory) == {"held"}
        assert memory.session("scripted:gone").evicted_at is not None


# What only memory.db has


@pytest.mark.parametrize(
    "table", ["digests", "sessions", "sessions_by_time", "digest_text_content", "evictions", "sqlite_schema"]
)
def test_what_outlives_the_events_is_saved_from_a_damaged_memory(tmp_path: Path, table: str) -> None:
    home, store = Home(tmp_path / "home"), tmp_path / "store"
    with opened(store, home) as memory:
        for number in range(6):
            write(home, f"s{number}", turns=number + 1)
        memory.sweep()
        evict_all(memory)
        grow(home, "s0", first=1)  # evicted again: the ledger has them in another order than memory.db
        memory.sweep()
        evict_all(memory)
        write(home, "later", turns=6)
        memory.sweep()
        before = _outliving(store)
        rows = [row(session) for session in memory.sessions()]
    lose_home(home)
    _destroy(store / "memory.db", [_root(store / "memory.db", table)])

    report = repair(store, [home.flag])

    with opened(store, home) as memory:
        assert _outliving(store) == before
        assert [row(session) for session in memory.sessions()] == rows
    assert report.lost == []
    assert problems(store, home) == []


def _outliving(folder: Path) -> object:
    """Digests, signals and activity of all sessions, as a user is told them."""
    with open_store(folder) as store:
        return _outliving_in(store)


def _outliving_in(store: Store) -> object:
    database = store.databases[1]
    names = [SessionKey(session.agent, session.native_session_id) for session in store.sessions.find(SessionFilter())]
    uses = (
        "SELECT native_session_id, minute, model, t.input_tokens, active_ms FROM activity t"
        " JOIN digests d ON d.id = t.digest"
        " ORDER BY 1, 2, 3"
    )
    return (
        {name: store.digest_rows.read_back(*name)["digest"] for name in names},
        {name: store.digest_rows.read_back(*name)["text"] for name in names},
        {name: store.digests.signals(ANY_SESSION, name) for name in names},
        database.rows(uses),
    )


# The write-ahead log


def test_what_is_only_in_the_log_is_saved_too(
    store: Path, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed = tmp_path / "crashed"
    home.write("late", *(event("late", number, text=f"lateword{number}") for number in range(1, EVENTS)))
    with sweep(store, home) as memory:
        home.append("late", *(event("late", number, text=f"lateword{number}") for number in range(EVENTS, 200)))
        monkeypatch.setattr(Store, "checkpoint", lambda self: None)  # the process dies before
        memory.sweep()
        before = held(store)
        copy_while_open(store, crashed)
    lose_home(home)
    assert (crashed / "cache.db-wal").stat().st_size > 0
    _destroy(crashed / "cache.db", [1])

    report = repair(crashed, [home.flag])

    assert report.lost == []
    assert {uid: told[1:] for uid, told in held(crashed).items()} == {uid: told[1:] for uid, told in before.items()}
