"""Facts as a graph, and its picture: what they are about is a node, what they say of two nodes is an edge.

The picture has columns, from what fails to what it failed with to what fixed it; a layout by forces has no room for
names.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from statistics import mean
from typing import NamedTuple

from recollect.digest import shortened
from recollect.knowledge.asking import fact_of, notes_as_facts, with_ends
from recollect.knowledge.records import (
    COMMIT,
    FIXED_BY,
    FOLLOWS,
    PREDICATES,
    TOUCHES,
    Fact,
    Graph,
    GraphEdge,
    GraphNode,
    fact_uid,
)
from recollect.knowledge.workflows import follow_facts
from recollect.model.errors import NotFound
from recollect.store import ExchangeRow, SessionFilter, Store

_HOPS = 2
_LATEST = 1_000  # exchanges that workflows are found in
_LEAST_SURE = 0.5
_KINDS = {"edit": "file", "install": "command"}  # how a change was made is what it was made to, here


class _Node(NamedTuple):
    kind: str
    name: str

    @property
    def id(self) -> str:
        return fact_uid("node", *self)[:12]


_Edge = tuple[_Node, _Node, str]  # from, to, and the predicate


def find_graph(
    store: Store,
    sessions: SessionFilter,
    repos: Sequence[str] | None,
    around: str | None,
    limit: int | None,
    latest: int | None = None,
) -> Graph:
    """What holds now as a graph of at most `limit` nodes. Commits are in it only around an entity.

    `latest` limits it to so many facts, the newest, unless there is an `around`. Raises NotFound if nothing is known
    about `around`.
    """
    # Edits of files are most of all facts, and of use only around something.
    predicates = () if around else tuple(name for name in PREDICATES if name != TOUCHES)
    if latest is not None and not around:
        oldest_ms = store.facts.moment_of(latest - 1, predicates, sessions)
        sessions = sessions._replace(since_ms=max(sessions.since_ms or 0, oldest_ms or 0) or None)
    stored = store.facts.select(predicates, sessions)
    facts = {fact.fact_uid: fact for fact in with_ends([*map(fact_of, stored), *notes_as_facts(store, repos)])}
    steps = {  # all that a fix changed: a fact names only the first of it
        fact.fact_uid: [_node(step["kind"], step["name"]) for step in fact.details.get("steps") or ()]
        for fact in stored
        if fact.predicate == FIXED_BY
    }
    held = [
        fact
        for fact in facts.values()
        if fact.invalid_at is None and fact.confidence >= _LEAST_SURE and (around or fact.method != COMMIT)
    ]
    edges: dict[_Edge, list[Fact]] = defaultdict(list)
    for fact in [*held, *follow_facts(store.facts.exchanges(sessions, _LATEST))]:
        for edge in _edges(fact, steps.get(fact.fact_uid, ())):
            edges[edge].append(fact)
    roots: list[_Node] = []
    if around is not None:
        asked = around.casefold()
        roots = [node for node in _nodes(edges) if f"/{node.name.casefold()}".endswith(f"/{asked}")]
        if not roots:
            raise NotFound(f"Nothing is known about: {around}", "`recollect knowledge graph` shows what is known")
        near = set(roots)
        for _ in range(_HOPS):
            near |= {node for edge in edges if not near.isdisjoint(edge[:2]) for node in edge[:2]}
        edges = {edge: said for edge, said in edges.items() if near.issuperset(edge[:2])}
    return _graph(edges, _strongest(edges, limit, roots), around, roots)


def workflow_graph(exchanges: Sequence[ExchangeRow]) -> Graph:
    """Which step follows which in these exchanges' workflows."""
    edges = {edge: [fact] for fact in follow_facts(exchanges) for edge in _edges(fact, ())}
    return _graph(edges, set(_nodes(edges)), None, ())


def _node(kind: str, name: str) -> _Node:
    return _Node(_KINDS.get(kind, kind), name)


def _edges(fact: Fact, changed: Iterable[_Node]) -> Iterator[_Edge]:
    source = _node(fact.subject_kind, fact.subject)
    for target in dict.fromkeys([_node(fact.object_kind, fact.object), *changed]):
        if source.name != target.name:
            yield source, target, fact.predicate
        elif fact.repo:  # what was decided, and nothing it was decided about
            yield _Node("repo", fact.repo), target, fact.predicate


def _nodes(edges: Iterable[_Edge]) -> dict[_Node, None]:
    return dict.fromkeys(node for edge in edges for node in edge[:2])


def _strongest(edges: dict[_Edge, list[Fact]], limit: int | None, roots: Collection[_Node]) -> set[_Node]:
    """As many nodes as are wanted: those of the edges at a root, then the edges of each predicate in turn.

    Of one predicate, those come first that most facts tell of, then the newest.
    """
    ordered = sorted(edges)
    ordered.sort(key=lambda edge: (len(edges[edge]), max(fact.valid_at or "" for fact in edges[edge])), reverse=True)
    turns: Counter[str] = Counter()
    ranks: dict[_Edge, tuple[bool, int]] = {}
    for edge in ordered:
        source, target, predicate = edge
        ranks[edge] = (source not in roots and target not in roots, turns[predicate])
        turns[predicate] += 1
    chosen = set(roots)
    for edge in sorted(ordered, key=ranks.__getitem__):
        ends = set(edge[:2])
        if limit is None or len(chosen | ends) <= limit:
            chosen |= ends
    return chosen


def _graph(edges: dict[_Edge, list[Fact]], chosen: set[_Node], around: str | None, roots: Sequence[_Node]) -> Graph:
    shown = {edge: said for edge, said in edges.items() if chosen.issuperset(edge[:2])}
    counts = Counter(node for edge, said in edges.items() for node in edge[:2] for _ in said)
    return Graph(
        nodes=tuple(GraphNode(node.id, *node, counts[node]) for node in sorted(_nodes(shown))),
        edges=tuple(
            GraphEdge(
                source.id,
                target.id,
                predicate,
                max(fact.confidence for fact in said),
                tuple(dict.fromkeys(fact.fact_uid for fact in said)),
                newest.session_uid,
                next((cited.event_uid for cited in newest.evidence), None),
            )
            for (source, target, predicate), said in sorted(shown.items())
            for newest in [max(said, key=lambda fact: fact.valid_at or "")]
        ),
        hidden=len(_nodes(edges)) - len(_nodes(shown)),
        around=around,
        roots=tuple(node.id for node in roots),
    )


Link = Callable[[GraphNode], str | None]

_MOST_COLUMNS = 4
_ORDERINGS = 6  # passes over the columns: more move nothing on graphs of this size
_COLUMN, _ROW, _BOX, _HIGH = 370, 34, 275, 24  # units of the picture
_NAME_CHARS = 38
_MARGIN = 12
_STYLE = """
:root { color-scheme: light dark; }
body { margin: 1.5rem; font: 15px/1.5 system-ui, sans-serif; background: light-dark(#faf9f6, #151619);
  color: light-dark(#23211d, #e6e3dc); }
h1 { font-size: 1.2rem; margin: 0 0 0.3rem; }
p { margin: 0 0 1rem; color: light-dark(#625d55, #a9a59c); }
svg.graph { max-width: none; }
svg.graph text { font: 12px system-ui, sans-serif; fill: light-dark(#23211d, #e6e3dc); }
svg.graph .edge { fill: none; stroke: light-dark(#b9b2a4, #565b64); stroke-width: 1.2; }
svg.graph .edge:hover { stroke: light-dark(#0c6a66, #74ccc4); stroke-width: 2.5; }
svg.graph rect { fill: light-dark(#ffffff, #1c1e22); stroke: light-dark(#cfc9bd, #43474f); }
svg.graph .root rect { stroke-width: 2.5; }
svg.graph .error rect, svg.graph .problem rect { stroke: light-dark(#b3372c, #f08f84); }
svg.graph .file rect { stroke: light-dark(#0c6a66, #74ccc4); }
svg.graph .command rect { stroke: light-dark(#2a66c8, #8ab7f6); }
svg.graph .decision rect, svg.graph .choice rect { stroke: light-dark(#6a4fc4, #b5a4f6); }
"""


def layout(graph: Graph) -> dict[str, tuple[int, int]]:
    """Where each node is, by its id, as column and row: an edge leads to the right wherever it can."""
    columns = _columns(graph)
    _order(columns, graph.edges)
    deepest = max(map(len, columns), default=0)
    return {
        node: (place, row + (deepest - len(column)) // 2)
        for place, column in enumerate(columns)
        for row, node in enumerate(column)
    }


def _columns(graph: Graph) -> list[list[str]]:
    depths = {node.id: 0 for node in graph.nodes}
    for _ in range(_MOST_COLUMNS - 1):
        for edge in graph.edges:
            if edge.source != edge.target and depths[edge.target] <= depths[edge.source] < _MOST_COLUMNS - 1:
                depths[edge.target] = depths[edge.source] + 1
    for edge in sorted(graph.edges, key=lambda edge: -depths[edge.target]):
        if not any(other.target == edge.source for other in graph.edges):  # nothing keeps it far from what it leads to
            nearest = min(depths[other.target] for other in graph.edges if other.source == edge.source)
            depths[edge.source] = max(0, nearest - 1)
    columns: list[list[str]] = [[] for _ in range(_MOST_COLUMNS)]
    for node in graph.nodes:
        columns[depths[node.id]].append(node.id)
    return [column for column in columns if column]


def _order(columns: list[list[str]], edges: Sequence[GraphEdge]) -> None:
    """Put nodes at the height of those they are joined to, from the left and from the right in turn."""
    joined: dict[str, list[str]] = {node: [] for column in columns for node in column}
    for edge in edges:
        joined[edge.source].append(edge.target)
        joined[edge.target].append(edge.source)
    heights = {node: row / max(1, len(column)) for column in columns for row, node in enumerate(column)}
    for number in range(_ORDERINGS):
        for column in columns if number % 2 == 0 else reversed(columns):
            near = {node: [heights[other] for other in joined[node]] or [heights[node]] for node in column}
            column.sort(key=lambda node: (mean(near[node]), node))
            heights |= {node: row / max(1, len(column)) for row, node in enumerate(column)}


def draw(graph: Graph, link: Link | None = None) -> str:
    """The graph as SVG: every node and edge has a title that says it in full; of steps, the first is on the left."""
    graph = replace(graph, edges=tuple(map(_in_time, graph.edges)))
    places = {node: (_MARGIN + x * _COLUMN, _MARGIN + y * _ROW) for node, (x, y) in layout(graph).items()}
    wide = max((x for x, _ in places.values()), default=0) + _BOX + _MARGIN
    tall = max((y for _, y in places.values()), default=0) + _HIGH + _MARGIN
    names = {node.id: node.name for node in graph.nodes}
    shapes = [_curve(edge, places, names) for edge in graph.edges]
    shapes += [_box(node, *places[node.id], node.id in graph.roots, link) for node in graph.nodes]
    label = escape(f"{len(graph.nodes)} nodes, {len(graph.edges)} edges")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" viewBox="0 0 {wide} {tall}" width="{wide}"'
    return f'{head} height="{tall}" role="img" aria-label="{label}">{"".join(shapes)}</svg>'


def _in_time(edge: GraphEdge) -> GraphEdge:
    """An edge as it is drawn: from what came first."""
    is_step = edge.predicate == FOLLOWS
    return replace(edge, source=edge.target, target=edge.source, predicate="then") if is_step else edge


def _curve(edge: GraphEdge, places: Mapping[str, tuple[int, int]], names: Mapping[str, str]) -> str:
    (x1, y1), (x2, y2) = places[edge.source], places[edge.target]
    start, end = x1 + _BOX, x2 if x2 > x1 else x2 + _BOX
    bend = 40 if x2 > x1 else 60
    path = f"M{start} {y1 + _HIGH // 2}C{start + bend} {y1 + _HIGH // 2} "
    path += f"{end - bend if x2 > x1 else end + bend} {y2 + _HIGH // 2} {end} {y2 + _HIGH // 2}"
    said = f"{names[edge.source]} — {edge.predicate.replace('_', ' ')} → {names[edge.target]}"
    return f'<path class="edge {edge.predicate}" d="{path}"><title>{escape(said)}</title></path>'


def _box(node: GraphNode, x: int, y: int, is_root: bool, link: Link | None) -> str:
    title = f"{node.kind}: {node.name} ({node.facts} facts)"
    is_path = node.kind in ("file", "repo") and len(node.name) > _NAME_CHARS  # of which the end says most
    label = f"…{node.name[1 - _NAME_CHARS :]}" if is_path else shortened(node.name, _NAME_CHARS)
    shape = f'<rect x="{x}" y="{y}" width="{_BOX}" height="{_HIGH}" rx="4"/>'
    shape += f'<text x="{x + 8}" y="{y + 16}">{escape(label)}</text>'
    kinds = f"node {node.kind}{' root' if is_root else ''}"
    box = f'<g class="{kinds}"><title>{escape(title)}</title>{shape}</g>'
    address = link(node) if link else None
    return f'<a href="{escape(address)}">{box}</a>' if address else box


def as_html(graph: Graph) -> str:
    """One page that needs nothing else: no script, no request to anywhere."""
    about = f"Around {graph.around}" if graph.around else "What is known"
    hidden = f"; {graph.hidden} more nodes are left out" if graph.hidden else ""
    counted = f"{len(graph.nodes)} nodes and {len(graph.edges)} edges{hidden}. Hover over one to read it in full."
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(about)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(about)}</h1><p>{counted}</p>{draw(graph)}</body></html>\n"
    )


def as_dot(graph: Graph) -> str:
    """The graph for Graphviz."""
    lines = ["digraph recollect {", "  rankdir=LR;", "  node [shape=box];"]
    lines += [f"  {_quoted(node.id)} [label={_quoted(node.name)}, class={_quoted(node.kind)}];" for node in graph.nodes]
    for edge in graph.edges:
        drawn, back = _in_time(edge), ", dir=back" if edge.predicate == FOLLOWS else ""
        lines.append(f"  {_quoted(drawn.source)} -> {_quoted(drawn.target)} [label={_quoted(edge.predicate)}{back}];")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


DOCUMENTS: dict[str, Callable[[Graph], str]] = {
    "dot": as_dot,
    "html": as_html,
    "svg": lambda graph: draw(graph).replace(">", f"><style>{_STYLE}</style>", 1) + "\n",  # a file of its own
}
