from recollect.agentkit.plugin import PluginHost

PLUGIN = PluginHost(
    program="codex",
    manifests=".claude-plugin",
    install=(
        ("plugin", "marketplace", "add", "{marketplace}"),
        ("plugin", "add", "recollect@recollect-local"),
    ),
    uninstall=(
        ("plugin", "remove", "recollect@recollect-local"),
        ("plugin", "marketplace", "remove", "recollect-local"),
    ),
    listing=("plugin", "list"),
    config=("config.toml",),
    settings_hooks="hooks.json",
    leftovers=("plugins",),
    advice="Codex runs no hook until you trust it: type /hooks in Codex once",
)
