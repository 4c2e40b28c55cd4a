"""Graphiti as a place to push to: facts as they are, without a model, or exchanges as episodes for the user's model.

Everything but `client` works without the library, which only an extra installs.
"""

from recollect.lazy import lazy_names

_NAMES = """
recollect.knowledge.graphiti.client: EpisodesPushed FactsPushed drop_sagas make_graphiti open_graph push_episodes
recollect.knowledge.graphiti.client: push_facts pushed_names
recollect.knowledge.graphiti.plan: RULES Episode Forecast TokenMeter facts_by_group iter_episodes make_forecast
recollect.knowledge.graphiti.plan: saga_name
recollect.knowledge.graphiti.settings: EPISODES FACTS MODES GraphitiSettings
"""
TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from recollect.knowledge.graphiti.client import (
        EpisodesPushed,
        FactsPushed,
        drop_sagas,
        make_graphiti,
        open_graph,
        push_episodes,
        push_facts,
        pushed_names,
    )
    from recollect.knowledge.graphiti.plan import (
        RULES,
        Episode,
        Forecast,
        TokenMeter,
        facts_by_group,
        iter_episodes,
        make_forecast,
        saga_name,
    )
    from recollect.knowledge.graphiti.settings import EPISODES, FACTS, MODES, GraphitiSettings
else:
    __getattr__ = lazy_names(__name__, _NAMES)
