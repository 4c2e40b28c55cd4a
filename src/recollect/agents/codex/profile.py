from recollect.agentkit.profile import AgentProfile

PROFILE = AgentProfile(
    "Codex",
    session_meta_key="threadId",
    ids_begin_with_time=True,
    start_command=("codex", "{prompt}"),
    resume_command=("codex", "resume", "{id}"),
    fork_command=("codex", "fork", "{id}"),
    tone=1,
)
