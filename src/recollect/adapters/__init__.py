"""Readers of the agents' own files, one module per agent, all behind one contract.

Third parties add an agent by the entry point group `recollect.adapters`; see docs/adding-an-agent.md.
"""

from functools import cache
from importlib.metadata import entry_points

from recollect.adapters.protocol import Adapter
from recollect.errors import NotFound


@cache
def adapters() -> dict[str, Adapter]:
    """All installed adapters by agent, those of this package first."""
    from recollect.adapters import claude, codex, grok

    found: dict[str, Adapter] = {module.ADAPTER.agent: module.ADAPTER for module in (claude, codex, grok)}
    for entry in entry_points(group="recollect.adapters"):
        adapter: Adapter = entry.load()
        found.setdefault(adapter.agent, adapter)
    return found


def get_adapter(agent: str) -> Adapter:
    try:
        return adapters()[agent]
    except KeyError:
        raise NotFound(f"No agent is called `{agent}`", f"known: {', '.join(adapters())}") from None
