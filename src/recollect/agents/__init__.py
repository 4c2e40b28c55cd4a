"""Readers of the agents' own files, one folder per agent, all behind one contract.

Third parties add an agent by the entry point group `recollect.adapters`; see docs/adding-an-agent.md.
"""

import shlex
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from recollect.errors import NotFound

if TYPE_CHECKING:  # a search loads the profiles only
    from recollect.agentkit.profile import AgentProfile
    from recollect.agentkit.protocol import Adapter

BUILT_IN = tuple(sorted(module.name for module in iter_modules(__path__) if module.ispkg))


@cache
def adapters() -> "dict[str, Adapter]":
    """All installed adapters by agent, those of this package first."""
    from importlib.metadata import entry_points  # slow to import, and needed only where all agents are

    known = {agent: get_adapter(agent) for agent in BUILT_IN}
    for entry in entry_points(group="recollect.adapters"):
        adapter: Adapter = entry.load()
        known.setdefault(adapter.agent, adapter)
    return known


def get_adapter(agent: str) -> "Adapter":
    """The adapter of an agent; of this package only that one is loaded, to start reader processes quickly."""
    if agent in BUILT_IN:
        adapter: Adapter = import_module(f"recollect.agents.{agent}").ADAPTER
        return adapter
    try:
        return adapters()[agent]
    except KeyError:
        raise NotFound(f"Unknown agent: {agent}", f"known: {', '.join(adapters())}") from None


def profile_of(agent: str) -> "AgentProfile":
    """What lists know of an agent: of this package's, or of one whose adapter is loaded already.

    To look for other packages takes longer than a search may; without its profile an agent is shown by its name.
    """
    from recollect.agentkit.profile import AgentProfile  # small, and needed only by lists

    if agent in BUILT_IN:
        return get_adapter(agent).profile
    loaded = adapters() if adapters.cache_info().currsize else {}
    return loaded[agent].profile if agent in loaded else AgentProfile(agent)


def session_variables() -> tuple[str, ...]:
    """The environment variables in which the agents of this package pass on the current session's id."""
    profiles = (import_module(f"recollect.agents.{agent}").ADAPTER.profile for agent in BUILT_IN)
    return tuple(profile.session_variable for profile in profiles if profile.session_variable)


def resume_words(agent: str, native_session_id: str) -> list[str]:
    """The agent's own command that continues a session, word by word; empty if it has none."""
    try:
        words = get_adapter(agent).profile.resume_command
    except NotFound:
        return []  # of an agent that is not installed any more
    return [word.replace("{id}", native_session_id) for word in words]


def resume_command(agent: str, native_session_id: str) -> str | None:
    """The same as a line for a shell."""
    words = resume_words(agent, native_session_id)
    return shlex.join(words) or None
