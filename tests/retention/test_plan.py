"""What goes and what stays, rule by rule, and over any store."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.lifecycle.budget import AGE, HARD_CAP, LAST_COPY, SOFT_CAP, UNANALYSED, Limits, Plan, plan
from recollect.store import HeldSession

DAY_MS = 86_400_000
NOW_MS = 400 * DAY_MS
LIMITS = Limits(raw_soft_cap=100, raw_hard_cap=150, raw_max_age_days=45, distilled_cap=1000)


def held(
    name: str,
    size: int = 10,
    *,
    age: int = 1,
    analyzed: int | None = 0,
    last: bool = False,
    forks: bool = False,
    ended: int = 0,
) -> HeldSession:
    """A session of `size` bytes, last active or read `age` days ago and analysed at `analyzed`."""
    return HeldSession("agent", name, f"agent:{name}", size, NOW_MS - age * DAY_MS, analyzed, last, forks, ended)


def decide(
    *sessions: HeldSession, limits: Limits = LIMITS, size: int | None = None, sane: bool = True, tried: bool = True
):
    raw = sum(one.bytes for one in sessions) if size is None else size
    return plan(sessions, raw, limits, NOW_MS, is_clock_sane=sane, is_all_analyzed=tried)


def taken(found: Plan) -> list[tuple[str, str]]:
    return [(eviction.held.native_id, eviction.reason) for eviction in found.evictions]


def test_nothing_goes_while_everything_is_young_and_fits() -> None:
    assert taken(decide(held("a", 50), held("b", 50))) == []


def test_old_sessions_go_whatever_room_there_is() -> None:
    found = decide(held("old", age=46), held("young", age=44))
    assert taken(found) == [("old", AGE)]


def test_old_sessions_stay_while_not_analysed_or_the_last_copy_or_after_a_clock_jump() -> None:
    assert taken(decide(held("raw", age=90, analyzed=None), held("last", age=90, last=True))) == []
    assert taken(decide(held("old", age=90), sane=False)) == []


def test_over_the_soft_cap_the_longest_analysed_go_until_it_fits() -> None:
    found = decide(held("new", 60, analyzed=3), held("older", 30, analyzed=1), held("old", 30, analyzed=2))
    assert taken(found) == [("older", SOFT_CAP)]
    assert found.bytes_after == 90


def test_between_the_caps_what_is_not_analysed_or_the_last_copy_stays() -> None:
    found = decide(held("raw", 70, analyzed=None), held("last", 70, last=True))
    assert taken(found) == []
    assert not found.analyze_first


def test_the_switch_lets_last_copies_go_like_others() -> None:
    limits = replace(LIMITS, evict_last_copy=True)
    assert taken(decide(held("last", 120, last=True), limits=limits)) == [("last", SOFT_CAP)]


def test_over_the_hard_cap_analysing_is_tried_before_anything_is_lost() -> None:
    found = decide(held("raw", 200, analyzed=None), held("last", 20, last=True), tried=False)
    assert found.analyze_first
    assert taken(found) == []


def test_over_the_hard_cap_last_copies_go_before_what_no_digest_tells_of() -> None:
    sessions = [held("raw", 100, analyzed=None), held("old", 60, last=True), held("new", 60, analyzed=5, last=True)]
    assert taken(decide(*sessions)) == [("old", LAST_COPY), ("new", LAST_COPY)]
    assert taken(decide(held("raw", 100, analyzed=None), held("older", 100, age=9, analyzed=None))) == [
        ("older", UNANALYSED)
    ]


def test_a_base_stays_for_its_forks_and_goes_only_over_the_hard_cap() -> None:
    assert taken(decide(held("base", 120, age=90, forks=True))) == []
    assert taken(decide(held("base", 200, forks=True))) == [("base", HARD_CAP)]


def test_a_last_copy_goes_after_everything_that_can_be_read_again() -> None:
    sessions = [held("last", 100, last=True), held("base", 100, analyzed=9, forks=True)]
    assert taken(decide(*sessions)) == [("base", HARD_CAP)]


def test_of_sessions_analysed_together_the_one_with_the_oldest_activity_goes_first() -> None:
    sessions = [held("a", 60, ended=7), held("b", 60, ended=5)]
    assert taken(decide(*sessions)) == [("b", SOFT_CAP)]


def test_nothing_is_lost_before_what_else_there_is_has_gone() -> None:
    found = decide(held("spare", 100), held("last", 200, last=True))
    assert taken(found) == [("spare", SOFT_CAP), ("last", LAST_COPY)]
    assert [eviction.held.native_id for eviction in found.first] == ["spare"]
    found = decide(held("raw", 200, analyzed=None), held("last", 200, last=True))
    assert taken(found) == [("last", LAST_COPY), ("raw", UNANALYSED)]
    assert [eviction.held.native_id for eviction in found.first] == ["last"]
    assert [eviction.held.native_id for eviction in decide(held("raw", 200, analyzed=None)).first] == ["raw"]


def test_bytes_that_belong_to_no_session_do_not_make_it_take_more_than_there_is() -> None:
    found = decide(held("a", 10), size=1000)
    assert [name for name, _ in taken(found)] == ["a"]
    assert found.bytes_after == 990


_sessions = st.lists(
    st.builds(
        HeldSession,
        st.just("agent"),
        st.just("x"),
        st.uuids().map(str),
        st.integers(0, 80),
        st.integers(NOW_MS - 100 * DAY_MS, NOW_MS),
        st.none() | st.integers(0, NOW_MS),
        st.booleans(),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda one: one.session_uid,
)


@given(_sessions, st.booleans(), st.booleans(), st.booleans())
def test_promises_hold_for_any_store(sessions: list[HeldSession], sane: bool, tried: bool, last_too: bool) -> None:
    limits = replace(LIMITS, evict_last_copy=last_too)
    found = decide(*sessions, limits=limits, sane=sane, tried=tried)
    gone = {eviction.held.session_uid: eviction for eviction in found.evictions}
    left = [one for one in sessions if one.session_uid not in gone]
    assert len(gone) == len(found.evictions)
    assert found.bytes_after == sum(one.bytes for one in left)
    assert found.analyze_first or found.bytes_after <= LIMITS.raw_hard_cap
    for eviction in found.evictions:
        one, reason = eviction.held, eviction.reason
        assert (one.analyzed_ms is None) == (reason == UNANALYSED)
        assert (reason == LAST_COPY) <= one.is_last_copy
        assert reason in (LAST_COPY, UNANALYSED) or last_too or not one.is_last_copy
        assert reason != UNANALYSED or all(other.analyzed_ms is None for other in left)
        assert reason != LAST_COPY or all(other.is_last_copy or other.analyzed_ms is None for other in left)
    if {LAST_COPY, UNANALYSED} & {eviction.reason for eviction in found.evictions}:
        soft = [eviction for eviction in found.evictions if eviction.reason in (AGE, SOFT_CAP)]
        before = sum(one.bytes for one in sessions) - sum(eviction.held.bytes for eviction in soft)
        assert before > LIMITS.raw_hard_cap


@pytest.mark.parametrize("size", [LIMITS.raw_soft_cap, LIMITS.raw_soft_cap + 1])
def test_the_cap_itself_still_fits(size: int) -> None:
    assert bool(decide(held("a", size)).evictions) == (size > LIMITS.raw_soft_cap)
