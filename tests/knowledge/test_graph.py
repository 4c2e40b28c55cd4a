"""Facts make a graph whose picture has every node once, each edge leading to the right, and no live markup."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from recollect.api import Memory
from recollect.cli import main
from recollect.knowledge.graph import layout
from recollect.knowledge.records import Graph
from recollect.model.errors import NotFound
from tests.knowledge.sessions import Script, remembered
from tests.knowledge.test_fixes import met_and_fixed

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    asked = Script("asked", 1).user("plan").ask("Which <b>store</b>?", ["Redis", "Postgres"], "Redis & more")
    return remembered(tmp_path, met_and_fixed(), asked)


def said(graph: Graph) -> set[tuple[str, str, str]]:
    names = {node.id: node.name for node in graph.nodes}
    return {(names[edge.source], edge.predicate, names[edge.target]) for edge in graph.edges}


def test_a_failed_command_leads_to_its_error_and_on_to_the_file_that_fixed_it(memory: Memory) -> None:
    graph = memory.knowledge.graph()

    signature = next(target for source, predicate, target in said(graph) if predicate == "fails_with")
    assert {one for one in said(graph) if signature in one} == {
        ("python", "fails_with", signature),
        (signature, "fixed_by", "settings.py"),
    }
    columns = {node.name: layout(graph)[node.id][0] for node in graph.nodes}
    assert columns["python"] < columns[signature] < columns["settings.py"]


def test_every_edge_names_the_facts_that_say_so(memory: Memory) -> None:
    for edge in memory.knowledge.graph().edges:
        assert all(memory.knowledge._named(uid) for uid in edge.fact_uids) and edge.fact_uids


def test_around_an_entity_is_only_what_is_near_it(memory: Memory) -> None:
    graph = memory.knowledge.graph(around="settings.py")

    assert {node.kind for node in graph.nodes} == {"command", "error", "file", "task"}
    assert [node.name for node in graph.nodes if node.id in graph.roots] == ["settings.py"]
    with pytest.raises(NotFound):
        memory.knowledge.graph(around="nobody.py")


def test_a_small_limit_leaves_nodes_out_and_counts_them(memory: Memory) -> None:
    whole, small = memory.knowledge.graph(), memory.knowledge.graph(limit=2)

    assert len(small.nodes) == 2
    assert small.hidden == len(whole.nodes) - 2


def test_the_picture_shows_names_as_text_and_can_link_them(memory: Memory) -> None:
    graph = memory.knowledge.graph()

    picture = ElementTree.fromstring(memory.knowledge.graph_svg(graph, lambda node: f"/at?n={node.name}"))

    assert len(picture.findall(f"{SVG}a")) == len(graph.nodes)
    assert len(picture.findall(f"{SVG}path")) == len(graph.edges)
    titles = [title.text or "" for title in picture.iter(f"{SVG}title")]
    assert "choice: Redis & more (1 facts)" in titles
    places = [(box.get("x"), box.get("y")) for box in picture.iter(f"{SVG}rect")]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(("format_", "begins"), [("html", "<!doctype html>"), ("dot", "digraph"), ("text", "command")])
def test_the_command_prints_each_format(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, format_: str, begins: str
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(memory.settings.folder))

    shown = CliRunner().invoke(main, ["knowledge", "graph", "--format", format_])

    assert shown.exit_code == 0 and shown.stdout.startswith(begins)
    assert "<b>" not in shown.stdout or format_ != "html"
    assert "settings.py" in shown.stdout


def test_json_is_the_same_by_either_option(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(memory.settings.folder))

    one, other = (
        CliRunner().invoke(main, ["knowledge", "graph", *words]).stdout for words in (["--json"], ["--format", "json"])
    )

    assert json.loads(one) == json.loads(other)
    assert json.loads(one)["hidden"] == 0


def test_the_newest_facts_alone_can_be_asked_for(memory: Memory) -> None:
    whole, newest = memory.knowledge.graph(), memory.knowledge.graph(latest=1)

    assert said(newest) < said(whole)
    assert {predicate for _, predicate, _ in said(newest)} == {"decided"}
