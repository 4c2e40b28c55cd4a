"""Sequences of steps that several sessions took."""

from pathlib import Path

import pytest

from recollect.knowledge.workflows import find_workflows
from recollect.store import ANY_SESSION, ExchangeRow, open_store
from tests.knowledge.sessions import Script, remembered


def _exchanges(steps: str, count: int) -> list[ExchangeRow]:
    """Exchanges that took these steps, each in a session of its own."""
    return [
        ExchangeRow(1, "ab" * 16, "a goal", steps, 1, 10, 1000, None, f"scripted:{number}", "scripted", None)
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


def test_a_way_to_a_goal_has_commands_and_files_in_order_and_what_failed(tmp_path: Path) -> None:
    script = (
        Script("deploy")
        .user("deploy the frontend")
        .look("Read", "read package.json")
        .run("npm run build", "error TS2304: Cannot find name 'Foo'", 2)
        .edit("src/app.ts", "Foo", "Bar")
        .run("npm run build", "built")
        .run("rsync -a dist/ web:/srv", "sent")
        .agent("The frontend is deployed.")
    )

    (route,) = remembered(tmp_path, script).knowledge.how("deploy frontend")

    assert route.steps == (
        "ran npm run build — failed: exit 2: error TS2304: Cannot find name 'Foo'",
        "edited src/app.ts",
        "ran npm run build",
        "ran rsync -a dist/ web:/srv",
    )
    assert not route.is_confirmed


@pytest.mark.parametrize("answer", ["I could not reach the server.", "Let me try another way:", ""])
def test_a_goal_that_was_not_reached_shows_no_way(tmp_path: Path, answer: str) -> None:
    script = Script("deploy").user("deploy the frontend").run("rsync -a dist/ web:/srv", "sent")

    memory = remembered(tmp_path, script.agent(answer) if answer else script)

    assert memory.knowledge.how("deploy frontend") == []


def test_looking_around_is_no_way_to_a_goal(tmp_path: Path) -> None:
    script = (
        Script("look").user("deploy the frontend").look("Read", "read a.py").run("ls dist", "app.js").agent("It is.")
    )

    assert remembered(tmp_path, script.user("thanks")).knowledge.how("deploy frontend") == []


def test_the_latest_exchanges_alone_can_be_asked_for(tmp_path: Path) -> None:
    sessions = [Script(f"day-{day}", day).user("see to it").look("Read", "read it").agent("Done.") for day in (2, 1)]
    memory = remembered(tmp_path, *sessions)

    with open_store(memory.settings.folder) as store:
        everything, latest = store.facts.exchanges(ANY_SESSION), store.facts.exchanges(ANY_SESSION, 1)

    assert len(everything) == memory.knowledge.workflows().exchanges == 2
    assert latest == everything[-1:]
    assert memory.knowledge.workflows(latest=1).exchanges == 1


def lint_sessions() -> list[Script]:
    return [
        Script(f"lint-{day}", day)
        .user("fix the lint errors")
        .run("make lint", "a.py:1: E501", 1)
        .edit("a.py", "long", "short")
        .run("make lint", "ok")
        .agent("Done.")
        for day in (3, 2, 1)
    ]


def test_what_follows_what_is_in_the_graph_with_a_sample_session(tmp_path: Path) -> None:
    others = [Script(f"ask-{number}", 9).user("what is it").look("Read", "read it").agent("A.") for number in range(6)]
    memory = remembered(tmp_path, *lint_sessions(), *others)

    graph = memory.knowledge.graph()

    names = {node.id: node.name for node in graph.nodes}
    follows = {(names[edge.source], names[edge.target]): edge for edge in graph.edges if edge.predicate == "follows"}
    assert set(follows) == {("Edit", "make-lint!"), ("make-lint", "Edit")}
    assert {edge.session_uid for edge in follows.values()} == {"scripted:lint-3"}
    drawn = memory.knowledge.graph_document(memory.knowledge.workflow_graph(), "dot")
    assert drawn.count('label="follows", dir=back') == 2
    assert "make-lint! — then → Edit" in memory.knowledge.graph_document(memory.knowledge.workflow_graph(), "svg")


def test_looking_around_is_no_workflow() -> None:
    looks = _exchanges("git-status git-diff git-log Read", 4)

    assert find_workflows([*looks, *_exchanges("edit make-test! edit make-test", 6)]) != []
    assert all("git-log" not in flow.steps for flow in find_workflows([*looks, *_exchanges("answer", 6)]))
