"""The graph database and the model, as Graphiti is given them. Needs the extra `graphiti`."""

import logging
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson
from graphiti_core import Graphiti
from graphiti_core.cross_encoder.client import CrossEncoderClient
from graphiti_core.driver.falkordb import STOPWORDS
from graphiti_core.driver.falkordb_driver import FalkorDriver
from graphiti_core.driver.neo4j_driver import Neo4jDriver
from graphiti_core.embedder import EmbedderClient, OpenAIEmbedder, OpenAIEmbedderConfig
from graphiti_core.embedder.client import EMBEDDING_DIM
from graphiti_core.llm_client import LLMConfig
from graphiti_core.llm_client.openai_generic_client import OpenAIGenericClient
from neo4j.exceptions import DriverError, Neo4jError
from openai import APIStatusError, AsyncOpenAI
from redis.exceptions import RedisError

from recollect.errors import RecollectError
from recollect.knowledge.graphiti.budget import TokenMeter
from recollect.knowledge.graphiti.settings import FALKORDB_SCHEMES, GraphitiSettings

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
        driver = _driver(settings, group_id, password)
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


def _driver(settings: GraphitiSettings, group_id: str, password: str | None) -> Any:
    url = urlsplit(settings.url)
    if url.scheme in FALKORDB_SCHEMES:
        host, port = url.hostname or "127.0.0.1", url.port or 6379
        return FalkorDriver(host, port, url.username, password, database=group_id)
    return Neo4jDriver(f"{url.scheme}://{url.netloc.rpartition('@')[2]}", url.username or "neo4j", password)


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
                answer[listed] = [one for one in answer[listed] if not any(_is_stop_word(one, name) for name in names)]
        return answer


def _is_stop_word(item: Any, name: str) -> bool:
    return isinstance(item, dict) and set(str(item.get(name, "")).casefold().split()) <= set(STOPWORDS)


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
