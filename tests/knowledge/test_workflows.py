"""Sequences of steps that several sessions took."""

from pathlib import Path

from recollect.knowledge.workflows import find_workflows
from recollect.store import ANY_SESSION, StoredExchange
from tests.knowledge.sessions import Script, remembered


def _exchanges(steps: str, count: int) -> list[StoredExchange]:
    """Exchanges that took these steps, each in a session of its own."""
    return [
        StoredExchange(1, "ab" * 16, "a goal", steps, 1, 10, 1000, None, f"scripted:{number}", "scripted", None)
        for number in range(count)
    ]


def test_of_orders_that_the_same_exchanges_took_one_is_listed() -> None:
    exchanges = [*_exchanges("read edit test commit", 4), *_exchanges("search answer", 6)]

    found = {flow.steps: flow.support for flow in find_workflows(exchanges)}

    assert found == {("read", "edit", "test", "commit"): 4}


def test_an_order_that_other_exchanges_took_is_listed_beside_a_longer_one() -> None:
    others = _exchanges("look ask answer", 12)
    exchanges = [*_exchanges("read edit test commit", 4), *_exchanges("read edit test", 8), *others]

    found = {flow.steps: flow.support for flow in find_workflows(exchanges)}

    assert found[("look", "ask", "answer")] == 12
    assert found[("read", "edit", "test")] == 12


def test_what_one_session_did_over_and_over_is_no_workflow() -> None:
    often = _exchanges("read edit test commit", 1) * 6

    assert find_workflows([*often, *_exchanges("search answer", 6)]) == []


def test_a_goal_of_two_words_is_reached_only_by_what_has_both(tmp_path: Path) -> None:
    def done(name: str, goal: str) -> Script:
        return (
            Script(name).user(goal).look("Read", "read cli.py").edit("cli.py", "old", "new").agent("Done.").user("ok")
        )

    memory = remembered(tmp_path, done("flag", "add a --json flag"), done("test", "add a test for it"))

    assert [route.goal for route in memory.knowledge.how("add a flag")] == ["add a --json flag"]


def test_the_latest_exchanges_alone_can_be_asked_for(tmp_path: Path) -> None:
    sessions = [Script(f"day-{day}", day).user("see to it").look("Read", "read it").agent("Done.") for day in (2, 1)]
    memory = remembered(tmp_path, *sessions)
    everything = memory._store.exchange_steps.select(ANY_SESSION)

    latest = memory._store.exchange_steps.select(ANY_SESSION, 1)

    assert len(everything) == memory.knowledge.workflows().exchanges == 2
    assert latest == everything[-1:]
    assert memory.knowledge.workflows(latest=1).exchanges == 1
