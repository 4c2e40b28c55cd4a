"""Claude Code's own storage, for programs that keep conversations in its format. See docs/native.md.

Nothing is written but below the home that is given, and only by the methods that say so.
"""

from recollect.agents.claude.native.conversation import (
    Entry,
    Message,
    iter_entries,
    live_branch,
    to_entries,
    to_messages,
)
from recollect.agents.claude.native.home import (
    ChatMessage,
    ClaudeStorageProvider,
    FileVersion,
    InThreads,
    NativeHome,
    decode_path,
    encode_path,
)
from recollect.agents.claude.native.session import NativeSession, SessionSummary, Statistics

__all__ = [
    "ChatMessage",
    "ClaudeStorageProvider",
    "Entry",
    "FileVersion",
    "InThreads",
    "Message",
    "NativeHome",
    "NativeSession",
    "SessionSummary",
    "Statistics",
    "decode_path",
    "encode_path",
    "iter_entries",
    "live_branch",
    "to_entries",
    "to_messages",
]
