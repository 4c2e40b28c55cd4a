"""Facts as nodes and edges of a graph, in bulk and without a model. Needs the extra `graphiti`."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from graphiti_core.edges import EntityEdge
from graphiti_core.nodes import EntityNode
from graphiti_core.utils.bulk_utils import add_nodes_and_edges_bulk

from recollect.clock import as_datetime
from recollect.knowledge.graphiti.client import Graph, WordEmbedder
from recollect.knowledge.records import Fact

_BATCH = 200
_EDGES = (
    "MATCH ()-[e:RELATES_TO]->() WHERE e.group_id = $group_id AND e.fact_uid IS NOT NULL"
    " RETURN e.uuid AS uuid, e.origin AS origin, e.mark AS mark"
)
_NODES = "MATCH (n:Entity) WHERE n.group_id = $group_id AND n.kind IS NOT NULL RETURN n.uuid AS uuid"
_DELETE_EDGES = "MATCH ()-[e:RELATES_TO]->() WHERE e.group_id = $group_id AND e.uuid IN $uuids DELETE e"
_DELETE_LONE_NODES = (
    "MATCH (n:Entity) WHERE n.group_id = $group_id AND n.kind IS NOT NULL"
    " OPTIONAL MATCH (n)-[r]-() WITH n, count(r) AS ties WHERE ties = 0 DELETE n"
)


@dataclass(slots=True)
class FactsPushed:
    """What pushing facts changed in the graph. `facts` are all that are in it now."""

    mode: str = "facts"
    facts: int = 0
    edges_written: int = 0
    nodes_written: int = 0
    edges_removed: int = 0


async def push_facts(
    graph: Graph, facts: Sequence[Fact], chosen: Collection[str] | None, own: Collection[str], report: FactsPushed
) -> None:
    """Make the graph hold these facts, of `chosen` sessions or of all; what they superseded ends there, too.

    What else the graph holds of our `own` sessions and notes, forgotten and rejected ones included, is removed.
    """
    edges = {edge.uuid: edge for edge in (_edge(fact, graph.group_id) for fact in facts)}
    present = {row["uuid"]: row for row in await graph.rows(_EDGES)}
    changed = {
        uuid
        for uuid, row in present.items()
        if (uuid in edges and row["mark"] != edges[uuid].attributes["mark"])
        or (uuid not in edges and row["origin"] in own)
    }
    wanted = edges if chosen is None else _chosen_edges(facts, chosen)
    new = [edge for uuid, edge in edges.items() if uuid in changed or (uuid in wanted and uuid not in present)]
    named = {row["uuid"] for row in await graph.rows(_NODES)}
    nodes = [node for node in _nodes(facts, graph.group_id, new) if node.uuid not in named]
    await graph.rows(_DELETE_EDGES, uuids=list(changed))
    for start in range(0, len(nodes), _BATCH):
        await add_nodes_and_edges_bulk(graph.driver, [], [], nodes[start : start + _BATCH], [], WordEmbedder())
    for start in range(0, len(new), _BATCH):
        await add_nodes_and_edges_bulk(graph.driver, [], [], [], new[start : start + _BATCH], WordEmbedder())
    await graph.rows(_DELETE_LONE_NODES)
    report.facts += len(present) - len(changed) + len(new)
    report.edges_written += len(new)
    report.nodes_written += len(nodes)
    report.edges_removed += sum(uuid not in edges for uuid in changed)


def _chosen_edges(facts: Sequence[Fact], chosen: Collection[str]) -> set[str]:
    uids = {fact.fact_uid for fact in facts if any(shown.session_uid in chosen for shown in fact.evidence)}
    return {_uuid("fact", fact.fact_uid) for fact in facts if fact.fact_uid in uids or fact.superseded_by in uids}


def _uuid(*parts: str) -> str:
    """The same thing has the same id in every push."""
    return str(uuid5(NAMESPACE_URL, "\0".join(("recollect", *parts))))


def _node_uuid(group_id: str, kind: str, name: str) -> str:
    return _uuid("entity", group_id, kind, name)


def _nodes(facts: Iterable[Fact], group_id: str, edges: Iterable[EntityEdge]) -> list[EntityNode]:
    needed = {uuid for edge in edges for uuid in (edge.source_node_uuid, edge.target_node_uuid)}
    nodes: dict[str, EntityNode] = {}
    for fact in facts:
        for kind, name in ((fact.subject_kind, fact.subject), (fact.object_kind, fact.object)):
            uuid = _node_uuid(group_id, kind, name)
            if uuid in needed and uuid not in nodes:
                label = kind.title().replace("_", "")
                at = as_datetime(fact.recorded_at)
                nodes[uuid] = EntityNode(
                    uuid=uuid, name=name, group_id=group_id, labels=[label], created_at=at, attributes={"kind": kind}
                )
    return list(nodes.values())


def _edge(fact: Fact, group_id: str) -> EntityEdge:
    about: dict[str, Any] = {
        "fact_uid": fact.fact_uid,
        "origin": fact.session_uid or fact.fact_uid,  # the session, or the note itself
        "repo": fact.repo or "",
        "by": fact.by,
        "method": fact.method,
        "confidence": fact.confidence,
        "reason": fact.reason or "",
        "evidence": [evidence.event_uid for evidence in fact.evidence],
    }
    return EntityEdge(
        uuid=_uuid("fact", fact.fact_uid),
        group_id=group_id,
        name=fact.predicate.upper(),
        fact=fact.text,
        source_node_uuid=_node_uuid(group_id, fact.subject_kind, fact.subject),
        target_node_uuid=_node_uuid(group_id, fact.object_kind, fact.object),
        created_at=as_datetime(fact.recorded_at),
        valid_at=as_datetime(fact.valid_at),
        invalid_at=as_datetime(fact.invalid_at),
        reference_time=as_datetime(fact.valid_at),
        attributes=about | {"mark": _uuid(repr(fact))},
    )
