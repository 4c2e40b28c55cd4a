"""Facts as a graph: what they are about is a node, what they say of two nodes is an edge."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from recollect.errors import NotFound
from recollect.knowledge.asking import notes_as_facts
from recollect.knowledge.decisions import CANDIDATE, CLAIM, COMMIT
from recollect.knowledge.predicates import FIXED_BY, PREDICATES, TOUCHES, fact_uid
from recollect.knowledge.records import Fact, Graph, GraphEdge, GraphNode
from recollect.knowledge.timeline import fact_of, with_ends
from recollect.knowledge.workflows import follow_facts
from recollect.store import HeaderFilter, Store, StoredExchange, StoredFact

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


class _Edge(NamedTuple):
    source: _Node
    target: _Node
    predicate: str


def find_graph(
    store: Store,
    sessions: HeaderFilter,
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
    stored = [fact for fact in store.facts.select(predicates, sessions) if fact.rule not in (CANDIDATE, CLAIM)]
    facts = {fact.fact_uid: fact for fact in with_ends([*map(fact_of, stored), *notes_as_facts(store, repos)])}
    steps = {fact.fact_uid: _changed(fact) for fact in stored if fact.predicate == FIXED_BY}
    held = [
        fact
        for fact in facts.values()
        if fact.invalid_at is None and fact.confidence >= _LEAST_SURE and (around or fact.method != COMMIT)
    ]
    edges: dict[_Edge, list[Fact]] = defaultdict(list)
    for fact in [*held, *follow_facts(store.exchange_steps.select(sessions, _LATEST))]:
        for edge in _edges(fact, steps.get(fact.fact_uid, ())):
            edges[edge].append(fact)
    roots: list[_Node] = []
    if around is not None:
        roots = [node for node in _nodes(edges) if _is_named(node, around)]
        if not roots:
            raise NotFound(f"Nothing is known about: {around}", "`recollect graph` shows what is known")
        near = _near(edges, roots)
        edges = {edge: said for edge, said in edges.items() if edge.source in near and edge.target in near}
    return _graph(edges, _strongest(edges, limit, roots), around, roots)


def workflow_graph(exchanges: Sequence[StoredExchange]) -> Graph:
    """Which step follows which in these exchanges' workflows."""
    edges = {edge: [fact] for fact in follow_facts(exchanges) for edge in _edges(fact, ())}
    return _graph(edges, set(_nodes(edges)), None, ())


def _changed(fact: StoredFact) -> list[_Node]:
    """All that a fix changed: a fact names only the first of it."""
    steps = fact.details.get("steps") or []
    return [_node(step["kind"], step["name"]) for step in steps]


def _node(kind: str, name: str) -> _Node:
    return _Node(_KINDS.get(kind, kind), name)


def _edges(fact: Fact, changed: Iterable[_Node]) -> Iterator[_Edge]:
    source = _node(fact.subject_kind, fact.subject)
    for target in dict.fromkeys([_node(fact.object_kind, fact.object), *changed]):
        if source.name != target.name:
            yield _Edge(source, target, fact.predicate)
        elif fact.repo:  # what was decided, and nothing it was decided about
            yield _Edge(_Node("repo", fact.repo), target, fact.predicate)


def _nodes(edges: Iterable[_Edge]) -> dict[_Node, None]:
    return dict.fromkeys(node for edge in edges for node in (edge.source, edge.target))


def _is_named(node: _Node, name: str) -> bool:
    own, asked = node.name.casefold(), name.casefold()
    return own == asked or own.endswith(f"/{asked}")


def _near(edges: Collection[_Edge], roots: Iterable[_Node]) -> set[_Node]:
    """The nodes at most so many steps away."""
    near = set(roots)
    for _ in range(_HOPS):
        near |= {node for edge in edges if near & {edge.source, edge.target} for node in (edge.source, edge.target)}
    return near


def _strongest(edges: dict[_Edge, list[Fact]], limit: int | None, roots: Collection[_Node]) -> set[_Node]:
    """As many nodes as are wanted: those of the edges at a root, then the edges of each predicate in turn.

    Of one predicate, those come first that most facts tell of, then the newest.
    """
    ordered = sorted(edges)
    ordered.sort(key=lambda edge: (len(edges[edge]), max(fact.valid_at or "" for fact in edges[edge])), reverse=True)
    turns: Counter[str] = Counter()
    ranks: dict[_Edge, tuple[bool, int]] = {}
    for edge in ordered:
        ranks[edge] = (not {edge.source, edge.target} & set(roots), turns[edge.predicate])
        turns[edge.predicate] += 1
    chosen = set(roots)
    for edge in sorted(ordered, key=ranks.__getitem__):
        ends = {edge.source, edge.target}
        if limit is None or len(chosen | ends) <= limit:
            chosen |= ends
    return chosen


def _graph(edges: dict[_Edge, list[Fact]], chosen: set[_Node], around: str | None, roots: Sequence[_Node]) -> Graph:
    shown = {edge: said for edge, said in edges.items() if edge.source in chosen and edge.target in chosen}
    counts = Counter(node for edge, said in edges.items() for node in (edge.source, edge.target) for _ in said)
    return Graph(
        nodes=tuple(GraphNode(node.id, *node, counts[node]) for node in sorted(_nodes(shown))),
        edges=tuple(
            GraphEdge(
                edge.source.id,
                edge.target.id,
                edge.predicate,
                max(fact.confidence for fact in said),
                tuple(dict.fromkeys(fact.fact_uid for fact in said)),
                *_sample(max(said, key=lambda fact: fact.valid_at or "")),
            )
            for edge, said in sorted(shown.items())
        ),
        hidden=len(_nodes(edges)) - len(_nodes(shown)),
        around=around,
        roots=tuple(node.id for node in roots),
    )


def _sample(fact: Fact) -> tuple[str | None, str | None]:
    """A session that says it, and where."""
    return fact.session_uid, next((shown.event_uid for shown in fact.evidence), None)
