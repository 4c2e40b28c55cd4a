"""What front ends know of OpenCode."""

from recollect.agentkit.profile import AgentProfile

PROFILE = AgentProfile(
    "OpenCode",
    start_command=("opencode", "--prompt", "{prompt}"),
    resume_command=("opencode", "-s", "{id}"),
    fork_command=("opencode", "-s", "{id}", "--fork"),
    ids_begin_with_time=True,
    log_folders=("",),
    tone=3,
)
