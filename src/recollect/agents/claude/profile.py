"""What front ends know of Claude Code, and how Recollect is installed into it."""

from recollect.agentkit.profile import AgentProfile, PluginHost, SettingAdvice
from recollect.agents.claude.hooks import HOOKS

PROFILE = AgentProfile(
    display_name="Claude Code",
    session_variable="CLAUDE_CODE_SESSION_ID",
    start_command=("claude", "{prompt}"),
    resume_command=("claude", "--resume", "{id}"),
    fork_command=("claude", "--resume", "{id}", "--fork-session"),
    log_folders=("projects",),
    instructions_file="CLAUDE.md",
    sdk_module="recollect.agents.claude.sdk",
    tone=0,
    settings_advice=(
        SettingAdvice(
            path="settings.json",
            key="cleanupPeriodDays",
            default=30,
            at_least=365,
            advice='transcripts are deleted after this many days; put "cleanupPeriodDays": 365 there',
        ),
    ),
)


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
        "PreToolUse": None,
        "PreCompact": None,
        "Stop": ("prompt_id",),
        "SessionEnd": None,
    },
    plugin_server="plugin:recollect:recollect",
    add_server=("mcp", "add", "--scope", "user", "recollect", "--"),
    remove_server=("mcp", "remove", "--scope", "user", "recollect"),
    matchers={"PreToolUse": "|".join(HOOKS.edit_tools)},
    settings_hooks="settings.json",
    leftovers=("plugins",),
)
