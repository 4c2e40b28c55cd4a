"""What front ends know of Codex, and how Recollect is installed into it."""

from recollect.agentkit.profile import AgentProfile, PluginHost
from recollect.agents.codex.hooks import HOOKS

PROFILE = AgentProfile(
    "Codex",
    session_meta_key="threadId",
    ids_begin_with_time=True,
    start_command=("codex", "{prompt}"),
    resume_command=("codex", "resume", "{id}"),
    fork_command=("codex", "fork", "{id}"),
    log_folders=("sessions", "archived_sessions"),
    tone=1,
)


PLUGIN = PluginHost(
    program="codex",
    manifests=".codex-plugin",
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
    # A field that an event does not have makes Codex skip the hook in silence.
    events={
        "SessionStart": ("source",),
        "UserPromptSubmit": ("prompt", "turn_id"),
        "PostToolUse": ("tool_name", "tool_response", "tool_use_id"),
        "PreToolUse": None,
        "PreCompact": None,
        "Stop": ("turn_id",),
        "SessionEnd": None,
    },
    plugin_server="recollect",
    server_variables="mcp_servers.recollect.env_vars",
    matchers={"PreToolUse": "|".join(HOOKS.edit_tools)},
    settings_hooks="hooks.json",
    leftovers=("plugins",),
    advice="Codex runs no hook until you trust it: type /hooks in Codex once",
)
