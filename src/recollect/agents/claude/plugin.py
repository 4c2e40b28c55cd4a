from recollect.agentkit.plugin import PluginHost

PLUGIN = PluginHost(
    program="claude",
    manifests=".claude-plugin",
    install=(
        ("plugin", "marketplace", "add", "{marketplace}"),
        ("plugin", "install", "recollect@recollect-local"),
    ),
    uninstall=(
        ("plugin", "uninstall", "recollect@recollect-local"),
        ("plugin", "marketplace", "remove", "recollect-local"),
    ),
    listing=("plugin", "list"),
    config=("settings.json",),
    add_server=("mcp", "add", "--scope", "user", "recollect", "--"),
    remove_server=("mcp", "remove", "--scope", "user", "recollect"),
    settings_hooks="settings.json",
    leftovers=("plugins",),
)
