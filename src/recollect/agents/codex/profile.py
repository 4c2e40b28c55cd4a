from recollect.agentkit.profile import AgentProfile

PROFILE = AgentProfile("Codex", ids_begin_with_time=True, resume_command=("codex", "resume", "{id}"))
