"""Claude Code. Its files: docs/formats/claude.md."""

from recollect.agentkit.adapter import FolderAdapter
from recollect.agents.claude.profile import PROFILE

ADAPTER = FolderAdapter(
    __name__, PROFILE, agent="claude", home="~/.claude", home_variable="CLAUDE_CONFIG_DIR", version=1
)
