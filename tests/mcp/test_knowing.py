"""Decisions and workflows as an agent gets them: what holds, who decided it, and how it was done."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.agents import adapters
from recollect.api import open_memory
from tests.builders import AGENT, ScriptedAdapter
from tests.knowledge.sessions import Script, remembered
from tests.mcp.conftest import Agent

QUESTION = "Which store should keep the sessions?"
LEAK = "redis.PoolError: no connection to postgres within 31 ms"
STUCK = "stock.EmptyError: no walrus left in warehouse 12"
STUCK_ELSEWHERE = "bats.LadderError: no ladder leads up to the loft"
VAGUE = "Never do it like that, always the other way round."
HEADLESS = "Must always be controlled by configuration, default to 'off'."
DEMAND = "Use Postgres instead of Redis because functions cannot keep connections."


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout whose sessions decided and built things, and another repository's decision."""
    folder = tmp_path_factory.mktemp("knowing")
    adapters()[AGENT] = ScriptedAdapter()
    checkout = folder / "checkout"
    subprocess.run(["git", "init", "-q", checkout], check=True)
    subprocess.run(["git", "-C", checkout, "remote", "add", "origin", "https://github.com/acme/shop.git"], check=True)
    scripts = [
        Script("old", 0, cwd=str(checkout)).user("plan it").ask(QUESTION, ["Redis", "Memcached"], "Redis"),
        Script("new", 5, cwd=str(checkout)).user("plan it again").ask(QUESTION, ["Redis", "Memcached"], "Memcached"),
        Script("demand", 6, cwd=str(checkout)).user(DEMAND),
        Script("vague", 6, cwd=str(checkout)).user(VAGUE),
        Script("headless", 6, cwd=str(checkout)).user(HEADLESS),
        Script("attic", 7, "github.com/acme/attic", "/srv/attic").user("Never use tabs, always use spaces."),
    ]
    for number in range(4):
        script = Script(f"flag-{number}", 8, cwd=str(checkout)).user("add a command line flag for colour")
        script.look("Read", "read cli.py").edit("cli.py", "a", "b").run("pytest -q", "4 passed", is_test=True)
        scripts.append(script.agent("The flag is there, all tests pass."))
    fixing = Script("fixing", 9, "github.com/acme/attic", "/srv/attic").user("import the orders")
    fixing.run("python orders.py", LEAK, 1).edit("/srv/attic/pool.py", "size = 4", "size = 8")
    scripts.append(fixing.run("python orders.py", "done").agent("Done: the pool is large enough."))
    stuck = Script("stuck", 10, cwd=str(checkout)).user("count the stock").run("python stock.py", STUCK, 1)
    scripts.append(stuck.agent("The warehouse is empty, so I stop here."))
    aloft = Script("aloft", 11, "github.com/acme/attic", "/srv/attic").user("count the bats")
    scripts.append(aloft.run("python bats.py", STUCK_ELSEWHERE, 1).agent("There is no ladder."))
    with remembered(folder, *scripts) as memory:
        memory.knowledge.remember("We deploy on Fridays never", topic="deploys")
    yield folder
    del adapters()[AGENT]


def test_what_still_holds_is_recalled_with_who_decided_it(agent: Agent) -> None:
    answer = agent.call("recall_decisions")

    assert "Memcached" in answer and "not: Redis" in answer and "by user · session scripted:new" in answer
    evidence = re.search(r"evidence: event (\w+)", answer[answer.index("session scripted:new") :])
    assert evidence and "Memcached" in agent.call("get_session", session="scripted:new", at=evidence[1])
    assert "> We deploy on Fridays never" in answer
    assert "session scripted:old" not in answer and "spaces" not in answer
    assert "superseded 20" in agent.call("recall_decisions", history=True)
    assert "spaces" in agent.call("recall_decisions", everywhere=True)


def test_decisions_come_in_pages_the_surer_ones_first(agent: Agent) -> None:
    first = agent.call("recall_decisions", limit=1)
    sure = [float(found) for found in re.findall(r"confidence ([\d.]+)", agent.call("recall_decisions"))]

    assert 'cursor "1"' in first and len(re.findall("confidence", first)) == 1
    assert [one < 0.7 for one in sure] == sorted(one < 0.7 for one in sure)


def test_errors_that_only_read_alike_are_not_called_this_error(agent: Agent) -> None:
    assert agent.call("recall_error", error=LEAK).startswith("Fixes of this error")
    alike = agent.call("recall_error", error="redis.PoolError: no connection to postgres replica within 31 ms")
    assert alike.startswith("No earlier session fixed this error")


def test_an_error_that_nobody_fixed_is_answered_with_where_it_occurred(agent: Agent) -> None:
    answer = agent.call("recall_error", error=STUCK.replace("12", "977"))

    assert "came up in:" in answer and "session scripted:stuck" in answer and "so I stop here" in answer
    for unknown in ("stock.EmptyError: nobody ever met this", STUCK_ELSEWHERE):  # here
        assert "came up in" not in agent.call("recall_error", error=unknown)


def test_a_topic_is_answered_with_its_reason(agent: Agent) -> None:
    answer = agent.call("recall_decisions", topic="postgres redis")

    assert answer.count("because functions cannot keep connections") == 1
    assert "No decision found" in agent.call("recall_decisions", topic="kubernetes")


def test_what_was_never_decided_is_answered_with_where_it_came_up(agent: Agent) -> None:
    assert "No decision on record; then" in (answer := agent.call("recall_decisions", topic="all tests pass"))
    assert "> agent: The flag is there" in answer
    assert "> asked: add a command line flag" in agent.call("recall_error", error="failed: add command line flag")


def test_where_a_fact_has_every_word_those_with_half_of_them_are_left_out(agent: Agent) -> None:
    assert "Memcached" in agent.call("recall_decisions", topic="store sessions")
    assert "Memcached" not in agent.call("recall_decisions", topic="redis functions")


def test_the_fix_of_a_failed_run_says_less_of_a_why_than_a_decision(agent: Agent) -> None:
    answer = agent.call("recall_decisions", topic="postgres redis", everywhere=True)

    assert answer.index("functions cannot keep") < answer.index("PoolError")


def test_a_goal_is_answered_with_the_steps_that_reached_it(agent: Agent) -> None:
    assert "> steps: " in agent.call("recall_workflows", goal="add a command line flag")
    assert "(4 times in 4 sessions" in agent.call("recall_workflows")
    assert "No earlier session" in agent.call("recall_workflows", goal="translate the manual into Finnish")


def test_behind_a_wall_no_decision_of_elsewhere_is_recalled(place: Path) -> None:
    with Agent(place, "--repo", str(place / "checkout")) as walled:
        assert "limited to one repository" in walled.call("recall_decisions", everywhere=True)
        assert "spaces" not in walled.call("recall_decisions", topic="tabs spaces")


def test_the_brief_has_what_the_user_chose_and_says_whose_words_it_is_in(agent: Agent) -> None:
    brief = agent.call("session_brief")

    assert f", you chose: Memcached (asked: “{QUESTION}”)" in brief and "options are in the agent's words" in brief
    assert DEMAND not in brief  # a choice for once
    assert VAGUE not in brief and HEADLESS not in brief  # nobody knows what they were about


def test_what_the_user_rejects_or_pins_is_out_of_the_next_brief_or_in_it(agent: Agent, place: Path) -> None:
    with open_memory(place / "store") as memory:
        decisions = memory.knowledge.decisions()
        memory.knowledge.judge(next(fact.fact_uid for fact in decisions if DEMAND in fact.object), "rejected")
        memory.knowledge.judge(next(fact.fact_uid for fact in decisions if fact.object == "Memcached"), "pinned")

    brief = agent.call("session_brief")

    assert DEMAND not in brief and "Memcached" in brief


def test_a_fix_names_the_error_and_the_change_once(agent: Agent) -> None:
    asked = {"error": LEAK.replace("31", "977")}

    answer = agent.call("recall_error", **asked)

    assert "> fix: edit pool.py: `size = 4` became `size = 8`" in answer
    assert answer.count("PoolError") == 1 and answer.count("pool.py") == 1
    assert agent.call("recall_error", cursor="7", **asked) == "Nothing follows this cursor"
