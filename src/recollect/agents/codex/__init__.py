"""Codex. Its files: docs/formats/codex.md."""

from recollect.agentkit.adapter import FolderAdapter
from recollect.agents.codex.profile import PROFILE

ADAPTER = FolderAdapter(__name__, PROFILE, agent="codex", home="~/.codex", home_variable="CODEX_HOME", version=1)
