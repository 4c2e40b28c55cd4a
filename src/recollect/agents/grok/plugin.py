from recollect.agentkit.plugin import PluginHost

PLUGIN = PluginHost(
    program="grok",
    manifests=".claude-plugin",
    install=(("plugin", "install", "{plugin}", "--trust"),),
    uninstall=(("plugin", "uninstall", "recollect"),),
    listing=("plugin", "list"),
    config=("config.toml",),
    events=dict.fromkeys(("PostToolUse", "PreCompact", "Stop", "SessionEnd")),
    hooks_file="hooks/recollect.json",
    settings_hooks="hooks/recollect.json",
    leftovers=("installed-plugins",),
)
