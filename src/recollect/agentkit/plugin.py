"""How Recollect is added to an agent and taken out again, by the agent's own commands where it has them."""

from collections.abc import Mapping
from typing import NamedTuple

Command = tuple[str, ...]
Fields = tuple[str, ...] | None


class PluginHost(NamedTuple):
    """One agent as a host of the plugin: a constant of `agents/<name>/plugin.py`.

    In commands, `{marketplace}` is the folder with the plugin in it and `{plugin}` the plugin's own. Paths are below
    the agent's home.
    """

    program: str
    manifests: str  # the folder inside a plugin, and inside a marketplace, where it looks for their descriptions
    install: tuple[Command, ...]
    uninstall: tuple[Command, ...]
    listing: Command  # prints the plugin's name while it is installed
    config: tuple[str, ...]  # the user's files that those commands change
    events: Mapping[str, Fields]  # that hooks are for: what the server is told of each, None where a command is run
    plugin_server: str | None = None  # what hooks call the plugin's server, if they can call it
    hooks_file: str | None = None  # a file of its own for hooks, where the plugin's do not run
    add_server: Command = ("mcp", "add", "recollect", "--")  # without the plugin: and the server's command
    remove_server: Command = ("mcp", "remove", "recollect")
    server_config: str | None = None  # what these change, if that is not all state of the agent's own
    server_variables: str | None = None  # without the plugin: the setting of its first config that names the variables
    # of the environment which reach the server; None if all do
    settings_hooks: str | None = None  # without the plugin: the file whose `hooks` ours are added to
    leftovers: tuple[str, ...] = ()  # what the agent keeps of a plugin that was removed
    advice: str | None = None  # what is left for the user to do
