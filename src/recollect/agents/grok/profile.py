"""What front ends know of Grok, and how Recollect is installed into it."""

from recollect.agentkit.profile import AgentProfile, PluginHost
from recollect.agents.grok.hooks import HOOKS

PROFILE = AgentProfile(
    "Grok",
    session_variable="GROK_SESSION_ID",
    ids_begin_with_time=True,
    start_command=("grok", "{prompt}"),
    resume_command=("grok", "--resume", "{id}"),
    fork_command=("grok", "--resume", "{id}", "--fork-session"),
    log_folders=("sessions",),
    tone=2,
)


PLUGIN = PluginHost(
    program="grok",
    manifests=".claude-plugin",
    install=(("plugin", "install", "{plugin}", "--trust"),),
    uninstall=(("plugin", "uninstall", "recollect"),),
    listing=("plugin", "list"),
    config=("config.toml",),
    events=dict.fromkeys(("PreToolUse", "PostToolUse", "PreCompact", "Stop", "SessionEnd")),
    hooks_file="hooks/recollect.json",
    matchers={"PreToolUse": "|".join(HOOKS.edit_tools)},
    settings_hooks="hooks/recollect.json",
    leftovers=("installed-plugins",),
)
