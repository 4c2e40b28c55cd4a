from recollect.agentkit.profile import AgentProfile

PROFILE = AgentProfile(
    "Grok",
    session_variable="GROK_SESSION_ID",
    ids_begin_with_time=True,
    start_command=("grok", "{prompt}"),
    resume_command=("grok", "--resume", "{id}"),
    fork_command=("grok", "--resume", "{id}", "--fork-session"),
    tone=2,
)
