"""Whose event it was first: copies of a resumed, forked or compacted session, whatever order files arrive in."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.agentkit.protocol import EventRecord, Record, SessionInfo, Usage
from recollect.agentkit.values import short_hash
from recollect.agents import adapters
from recollect.api import Memory, open_memory
from recollect.model.errors import Ambiguous
from recollect.model.schema import ASSISTANT_MSG, EDIT, USER_MSG
from tests import logs
from tests.builders import AGENT, Home, ScriptedAdapter, at_ms, event, sweep, usage
from tests.conftest import swept
from tests.faults.rig import IS_SOAK, scratch


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def shared(
    session: str, ts_ms: int | None = None, text: str = "the same words", kind: str = USER_MSG, **fields: Any
) -> EventRecord:
    """The one record that several sessions hold."""
    return event(session, 1, kind, text, native_id="shared", ts_ms=ts_ms, **fields)


def owners(memory: Memory) -> dict[str, str | None]:
    """For each session whose event its copy of the shared record points at; None for the original."""
    names = {found.event_uid: session.native_session_id for session, found in _shared_events(memory)}
    return {
        session.native_session_id: names[found.copy_of] if found.copy_of else None
        for session, found in _shared_events(memory)
    }


def _shared_events(memory: Memory) -> list[tuple[Any, Any]]:
    return [
        (session, found)
        for session in memory.sessions()
        for found in memory.events(session, with_copies=True)
        if found.native_id == "shared"
    ]


def tokens(memory: Memory) -> dict[str, int]:
    return {session.native_session_id: session.cost.output_tokens for session in memory.sessions()}


def test_the_declared_parents_event_is_the_original_even_if_its_time_is_later(tmp_path: Path, home: Home) -> None:
    home.write("parent", shared("parent", at_ms(9)))
    home.write("fork", shared("fork", at_ms(1)), SessionInfo("fork", base_native_id="parent"))

    with sweep(tmp_path / "store", home) as memory:
        assert owners(memory) == {"parent": None, "fork": "parent"}


def test_copies_are_left_out_of_a_forks_events_unless_asked_for(tmp_path: Path, home: Home) -> None:
    home.write("parent", shared("parent", at_ms(1)))
    home.write("fork", shared("fork", at_ms(1)), event("fork", 2), SessionInfo("fork", base_native_id="parent"))

    with sweep(tmp_path / "store", home) as memory:
        fork = memory.session(f"{AGENT}:fork")

        assert [found.seq for found in memory.events(fork)] == [2]
        assert [found.seq for found in memory.events(fork, with_copies=True)] == [1, 2]


def test_a_grandparent_is_an_older_owner_than_the_parent(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", at_ms(9)))
    home.write("b", shared("b", at_ms(5)), SessionInfo("b", base_native_id="a"))
    home.write("c", shared("c", at_ms(1)), SessionInfo("c", base_native_id="b"))

    with sweep(tmp_path / "store", home) as memory:
        assert owners(memory) == {"a": None, "b": "a", "c": "a"}


def test_without_a_declared_parent_the_earliest_event_is_the_original(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", at_ms(5)))
    home.write("b", shared("b", at_ms(4)))

    with sweep(tmp_path / "store", home) as memory:
        assert owners(memory) == {"b": None, "a": "b"}


def test_an_event_without_a_time_is_younger_than_any_with_one(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", None))
    home.write("b", shared("b", at_ms(9)))

    with sweep(tmp_path / "store", home) as memory:
        assert owners(memory) == {"b": None, "a": "b"}


def test_of_events_with_one_time_that_of_the_file_begun_first_is_the_original(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", at_ms(1)), SessionInfo("a", born_ms=at_ms(8)))
    home.write("b", shared("b", at_ms(1)), SessionInfo("b", born_ms=at_ms(2)))

    with sweep(tmp_path / "store", home) as memory:
        assert owners(memory) == {"b": None, "a": "b"}


def test_with_nothing_else_to_go_by_the_smallest_uid_is_the_original(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a"))
    home.write("b", shared("b"))

    with sweep(tmp_path / "store", home) as memory:
        found = {session.native_session_id: copy for session, copy in _shared_events(memory)}
        first = min(found, key=lambda name: found[name].event_uid)
        assert owners(memory)[first] is None


def test_two_sessions_that_each_claim_the_other_as_parent_have_one_owner(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", at_ms(2)), SessionInfo("a", base_native_id="b"))
    home.write("b", shared("b", at_ms(1)), SessionInfo("b", base_native_id="a"))

    with sweep(tmp_path / "store", home) as memory:
        assert owners(memory) == {"b": None, "a": "b"}


def test_short_ids_that_coincide_but_say_other_things_are_no_copies(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", at_ms(1), text="one thing"))
    home.write("b", shared("b", at_ms(2), text="another thing"))

    with sweep(tmp_path / "store", home) as memory:
        assert owners(memory) == {"a": None, "b": None}


def test_ids_that_coincide_on_events_of_another_kind_are_no_copies(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", at_ms(1)))
    home.write("b", shared("b", at_ms(2), kind=ASSISTANT_MSG))

    with sweep(tmp_path / "store", home) as memory:
        assert owners(memory) == {"a": None, "b": None}


def test_the_same_id_twice_in_one_session_is_no_copy(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", at_ms(1)), shared("a", at_ms(2), block=1))

    with sweep(tmp_path / "store", home) as memory:
        assert all(found.copy_of is None for _, found in _shared_events(memory))


def test_a_copy_key_of_its_own_links_records_with_other_ids(tmp_path: Path, home: Home) -> None:
    home.write("a", event("a", 1, text="words", native_id="item-1", copy_key="k"))
    home.write("b", event("b", 2, text="words", native_id="item-9", copy_key="k"))

    with sweep(tmp_path / "store", home) as memory:
        (copy,) = [
            found
            for session in memory.sessions()
            for found in memory.events(session, with_copies=True)
            if found.copy_of
        ]
        assert copy.native_id == "item-9"


def test_a_call_whose_summary_differs_by_the_working_directory_is_a_copy(tmp_path: Path, home: Home) -> None:
    key = short_hash("Edit", "/proj/shop/a.py")
    home.write("a", shared("a", at_ms(1), text="edited a.py", kind=EDIT, retry_key=key))
    home.write("b", shared("b", at_ms(2), text="edited /proj/shop/a.py", kind=EDIT, retry_key=key))

    with sweep(tmp_path / "store", home) as memory:
        assert owners(memory) == {"a": None, "b": "a"}


@pytest.mark.parametrize("original", ["a", "b"])
def test_of_copies_with_the_same_times_the_session_that_went_on_first_has_the_originals(
    tmp_path: Path, home: Home, original: str
) -> None:
    for name in ("a", "b"):
        home.write(name, shared(name, at_ms(1)), event(name, 5 if name == original else 9))

    with sweep(tmp_path / "store", home) as memory:
        assert [name for name, owner in owners(memory).items() if owner is None] == [original]


def test_a_session_is_based_on_the_one_its_last_copied_event_is_from(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", at_ms(1)))
    home.write("b", shared("b", at_ms(2)), event("b", 3, text="later", native_id="later"))
    home.write("c", shared("c", at_ms(4)), event("c", 5, text="later", native_id="later"), event("c", 6))

    with sweep(tmp_path / "store", home) as memory:
        bases = {session.native_session_id: session.base_session_uid for session in memory.sessions()}

    assert bases == {"a": None, "b": f"{AGENT}:a", "c": f"{AGENT}:b"}


def test_related_names_the_original_and_what_else_was_copied_from_it(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", at_ms(1)))
    home.write("b", shared("b", at_ms(2)), event("b", 3))
    home.write("c", shared("c", at_ms(2)), event("c", 4))

    with sweep(tmp_path / "store", home) as memory:
        related = memory.related(memory.session(f"{AGENT}:b"))

    assert [(session.session_uid, session.why) for session in related] == [
        (f"{AGENT}:a", "it was forked from this"),
        (f"{AGENT}:c", "forked from the same session"),
    ]


def test_a_response_that_two_copies_of_a_third_session_hold_is_paid_once(tmp_path: Path, home: Home) -> None:
    """The third one lost it, so that neither is a copy of the other."""
    home.write("a", shared("a", at_ms(1)))
    home.write("b", shared("b", at_ms(2)), usage("b", "r1", output_tokens=10, ts_ms=at_ms(2)))
    home.write("c", shared("c", at_ms(3)), usage("c", "r1", output_tokens=10, ts_ms=at_ms(3)))

    with sweep(tmp_path / "store", home) as memory:
        assert tokens(memory) == {"a": 0, "b": 10, "c": 0}


@pytest.mark.parametrize("order", [("parent", "copy"), ("copy", "parent")])
def test_figures_that_only_a_copy_has_whole_count_where_the_response_was_made(
    tmp_path: Path, home: Home, order: tuple[str, str]
) -> None:
    files = {
        "parent": [shared("parent", at_ms(1)), usage("parent", "r1", output_tokens=1)],
        "copy": [
            shared("copy", at_ms(1)),
            usage("copy", "r1", output_tokens=700),
            SessionInfo("copy", parent_native_id="parent"),
        ],
    }
    for name in order:
        home.write(name, *files[name])
        memory = sweep(tmp_path / "store", home)
        counted = memory.session(f"{AGENT}:parent").cost.output_tokens if name == order[1] else None
        memory.close()

    assert counted == 700


def test_a_session_that_answers_another_ones_request_is_based_on_it(tmp_path: Path, home: Home) -> None:
    home.write("a", event("a", 1, text="an old request"), event("a", 2, text="fix the parser"))
    home.write("b", event("b", 3, ASSISTANT_MSG, "It is fixed.", parent_native_id="a-2"))

    with sweep(tmp_path / "store", home) as memory:
        answering = memory.session(f"{AGENT}:b")

    assert (answering.base_session_uid, answering.title) == (f"{AGENT}:a", "fix the parser")


def _under_new_ids(records: list[logs.Record], session: str) -> list[logs.Record]:
    """As Claude Code 1.0.8x copies them: other ids and times, the same messages."""
    ids = {record["uuid"]: logs.record_id(f"copy {record['uuid']}", 0) for record in records}
    return [
        record
        | {"sessionId": session, "timestamp": logs.timestamp(100), "cwd": "/elsewhere"}
        | {"uuid": ids[record["uuid"]], "parentUuid": ids.get(record["parentUuid"])}
        for record in records
    ]


def _with_message_id(record: logs.Record, name: str) -> logs.Record:
    return record | {"message": record["message"] | {"id": f"msg_01{name:0>20}"}}


@pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=["original first", "copy first"])
def test_a_resumed_session_with_new_ids_for_old_records_counts_only_what_it_adds(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    old, new = logs.session_id(1), logs.session_id(2)
    begun = [
        logs.claude_user(old, 1, "fix the parser"),
        _with_message_id(logs.claude_answer(old, 2, "I look at it."), "a"),
        logs.claude_user(old, 3, "and its tests"),
        _with_message_id(logs.claude_answer(old, 4, "Done."), "b"),
    ]
    more = [
        logs.claude_user(new, 200, "and its tests"),
        _with_message_id(logs.claude_answer(new, 201, "They pass already."), "c"),
    ]
    files = {1: (old, begun), 2: (new, [*_under_new_ids(begun, new), *more])}
    for number in order:
        session, records = files[number]
        logs.CLAUDE.write(tmp_path / "home", logs.lines(records), session)
        swept(tmp_path / "store", logs.CLAUDE.root_flag(tmp_path / "home")).close()

    with open_memory(tmp_path / "store") as memory:
        first, second = memory.session(f"claude:{old}"), memory.session(f"claude:{new}")
        copies = [found.summary for found in memory.events(second, with_copies=True) if found.copy_of]

    assert copies == ["fix the parser", "I look at it.", "and its tests", "Done."]
    assert (first.cost.turns, first.cost.output_tokens, first.base_session_uid) == (2, 6, None)
    assert (second.cost.turns, second.cost.output_tokens, second.base_session_uid) == (1, 3, f"claude:{old}")


def test_copies_stay_in_their_session_but_count_no_turns(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", at_ms(1)))
    home.write("b", shared("b", at_ms(1)), event("b", 2), SessionInfo("b", base_native_id="a"))

    with sweep(tmp_path / "store", home) as memory:
        fork = memory.session(f"{AGENT}:b")
        assert (fork.event_count, fork.cost.turns, fork.message_count) == (2, 1, 2)


def test_an_older_original_that_arrives_later_takes_over(tmp_path: Path, home: Home) -> None:
    home.write("b", shared("b", at_ms(2)), usage("b", "r1", output_tokens=10, ts_ms=at_ms(2)))
    home.write("c", shared("c", at_ms(3)), usage("c", "r1", output_tokens=10, ts_ms=at_ms(3)))
    sweep(tmp_path / "store", home).close()
    home.write("a", shared("a", at_ms(1)), usage("a", "r1", output_tokens=10, ts_ms=at_ms(1)))

    with sweep(tmp_path / "store", home) as memory:
        assert owners(memory) == {"a": None, "b": "a", "c": "a"}
        assert tokens(memory) == {"a": 10, "b": 0, "c": 0}


def test_tokens_of_a_copied_response_are_counted_where_it_was_made(tmp_path: Path, home: Home) -> None:
    home.write("parent", shared("parent", at_ms(1)), usage("parent", "r1", output_tokens=10))
    home.write(
        "fork",
        shared("fork", at_ms(1)),
        usage("fork", "r1", output_tokens=10),
        usage("fork", "r2", output_tokens=7),
        SessionInfo("fork", base_native_id="parent"),
    )

    with sweep(tmp_path / "store", home) as memory:
        assert tokens(memory) == {"parent": 10, "fork": 7}


def test_a_parent_told_only_later_moves_the_tokens_and_loses_none(tmp_path: Path, home: Home) -> None:
    home.write("a", shared("a", at_ms(1)), usage("a", "r1", output_tokens=10, ts_ms=at_ms(1)))
    home.write("b", shared("b", at_ms(2)), usage("b", "r1", output_tokens=10, ts_ms=at_ms(2)))
    sweep(tmp_path / "store", home).close()
    home.append("a", SessionInfo("a", base_native_id="b"))

    with sweep(tmp_path / "store", home) as memory:
        assert owners(memory) == {"a": "b", "b": None}
        assert tokens(memory) == {"a": 0, "b": 10}


def test_tokens_belong_to_the_session_whose_events_are_the_originals(tmp_path: Path, home: Home) -> None:
    """`fork` comes from `parent` but has the earliest times, as a clock set back makes them."""
    home.write("parent", shared("parent", at_ms(9)), usage("parent", "r1", output_tokens=10, ts_ms=at_ms(9)))
    home.write(
        "fork",
        shared("fork", at_ms(1)),
        usage("fork", "r1", output_tokens=10, ts_ms=at_ms(1)),
        SessionInfo("fork", base_native_id="parent"),
    )
    home.write("third", shared("third", at_ms(5)), usage("third", "r1", output_tokens=10, ts_ms=at_ms(5)))

    with sweep(tmp_path / "store", home) as memory:
        owner = next(name for name, original in owners(memory).items() if original is None)
        assert tokens(memory) == {"parent": 0, "fork": 0, "third": 0} | {owner: 10}


def _claims(*pairs: tuple[str, str], root: str | None = None) -> dict[str, list[Record]]:
    """Sessions that each say another one spawned them."""
    return {
        name: [event(name, 1), SessionInfo(name, parent_native_id=parent, root_native_id=root)]
        for name, parent in pairs
    }


@pytest.mark.parametrize("root", [None, "top"], ids=["no root told", "a root told"])
@pytest.mark.parametrize("names", ["ab", "abc", "a"], ids=["two", "three", "itself"])
def test_sessions_that_claim_to_have_spawned_each_other_are_listed_and_shown(
    tmp_path: Path, home: Home, names: str, root: str | None
) -> None:
    pairs = zip(names, names[1:] + names[0], strict=True)
    for name, records in _claims(*pairs, root=root).items():
        home.write(name, *records)
    if root:
        home.write("top", event("top", 1))

    with sweep(tmp_path / "store", home) as memory:
        for session in memory.sessions():
            shown = [item.event.event_uid for item in itertools.islice(memory.transcript(session), 50)]
            assert len(shown) == len(set(shown))


def test_sessions_whose_shown_names_would_be_the_same_do_not_end_the_sweep(tmp_path: Path, home: Home) -> None:
    home.write("one", event("top/sub", 1))
    home.write("two", event("sub", 1), SessionInfo("sub", root_native_id="top", parent_native_id="top"))

    with sweep(tmp_path / "store", home) as memory:
        assert sorted(session.native_session_id for session in memory.sessions()) == ["sub", "top/sub"]
        for name in ("sub", "top/sub", f"{AGENT}:top/sub"):
            with pytest.raises(Ambiguous):
                memory.session(name)


_NAMES = ("a", "b", "c")
_times = st.none() | st.integers(1, 3).map(at_ms)


@st.composite
def _files(draw: st.DrawFn) -> list[tuple[str, list[Record]]]:
    """Some sessions that share records, responses and claims about each other, a file each."""
    files: list[tuple[str, list[Record]]] = []
    for name in _NAMES:
        base = draw(st.none() | st.sampled_from(_NAMES))
        records: list[Record] = [
            shared(name, draw(_times)),
            _response(name, draw(_times)),
            SessionInfo(name, base_native_id=base, born_ms=draw(_times)),
        ]
        files.append((name, records))
    return files


def _response(name: str, ts_ms: int | None) -> Usage:
    return usage(name, "r1", output_tokens=10, ts_ms=ts_ms)


def _outcome(order: Sequence[tuple[str, list[Record]]], *, one_by_one: bool) -> tuple[Any, ...]:
    with scratch() as folder:
        home = Home(folder / "home")
        with open_memory(folder / "store", [home.flag]) as memory:
            for number, (name, records) in enumerate(order):
                # The folder's name decides the order within one sweep, the time of writing that over several.
                home.write(f"{number if not one_by_one else 0}/{name}", *records)
                if one_by_one:
                    memory.sweep()
            memory.sweep()
            return owners(memory), tokens(memory)


@settings(max_examples=60 if IS_SOAK else 8, deadline=None)
@given(_files(), st.permutations(range(len(_NAMES))))
def test_the_order_in_which_files_arrive_does_not_matter(
    files: list[tuple[str, list[Record]]], order: list[int]
) -> None:
    at_once = _outcome(files, one_by_one=False)

    assert _outcome([files[number] for number in order], one_by_one=False) == at_once
    assert _outcome([files[number] for number in order], one_by_one=True) == at_once


@settings(max_examples=60 if IS_SOAK else 8, deadline=None)
@given(_files())
def test_a_shared_response_is_counted_exactly_once(files: list[tuple[str, list[Record]]]) -> None:
    _, counted = _outcome(files, one_by_one=False)

    assert sum(counted.values()) == 10
