"""Retries, completions and what a rewind left behind: each rule of docs/kinds.md with a near miss."""

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.model.schema import (
    ASSISTANT_MSG,
    COMPLETION,
    DECISION,
    EDIT,
    ERROR,
    FILES_LANE,
    HUMAN_INTERVENTION,
    KINDS,
    LIFECYCLE,
    OTHER,
    RETRY,
    TEST_RUN,
    THINKING,
    TOOL_CALL,
    TOOL_RESULT,
    USER_MSG,
)
from recollect.sessions.marks import apply, derive
from recollect.store import IS_ABANDONED, IS_RETRY, TOLD_RETRY, Step

_NOTHING: dict[str, Any] = dict.fromkeys(Step._fields)


def _uid(number: int) -> bytes:
    return hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def mark(number: int, kind: str, **fields: Any) -> Step:
    """The nth event of a session. `parent` is the number of the event it follows."""
    parent = fields.pop("parent", None)
    told = {
        "id": number,
        "event_uid": _uid(number),
        "parent_uid": _uid(parent) if parent is not None else None,
        "lane": "",
        "position": number,
        "ts_ms": number * 1000,
        "kind": kind,
        "base_kind": kind,
        "flags": 0,
        "summary": "",
        "payload_hash": _uid(number),
    }
    return Step(**(_NOTHING | told | fields))


def call(number: int, command: str, kind: str = TOOL_CALL) -> Step:
    return mark(number, kind, role="assistant", call_id=f"c{number}", retry_key=command.encode())


def result(number: int, of: int, kind: str = TOOL_RESULT) -> Step:
    return mark(number, kind, role="tool", call_id=f"c{of}")


class Seen(NamedTuple):
    """What an event is, seen from its whole session."""

    kind: str
    is_retry: bool = False
    is_abandoned: bool = False


def seen(events: Iterable[Step]) -> dict[int, Seen]:
    """Each event (by number) as it stands in the store after deriving."""
    return {event.id: Seen(event.kind, _has(event, IS_RETRY), _has(event, IS_ABANDONED)) for event in derived(events)}


def _has(event: Step, flag: int) -> bool:
    return bool(event.flags & flag)


def derived(events: Iterable[Step]) -> list[Step]:
    """The events with all changes written."""
    known = list(events)
    return apply(known, derive(known))[0]


def retried(*events: Step) -> list[int]:
    return [number for number, found in seen(events).items() if found.is_retry]


def completed(*events: Step) -> list[int]:
    return [number for number, found in seen(events).items() if found.kind == COMPLETION]


def abandoned(*events: Step) -> list[int]:
    return [number for number, found in seen(events).items() if found.is_abandoned]


def test_the_same_call_after_its_failure_is_a_retry() -> None:
    found = seen([call(1, "ls"), result(2, 1, ERROR), call(3, "ls")])

    assert found[3] == Seen(RETRY, is_retry=True)
    assert found[1] == Seen(TOOL_CALL)


@pytest.mark.parametrize("kind", [TEST_RUN, EDIT])
def test_a_test_run_or_edit_that_is_a_retry_keeps_its_kind(kind: str) -> None:
    found = seen([call(1, "x", kind), result(2, 1, ERROR), call(3, "x", kind)])

    assert found[3] == Seen(kind, is_retry=True)


def test_another_call_after_a_failure_is_no_retry() -> None:
    assert retried(call(1, "ls"), result(2, 1, ERROR), call(3, "ls -a")) == []


def test_the_same_call_after_its_success_is_no_retry() -> None:
    assert retried(call(1, "ls"), result(2, 1), call(3, "ls")) == []


def test_a_success_of_the_same_call_ends_the_row_of_retries() -> None:
    events = [call(1, "ls"), result(2, 1, ERROR), call(3, "ls"), result(4, 3), call(5, "ls")]

    assert retried(*events) == [3]


def test_a_success_of_another_call_does_not_end_the_row_of_retries() -> None:
    events = [call(1, "make"), result(2, 1, ERROR), call(3, "ls"), result(4, 3), call(5, "make")]

    assert retried(*events) == [5]


def test_a_test_run_again_after_a_successful_edit_is_no_retry() -> None:
    events = [
        call(1, "pytest", TEST_RUN),
        result(2, 1, ERROR),
        call(3, "a.py", EDIT),
        result(4, 3),
        call(5, "pytest", TEST_RUN),
    ]

    assert retried(*events) == []


def test_a_failed_edit_between_the_two_changes_nothing() -> None:
    events = [
        call(1, "pytest", TEST_RUN),
        result(2, 1, ERROR),
        call(3, "a.py", EDIT),
        result(4, 3, ERROR),
        call(5, "pytest", TEST_RUN),
    ]

    assert retried(*events) == [5]


def test_an_edit_without_a_result_between_the_two_changes_nothing() -> None:
    events = [call(1, "make"), result(2, 1, ERROR), call(3, "a.py", EDIT), call(4, "make")]

    assert retried(*events) == [4]


def test_repeating_a_call_the_user_refused_is_no_retry() -> None:
    assert retried(call(1, "rm x"), result(2, 1, HUMAN_INTERVENTION), call(3, "rm x")) == []


def test_a_call_before_the_failure_is_known_is_no_retry() -> None:
    assert retried(call(1, "ls"), call(2, "ls"), result(3, 1, ERROR)) == []


def test_calls_without_a_key_are_never_retries() -> None:
    keyless = [call(number, "x")._replace(retry_key=None) for number in (1, 3)]

    assert retried(keyless[0], result(2, 1, ERROR), keyless[1]) == []


def test_a_failure_in_another_lane_makes_no_retry() -> None:
    events = [call(1, "ls"), result(2, 1, ERROR), call(3, "ls")._replace(lane="side")]

    assert retried(*events) == []


def test_what_the_log_itself_calls_a_retry_stays_one() -> None:
    assert retried(mark(1, RETRY, flags=IS_RETRY | TOLD_RETRY)) == [1]


def test_the_last_words_of_an_answered_request_are_its_completion() -> None:
    events = [mark(1, USER_MSG), mark(2, ASSISTANT_MSG), call(3, "ls"), result(4, 3), mark(5, ASSISTANT_MSG)]

    assert completed(*events) == [5]


def test_each_exchange_has_its_own_completion() -> None:
    events = [mark(1, USER_MSG), mark(2, ASSISTANT_MSG), mark(3, USER_MSG), mark(4, ASSISTANT_MSG)]

    assert completed(*events) == [2, 4]


@pytest.mark.parametrize("kind", [TOOL_CALL, TEST_RUN, EDIT, TOOL_RESULT, ERROR, DECISION, HUMAN_INTERVENTION, OTHER])
def test_words_that_something_else_follows_are_no_completion(kind: str) -> None:
    assert completed(mark(1, USER_MSG), mark(2, ASSISTANT_MSG), mark(3, kind, role="assistant")) == []


@pytest.mark.parametrize("kind", [LIFECYCLE, THINKING])
def test_lifecycle_and_thinking_after_the_last_words_leave_them_the_completion(kind: str) -> None:
    assert completed(mark(1, USER_MSG), mark(2, ASSISTANT_MSG), mark(3, kind)) == [2]


@pytest.mark.parametrize("kind", [TOOL_CALL, TEST_RUN, TOOL_RESULT, ERROR])
def test_the_users_own_shell_after_the_last_words_leaves_them_the_completion(kind: str) -> None:
    assert completed(mark(1, USER_MSG), mark(2, ASSISTANT_MSG), mark(3, kind, role="user")) == [2]


def test_a_users_refusal_after_the_last_words_takes_the_completion() -> None:
    events = [mark(1, USER_MSG), mark(2, ASSISTANT_MSG), mark(3, HUMAN_INTERVENTION, role="user")]

    assert completed(*events) == []


def test_words_before_the_first_request_are_no_completion() -> None:
    assert completed(mark(1, ASSISTANT_MSG), mark(2, LIFECYCLE)) == []


def test_a_request_in_another_lane_does_not_end_an_exchange() -> None:
    events = [mark(1, USER_MSG), mark(2, ASSISTANT_MSG), mark(3, USER_MSG, lane="side")]

    assert completed(*events) == [2]


def _rewind(number: int, **told: Any) -> Step:
    return mark(number, LIFECYCLE, metadata=orjson.dumps(told).decode())


def test_events_between_a_rewinds_goal_and_the_rewind_are_abandoned() -> None:
    events = [mark(1, USER_MSG), mark(2, USER_MSG), mark(3, ASSISTANT_MSG), _rewind(4, rewind_to=2), mark(5, USER_MSG)]

    assert abandoned(*events) == [2, 3]


def test_a_rewind_that_names_its_end_reaches_no_further() -> None:
    events = [mark(1, USER_MSG), mark(2, USER_MSG), mark(3, USER_MSG), _rewind(4, rewind_to=2, rewind_until=3)]

    assert abandoned(*events) == [2]


def test_a_rewind_does_not_reach_into_another_lane() -> None:
    events = [mark(2, USER_MSG), _rewind(4, rewind_to=1), mark(3, USER_MSG, lane="side")]

    assert abandoned(*events) == [2]


def test_abandoned_events_keep_their_kind() -> None:
    found = seen([mark(1, USER_MSG), mark(2, ASSISTANT_MSG), _rewind(3, rewind_to=1)])

    assert found[2] == Seen(COMPLETION, is_abandoned=True)


@pytest.mark.parametrize(
    "metadata",
    ['{"file":"rewind_to.txt"}', '{"note":{"rewind_to":1}}', "{}"],
)
def test_metadata_that_only_mentions_a_rewind_is_none(metadata: str) -> None:
    events = [mark(1, USER_MSG), mark(2, ASSISTANT_MSG), mark(3, LIFECYCLE, metadata=metadata)]

    assert abandoned(*events) == []


def test_of_two_requests_after_the_same_event_the_earlier_is_abandoned_with_all_that_followed_it() -> None:
    events = [
        mark(1, ASSISTANT_MSG),
        mark(2, USER_MSG, parent=1),
        mark(3, ASSISTANT_MSG, parent=2),
        mark(4, TOOL_CALL, parent=3),
        mark(5, USER_MSG, parent=1),
        mark(6, ASSISTANT_MSG, parent=5),
    ]

    assert abandoned(*events) == [2, 3, 4]


def test_a_request_and_an_answer_after_the_same_event_are_both_kept() -> None:
    events = [mark(1, ASSISTANT_MSG), mark(2, TOOL_CALL, parent=1), mark(3, USER_MSG, parent=1)]

    assert abandoned(*events) == []


def test_several_first_requests_without_a_parent_are_all_kept() -> None:
    assert abandoned(mark(1, USER_MSG), mark(2, USER_MSG)) == []


_metadata = st.none() | st.fixed_dictionaries(
    {}, optional={"rewind_to": st.integers(-2, 20), "rewind_until": st.integers(0, 20), "file": st.just("rewind_to")}
).map(lambda told: orjson.dumps(told).decode())


@st.composite
def _sessions(draw: st.DrawFn) -> list[Step]:
    events = [
        mark(
            number,
            draw(st.sampled_from(KINDS)),
            lane=draw(st.sampled_from(["", FILES_LANE, "side"])),
            position=draw(st.integers(0, 8)),
            ts_ms=draw(st.none() | st.integers(0, 9)),
            role=draw(st.sampled_from([None, "user", "assistant", "tool"])),
            call_id=draw(st.none() | st.sampled_from(["c1", "c2"])),
            retry_key=draw(st.none() | st.sampled_from([b"x", b"y"])),
            flags=draw(st.sampled_from([0, IS_RETRY | TOLD_RETRY])),
            metadata=draw(_metadata),
            parent=draw(st.none() | st.integers(0, 14)),
        )
        for number in range(draw(st.integers(0, 14)))
    ]
    return sorted(events, key=lambda event: (event.lane, event.position, event.event_uid))


@settings(max_examples=80, deadline=None)
@given(_sessions())
def test_no_session_makes_deriving_fail_and_every_event_is_told_of(events: list[Step]) -> None:
    assert set(seen(events)) == {event.id for event in events}


@settings(max_examples=80, deadline=None)
@given(_sessions())
def test_deriving_twice_changes_nothing(events: list[Step]) -> None:
    after = derived(events)

    assert apply(after, derive(after)) == (after, [])


@settings(max_examples=60, deadline=None)
@given(_sessions(), st.randoms(use_true_random=False))
def test_the_order_in_which_lanes_are_told_does_not_matter(events: list[Step], random: Any) -> None:
    lanes = sorted({event.lane for event in events}, key=lambda _: random.random())

    shuffled = [event for lane in lanes for event in events if event.lane == lane]

    assert seen(shuffled) == seen(events)
