"""Codex. Its files: docs/formats/codex.md."""

from recollect.agentkit.adapter import FolderAdapter

ADAPTER = FolderAdapter(__name__, agent="codex", home="~/.codex", home_variable="CODEX_HOME", version=2)
