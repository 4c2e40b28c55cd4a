"""Readers of the agents' own files, one folder per agent, all behind one contract.

Third parties add an agent by the entry point group `recollect.adapters`; see docs/adding-an-agent.md.
"""

import os
import sys
from functools import cache
from importlib import import_module
from itertools import takewhile

from recollect.model.errors import NotFound

TYPE_CHECKING = False  # `typing` takes as long to load as all that a hook needs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import ModuleType

    from recollect.agentkit.optional import Writeback
    from recollect.agentkit.profile import AgentProfile, PluginHost
    from recollect.agentkit.protocol import Adapter


_GROUP = "recollect.adapters"
_PACKAGE = {"__init__.py", "__init__.pyc"}


def _built_in() -> tuple[str, ...]:
    """The agents that have a folder here, be it on the disk, without sources, or in a zip."""
    try:
        folders = [entry for entry in os.scandir(__path__[0]) if entry.is_dir()]
    except NotADirectoryError:
        from pkgutil import iter_modules  # loads `inspect`, and is needed in a zip only

        return tuple(sorted(module.name for module in iter_modules(__path__)))
    return tuple(sorted(entry.name for entry in folders if not _PACKAGE.isdisjoint(os.listdir(entry.path))))


BUILT_IN = _built_in()


@cache
def adapters() -> "dict[str, Adapter]":
    """All installed adapters by agent, those of this package first."""
    known = {agent: get_adapter(agent) for agent in BUILT_IN}
    if not any(map(_names_adapters, sys.path)):
        return known
    from importlib.metadata import entry_points  # with what it loads it takes as long as half a sweep of nothing

    for entry in entry_points(group=_GROUP):
        adapter: Adapter = entry.load()
        known.setdefault(adapter.agent, adapter)
    return known


def _names_adapters(folder: str) -> bool:
    """Whether a package that is installed in a folder may have an adapter of its own."""
    try:
        packages = [name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return False
    return any(_names_adapter(f"{folder or '.'}/{name}/entry_points.txt") for name in packages)


def _names_adapter(entry_points_path: str) -> bool:
    try:
        with open(entry_points_path, "rb") as file:
            return _GROUP.encode() in file.read()
    except OSError:
        return False


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


def _find_module(agent: str, name: str) -> "ModuleType | None":
    """A module that an agent's folder may have; None if it has none."""
    from importlib.util import find_spec  # slow to import, and seldom needed

    module = f"{__name__}.{agent}.{name}"
    return import_module(module) if agent in BUILT_IN and find_spec(module) is not None else None


def find_writeback(agent: str) -> "Writeback | None":
    """What writes sessions into an agent's own storage; None if Recollect can only read it."""
    writeback: Writeback | None = _find_module(agent, "writeback")  # a module that follows the contract
    return writeback


def find_plugin_host(agent: str) -> "PluginHost | None":
    """How Recollect is installed into an agent; None if it cannot be."""
    module = _find_module(agent, "profile")
    return getattr(module, "PLUGIN", None)


def runner_of(agent: str) -> "ModuleType":
    """The module that runs an agent (`agentkit/optional.py`); raises NotFound for one that cannot be run."""
    runner = _find_module(agent, "runner")
    if runner is None:
        able = ", ".join(name for name in BUILT_IN if _find_module(name, "runner"))
        raise NotFound(f"Recollect cannot run this agent: {agent}", f"it runs: {able}")
    return runner


def live_sessions(agent: str, home: "Path") -> dict[str, tuple[int, str]]:
    """Process and state of an agent's running sessions by native id, where the agent leaves a trace of them."""
    find = getattr(_find_module(agent, "runner"), "live_sessions", None)
    found: dict[str, tuple[int, str]] = {} if find is None else find(home)
    return found


def fork_words(agent: str, native_session_id: str, path: str | None = None) -> list[str]:
    """The agent's own command that continues a copy of a session, word by word; empty if it has none."""
    return _words(agent, profile_of(agent).fork_command, native_session_id, path)


def session_variables() -> tuple[str, ...]:
    """The environment variables in which the agents of this package pass on the current session's id."""
    return tuple(variable for profile in _profiles() if (variable := profile.session_variable))


def session_meta_keys() -> tuple[str, ...]:
    """The keys in the `_meta` of MCP's calls under which agents of this package name the current session."""
    return tuple(key for profile in _profiles() if (key := profile.session_meta_key))


def _profiles() -> "list[AgentProfile]":
    return [get_adapter(agent).profile for agent in BUILT_IN]


def resume_words(agent: str, native_session_id: str, path: str | None = None) -> list[str]:
    """The agent's own command that continues a session, word by word; empty if it has none.

    `path` is a file of the session. If it is in another home than the agent's usual one, the first word names that home
    as a shell does: `VARIABLE=/path`.
    """
    try:
        words = get_adapter(agent).profile.resume_command
    except NotFound:
        return []  # of an agent that is not installed any more
    return _words(agent, words, native_session_id, path)


def _words(agent: str, words: "tuple[str, ...]", native_session_id: str, path: str | None) -> list[str]:
    """A command with an id in it; empty for an id, which any log can claim, that the agent would take for an option."""
    if native_session_id.startswith("-"):
        return []
    home = _other_home(agent, path) if words and path else None
    variable, slash, below = get_adapter(agent).home_variable.partition("/")
    named = [f"{variable}={home.removesuffix(slash + below)}"] if home else []
    return [*named, *(word.replace("{id}", native_session_id) for word in words)]


@cache
def _usual_home(agent: str) -> str:
    return os.path.realpath(os.path.expanduser(get_adapter(agent).home))


def _other_home(agent: str, path: str) -> str | None:
    """The home that a session's file is in; None for the usual one, and for one of another machine."""
    folders = profile_of(agent).log_folders
    home = next((head for name in folders if (head := path.rpartition(f"/{name}/")[0])), os.path.dirname(path))
    is_here = bool(folders) and os.path.isdir(os.path.dirname(home))
    return home if is_here and home != _usual_home(agent) else None


def shell_line(words: "Sequence[str]") -> str:
    """A command as a line for a shell; first words that set variables stay assignments."""
    if all(word.isascii() and word.replace("-", "").isalnum() for word in words):
        return " ".join(words)
    import shlex  # hardly any id needs quotes

    named = [word.partition("=") for word in takewhile(lambda word: "=" in word, words)]
    line = [*(f"{name}={shlex.quote(value)}" for name, _, value in named), shlex.join(words[len(named) :])]
    return " ".join(line)


def resume_command(agent: str, native_session_id: str, path: str | None = None) -> str | None:
    """The command that continues a session as a line for a shell; None if there is none."""
    words = resume_words(agent, native_session_id, path)
    return shell_line(words) if words else None
