from recollect.agentkit.profile import AgentProfile

PROFILE = AgentProfile("Codex", resume_command=("codex", "resume", "{id}"))
