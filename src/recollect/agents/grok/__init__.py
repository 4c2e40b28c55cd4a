"""Grok ("Grok Build"). Its files: docs/formats/grok.md."""

from recollect.agentkit.adapter import FolderAdapter
from recollect.agents.grok.profile import PROFILE

ADAPTER = FolderAdapter(__name__, PROFILE, agent="grok", home="~/.grok", home_variable="GROK_HOME", version=2)
