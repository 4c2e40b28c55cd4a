from recollect.agentkit.profile import AgentProfile

PROFILE = AgentProfile("Codex")
