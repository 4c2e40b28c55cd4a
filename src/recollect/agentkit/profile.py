"""What front ends and the installer know of an agent. Apart from the contract, because a search needs no more of it."""

from collections.abc import Mapping
from typing import NamedTuple


class SettingAdvice(NamedTuple):
    """A setting in an agent's JSON settings file that makes it delete its own logs."""

    path: str
    key: str
    default: int
    at_least: int
    advice: str


class AgentProfile(NamedTuple):
    """What front ends need to know of an agent, so that none of them names one."""

    display_name: str
    session_variable: str | None = None  # environment variable that holds the current session's id
    session_meta_key: str | None = None  # of MCP's `_meta` on each call, if that names the current session
    ids_begin_with_time: bool = False  # so that the ids of one day begin alike, and are told apart by their ends
    start_command: tuple[str, ...] = ()  # begins a session; `{prompt}` is the first prompt
    resume_command: tuple[str, ...] = ()  # continues a session in its folder; `{id}` is its native id
    fork_command: tuple[str, ...] = ()  # continues a copy of it, which leaves the session as it is
    log_folders: tuple[str, ...] = ()  # of the agent's home, with the files of its sessions
    instructions_file: str = "AGENTS.md"  # of a project, read at the start of a session
    sdk_module: str | None = None  # reads what the agent's SDK hands over to a session store
    tone: int | None = None  # which of the page's eight colours is its own
    settings_advice: tuple[SettingAdvice, ...] = ()


Command = tuple[str, ...]
Fields = tuple[str, ...] | None


class PluginHost(NamedTuple):
    """One agent as a host of the plugin: a constant of `agents/<name>/profile.py`.

    In commands, `{marketplace}` is the folder with the plugin in it and `{plugin}` the plugin's own. Paths are below
    the agent's home.
    """

    program: str
    manifests: str  # the folder inside a plugin, and inside a marketplace, where it looks for their descriptions
    install: tuple[Command, ...]
    uninstall: tuple[Command, ...]
    listing: Command  # prints the plugin's name while it is installed
    config: tuple[str, ...]  # the user's files that those commands change
    events: Mapping[str, Fields]  # with hooks, and the fields the server gets of each; None where a command is run
    matchers: Mapping[str, str]  # of events that are of some tools only
    plugin_server: str | None = None  # what hooks call the plugin's server, if they can call it
    hooks_file: str | None = None  # a file of its own for hooks, where the plugin's do not run
    add_server: Command = ("mcp", "add", "recollect", "--")  # without the plugin: and the server's command
    remove_server: Command = ("mcp", "remove", "recollect")
    server_variables: str | None = None  # without the plugin: the setting of its first config that names the variables
    # of the environment which reach the server; None if all do
    settings_hooks: str | None = None  # without the plugin: the file whose `hooks` ours are added to
    leftovers: tuple[str, ...] = ()  # what the agent keeps of a plugin that was removed
    advice: str | None = None  # what is left for the user to do
