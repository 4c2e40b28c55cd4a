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
    # Its server is not there yet when a session starts, and not any more when it ends.
    events={
        "SessionStart": None,
        "UserPromptSubmit": ("prompt", "prompt_id"),
        "PostToolUseFailure": ("error", "is_interrupt", "tool_use_id"),
        "PreCompact": None,
        "Stop": ("prompt_id",),
        "SessionEnd": None,
    },
    plugin_server="plugin:recollect:recollect",
    add_server=("mcp", "add", "--scope", "user", "recollect", "--"),
    remove_server=("mcp", "remove", "--scope", "user", "recollect"),
    settings_hooks="settings.json",
    leftovers=("plugins",),
)
