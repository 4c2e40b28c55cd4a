"""Any order of reading, any interruption: the same facts, the same answers by date; and none of what is forgotten."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect import analysis
from recollect.api import Memory, open_memory
from tests.builders import Home
from tests.knowledge.sessions import Script, remembered, stored_facts
from tests.knowledge.test_decisions import chosen
from tests.knowledge.test_fixes import TIMEOUT, green, met_again, met_and_fixed
from tests.retention.rig import evict_all, opened, raw_names

SCRIPTS = [
    met_and_fixed("first", 0),
    met_again("second", 3),
    green("calc", 4, "calc", -1),
    chosen("redis", 1, "Redis"),
    chosen("postgres", 5, "Postgres"),
    chosen("redis again", 8, "Redis"),
    Script("demand", 2).user("Use tabs instead of spaces in the makefiles."),
    Script("reverse", 6).user("Use spaces instead of tabs in the makefiles."),
]
DATES = ("2026-10-17", "2026-10-19", "2026-10-22", "2026-10-31")


def answers(memory: Memory) -> list[object]:
    """Everything the memory answers, but for when it learned it."""
    held = [[(fact.fact_uid, fact.invalid_at) for fact in memory.knowledge.decisions(as_of=date)] for date in DATES]
    fixes = [
        *memory.knowledge.fixes(TIMEOUT.format(path="/x", line=1, ms=2)),
        *memory.knowledge.fixes("assert -1 == 5"),
    ]
    repeats = [(one.fact_uid, one.known_session_uid, one.seconds) for one in memory.knowledge.rehearse().repeats]
    live = [replace(fact, recorded_ms=0) for fact in stored_facts(memory)]
    return [held, fixes, repeats, live]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[object]]:
    from recollect.agents import adapters
    from tests.builders import ScriptedAdapter

    adapters()["scripted"] = ScriptedAdapter()
    with remembered(tmp_path_factory.mktemp("whole"), *SCRIPTS) as memory:
        yield answers(memory)
    del adapters()["scripted"]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_order_and_any_interruption_give_the_same_answers(
    data: st.DataObject, expected: list[object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("piecewise")
    home = Home(folder / "home")
    order = data.draw(st.permutations(SCRIPTS))
    with open_memory(folder / "store", [home.flag]) as memory:
        for script in order:
            cut = data.draw(st.integers(1, len(script.records)))
            home.write(script.name, *script.records[:cut])
            memory.sweep()
            if data.draw(st.booleans()):
                home.append(script.name, *script.records[cut:])
                memory.sweep()
        for script in order:
            home.write(script.name, *script.records)
        memory.sweep()
        given_answers = answers(memory)

    assert given_answers == expected


def test_deriving_again_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = remembered(tmp_path, *SCRIPTS)
    before = answers(memory)

    monkeypatch.setattr(analysis, "VERSION", analysis.VERSION + 1)
    memory.sweep()

    assert answers(memory) == before


def test_every_fact_cites_events_of_its_session(tmp_path: Path) -> None:
    memory = remembered(tmp_path, *SCRIPTS)
    events = {event.event_uid for session in memory.sessions() for event in memory.events(session)}

    from recollect.knowledge.asking import fact_of

    facts = [fact_of(stored) for stored in stored_facts(memory)]

    assert facts
    assert all(fact.evidence and {one.event_uid for one in fact.evidence} <= events for fact in facts)


def test_facts_outlive_the_events_they_were_learned_from_even_if_the_session_goes_on(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for script in SCRIPTS:
        home.write(script.name, *script.records)
    memory = opened(tmp_path / "store", home)
    memory.sweep()
    before = answers(memory)

    evict_all(memory)

    assert raw_names(memory) == set()
    assert answers(memory) == before

    for grown in (met_and_fixed("first", 0), green("calc", 4, "calc", -1)):
        home.append(grown.name, *grown.agent("Anything else?").records[-1:])
    memory.sweep()

    assert raw_names(memory) == {"first", "calc"}
    assert answers(memory) == before


def test_forgetting_a_session_leaves_no_byte_of_its_facts(tmp_path: Path) -> None:
    secret = "Zyqqorvex"
    script = (
        Script("gone")
        .user(f"always use {secret} for the cache")
        .run("make cache", f"Error: {secret} refused the connection", 1)
        .edit("/srv/shop/cache.py", f"host = '{secret}'", "host = 'localhost'")
        .run("make cache", "ok")
    )
    memory = remembered(tmp_path, script, met_and_fixed())
    assert memory.knowledge.fixes(f"Error: {secret} refused the connection")

    memory.forget(memory.plan_forgetting("scripted:gone"))

    assert memory.knowledge.fixes(f"Error: {secret} refused the connection") == []
    memory.close()
    left = [
        path for path in (tmp_path / "store").rglob("*") if path.is_file() and secret[1:].encode() in path.read_bytes()
    ]
    assert left == []
