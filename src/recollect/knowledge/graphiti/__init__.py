"""Graphiti as a place to push to: facts as they are, without a model, or exchanges as episodes for the user's model.

Everything but `client` works without the library, which only an extra installs.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from recollect import store
from recollect.model.home import environment, start_recollect
from recollect.model.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes long to load

FACTS, EPISODES, OFF = "facts", "episodes", "off"
MODES = (FACTS, EPISODES)
_PUSHED_DAYS = 7  # what a push after a sweep looks at
FALKORDB_SCHEMES, NEO4J_SCHEMES = ("falkor", "redis"), ("bolt", "bolt+s", "neo4j", "neo4j+s")


@dataclass(frozen=True, slots=True)
class GraphitiSettings:
    """The settings of `[graphiti]`: where the graph is, which model reads episodes, and what that may cost."""

    url: str = ""  # `falkor://HOST:PORT` or `bolt://USER@HOST:PORT`; without one nothing is ever sent
    graph: str = "recollect"
    model: str = ""
    model_url: str = "https://api.openai.com/v1"
    embedding_model: str = ""  # without one vectors are made of words
    tokens_per_day: int = 200_000
    after_sweep: str = OFF

    def problem(self) -> str | None:
        """What is wrong with a setting, if anything is."""
        if self.url and urlsplit(self.url).scheme not in FALKORDB_SCHEMES + NEO4J_SCHEMES:
            return f"graphiti.url = {self.url!r}"
        if not re.fullmatch(r"[A-Za-z0-9_]+", self.graph):
            return f"graphiti.graph = {self.graph!r}"
        if self.after_sweep not in (OFF, *MODES):
            return f"graphiti.after_sweep = {self.after_sweep!r}"
        return None

    def group_id(self, group: str) -> str:
        """The graph of a group's sessions: Graphiti and its databases take letters, digits and `_` without trouble."""
        if group == store.MAIN_GROUP:
            return self.graph
        from hashlib import blake2b  # settings are read by every search, which needs none of it

        plain = re.sub(r"[^A-Za-z0-9_]", "_", group)
        mark = "" if plain == group else f"_{blake2b(group.encode(), digest_size=3).hexdigest()}"
        return f"{self.graph}_{plain}{mark}"

    def push_after_sweep(self, folder: Path, config_path: Path) -> None:
        """If it is set up, push what is new in a process of its own: a model takes minutes."""
        if self.after_sweep == OFF:
            return
        words = ("knowledge", "graphiti", "push", "--mode", self.after_sweep, "--since", f"{_PUSHED_DAYS}d")
        named = {"RECOLLECT_HOME": str(folder)} if config_path.parent == folder else {}
        start_recollect(words, {**environment(), **named}, str(folder / "graphiti.log"))


_NAMES = """
recollect.knowledge.graphiti.client: Pushed drop_sagas make_graphiti open_graph push_episodes push_facts pushed_names
recollect.knowledge.graphiti.plan: RULES Episode Forecast TokenMeter facts_by_group iter_episodes make_forecast
recollect.knowledge.graphiti.plan: saga_name
"""
if TYPE_CHECKING:
    from recollect.knowledge.graphiti.client import (
        Pushed,
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

else:
    __getattr__ = lazy_names(__name__, _NAMES)
