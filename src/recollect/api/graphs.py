"""Pushing facts and exchanges to a graph database and a model, once the user has configured them and asks for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from recollect import analysis
from recollect.config import graphiti_secrets, quiet_graphiti, refuse_in_group
from recollect.knowledge import graphiti
from recollect.model.errors import BadConfig, RecollectError
from recollect.model.kinds import session_uid
from recollect.model.text import Progress, silent
from recollect.recall import NO_FILTERS, Filters
from recollect.sessions import add_up, usd_of
from recollect.store import MAIN_GROUP, Response, push_lock

if TYPE_CHECKING:
    from recollect.api import Memory
    from recollect.knowledge.graphiti import Episode, Forecast, Pushed


class EpisodePlan(NamedTuple):
    """Exchanges that are not in the graph yet, and what pushing them will cost."""

    episodes: list[Episode]
    forecast: Forecast


class Graphs:
    """The Graphiti graph of a memory, reached as `memory.graphiti`."""

    def __init__(self, memory: Memory) -> None:
        refuse_in_group()
        self._memory = memory
        self._store = memory._store
        self._settings = memory.settings.graphiti
        if find_spec("graphiti_core") is None:
            raise RecollectError("Graphiti is not installed", 'pip install "recollect[graphiti]"')
        if not self._settings.url:
            raise BadConfig("No graph database is configured", "recollect config graphiti.url falkor://127.0.0.1:6379")
        quiet_graphiti()
        self._password, self._api_key = graphiti_secrets()

    def push_facts(self, filters: Filters = NO_FILTERS) -> Pushed:
        """Push facts as nodes and edges, of all sessions or of those that match, without a model.

        Facts that were rejected, replaced or forgotten since the last push are removed from the graph.
        """
        own = {session.session_uid for session in self._memory.sessions()}
        own |= {session_uid(*key) for key in self._store.tombstones.names()}
        own |= {note.note_uid for note, _ in self._store.facts.notes()}
        chosen = None if filters == NO_FILTERS else {session.session_uid for session in self._memory.sessions(filters)}
        report = graphiti.Pushed(graphiti.FACTS)

        async def push() -> None:
            facts = graphiti.facts_by_group(self._store)
            for group in self._groups():
                async with graphiti.open_graph(self._settings, self._settings.group_id(group), self._password) as graph:
                    await graphiti.push_facts(graph, facts.get(group, []), chosen, own, report)

        with push_lock(self._store.folder):
            asyncio.run(push())
        return report

    def plan(self, filters: Filters = NO_FILTERS) -> EpisodePlan:
        """The exchanges of sessions that match and are not in the graph yet. Uses no model."""
        known = self._episodes(filters)

        async def waiting() -> list[Episode]:
            missing: list[Episode] = []
            for group in self._groups():
                async with graphiti.open_graph(self._settings, self._settings.group_id(group), self._password) as graph:
                    sagas = await graphiti.pushed_names(graph)
                in_group = [episode for episode in known if episode.group == group]
                missing += [episode for episode in in_group if episode.name not in sagas.get(episode.saga, {})]
            return missing

        episodes = asyncio.run(waiting())
        return EpisodePlan(episodes, graphiti.make_forecast(episodes, known, self._price))

    def _price(self, input_tokens: int, output_tokens: int) -> float | None:
        """What tokens of the user's model cost at its list price."""
        response = Response(None, self._settings.model or None, input_tokens, output_tokens, 0, 0, 0)
        return usd_of(add_up([response]))[0]

    def _groups(self) -> list[str]:
        return sorted({MAIN_GROUP, *(group.name for group in self._store.groups.all())})

    def _episodes(self, filters: Filters) -> list[Episode]:
        now, kept = datetime.now(UTC), self._memory.settings.exchanges.keep_tool_calls
        rules = replace(graphiti.RULES, keep_tool_calls=kept)
        sessions = self._memory.sessions(filters, roots_only=True, is_idle=False)
        return [
            episode
            for session in sessions
            if session.evicted_at is None
            for episode in graphiti.iter_episodes(session, analysis.find_exchanges(self._store, session, rules), now)
        ]

    def push_episodes(self, plan: EpisodePlan, *, budget: int | None = None, progress: Progress = silent) -> Pushed:
        """Push the exchanges of a plan, the oldest first, with the user's model.

        It never uses more than `budget` tokens, or what today's pushes have left of `graphiti.tokens_per_day`.
        If it is interrupted, the next push continues where it stopped. Episodes of forgotten sessions are
        removed from the graph.
        """
        if not self._settings.model:
            raise BadConfig("No model is configured", "recollect config graphiti.model NAME")
        report = graphiti.Pushed(graphiti.EPISODES)
        forgotten = {graphiti.saga_name(key.native_id) for key in self._store.tombstones.names()}

        async def push(meter: graphiti.TokenMeter) -> None:
            for group in self._groups():
                async with graphiti.open_graph(self._settings, self._settings.group_id(group), self._password) as graph:
                    client = graphiti.make_graphiti(graph, self._settings, self._api_key, meter)
                    report.removed += await graphiti.drop_sagas(graph, client, forgotten)
                    mine = [episode for episode in plan.episodes if episode.group == group]
                    await graphiti.push_episodes(graph, client, mine, report, progress)

        with push_lock(self._store.folder):
            meter = graphiti.TokenMeter(self._store.folder, self._settings.tokens_per_day, budget)
            asyncio.run(push(meter))
        report.meter(meter)
        return report
