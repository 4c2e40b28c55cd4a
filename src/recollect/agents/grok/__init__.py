"""Grok ("Grok Build"). Its files: docs/formats/grok.md."""

from recollect.agentkit.adapter import FolderAdapter

ADAPTER = FolderAdapter(__name__, agent="grok", home="~/.grok", home_variable="GROK_HOME", version=3)
