"""OpenCode. Its database: docs/formats/opencode.md."""

from recollect.agentkit.adapter import FolderAdapter

ADAPTER = FolderAdapter(
    __name__, agent="opencode", home="~/.local/share/opencode", home_variable="XDG_DATA_HOME/opencode", version=1
)
