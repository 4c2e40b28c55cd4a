"""Queries without words: recent sessions, and the last events that filters let through."""

from pathlib import Path

import pytest

from recollect.adapters.protocol import SessionInfo
from recollect.memory import Memory, open_memory
from recollect.schema import ASSISTANT_MSG, ERROR, TOOL_RESULT
from tests.builders import Home, at_ms, event, sweep


@pytest.fixture
def memory(tmp_path: Path, home: Home) -> Memory:
    """Sessions that were stored in another order than they happened."""
    with open_memory(tmp_path / "store", [home.flag]) as memory:
        for name, day in (("middle", 5), ("new", 9), ("old", 1)):
            at = at_ms(day * 86_400)
            home.write(
                name,
                SessionInfo(name, cwd=f"/x/{name}"),
                event(name, 1, text=f"begin {name}", ts_ms=at),
                event(name, 2, text=f"last request of {name}", ts_ms=at + 1),
                event(name, 3, ERROR, "it broke", ts_ms=at + 2, is_error=True),
                event(name, 4, TOOL_RESULT, "fine", ts_ms=at + 3),
            )
            memory.sweep()
    return open_memory(tmp_path / "store")


def names(memory: Memory, query: str, limit: int = 10) -> list[str]:
    return [hit.session_uid.partition(":")[2] for hit in memory.search(query, limit=limit)]


def test_what_happened_last_comes_first_whenever_it_was_stored(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.recall.search._SESSIONS_AT_ONCE", 1)

    with memory:
        assert names(memory, "is:error") == ["new", "middle", "old"]
        assert names(memory, "is:error", limit=1) == ["new"]
        assert names(memory, "is:error -session:new") == ["middle", "old"]
        assert {match.kind for hit in memory.search("is:error") for match in hit.matches} == {ERROR}


def test_filters_of_sessions_list_them_with_their_last_request(memory: Memory) -> None:
    with memory:
        assert names(memory, "agent:scripted") == ["new", "middle", "old"]
        (hit,) = memory.search("repo:middle")
        assert names(memory, f"since:{hit.started_at} before:{hit.ended_at}") == ["middle"]

    assert [match.snippet for match in hit.matches] == ["last request of middle"]


def test_a_recent_session_tells_its_outcome_and_what_it_left_open(tmp_path: Path, home: Home) -> None:
    question = event("s", 2, ASSISTANT_MSG, "Done with the first half.\n\nShall I migrate the database too?")
    home.write("s", event("s", 1, text="do it"), question)

    with sweep(tmp_path / "store", home) as memory:
        (hit,) = memory.search("")
        (found,) = memory.search("half")

    assert hit.outcome is not None
    assert any("migrate the database" in end for end in hit.open_ends)
    assert found.outcome is None


def test_signs_without_a_word_are_told_how_to_be_found(memory: Memory) -> None:
    with memory:
        answer = memory.answer("💥 ***")

    assert answer.hits == []
    assert any("--substring" in note for note in answer.notes)
