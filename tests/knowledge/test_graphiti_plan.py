"""Which exchanges become episodes; needs no extra."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recollect.analysis import find_exchanges
from recollect.api import Memory
from recollect.knowledge.graphiti.plan import RULES, Episode, facts_by_group, iter_episodes, make_forecast
from recollect.model import schema
from recollect.model.clock import as_datetime
from recollect.store import open_store
from tests.knowledge.sessions import Script, remembered


def test_the_last_exchange_waits_until_the_session_is_quiet(tmp_path: Path) -> None:
    script = Script("one").user("first request").agent("first answer").user("second request").agent("second answer")
    memory = remembered(tmp_path, script)
    (session,) = memory.sessions()
    ended = as_datetime(session.ended_at)
    assert ended is not None

    soon, later = (
        [episode.name for episode in iter_episodes(session, memory.exchanges(session), ended + timedelta(minutes=wait))]
        for wait in (30, 90)
    )

    assert soon == ["session-one-1"]
    assert later == ["session-one-1", "session-one-2"]


def test_a_long_exchange_is_one_episode_of_its_beginning_and_end(tmp_path: Path) -> None:
    script = Script("one").user("the request")
    for number in range(300):
        script.agent(f"step {number} of many, with a few more words to make it long")
    memory = remembered(tmp_path, script.agent("the conclusion"))
    (session,) = memory.sessions()
    ended = as_datetime(session.ended_at)
    assert ended is not None

    (episode,) = iter_episodes(session, memory.exchanges(session), ended + timedelta(days=1))

    assert episode.body.startswith("User: the request")
    assert episode.body.endswith("the conclusion")
    assert len(episode.body) <= 6_000
    assert make_forecast([episode], []).by_session == {session.session_uid: episode.forecast_tokens}


def bodies(memory: Memory, *, keep_tool_calls: bool = True) -> list[str]:
    rules = replace(RULES, keep_tool_calls=keep_tool_calls)
    with open_store(memory.settings.folder) as store:
        return [
            episode.body
            for session in memory.sessions()
            for episode in iter_episodes(session, find_exchanges(store, session, rules), datetime.now(UTC))
        ]


def test_an_episode_says_what_was_done_and_how_it_ended_if_calls_are_kept(tmp_path: Path) -> None:
    script = Script("one").user("run the tests").run("pytest", "E   boom", 1).run("pytest", "ok\nok").agent("Passed.")
    memory = remembered(tmp_path, script)

    assert bodies(memory) == [
        "User: run the tests\nAction: Bash(pytest) → Error: exit 1: E boom\n"
        "Action: Bash(pytest) → Success (2 lines)\nAgent: Passed."
    ]
    assert bodies(memory, keep_tool_calls=False) == ["User: run the tests\nError: exit 1: E boom\nAgent: Passed."]


def test_an_exchange_in_which_only_the_service_failed_is_no_episode(tmp_path: Path) -> None:
    script = Script("one").user("go on")
    for _ in range(20):
        script._add(schema.ERROR, "API Error: 529 overloaded", role="system")

    assert bodies(remembered(tmp_path, script)) == []


def test_what_several_sessions_say_alike_is_one_fact_with_all_evidence(tmp_path: Path) -> None:
    scripts = [
        Script(f"s{day}", day)
        .user("look after the pool")
        .edit("/srv/shop/a.py", "a = 1", "a = 2")
        .agent("The worker is not compatible with Python 3.9.")
        for day in range(20)
    ]

    with open_store(remembered(tmp_path, *scripts).settings.folder) as store:
        facts = facts_by_group(store)["main"]

    (conflict,) = (fact for fact in facts if fact.predicate == "conflicts_with")
    assert len({shown.session_uid for shown in conflict.evidence}) == 20


def test_a_forecast_is_in_money_too() -> None:
    episode = Episode("a:b", "main", "saga", "one", datetime.now(UTC), "", "User: x\nAgent: y")

    forecast = make_forecast([episode], [episode], lambda given, made: given * 1e-6 + made * 2e-6)

    assert forecast.usd == forecast.usd_per_month == pytest.approx(1.1e-6 * forecast.tokens, rel=1e-3)
    assert make_forecast([episode], [episode]).usd is None
