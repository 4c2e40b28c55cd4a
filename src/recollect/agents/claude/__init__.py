"""Claude Code. Its files: docs/formats/claude.md."""

from recollect.agentkit.adapter import FolderAdapter

ADAPTER = FolderAdapter(__name__, agent="claude", home="~/.claude", home_variable="CLAUDE_CONFIG_DIR", version=3)
