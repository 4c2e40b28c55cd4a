"""Sessions that share text: both answers, and what becomes of the copies."""

from pathlib import Path

import pytest

from recollect.agentkit.protocol import EventRecord, SessionInfo
from recollect.api import Memory
from recollect.model.errors import NeedsAnswer
from tests.builders import Home, event, sweep, usage
from tests.forget.traces import forget, left_in, native_ids


def shared(session: str, number: int) -> EventRecord:
    return event(session, number, text=f"sharedwords {number}", native_id=f"shared-{number}")


@pytest.fixture
def memory(tmp_path: Path, home: Home) -> Memory:
    """An original, two forks of it, and a session that has nothing to do with them."""
    home.write("original", shared("original", 1), shared("original", 2), event("original", 3, text="originalonly"))
    for name in ("fork-a", "fork-b"):
        told = SessionInfo(name, base_native_id="original")
        home.write(name, told, shared(name, 1), shared(name, 2), event(name, 4, text=f"{name} goes on"))
    home.write("other", event("other", 1))
    return sweep(tmp_path / "store", home)


def test_a_plan_lists_the_sessions_that_share_the_text(memory: Memory) -> None:
    with memory:
        planned = memory.plan_forgetting("original")

        assert [(fork.native_session_id, fork.shared_events) for fork in planned.forks] == [
            ("fork-a", 2),
            ("fork-b", 2),
        ]
        assert [one.native_session_id for one in planned.sessions] == ["original"]
        assert {fork.native_session_id for fork in memory.plan_forgetting("fork-a").forks} == {"original", "fork-b"}
        assert memory.plan_forgetting("other").forks == ()


def test_nothing_goes_before_the_question_of_forks_is_answered(memory: Memory) -> None:
    with memory:
        with pytest.raises(NeedsAnswer, match="share this text"):
            memory.forget(memory.plan_forgetting("original"))

        assert native_ids(memory) == {"original", "fork-a", "fork-b", "other"}


def test_with_forks_all_copies_go(tmp_path: Path, home: Home, memory: Memory) -> None:
    with memory:
        forget(memory, "original", with_forks=True)
        memory.sweep()

        assert native_ids(memory) == {"other"}
    assert left_in(tmp_path / "store", ["xxxxsharedwords"]) == set()


def test_kept_forks_keep_their_copies_and_one_of_them_becomes_the_original(
    tmp_path: Path, home: Home, memory: Memory
) -> None:
    with memory:
        forget(memory, "original", keep_forks=True)

        assert native_ids(memory) == {"fork-a", "fork-b", "other"}
        forks = [memory.session(name) for name in ("fork-a", "fork-b")]
        assert [fork.event_count for fork in forks] == [3, 3]
        assert sum(fork.cost.turns for fork in forks) == 4  # what they share is counted once
    assert left_in(tmp_path / "store", ["xxxxoriginalonly"]) == set()


def test_kept_forks_stay_whole_when_the_cache_is_made_anew(tmp_path: Path, home: Home, memory: Memory) -> None:
    with memory:
        forget(memory, "original", keep_forks=True)
        before = {session.session_uid: session.content_hash for session in memory.sessions()}
    for path in (tmp_path / "store").glob("cache.db*"):
        path.unlink()

    with sweep(tmp_path / "store", home) as again:
        assert {session.session_uid: session.content_hash for session in again.sessions()} == before


def test_a_kept_fork_that_grows_goes_on_growing(tmp_path: Path, home: Home, memory: Memory) -> None:
    with memory:
        forget(memory, "original", keep_forks=True)
        home.append("fork-a", event("fork-a", 5, text="a new request"))
        memory.sweep()

        assert memory.session("fork-a").event_count == 4


def test_a_new_fork_of_what_is_forgotten_has_only_its_own_work(tmp_path: Path, home: Home, memory: Memory) -> None:
    with memory:
        forget(memory, "original", with_forks=True)
        home.write("fork-c", shared("fork-c", 1), shared("fork-c", 2), event("fork-c", 6, text="own"))
        memory.sweep()

        assert memory.session("fork-c").event_count == 1
    assert left_in(tmp_path / "store", ["xxxxsharedwords"]) == set()


def test_equal_words_of_unrelated_sessions_are_left_alone(tmp_path: Path, home: Home, memory: Memory) -> None:
    with memory:
        forget(memory, "original", with_forks=True)
        home.write("stranger", event("stranger", 1, text="sharedwords 1"))
        memory.sweep()

        assert memory.session("stranger").event_count == 1


def test_a_response_paid_by_the_forgotten_session_is_counted_for_the_fork_that_is_left(
    tmp_path: Path, home: Home
) -> None:
    home.write("original", shared("original", 1), usage("original", "u1", output_tokens=100))
    told = SessionInfo("fork", base_native_id="original")
    home.write("fork", told, shared("fork", 1), event("fork", 2), usage("fork", "u1", output_tokens=100))
    with sweep(tmp_path / "store", home) as memory:
        assert memory.session("fork").cost.output_tokens == 0
        forget(memory, "original", keep_forks=True)

        assert memory.session("fork").cost.output_tokens == 100


def test_a_new_fork_of_a_kept_session_is_whole_though_another_fork_was_forgotten(
    tmp_path: Path, home: Home, memory: Memory
) -> None:
    with memory:
        forget(memory, "fork-a", keep_forks=True)
        home.write("fork-c", shared("fork-c", 1), shared("fork-c", 2), event("fork-c", 6, text="own"))
        home.write("fork-d", event("fork-d", 4, text="fork-a goes on", native_id="fork-a-4"), event("fork-d", 7))
        memory.sweep()

        assert memory.session("fork-c").event_count == 3
        assert memory.session("fork-d").event_count == 1  # what only the forgotten one held stays away
    assert left_in(tmp_path / "store", ["xxxxfork-a goes"]) == set()
