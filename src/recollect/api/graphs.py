"""What leaves the store for a graph database and a model, because somebody configured them and asked for it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from recollect.config import graphiti_secrets, quiet_graphiti, refuse_in_group
from recollect.errors import BadConfig, RecollectError
from recollect.progress import Progress, silent
from recollect.recall.filters import NO_FILTERS, Filters

if TYPE_CHECKING:
    from recollect.api import Memory
    from recollect.knowledge.graphiti.episodes import EpisodesPushed
    from recollect.knowledge.graphiti.facts import FactsPushed
    from recollect.knowledge.graphiti.plan import Episode, Forecast


class EpisodePlan(NamedTuple):
    """Exchanges that are not in the graph yet, and what they will take."""

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

    def push_facts(self, filters: Filters = NO_FILTERS) -> FactsPushed:
        """Push facts as nodes and edges, of all sessions or of those that match, without a model.

        Facts that were rejected, replaced or forgotten since the last push are removed from the graph.
        """
        from recollect.kinds import session_uid
        from recollect.knowledge.graphiti.client import open_graph
        from recollect.knowledge.graphiti.facts import FactsPushed, facts_by_group, push_facts
        from recollect.store import push_lock

        own = {session.session_uid for session in self._memory.sessions()}
        own |= {session_uid(*key) for key in self._store.tombstones.names()}
        own |= {note.note_uid for note, _ in self._store.verdicts.notes()}
        chosen = None if filters == NO_FILTERS else {one.session_uid for one in self._memory.sessions(filters)}
        report = FactsPushed()

        async def push() -> None:
            facts = facts_by_group(self._store)
            for group in self._groups():
                async with open_graph(self._settings, self._settings.group_id(group), self._password) as graph:
                    await push_facts(graph, facts.get(group, []), chosen, own, report)

        with push_lock(self._store.folder):
            asyncio.run(push())
        return report

    def plan(self, filters: Filters = NO_FILTERS) -> EpisodePlan:
        """The exchanges of sessions that match and are not in the graph yet. Asks no model."""
        from recollect.knowledge.graphiti.client import open_graph
        from recollect.knowledge.graphiti.episodes import pushed_names
        from recollect.knowledge.graphiti.plan import make_forecast

        known = self._episodes(filters)

        async def waiting() -> list[Episode]:
            found = []
            for group in self._groups():
                async with open_graph(self._settings, self._settings.group_id(group), self._password) as graph:
                    sagas = await pushed_names(graph)
                found += [one for one in known if one.group == group and one.name not in sagas.get(one.saga, {})]
            return found

        episodes = asyncio.run(waiting())
        return EpisodePlan(episodes, make_forecast(episodes, known))

    def _groups(self) -> list[str]:
        from recollect.store import MAIN_GROUP

        return sorted({MAIN_GROUP, *(group.name for group in self._store.groups.all())})

    def _episodes(self, filters: Filters) -> list[Episode]:
        from recollect.analysis.stored import find_exchanges
        from recollect.knowledge.graphiti.plan import RULES, iter_episodes

        now = datetime.now(UTC)
        sessions = self._memory.sessions(filters, roots_only=True, is_idle=False)
        return [
            episode
            for session in sessions
            if session.evicted_at is None
            for episode in iter_episodes(session, find_exchanges(self._store, session, RULES), now)
        ]

    def push_episodes(
        self, plan: EpisodePlan, *, budget: int | None = None, progress: Progress = silent
    ) -> EpisodesPushed:
        """Push the exchanges of a plan, the oldest first, with the user's model.

        It never uses more than `budget` tokens, or what today's pushes have left of `graphiti.tokens_per_day`.
        If it is interrupted, the next push continues where it stopped. Episodes of forgotten sessions are
        removed from the graph.
        """
        from recollect.knowledge.graphiti.budget import TokenMeter
        from recollect.knowledge.graphiti.client import make_graphiti, open_graph
        from recollect.knowledge.graphiti.episodes import EpisodesPushed, drop_sagas, push_episodes
        from recollect.knowledge.graphiti.plan import saga_name
        from recollect.store import push_lock

        if not self._settings.model:
            raise BadConfig("No model is configured", "recollect config graphiti.model NAME")
        report = EpisodesPushed()
        forgotten = {saga_name(key.native_id) for key in self._store.tombstones.names()}

        async def push(meter: TokenMeter) -> None:
            for group in self._groups():
                async with open_graph(self._settings, self._settings.group_id(group), self._password) as graph:
                    graphiti = make_graphiti(graph, self._settings, self._api_key, meter)
                    report.removed += await drop_sagas(graph, graphiti, forgotten)
                    mine = [episode for episode in plan.episodes if episode.group == group]
                    await push_episodes(graph, graphiti, mine, report, progress)

        with push_lock(self._store.folder):
            meter = TokenMeter(self._store.folder, self._settings.tokens_per_day, budget)
            asyncio.run(push(meter))
        report.meter(meter)
        return report
