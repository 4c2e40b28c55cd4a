"""Slash commands for a host's channels: `/history`, `/sessions`, `/new`, `/compact`, and no other.

A host's own commands pass through, above all its `/search`.
"""

import re
from typing import TYPE_CHECKING, NamedTuple

from recollect.amounts import plural
from recollect.live.recall import lines_for_people

if TYPE_CHECKING:
    from recollect.live.host import Live

_COMMAND = re.compile(r"/(history|sessions|new|compact)(?:@\w+)?(?:\s+(.*))?", re.DOTALL)
_LISTED = 10


class Reply(NamedTuple):
    """What to answer in the channel; `command` is the one that was carried out."""

    command: str
    text: str


def route(live: "Live", key: str, text: str) -> Reply | None:
    """Carry out a slash command that was typed in the conversation of a key; None if it is none of ours."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    command, words = match[1], (match[2] or "").strip()
    return Reply(command, _ANSWERS[command](live, key, words))


def _history(live: "Live", key: str, words: str) -> str:
    result = live.session_search(words, current=key, limit=_LISTED)
    return "\n".join(lines_for_people(result)) or "Nothing found"


def _sessions(live: "Live", key: str, words: str) -> str:
    rows = live.list_sessions(words or None, limit=_LISTED)
    lines = [f"{row.key}: {row.title or 'untitled'} ({plural(row.message_count, 'message')})" for row in rows]
    return "\n".join(lines) or "No sessions yet"


def _new(live: "Live", key: str, words: str) -> str:
    live.new_session(key, title=words or None)
    return "Started a new session; the old one is archived"


def _compact(live: "Live", key: str, words: str) -> str:
    if live.find(key) is None:
        return "There is nothing to compact yet"
    before = len(live.get_history(key, None))
    live.compact(key, words or None)
    after = len(live.get_history(key, None))
    if after >= before:
        return f"The history is short: {after} messages"
    return f"The history has {after} messages instead of {before}; /history still finds all of them"


_ANSWERS = {"history": _history, "sessions": _sessions, "new": _new, "compact": _compact}
