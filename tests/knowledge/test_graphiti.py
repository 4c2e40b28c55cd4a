"""Facts and exchanges reach a real FalkorDB through the real Graphiti; a scripted model on loopback reads episodes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from recollect.api import Memory, open_memory
from recollect.model.errors import BadConfig, Busy, RecollectError
from recollect.recall import Filters
from recollect.store import note_tokens, push_lock, read_tokens
from tests.builders import BEGIN_MS
from tests.knowledge.falkordb import StoredGraph, running_falkordb
from tests.knowledge.scripted_model import ScriptedModel
from tests.knowledge.sessions import DAY_MS, Script, remembered

if TYPE_CHECKING:
    from recollect.knowledge.graphiti import Pushed


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
_GENEROUS = 10_000_000


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_falkordb(tmp_path_factory.mktemp("falkordb")) as number:
        yield number


@pytest.fixture
def graph(port: int, tmp_path: Path) -> StoredGraph:
    """An empty graph, which the store in `tmp_path` is configured to push to."""
    name = f"g{uuid4().hex}"
    configure(tmp_path, url=f"falkor://127.0.0.1:{port}", graph=name)
    return StoredGraph(port, name)


def configure(folder: Path, **settings: object) -> None:
    path = folder / "store" / "config.toml"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    known = path.read_text() if path.exists() else "[graphiti]\n"
    path.write_text(known + "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))


def choices(name: str, count: int, day: int = 0, answer: str = "Redis") -> Script:
    script = Script(name, day).user("plan the work")
    for number in range(count):
        script.ask(f"Which store keeps table {name}-{number}?", ["Redis", "Postgres"], f"{answer} {number}")
    return script


def talk(name: str, exchanges: int, day: int = 0) -> Script:
    script = Script(name, day)
    for number in range(exchanges):
        script.user(f"Please look at Pool{number} in pool{number}.py, Timeout comes from there")
        script.agent(f"Timeout in pool{number}.py came from Redis; Postgres now keeps it.")
    return script


def push(memory: Memory, budget: int = _GENEROUS) -> "Pushed":
    return memory.graphiti.push_episodes(memory.graphiti.plan(), budget=budget)


def test_two_thousand_facts_are_pushed_without_a_model_and_found_again(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url, embedding_model="scripted")
        memory = remembered(tmp_path, *(choices(f"s{number}", 100, number) for number in range(20)))

        report = memory.graphiti.push_facts()

    facts = memory.knowledge.decisions(history=True)
    assert len(facts) == report.facts == report.written == 2000
    assert model.calls == []
    held = {uid: (text, valid_at) for uid, text, valid_at in graph.rows(
        "MATCH ()-[e:RELATES_TO]->() RETURN e.fact_uid, e.fact, e.valid_at"
    )}  # fmt: skip
    assert held.keys() == {fact.fact_uid for fact in facts}
    assert all(held[fact.fact_uid][0] == fact.text for fact in facts)
    found = asyncio.run(_search(memory, "Which store keeps table s7-31?"))
    assert facts[0].predicate.upper() in {edge.name for edge in found}  # type: ignore[attr-defined]
    assert any("s7-31" in edge.fact for edge in found[:3])  # type: ignore[attr-defined]


async def _search(memory: Memory, query: str) -> list[object]:
    """As any program with Graphiti asks a graph."""
    from recollect.knowledge.graphiti import TokenMeter, make_graphiti, open_graph

    settings = memory.settings.graphiti
    words_only = type(settings)(url=settings.url, graph=settings.graph, model="none")
    async with open_graph(words_only, settings.graph, None) as graph:
        graphiti = make_graphiti(graph, words_only, None, TokenMeter(memory.settings.folder, 0))
        return list(await graphiti.search(query, group_ids=[settings.graph]))


def test_a_second_push_of_facts_writes_nothing(tmp_path: Path, graph: StoredGraph) -> None:
    memory = remembered(tmp_path, choices("one", 5))
    memory.graphiti.push_facts()

    again = memory.graphiti.push_facts()

    assert (again.facts, again.written, again.removed) == (5, 0, 0)


def test_a_superseded_fact_ends_in_the_graph(tmp_path: Path, graph: StoredGraph) -> None:
    remembered(tmp_path, choices("one", 1, answer="Redis")).graphiti.push_facts()
    later = Script("two", 3).user("again").ask("Which store keeps table one-0?", ["Redis", "Postgres"], "Postgres")

    report = remembered(tmp_path, later).graphiti.push_facts(Filters(since="2026-10-17"))

    ends = dict(graph.rows("MATCH ()-[e:RELATES_TO]->(n) RETURN n.name, e.invalid_at"))  # type: ignore[arg-type]
    assert report.facts == 2
    assert ends["Redis 0"] is not None
    assert ends["Postgres"] is None


def test_facts_that_were_rejected_or_forgotten_leave_the_graph(tmp_path: Path, graph: StoredGraph) -> None:
    memory = remembered(tmp_path, choices("gone", 2), choices("stays", 2, 1))
    memory.knowledge.remember("Nobody deploys on Fridays")
    assert memory.graphiti.push_facts().facts == 5
    memory.knowledge.judge(memory.knowledge.decisions()[0].fact_uid, "rejected")
    memory.forget(memory.plan_forgetting("gone"))

    report = memory.graphiti.push_facts()

    assert (report.facts, report.removed) == (2, 3)
    names = [name for (name,) in graph.rows("MATCH (n:Entity) RETURN n.name")]
    assert [name for name in names if "gone" in str(name) or "Fridays" in str(name)] == []


def test_facts_of_another_store_in_the_same_graph_stay(tmp_path: Path, graph: StoredGraph) -> None:
    remembered(tmp_path / "other", choices("theirs", 3))
    (tmp_path / "other" / "store" / "config.toml").write_text((tmp_path / "store" / "config.toml").read_text())
    with open_memory(tmp_path / "other" / "store") as other:
        other.graphiti.push_facts()

    report = remembered(tmp_path, choices("ours", 2)).graphiti.push_facts()

    assert (report.facts, report.removed) == (5, 0)


def test_exchanges_become_episodes_of_their_sessions_saga(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        report = push(remembered(tmp_path, talk("one", 3), talk("two", 2, 1)))

    assert (report.written, report.failed, report.left) == (5, 0, 0)
    assert graph.episodes == [f"session-one-{n}" for n in (1, 2, 3)] + [f"session-two-{n}" for n in (1, 2)]
    sagas = graph.rows("MATCH (s:Saga)-[:HAS_EPISODE]->(e) RETURN s.name, count(e) ORDER BY s.name")
    assert sagas == [["session-one", 3], ["session-two", 2]]
    assert graph.rows("MATCH (:Episodic)-[r:NEXT_EPISODE]->(:Episodic) RETURN count(r)") == [[3]]
    source, description, body = graph.rows(
        "MATCH (e:Episodic {name: 'session-one-2'}) RETURN e.source, e.source_description, e.content"
    )[0]
    assert source == "message"
    assert description == "coding session with the agent scripted, repository github.com/acme/shop"
    assert str(body).startswith("User: Please look at Pool1 in pool1.py")
    assert graph.rows("MATCH (n:Entity {name: 'pool1.py'}) RETURN count(n)") == [[1]]


def test_the_meter_counts_what_the_model_counted(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url, embedding_model="scripted")
        report = push(remembered(tmp_path, talk("one", 3)))

    assert report.tokens == report.tokens_today == model.tokens
    assert report.calls == len(model.calls)
    assert model.counts["embedding"]
    assert sum(read_tokens(tmp_path / "store").values()) == model.tokens


@pytest.mark.parametrize(
    ("budget", "greedy"), [(0, False), (9_999, False), (45_000, False), (45_000, True), (110_001, True)]
)
def test_a_budget_is_never_exceeded(tmp_path: Path, graph: StoredGraph, budget: int, greedy: bool) -> None:
    with ScriptedModel(greedy=greedy) as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        report = push(remembered(tmp_path, talk("one", 30)), budget)

    assert report.tokens == model.tokens <= budget
    assert report.is_budget_reached
    assert report.written + report.left == 30
    assert len(graph.episodes) == report.written


def test_what_a_silent_model_may_have_taken_counts(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel(has_usage=False, greedy=True) as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        report = push(remembered(tmp_path, talk("one", 30)), 80_000)

    assert model.calls
    assert model.tokens <= report.tokens <= 80_000


def test_pushes_of_a_day_share_its_budget(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url, tokens_per_day=60_000)
        memory = remembered(tmp_path, talk("one", 30))
        first = memory.graphiti.push_episodes(memory.graphiti.plan())

        second = memory.graphiti.push_episodes(memory.graphiti.plan())

    assert first.budget == 60_000
    assert second.budget == 60_000 - first.tokens
    assert second.tokens_today == model.tokens <= 60_000


def test_the_next_push_carries_on_and_nothing_is_there_twice(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        memory = remembered(tmp_path, talk("one", 5))
        first = push(memory, 50_000)

        second = push(memory)

    assert 0 < first.written < 5
    assert first.written + second.written == 5
    assert_whole(graph, 5)


@pytest.mark.parametrize("calls", range(1, 30) if os.environ.get("RECOLLECT_SOAK") else (2, 9))
def test_a_killed_push_is_carried_on_and_nothing_is_there_twice(tmp_path: Path, graph: StoredGraph, calls: int) -> None:
    with ScriptedModel(hangs_after=calls) as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        remembered(tmp_path, talk("one", 3)).close()
        command = [sys.executable, "-m", "recollect", "knowledge", "graphiti", "push", "--mode", "episodes"]
        with subprocess.Popen(command, env=os.environ | {"RECOLLECT_HOME": str(tmp_path / "store")}) as process:
            assert model.hanging.wait(60)
            process.send_signal(signal.SIGKILL)
        spent = sum(read_tokens(tmp_path / "store").values())
    with ScriptedModel() as other:
        configure_model(tmp_path, other.url)
        with open_memory(tmp_path / "store") as memory:
            push(memory)

    assert spent >= model.tokens  # the call that never came back counts
    assert_whole(graph, 3)


def configure_model(folder: Path, url: str) -> None:
    path = folder / "store" / "config.toml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("model_url")]
    path.write_text("\n".join([*lines, f'model_url = "{url}"', ""]))


def assert_whole(graph: StoredGraph, exchanges: int) -> None:
    names = [f"session-one-{number}" for number in range(1, exchanges + 1)]
    assert graph.episodes == names
    assert graph.rows("MATCH (:Saga)-[r:HAS_EPISODE]->() RETURN count(r)") == [[exchanges]]
    assert graph.rows("MATCH ()-[r:NEXT_EPISODE]->() RETURN count(r)") == [[exchanges - 1]]
    assert graph.rows("MATCH (n:Entity) WITH n.name AS name, count(n) AS n WHERE n > 1 RETURN name, n") == []


def test_an_episode_without_its_saga_is_pushed_again(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        memory = remembered(tmp_path, talk("one", 3))
        push(memory)
        # As if killed while the third was written: its links to the session are the last to come.
        graph.rows("MATCH ()-[r:HAS_EPISODE]->(:Episodic {name: 'session-one-3'}) DELETE r")

        report = push(memory)

    assert report.written == 1
    assert_whole(graph, 3)


def test_nonsense_of_a_model_costs_that_exchange_only(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel(is_broken=True) as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        memory = remembered(tmp_path, talk("one", 2))
        report = push(memory)
        model.is_broken = False

        again = push(memory)

    assert (report.written, report.failed) == (0, 2)
    assert (again.written, graph.episodes) == (2, ["session-one-1", "session-one-2"])


def test_an_entity_named_like_a_stop_word_does_not_crash_the_database(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        script = Script("one").user("These files and Those files, These first").agent("There they are, These too.")
        report = push(remembered(tmp_path, script))

    assert (report.written, len(graph.episodes)) == (1, 1)
    names = {name for (name,) in graph.rows("MATCH (n:Entity) RETURN n.name")}
    assert names == {"Those", "Agent"}


def test_the_forecast_is_near_what_a_push_takes(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        memory = remembered(tmp_path, talk("one", 4), talk("two", 2, 2))
        plan = memory.graphiti.plan()

        report = memory.graphiti.push_episodes(plan, budget=_GENEROUS)

    assert (plan.forecast.exchanges, plan.forecast.sessions) == (6, 2)
    assert sum(plan.forecast.by_session.values()) == plan.forecast.tokens
    assert 0.5 < report.tokens / plan.forecast.tokens < 2
    assert memory.graphiti.plan().forecast.exchanges == 0


def test_forgotten_sessions_leave_the_graph(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        memory = remembered(tmp_path, talk("gone", 2), talk("stays", 1, 3))
        push(memory)
        memory.forget(memory.plan_forgetting("gone"))

        report = push(memory)

    assert report.removed == 2
    assert graph.episodes == ["session-stays-1"]
    assert graph.rows("MATCH (n:Entity) WHERE n.name = 'pool1.py' RETURN count(n)") == [[0]]


def test_only_what_is_redacted_leaves(tmp_path: Path, graph: StoredGraph) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    script = Script("secret").user(f"Deploy with {token} please").agent(f"Deployed with {token}.")
    script.ask("Which token?", [token, "none"], token)
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        memory = remembered(tmp_path, script)
        memory.graphiti.push_facts()
        push(memory)

    held = json.dumps(graph.rows("MATCH (n) OPTIONAL MATCH (n)-[e]->() RETURN properties(n), properties(e)"))
    assert "REDACTED:github-token" in held
    assert token not in held
    assert token not in "".join(model.texts)


def test_a_sweep_pushes_what_is_new_if_it_is_told_to(tmp_path: Path, graph: StoredGraph) -> None:
    configure(tmp_path, after_sweep="facts")
    today = 30 + (time.time_ns() // 1_000_000 - BEGIN_MS) // DAY_MS

    remembered(tmp_path, choices("old", 1, today - 20), choices("new", 2, today - 1))

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(_facts(graph)) < 2:
        time.sleep(0.2)
    assert sorted(_facts(graph)) == [f"Which store keeps table new-{number}?" for number in (0, 1)]


def _facts(graph: StoredGraph) -> list[str]:
    return [str(name) for (name,) in graph.rows("MATCH (n)-[e:RELATES_TO]->() RETURN n.name")]


def test_a_running_push_keeps_others_out(tmp_path: Path, graph: StoredGraph) -> None:
    memory = remembered(tmp_path, choices("one", 1))

    with push_lock(tmp_path / "store"), pytest.raises(Busy):
        memory.graphiti.push_facts()


def test_a_database_that_is_down_is_one_line(tmp_path: Path) -> None:
    configure(tmp_path, url="falkor://127.0.0.1:1")

    with pytest.raises(RecollectError, match="The graph database failed"):
        remembered(tmp_path, choices("one", 1)).graphiti.push_facts()


def test_a_model_that_is_down_is_one_line(tmp_path: Path, graph: StoredGraph) -> None:
    configure(tmp_path, model="scripted", model_url="http://127.0.0.1:1/v1")

    with pytest.raises(RecollectError, match="The model did not answer"):
        push(remembered(tmp_path, talk("one", 1)))


def test_episodes_need_a_model(tmp_path: Path, graph: StoredGraph) -> None:
    with pytest.raises(BadConfig):
        push(remembered(tmp_path, talk("one", 1)))


def test_nothing_is_reported_to_the_makers_of_graphiti(tmp_path: Path, graph: StoredGraph) -> None:
    home = tmp_path / "home-of-user"
    home.mkdir()
    (tmp_path / ".env").write_text("OPENAI_API_KEY=from-a-file\n")
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url)
        remembered(tmp_path, talk("one", 1)).close()
        code = (
            "import os, sys; from recollect.api import open_memory; m = open_memory();"
            "m.graphiti.push_episodes(m.graphiti.plan(), budget=10**6);"
            "assert 'posthog' not in sys.modules; assert 'OPENAI_API_KEY' not in os.environ"
        )
        environment = {"RECOLLECT_HOME": str(tmp_path / "store"), "HOME": str(home)}
        subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True)

    assert len(graph.episodes) == 1
    assert list(home.rglob("*telemetry*")) == []


def test_what_was_spent_on_other_days_does_not_count_today(tmp_path: Path, graph: StoredGraph) -> None:
    with ScriptedModel() as model:
        configure(tmp_path, model="scripted", model_url=model.url, tokens_per_day=100_000)
        memory = remembered(tmp_path, talk("one", 1))
        note_tokens(tmp_path / "store", {"2026-01-01": 99_999})

        report = memory.graphiti.push_episodes(memory.graphiti.plan())

    assert report.budget == 100_000
    assert report.written == 1
