from recollect.agentkit.profile import AgentProfile

PROFILE = AgentProfile("Grok", session_variable="GROK_SESSION_ID", resume_command=("grok", "--resume", "{id}"))
