"""Exchanges as episodes: the user's model makes entities and facts of them. Needs the extra `graphiti`.

The graph itself says how far a push came: an episode is done once its session's saga holds it, which is the last thing
that is written of it. One that is there without its saga was interrupted, is removed, and pushed again.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from graphiti_core import Graphiti
from graphiti_core.llm_client.errors import EmptyResponseError, RateLimitError, RefusalError
from graphiti_core.nodes import EpisodeType
from openai import APIConnectionError, APIStatusError

from recollect.errors import RecollectError
from recollect.knowledge.graphiti.budget import BudgetReached, TokenMeter
from recollect.knowledge.graphiti.client import Graph
from recollect.knowledge.graphiti.plan import Episode
from recollect.text import Progress

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
class EpisodesPushed:
    """What pushing exchanges did, and what the model took for it, to the token.

    `failed` exchanges got an answer that made no sense; they and those `left` are pushed next time.
    """

    mode: str = "episodes"
    exchanges: int = 0
    failed: int = 0
    left: int = 0
    removed: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tokens: int = 0
    tokens_per_exchange: int = 0
    tokens_today: int = 0
    tokens_this_month: int = 0
    budget: int = 0
    is_budget_reached: bool = False

    def meter(self, meter: TokenMeter) -> None:
        """Take over what was counted."""
        self.calls, self.tokens = meter.calls, meter.tokens
        self.input_tokens, self.output_tokens = meter.input_tokens, meter.output_tokens
        self.tokens_per_exchange = meter.tokens // self.exchanges if self.exchanges else 0
        self.tokens_today, self.tokens_this_month = meter.today, meter.this_month
        self.budget, self.is_budget_reached = meter.budget, meter.is_spent


async def pushed_names(graph: Graph) -> dict[str, dict[str, str]]:
    """The episodes that are in a graph as a whole: their ids by name, by saga, the oldest first."""
    sagas: dict[str, dict[str, str]] = defaultdict(dict)
    for row in await graph.rows(_SAGAS):
        sagas[row["saga"]][row["name"]] = row["uuid"]
    return sagas


async def push_episodes(
    graph: Graph, graphiti: Graphiti, episodes: Sequence[Episode], report: EpisodesPushed, progress: Progress
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
            report.exchanges += 1
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
