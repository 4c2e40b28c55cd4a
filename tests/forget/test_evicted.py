"""Sessions whose raw detail was dropped are forgotten as others are: found, compared with forks, kept away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.api import Memory, restore
from tests.builders import Home
from tests.forget.traces import left_in, native_ids
from tests.retention.rig import as_copied, bytes_of, evict_all, opened, rare_word, talk, topic, write

WORDS = [rare_word("evicted", turn) for turn in range(3)]


@pytest.fixture
def memory(tmp_path: Path, home: Home) -> Iterator[Memory]:
    """A store with two sessions, both of them evicted."""
    write(home, "evicted", turns=3)
    write(home, "another")
    with opened(tmp_path / "store", home) as memory:
        memory.sweep()
        evict_all(memory)
        yield memory


def _fork(home: Home) -> None:
    copied = [as_copied(record, "a-fork") for record in talk("evicted", 3)]
    home.write("a-fork", SessionInfo("a-fork", base_native_id="evicted"), *copied, *talk("a-fork", 1, 10))


def test_a_text_that_only_a_digest_holds_is_found(memory: Memory) -> None:
    planned = memory.plan_forgetting(match=topic("evicted"))

    assert [session.native_session_id for session in planned.sessions] == ["evicted"]


def test_a_fork_of_an_evicted_session_is_named(memory: Memory, home: Home) -> None:
    _fork(home)
    memory.sweep()

    (fork,) = memory.plan_forgetting("evicted").forks

    assert (fork.native_session_id, fork.shared_events) == ("a-fork", 12)


def test_a_kept_fork_of_an_evicted_session_counts_as_the_original(memory: Memory, home: Home) -> None:
    _fork(home)
    memory.sweep()

    memory.forget(memory.plan_forgetting("evicted"), keep_forks=True)

    fork = memory.session("a-fork")
    assert [event for event in memory.events(fork, with_copies=True) if event.copy_of] == []
    assert fork.cost.input_tokens == 4000
    assert [hit.session_uid for hit in memory.search(WORDS[0])] == [fork.session_uid]


def test_a_later_fork_of_what_was_evicted_and_forgotten_has_only_its_own_work(
    tmp_path: Path, memory: Memory, home: Home
) -> None:
    memory.forget(memory.plan_forgetting("evicted"))
    _fork(home)

    memory.sweep()

    assert len(memory.events(memory.session("a-fork"), with_copies=True)) == 4
    memory.close()
    assert left_in(tmp_path / "store", WORDS) == set()


@pytest.mark.parametrize("when", ["held", "evicted"])
def test_a_backup_from_before_does_not_bring_it_back(tmp_path: Path, home: Home, when: str) -> None:
    write(home, "forgettable", turns=3)
    write(home, "another")
    store, backup = tmp_path / "store", tmp_path / "backup.tar.zst"
    with opened(store, home) as memory:
        memory.sweep()
        if when == "evicted":
            evict_all(memory)
        memory.backup(backup)
        memory.forget(memory.plan_forgetting("forgettable"))

    aside = restore(backup, store).set_aside

    with opened(store, home) as memory:
        assert native_ids(memory) == {"another"}
        assert memory.search(topic("forgettable")) == []
    assert topic("forgettable")[6:].encode() not in bytes_of(store)
    assert aside is not None


@pytest.mark.parametrize("when", ["held", "evicted"])
def test_an_export_from_before_does_not_bring_it_back(tmp_path: Path, home: Home, when: str) -> None:
    write(home, "forgettable", turns=3)
    write(home, "another")
    home.append("another", SessionInfo("sub", parent_native_id="forgettable"), *talk("sub", 1))
    store = tmp_path / "store"
    with opened(store, home) as memory:
        memory.sweep()
        if when == "evicted":
            evict_all(memory)
        memory.export(tmp_path / "export")
        memory.forget(memory.plan_forgetting("forgettable"))

        report = memory.import_sessions(tmp_path / "export")

        assert (report.sessions_new, report.events_new) == (0, 0)
        assert native_ids(memory) == {"another"}
    assert topic("forgettable")[6:].encode() not in bytes_of(store)
