from recollect.agentkit.profile import AgentProfile

PROFILE = AgentProfile("Codex", ids_begin_with_time=True)
