"""What code above the store reads through: any store that offers these ports is held to them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.model.kinds import ASSISTANT_MSG, EDIT, KIND_FAMILY, TOOL_CALL, TOOL_RESULT, USER_MSG, SessionKey
from recollect.store import (
    ANY_SESSION,
    Choice,
    EventFilter,
    EventHeader,
    OutOfTime,
    SessionFilter,
    Span,
    StoreReads,
    Term,
    Wanted,
    open_for_reading,
)
from tests.builders import AGENT, BEGIN_MS, KNOWN_MODEL, Home, ScriptedAdapter, at_ms, event, sweep, usage

TALK, CHILD, OTHER = (SessionKey(AGENT, name) for name in ("talk", "child", "other"))
UID = {TALK: f"{AGENT}:talk", CHILD: f"{AGENT}:talk/child", OTHER: f"{AGENT}:other"}
SHOP, ZOO = "h/acme/shop", "h/acme/zoo"
DAY_MS = 86_400_000
WEIGHTS = (1.0, 1.0, 1.0, 1.0)


@contextmanager
def sqlite(folder: Path) -> Iterator[StoreReads]:
    with open_for_reading(folder) as store:
        yield store


@pytest.fixture(params=[sqlite])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreReads]:
    """Three sessions: a talk that asks twice, edits and fails; its sub-agent; another one a day later."""
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home = Home(tmp_path / "home")
    call = {"role": "assistant", "call_id": "c"}
    home.write(
        "talk",
        SessionInfo("talk", title="Walrus migration", title_rank=3, cwd="/home/x/shop", git_remote="git@h:acme/shop"),
        event("talk", 1, text="why does the walrus migration hang?"),
        event("talk", 2, ASSISTANT_MSG, "it waits for a lock"),
        event("talk", 3, EDIT, tool="Edit", **call),
        event("talk", 4, "error", "no such table: walrus", role="tool", call_id="c", is_error=True),
        event("talk", 5, text="then drop the lock"),
        event("talk", 6, ASSISTANT_MSG, "the lock is dropped"),
        usage("talk", "u", output_tokens=1_000_000),
    )
    home.write(
        "child",
        SessionInfo("child", parent_native_id="talk", root_native_id="talk", cwd="/home/x/shop"),
        event("child", 1, text="look into the lock"),
        event("child", 2, ASSISTANT_MSG, "nobody holds it"),
    )
    later = [
        event("other", number, kind, text, ts_ms=at_ms(number) + DAY_MS)
        for number, kind, text in (
            (1, USER_MSG, "paint the otter green"),
            (2, TOOL_CALL, "paint"),
            (3, TOOL_RESULT, "painted"),
        )
    ]
    home.write("other", SessionInfo("other", cwd="/home/x/zoo", git_remote="git@h:acme/zoo"), *later)
    sweep(tmp_path / "store", home).close()
    with request.param(tmp_path / "store") as opened:
        yield opened


def _stream(store: StoreReads, key: SessionKey) -> int:
    return store.events.streams([key])[key]


def _events(store: StoreReads, key: SessionKey) -> list[EventHeader]:
    """A session's events in reading order."""
    uids = [uid.hex() for (uid,) in store.events.rows(key, ("event_uid",))]
    found = store.events.by_uid(uids)
    return [found[uid] for uid in uids]


def _words(*texts: str) -> Wanted:
    return Wanted(tuple((Term(text),) for text in texts))


def _sessions(store: StoreReads, streams: set[int]) -> set[SessionKey]:
    return set(store.events.keys(streams).values())


def test_a_session_is_found_by_its_ids_only(store: StoreReads) -> None:
    session = store.sessions.find_named(TALK)

    assert session is not None and session.title == "Walrus migration" and session.repo == SHOP
    assert store.sessions.find_named(SessionKey(AGENT, "none")) is None


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        (ANY_SESSION, {TALK, CHILD, OTHER}),
        (SessionFilter(chosen=(("repo", (ZOO,)),)), {OTHER}),
        (SessionFilter(chosen=(("repo ending", ("zoo",)),)), {OTHER}),
        (SessionFilter(chosen=(("class", ("sub-agent",)),)), {CHILD}),
        (SessionFilter(chosen=(("model", (KNOWN_MODEL[:8],)),)), {TALK}),
        (SessionFilter(excluded=(("repo", (ZOO,)),)), {TALK, CHILD}),
        (SessionFilter(uids=frozenset({UID[OTHER], "none"})), {OTHER}),
        (SessionFilter(excluded_uids=frozenset({UID[TALK]})), {CHILD, OTHER}),
        (SessionFilter(since_ms=BEGIN_MS + DAY_MS), {OTHER}),
        (SessionFilter(before_ms=BEGIN_MS + DAY_MS), {TALK, CHILD}),
        (SessionFilter(text="MIGRATION"), {TALK}),
        (SessionFilter(text="%"), set()),
        (SessionFilter(root=UID[TALK]), {TALK, CHILD}),
        (SessionFilter(roots_only=True), {TALK, OTHER}),
        (SessionFilter(is_evicted=True), set()),
    ],
)
def test_a_filter_means_the_same_to_all_that_take_it(
    store: StoreReads, criteria: SessionFilter, expected: set[SessionKey]
) -> None:
    listed = store.sessions.find(criteria)

    assert {SessionKey(session.agent, session.native_session_id) for session in listed} == expected
    assert set(store.sessions.keys(criteria)) == expected
    assert store.sessions.count(criteria) == len(expected)


def test_sessions_are_listed_by_what_is_asked_for_and_in_pages(store: StoreReads) -> None:
    newest = store.sessions.find(limit=1)
    dearest = store.sessions.find(sort="cost", limit=1)
    rest = store.sessions.find(offset=1)

    assert [session.session_uid for session in newest] == [UID[OTHER]]
    assert [session.session_uid for session in dearest] == [UID[TALK]]
    assert {session.session_uid for session in rest} == {UID[TALK], UID[CHILD]}


def test_headers_are_those_of_the_sessions_asked_for(store: StoreReads) -> None:
    headers = store.sessions.of([TALK, SessionKey(AGENT, "none")])

    assert list(headers) == [TALK]
    assert (headers[TALK].title, headers[TALK].repo, headers[TALK].key) == ("Walrus migration", SHOP, TALK)
    assert store.sessions.named([UID[TALK], "none"]) == {UID[TALK]: headers[TALK]}


def test_a_session_goes_by_its_title_and_by_ends_of_its_id(store: StoreReads) -> None:
    by_title, by_id = store.sessions.named_like("walrus MIGRATION"), store.sessions.named_like("talk")

    assert [(match.session_uid, match.is_exact) for match in by_title] == [(UID[TALK], False)]
    assert [(match.session_uid, match.is_exact) for match in by_id] == [(UID[TALK], True)]
    assert store.sessions.named_like("tal") == []


def test_what_belongs_together_is_the_root_and_what_it_spawned(store: StoreReads) -> None:
    assert store.sessions.trees([CHILD]) == {UID[TALK], UID[CHILD]}
    assert set(store.sessions.households([UID[TALK]])) == {TALK, CHILD}
    assert store.sessions.households([UID[CHILD]]) == [CHILD]
    assert [(header.key, why) for header, why in store.sessions.kin(UID[CHILD])] == [(TALK, "spawned it")]
    assert store.sessions.roots_of_repo("shop") == {UID[TALK]}


def test_lists_of_recent_sessions_leave_out_sub_agents(store: StoreReads) -> None:
    recent = store.sessions.recent(5, ANY_SESSION)

    assert [header.key for header in recent] == [OTHER, TALK]
    assert store.sessions.recent_count(ANY_SESSION) == 2
    assert [header.key for header in store.sessions.recent(5, ANY_SESSION, offset=1)] == [TALK]
    assert list(store.sessions.latest(1, 0)) == [OTHER]


def test_names_are_listed_the_latest_first(store: StoreReads) -> None:
    assert store.sessions.names("repo") == [ZOO, SHOP]
    assert store.sessions.names("agent") == [AGENT]
    assert ("/home/x/shop", SHOP) in store.sessions.folders()


def test_a_digest_is_the_same_by_key_and_by_its_words(store: StoreReads) -> None:
    text = store.digests.text(TALK)
    (header, score), *others = store.digests.search('"walrus"', ANY_SESSION)

    assert text is not None and store.digests.find(TALK) == text.encode()
    assert orjson.loads(text)["request_count"] == 2
    assert (header.key, others, score > 0) == (TALK, [], True)
    assert store.digests.roots('"walrus"') == {UID[TALK]}
    assert store.digests.search('"walrus"', SessionFilter(roots_only=True, excluded_uids=frozenset({UID[TALK]}))) == []
    assert store.digests.text(SessionKey(AGENT, "none")) is None


def test_words_of_digests_are_counted(store: StoreReads) -> None:
    assert store.digests.count('"walrus"') == 1
    assert store.digests.count("") == 0
    assert store.digests.count() >= 2
    assert store.digests.word_counts(["walrus", "unheard"]) == {"walrus": 1}
    assert "walrus" in store.digests.words([UID[TALK]])[UID[TALK]].lower()


def test_as_many_signals_are_listed_as_are_counted(store: StoreReads) -> None:
    assert len(store.digests.signals(ANY_SESSION)) == store.digests.signal_count(ANY_SESSION, None, None)
    assert store.digests.signals(ANY_SESSION, SessionKey(AGENT, "none")) == []


def test_events_come_in_reading_order_whole_or_in_part(store: StoreReads) -> None:
    def ids(**which: object) -> list[str]:
        return [name for (name,) in store.events.rows(TALK, ("native_id",), **which)]  # type: ignore[arg-type]

    assert ids() == [f"talk-{number}" for number in range(1, 7)]
    assert ids(last=2) == ["talk-5", "talk-6"]
    assert ids(span=range(1, 3)) == ["talk-2", "talk-3"]
    assert ids(kinds=[USER_MSG]) == ["talk-1", "talk-5"]
    assert ids(calls=EDIT) == ["talk-3", "talk-4"]


def test_an_event_has_a_place_by_its_uid_and_its_number(store: StoreReads) -> None:
    events = _events(store, TALK)

    assert store.events.place(TALK, str(events[4].seq)) == 4
    assert store.events.place(TALK, events[5].event_uid.hex()[-12:]) == 5
    assert store.events.place(TALK, str(events[3].seq)) == 2  # of a result, that of its call
    assert store.events.place(TALK, "zzz") is None


def test_a_session_s_number_is_its_own(store: StoreReads) -> None:
    streams = store.events.streams([TALK, OTHER, SessionKey(AGENT, "none")])

    assert set(streams) == {TALK, OTHER}
    assert store.events.keys(streams.values()) == {stream: key for key, stream in streams.items()}
    assert store.events.of([event.id for event in _events(store, TALK)]).keys() == {
        event.id for event in _events(store, TALK)
    }


def test_requests_and_answers_are_found_from_any_event(store: StoreReads) -> None:
    asked, said, edit, error, again, answer = _events(store, TALK)

    assert store.events.request(asked.stream) == asked
    assert store.events.request(asked.stream, is_last=True) == again
    assert store.events.request_of(edit) == asked and store.events.request_of(asked) is None
    assert store.events.near(asked, ("user_msg",)) == [again] and store.events.near(again, ("user_msg",)) == []
    assert store.events.answer_to(asked, is_last=True) == said
    assert store.events.answer_to(again, is_last=False) == answer
    assert store.events.near(asked, KIND_FAMILY[TOOL_CALL], count=3) == [edit]
    assert store.events.results([edit]) == {edit.id: [error]}
    assert store.events.near(edit, is_before=True) == [said] and store.events.near(edit) == [error]
    assert store.events.ends([asked.stream]) == {asked.stream: (asked, answer)}
    assert store.events.requests([asked.stream]) == [asked.summary, again.summary]


def test_an_edit_that_failed_changed_nothing(store: StoreReads) -> None:
    assert _sessions(store, store.events.with_edits()) == set()


def test_payloads_are_those_of_the_places_asked_for(store: StoreReads) -> None:
    events = _events(store, TALK)
    places = [(event.payload_start, event.payload_bytes) for event in (events[5], events[0])]

    texts = [orjson.loads(raw)["text"] for raw in store.payloads.iter(TALK, places)]

    assert texts == ["the lock is dropped", "why does the walrus migration hang?"]
    assert list(store.payloads.iter(SessionKey(AGENT, "none"), places)) == []


def test_words_find_the_events_that_have_them(store: StoreReads) -> None:
    (month,) = store.words.months()
    best = store.words.find(month, _words("lock"), WEIGHTS, EventFilter(), 5)

    assert _sessions(store, {hit.stream for hit in best}) == {TALK, CHILD}
    assert [hit.score for hit in best] == sorted((hit.score for hit in best), reverse=True)
    assert {hit.id for hit in store.words.matching(_words("lock"), EventFilter())} == {hit.id for hit in best}
    assert store.words.counts(_words("lock")) == {month: len(best)}
    assert store.words.counts(_words("unheard")) == {month: 0}
    assert store.words.frequencies(["otter", "unheard"]) == {month: {"otter": 1}}
    assert store.words.words_with("alru", 5) == ["walrus"]


def test_all_needs_must_be_met_and_nothing_that_is_excluded(store: StoreReads) -> None:
    both = store.words.sessions_with(_words("walrus", "hang"), EventFilter())
    without = store.words.sessions_with(Wanted(((Term("lock"),),), (Term("dropped"),)), EventFilter())

    assert _sessions(store, both) == {TALK}
    assert len(store.words.matching(Wanted(((Term("lock"),),), (Term("drop", is_prefix=True),)), EventFilter())) == 2
    assert _sessions(store, without) == {TALK, CHILD}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (EventFilter(), {TALK, CHILD, OTHER}),
        (EventFilter(choices=(Choice("kind", (EDIT,)),)), {TALK}),
        (EventFilter(choices=(Choice("kind", (TOOL_CALL, EDIT), is_excluded=True),)), {TALK, CHILD, OTHER}),
        (EventFilter(is_error=True), {TALK}),
        (EventFilter(since_ms=BEGIN_MS + DAY_MS), {OTHER}),
        (EventFilter(before_ms=BEGIN_MS + DAY_MS), {TALK, CHILD}),
    ],
)
def test_a_filter_of_events_holds_with_words_and_without(
    store: StoreReads, chosen: EventFilter, expected: set[SessionKey]
) -> None:
    assert _sessions(store, store.words.sessions_with(None, chosen)) == expected
    assert _sessions(store, {hit.stream for hit in store.words.newest(chosen, 50)}) == expected
    assert _sessions(store, {hit.stream for hit in store.words.latest(chosen, 1)}) == expected
    assert _sessions(store, store.words.sessions_with(_words("lock"), chosen)) <= expected


def test_a_filter_of_sessions_takes_and_leaves_them_by_their_numbers(store: StoreReads) -> None:
    talk = _stream(store, TALK)

    assert store.words.sessions_with(None, EventFilter(streams=(talk,))) == {talk}
    assert talk not in store.words.sessions_with(None, EventFilter(excluded_streams=(talk,)))


def test_a_question_without_words_has_no_expression(store: StoreReads) -> None:
    assert store.words.expression(_words("---")) == ""
    assert store.words.tokens("Walrus, LOCK!") == ["walrus", "lock"]


def test_a_question_that_takes_too_long_says_so(store: StoreReads, monkeypatch: pytest.MonkeyPatch) -> None:
    store.words.limit_time(-1)
    with pytest.raises(OutOfTime):
        for _ in range(2_000):
            store.words.newest(EventFilter(), 50)
    store.words.limit_time(None)

    assert store.words.newest(EventFilter(), 1)


def test_nothing_is_taught_by_sessions_that_teach_nothing(store: StoreReads) -> None:
    assert store.facts.select(("decided",)) == []
    assert store.facts.select(uid="f" * 16, with_rejected=True) == []
    assert store.facts.errors_showing(["unheard"]) == []
    assert not store.facts.has_amendments()
    assert store.facts.moment_of(0, ("decided",), ANY_SESSION) is None
    assert store.facts.moment_of(0, ("decided",), SessionFilter(chosen=(("outcome", ("ok",)),))) is None
    assert store.facts.notes() == []


def test_exchanges_are_those_of_the_sessions_that_match(store: StoreReads) -> None:
    exchanges = store.facts.exchanges(SessionFilter(root=UID[TALK], roots_only=True))

    assert {exchange.session_uid for exchange in exchanges} == {UID[TALK]}
    assert store.facts.exchanges(SessionFilter(chosen=(("outcome", ("unheard",)),))) == []
    assert store.facts.exchanges(ANY_SESSION, 1) == store.facts.exchanges(ANY_SESSION)[-1:]


def test_tallies_add_up_to_what_sessions_cost(store: StoreReads) -> None:
    (total,) = store.activity.stats("total", Span())
    by_repo = {row.name: row.usd for row in store.activity.stats("repo", Span())}
    spent = store.activity.spent(Span())

    assert (total.sessions, total.sub_agents, total.usd) == (2, 1, pytest.approx(15.0))
    assert by_repo[SHOP] == pytest.approx(15.0)
    assert sum(row.usd for row in spent) == pytest.approx(15.0)
    assert store.activity.first_minute() == BEGIN_MS // 60_000
    assert store.activity.money_of_active(0) == {"talk": pytest.approx(15.0)}
    assert store.activity.blurred("total", Span()) == 0
    assert sum(work for _, _, work in store.activity.heatmap(Span())) == total.active_ms


def test_tallies_of_a_time_leave_out_what_was_before(store: StoreReads) -> None:
    (later,) = store.activity.stats("total", Span(since_ms=BEGIN_MS + DAY_MS))

    assert (later.sessions, later.usd) == (1, None)
