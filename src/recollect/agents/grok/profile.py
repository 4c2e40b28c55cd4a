from recollect.agentkit.profile import AgentProfile

PROFILE = AgentProfile(
    "Grok",
    session_variable="GROK_SESSION_ID",
    ids_begin_with_time=True,
    resume_command=("grok", "--resume", "{id}"),
)
