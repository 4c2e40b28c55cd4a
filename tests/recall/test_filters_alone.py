"""Queries without words: recent sessions, and the last events that filters let through."""

from pathlib import Path
from typing import Any

import pytest

from recollect.agentkit.protocol import EventRecord, SessionInfo
from recollect.api import Memory, open_memory
from recollect.model.clock import rfc3339
from recollect.model.schema import ASSISTANT_MSG, EDIT, ERROR, HUMAN_INTERVENTION, TOOL_RESULT
from tests.builders import Home, at_ms, event, sweep
from tests.retention.rig import evict_all, opened


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
    monkeypatch.setattr("recollect.recall.lookup._SESSIONS_AT_ONCE", 1)

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


def test_a_session_tells_its_outcome_and_a_recent_one_what_it_left_open(tmp_path: Path, home: Home) -> None:
    question = event("s", 2, ASSISTANT_MSG, "Done with the first half.\n\nShall I migrate the database too?")
    home.write("s", event("s", 1, text="do it"), question)

    with sweep(tmp_path / "store", home) as memory:
        (hit,) = memory.search("")
        (found,) = memory.search("half")

    assert hit.outcome is not None
    assert any("migrate the database" in end for end in hit.open_ends)
    assert found.outcome == hit.outcome
    assert "open_ends" not in found.to_json()


def test_signs_without_a_word_are_told_how_to_be_found(memory: Memory) -> None:
    with memory:
        answer = memory.answer("💥 ***")

    assert answer.hits == []
    assert any("--substring" in note for note in answer.notes)


def test_a_busy_session_does_not_hide_the_others(tmp_path: Path, home: Home) -> None:
    busy = [event("busy", number, ERROR, "broke", is_error=True, ts_ms=at_ms(900 + number)) for number in range(1, 400)]
    home.write("busy", *busy)
    for name in ("one", "two"):
        home.write(name, event(name, 1, ERROR, "broke", is_error=True))

    with sweep(tmp_path / "store", home) as memory:
        assert set(names(memory, "is:error")) == {"busy", "one", "two"}


def test_an_old_event_of_a_session_that_went_on_does_not_come_before_newer_ones(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.recall.lookup._SESSIONS_AT_ONCE", 1)
    home.write("long", event("long", 1, ERROR, "broke", is_error=True), event("long", 2, ts_ms=at_ms(9000)))
    home.write("short", event("short", 1, ERROR, "broke", is_error=True, ts_ms=at_ms(5000)))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "is:error", limit=1) == ["short"]


def edit(session: str, number: int, path: str = "src/a.py", **fields: Any) -> EventRecord:
    record = event(session, number, EDIT, f"edited {path}", call_id=f"{session}-call-{number}", **fields)
    record.payload = {"input": {"file_path": path, "new_string": "walrus"}}
    return record


@pytest.fixture
def editors(tmp_path: Path, home: Home) -> Path:
    """Sessions that edited a file: themselves, by a sub-agent, in vain, before they were forked, or not at all."""
    home.write("own", event("own", 1, text="first"), edit("own", 2), event("own", 3, text="last request"))
    home.write("root", event("root", 1, text="ask somebody"))
    home.write("sub", SessionInfo("sub", parent_native_id="root"), event("sub", 1), edit("sub", 2))
    refused = event("refused", 3, HUMAN_INTERVENTION, "no", call_id="refused-call-2", is_error=True)
    home.write("refused", event("refused", 1), edit("refused", 2), refused)
    for name in ("base", "fork"):
        info = SessionInfo(name, base_native_id="base" if name == "fork" else None)
        at = 1 if name == "base" else 2
        shared = [event(name, 1, native_id="shared-1", ts_ms=at_ms(at)), edit(name, 2, native_id="shared-2")]
        home.write(name, info, *shared, event(name, 3, text=f"go on with {name}", ts_ms=at_ms(9)))
    home.write("talk", event("talk", 1, text="nothing"))
    return tmp_path / "store"


def test_sessions_that_changed_a_file_did_so_themselves_and_with_success(editors: Path, home: Home) -> None:
    with sweep(editors, home) as memory:
        edited = set(names(memory, "has:edit"))
        others = set(names(memory, "-has:edit"))
        (hit,) = memory.search("has:edit session:own")
        by_word = set(names(memory, "has:edit ask somebody"))

    assert edited == {"own", "root", "base"}
    assert others == {"refused", "fork", "talk"}
    assert [match.snippet for match in hit.matches] == ["last request"]
    assert by_word == {"root"}


def test_evicted_sessions_are_known_to_have_changed_a_file(editors: Path, home: Home) -> None:
    with opened(editors, home) as memory:
        memory.sweep()
        evict_all(memory)

        assert {"own", "base"} <= set(names(memory, "has:edit"))
        assert "talk" not in names(memory, "has:edit")
        assert set(names(memory, "file:src/a.py")) >= {"own", "base"}
        assert names(memory, "file:b.py") == []


def test_what_only_events_can_tell_is_not_asked_of_digests_and_that_is_said(editors: Path, home: Home) -> None:
    with opened(editors, home) as memory:
        memory.sweep()
        evict_all(memory)
        answer = memory.answer("is:error")
        literal = memory.answer("some", mode="substring")
        later = memory.answer("is:error since:2099-01-01")

    assert answer.hits == []
    assert [note for note in answer.notes if "digests only" in note]
    assert [note for note in literal.notes if "--substring" in note]
    assert later.notes == []


def test_a_sub_agent_can_be_listed_by_itself(editors: Path, home: Home) -> None:
    with sweep(editors, home) as memory:
        assert names(memory, "session:scripted:root/sub") == ["root/sub"]
        assert names(memory, "session:root") == ["root"]


def test_what_a_person_refused_is_no_error(editors: Path, home: Home) -> None:
    with sweep(editors, home) as memory:
        assert names(memory, "is:error") == []
        assert "refused" in names(memory, "-is:error")


def test_an_event_without_a_time_happened_when_its_session_did(tmp_path: Path, home: Home) -> None:
    told = event("s", 1, text="begin", ts_ms=at_ms(100))
    home.write("s", told, event("s", 2, text="the walrus", ts_ms=None), event("s", 3, text="end", ts_ms=at_ms(200)))
    home.write("never", SessionInfo("never", born_ms=at_ms(100)), event("never", 1, text="the walrus", ts_ms=None))

    with sweep(tmp_path / "store", home) as memory:
        moment = [rfc3339(at_ms(second)) for second in (50, 100, 150)]
        inside = names(memory, f"walrus since:{moment[1]} before:{moment[2]}")
        before = names(memory, f"walrus before:{moment[1]}")
        listed = names(memory, f"kind:user_msg since:{moment[0]} before:{moment[2]}")

    assert set(inside) == {"s", "never"}
    assert before == []
    assert set(listed) == {"s", "never"}


@pytest.mark.parametrize("query", ["AGENT:Scripted", "agent:SCRIPTED", "Kind:USER_MSG", "branch:MAIN", "repo:SHOP"])
def test_the_case_of_a_filter_does_not_matter(tmp_path: Path, home: Home, query: str) -> None:
    home.write("s", SessionInfo("s", cwd="/x/shop", git_branch="main"), event("s", 1, text="go"))

    with sweep(tmp_path / "store", home) as memory:
        answer = memory.answer(query)

    assert [hit.session_uid for hit in answer.hits] == ["scripted:s"]
    assert answer.notes == []


def test_agents_and_filters_that_are_not_there_are_noted(memory: Memory) -> None:
    with memory:
        assert memory.answer("agent:nope").notes == ["No sessions of the agent `nope`; known: scripted"]
        assert memory.answer("foo:bar begin").notes[0] == "No such filter, searched for as words: `foo:`"
        for words in ("https://example.org", "localhost:8080", "std::vector", "TypeError:x", "error:/x"):
            assert not any("No such filter" in note for note in memory.answer(words).notes), words


@pytest.mark.parametrize(
    ("last", "end"),
    [
        ((), "no answer: run the script"),
        ((event("s", 2, ASSISTANT_MSG, "Let me run it:"),), "not finished: run the script"),
        ((event("s", 2, ASSISTANT_MSG, "I could not run it."),), "failed: run the script"),
        (
            (
                event("s", 2, ASSISTANT_MSG, "On it."),
                event("s", 3, HUMAN_INTERVENTION, "interrupted the agent", status="interrupted", role="user"),
            ),
            "interrupted: run the script",
        ),
    ],
)
def test_an_open_request_is_called_by_what_became_of_it(
    tmp_path: Path, home: Home, last: tuple[EventRecord, ...], end: str
) -> None:
    home.write("s", event("s", 1, text="run the script"), *last)

    with sweep(tmp_path / "store", home) as memory:
        (hit,) = memory.search("")
        (unfinished,) = memory.unfinished()

    assert hit.open_ends == (end,)
    assert tuple(unfinished.open_ends) == (end,)
