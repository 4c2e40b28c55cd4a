from recollect.agentkit.profile import AgentProfile, SettingAdvice

PROFILE = AgentProfile(
    display_name="Claude Code",
    session_variable="CLAUDE_CODE_SESSION_ID",
    start_command=("claude", "{prompt}"),
    resume_command=("claude", "--resume", "{id}"),
    fork_command=("claude", "--resume", "{id}", "--fork-session"),
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
