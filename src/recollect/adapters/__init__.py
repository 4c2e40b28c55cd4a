"""Readers of the agents' own files, one module per agent, all behind one contract.

Third parties add an agent by the entry point group `recollect.adapters`; see docs/adding-an-agent.md.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from recollect.errors import NotFound

if TYPE_CHECKING:  # a search asks only for the names of variables, and must not pay for the contract
    from recollect.adapters.protocol import Adapter

BUILT_IN = ("claude", "codex", "grok")


@cache
def adapters() -> "dict[str, Adapter]":
    """All installed adapters by agent, those of this package first."""
    from importlib.metadata import entry_points

    found = {agent: get_adapter(agent) for agent in BUILT_IN}
    for entry in entry_points(group="recollect.adapters"):
        adapter: Adapter = entry.load()
        found.setdefault(adapter.agent, adapter)
    return found


def get_adapter(agent: str) -> "Adapter":
    """The adapter of an agent; of this package's own only that one is loaded, which a reader process is glad of."""
    if agent in BUILT_IN:
        adapter: Adapter = import_module(f"recollect.adapters.{agent}").ADAPTER
        return adapter
    try:
        return adapters()[agent]
    except KeyError:
        raise NotFound(f"No agent is called `{agent}`", f"known: {', '.join(adapters())}") from None
