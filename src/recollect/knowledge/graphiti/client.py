"""The graph database and the model, as Graphiti is given them, and what is pushed. Needs the extra `graphiti`.

Facts are nodes and edges, in bulk and without a model. Exchanges are episodes, of which the user's model makes entities
and facts. The graph itself says how far a push came: an episode is done once its session's saga holds it, which is the
last thing that is written of it. One that is there without its saga was interrupted, is removed, and pushed again.
"""

import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

import orjson
from graphiti_core import Graphiti
from graphiti_core.cross_encoder.client import CrossEncoderClient
from graphiti_core.driver.falkordb import STOPWORDS
from graphiti_core.driver.falkordb_driver import FalkorDriver
from graphiti_core.driver.neo4j_driver import Neo4jDriver
from graphiti_core.edges import EntityEdge
from graphiti_core.embedder import EmbedderClient, OpenAIEmbedder, OpenAIEmbedderConfig
from graphiti_core.embedder.client import EMBEDDING_DIM
from graphiti_core.llm_client import LLMConfig
from graphiti_core.llm_client.errors import EmptyResponseError, RateLimitError, RefusalError
from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient
from graphiti_core.nodes import EntityNode, EpisodeType
from graphiti_core.utils.bulk_utils import add_nodes_and_edges_bulk
from neo4j.exceptions import DriverError, Neo4jError
from openai import APIConnectionError, APIStatusError, AsyncOpenAI
from redis.exceptions import RedisError

from recollect.knowledge.graphiti import FALKORDB_SCHEMES, GraphitiSettings
from recollect.knowledge.graphiti.plan import BudgetReached, Episode, TokenMeter
from recollect.knowledge.records import Fact
from recollect.model.clock import as_datetime
from recollect.model.errors import RecollectError
from recollect.model.text import Progress

_ANSWER_TOKENS = 4_096  # of one call at most
_NAMED = {"extracted_entities": ("name",), "edges": ("source_entity_name", "target_entity_name")}
# Its errors reach the user as ours, and it would log the texts of a failed query.
logging.getLogger("graphiti_core").addHandler(logging.NullHandler())


class Graph(NamedTuple):
    """One group's graph in the database."""

    driver: Any
    group_id: str

    async def rows(self, query: str, **values: Any) -> list[dict[str, Any]]:
        answer = await self.driver.execute_query(query, group_id=self.group_id, **values)
        return [dict(row) for row in answer[0]]


@asynccontextmanager
async def open_graph(settings: GraphitiSettings, group_id: str, password: str | None) -> AsyncIterator[Graph]:
    """Connect to the graph of a group, which is made if there is none; a failing database raises RecollectError."""
    driver = None
    try:
        url = urlsplit(settings.url)
        if url.scheme in FALKORDB_SCHEMES:
            host, port = url.hostname or "127.0.0.1", url.port or 6379
            driver = FalkorDriver(host, port, url.username, password, database=group_id)
        else:
            address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
            driver = Neo4jDriver(address, url.username or "neo4j", password)
        await driver.build_indices_and_constraints()
        yield Graph(driver, group_id)
    except (RedisError, Neo4jError, DriverError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise RecollectError(
            f"The graph database failed ({reason}): {settings.url}", "check `graphiti.url`, and that it is running"
        ) from error
    finally:
        if driver is not None:
            await driver.close()


def make_graphiti(graph: Graph, settings: GraphitiSettings, api_key: str | None, meter: TokenMeter) -> Graphiti:
    """Graphiti on a graph, with a model that cannot cost more than the meter allows."""
    # Graphiti retries by itself; a retry inside the client would escape the meter.
    openai = AsyncOpenAI(api_key=api_key or "none", base_url=settings.model_url, max_retries=0)
    metered = MeteredClient(openai, meter)
    config = LLMConfig(model=settings.model, small_model=settings.model, temperature=0)
    embedder = (
        OpenAIEmbedder(OpenAIEmbedderConfig(embedding_model=settings.embedding_model), metered)
        if settings.embedding_model
        else WordEmbedder()
    )
    model = _Model(config, client=metered, max_tokens=_ANSWER_TOKENS)
    return Graphiti(
        graph_driver=graph.driver, llm_client=model, embedder=embedder, cross_encoder=_NoReranker(), max_coroutines=1
    )


class _Model(OpenAIGenericClient):  # type: ignore[misc]
    """The user's model, without entities named like a stop word: FalkorDB (4.16, 4.22) crashes when asked for one."""

    async def _generate_response(self, *args: Any, **options: Any) -> Any:
        answer = await super()._generate_response(*args, **options)
        for listed, names in _NAMED.items():
            if isinstance(answer.get(listed), list):
                said = ([str(one.get(name, "")) for name in names if isinstance(one, dict)] for one in answer[listed])
                is_bare = [any(set(name.casefold().split()) <= set(STOPWORDS) for name in given) for given in said]
                answer[listed] = [one for one, bare in zip(answer[listed], is_bare, strict=True) if not bare]
        return answer


class MeteredClient:
    """The two calls of an OpenAI client that Graphiti makes; each asks the meter first.

    A text has no more tokens than bytes, and its JSON has more bytes than the text. So what a call may cost is known
    without the model's own tokenizer.
    """

    def __init__(self, client: AsyncOpenAI, meter: TokenMeter) -> None:
        self._client = client
        self._meter = meter
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._complete))
        self.embeddings = SimpleNamespace(create=self._embed)

    async def _complete(self, **request: Any) -> Any:
        asked = len(orjson.dumps([request["messages"], request["response_format"]]))
        return await self._call(self._client.chat.completions.create, request, asked + request["max_tokens"])

    async def _embed(self, **request: Any) -> Any:
        return await self._call(self._client.embeddings.create, request, len(orjson.dumps(request["input"])))

    async def _call(self, call: Callable[..., Awaitable[Any]], request: Mapping[str, Any], most: int) -> Any:
        self._meter.reserve(most)
        usage = None
        try:
            answer = await call(**request)
            usage = answer.usage and answer.usage.model_dump()
        except APIStatusError:  # refused: nothing was read or written
            usage = {}
            raise
        finally:
            self._meter.settle(most, usage)
        return answer


class WordEmbedder(EmbedderClient):  # type: ignore[misc]
    """Vectors of hashed words: texts that share words are near each other, and no model is asked."""

    async def create(self, input_data: Any) -> list[float]:
        return word_vector(input_data if isinstance(input_data, str) else " ".join(map(str, input_data)))

    async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
        return list(map(word_vector, input_data_list))


def word_vector(text: str) -> list[float]:
    vector = [0.0] * EMBEDDING_DIM
    for word, count in Counter(re.findall(r"\w+", text.casefold()) or [""]).items():
        number = int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=8).digest())
        vector[number % EMBEDDING_DIM] += count if number >> 63 else -count
    length = math.hypot(*vector) or 1.0
    return [value / length for value in vector]


class _NoReranker(CrossEncoderClient):  # type: ignore[misc]
    """Graphiti wants one, and pushing never asks it."""

    async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
        return [(passage, 1.0) for passage in passages]


_PREVIOUS = 2  # episodes of the same session that a model is shown
_SAGAS = (
    "MATCH (s:Saga)-[:HAS_EPISODE]->(e:Episodic) WHERE s.group_id = $group_id"
    " RETURN s.name AS saga, e.name AS name, e.uuid AS uuid ORDER BY e.valid_at"
)
_UNFINISHED = (
    "MATCH (e:Episodic) WHERE e.group_id = $group_id OPTIONAL MATCH (s:Saga)-[r:HAS_EPISODE]->(e)"
    " WITH e, count(r) AS sagas WHERE sagas = 0 RETURN e.name AS name, e.uuid AS uuid"
)
_DELETE_SAGA = "MATCH (s:Saga) WHERE s.group_id = $group_id AND s.name = $saga DETACH DELETE s"
_BAD_ANSWERS = (ValueError, KeyError, EmptyResponseError, RefusalError)  # of a model


@dataclass(slots=True)
class Pushed:
    """What a push did: how many facts or exchanges were `written`, and `removed`. `facts` are all that are there now.

    Tokens are what the model took for exchanges, to the token. `failed` exchanges got an answer that made no sense;
    they and those `left` are pushed next time.
    """

    mode: str
    written: int = 0
    removed: int = 0
    facts: int = 0
    failed: int = 0
    left: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tokens: int = 0
    tokens_today: int = 0
    tokens_this_month: int = 0
    budget: int = 0
    is_budget_reached: bool = False

    def meter(self, meter: TokenMeter) -> None:
        """Take over what was counted."""
        self.calls, self.tokens = meter.calls, meter.tokens
        self.input_tokens, self.output_tokens = meter.input_tokens, meter.output_tokens
        self.tokens_today, self.tokens_this_month = meter.today, meter.this_month
        self.budget, self.is_budget_reached = meter.budget, meter.is_spent


async def pushed_names(graph: Graph) -> dict[str, dict[str, str]]:
    """The episodes that are in a graph as a whole: their ids by name, by saga, the oldest first."""
    sagas: dict[str, dict[str, str]] = defaultdict(dict)
    for row in await graph.rows(_SAGAS):
        sagas[row["saga"]][row["name"]] = row["uuid"]
    return sagas


async def push_episodes(
    graph: Graph, graphiti: Graphiti, episodes: Sequence[Episode], report: Pushed, progress: Progress
) -> None:
    """Add the episodes that are not in the graph yet, the oldest first, until the budget is reached."""
    sagas = await pushed_names(graph)
    unfinished = {row["name"]: row["uuid"] for row in await graph.rows(_UNFINISHED)}
    waiting = [episode for episode in episodes if episode.name not in sagas.get(episode.saga, {})]
    for number, episode in enumerate(sorted(waiting, key=lambda episode: episode.at)):
        progress("pushing", number, len(waiting))
        if episode.name in unfinished:
            await graphiti.remove_episode(unfinished[episode.name])
        try:
            sagas[episode.saga][episode.name] = await _push(
                graphiti, graph, episode, list(sagas[episode.saga].values())
            )
            report.written += 1
        except BudgetReached:
            report.left += len(waiting) - number
            return
        except _BAD_ANSWERS:
            report.failed += 1


async def _push(graphiti: Graphiti, graph: Graph, episode: Episode, before: Sequence[str]) -> str:
    try:
        added = await graphiti.add_episode(
            name=episode.name,
            episode_body=episode.body,
            source=EpisodeType.message,
            source_description=episode.description,
            reference_time=episode.at,
            group_id=graph.group_id,
            previous_episode_uuids=list(before[-_PREVIOUS:]),
            saga=episode.saga,
            saga_previous_episode_uuid=before[-1] if before else None,
        )
    except (APIConnectionError, APIStatusError, RateLimitError) as error:
        reason = str(error).partition("\n")[0]
        raise RecollectError(
            f"The model did not answer ({reason})", "check `graphiti.model`, `graphiti.model_url` and OPENAI_API_KEY"
        ) from error
    return str(added.episode.uuid)


async def drop_sagas(graph: Graph, graphiti: Graphiti, sagas: Collection[str]) -> int:
    """Remove these sessions' episodes, with the entities and facts that only they speak of; return how many."""
    removed = 0
    for saga, episodes in (await pushed_names(graph)).items():
        if saga in sagas:
            for uuid in episodes.values():
                await graphiti.remove_episode(uuid)
            await graph.rows(_DELETE_SAGA, saga=saga)
            removed += len(episodes)
    return removed


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


async def push_facts(
    graph: Graph, facts: Sequence[Fact], chosen: Collection[str] | None, own: Collection[str], report: Pushed
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
    named = {fact.fact_uid for fact in facts if chosen is None or any(e.session_uid in chosen for e in fact.evidence)}
    # What a chosen fact took the place of goes with it.
    wanted = {_uuid("fact", fact.fact_uid) for fact in facts if named & {fact.fact_uid, fact.superseded_by}}
    new = [edge for uuid, edge in edges.items() if uuid in changed or (uuid in wanted and uuid not in present)]
    known = {row["uuid"] for row in await graph.rows(_NODES)}
    nodes = [node for node in _nodes(facts, graph.group_id, new) if node.uuid not in known]
    await graph.rows(_DELETE_EDGES, uuids=list(changed))
    for start in range(0, len(nodes), _BATCH):
        await add_nodes_and_edges_bulk(graph.driver, [], [], nodes[start : start + _BATCH], [], WordEmbedder())
    for start in range(0, len(new), _BATCH):
        await add_nodes_and_edges_bulk(graph.driver, [], [], [], new[start : start + _BATCH], WordEmbedder())
    await graph.rows(_DELETE_LONE_NODES)
    report.facts += len(present) - len(changed) + len(new)
    report.written += len(new)
    report.removed += sum(uuid not in edges for uuid in changed)


def _uuid(*parts: str) -> str:
    """The same thing has the same id in every push."""
    return str(uuid5(NAMESPACE_URL, "\0".join(("recollect", *parts))))


def _nodes(facts: Iterable[Fact], group_id: str, edges: Iterable[EntityEdge]) -> list[EntityNode]:
    needed = {uuid for edge in edges for uuid in (edge.source_node_uuid, edge.target_node_uuid)}
    nodes: dict[str, EntityNode] = {}
    for fact in facts:
        for kind, name in ((fact.subject_kind, fact.subject), (fact.object_kind, fact.object)):
            uuid = _uuid("entity", group_id, kind, name)
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
        source_node_uuid=_uuid("entity", group_id, fact.subject_kind, fact.subject),
        target_node_uuid=_uuid("entity", group_id, fact.object_kind, fact.object),
        created_at=as_datetime(fact.recorded_at),
        valid_at=as_datetime(fact.valid_at),
        invalid_at=as_datetime(fact.invalid_at),
        reference_time=as_datetime(fact.valid_at),
        attributes=about | {"mark": _uuid(repr(fact))},
    )
