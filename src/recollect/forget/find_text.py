"""Which sessions hold a text, and which lines that could not be read."""

from collections.abc import Collection, Sequence
from typing import NamedTuple
from urllib.parse import unquote

import orjson

from recollect.kinds import SessionKey
from recollect.progress import Progress
from recollect.store import Store, UnreadLine

_SHORTEST_ID = 8  # a shorter text is part of some id in every large store by chance


class Matches(NamedTuple):
    """Sessions that hold a text, and lines that do and belong to no single session: a history's, say."""

    sessions: set[SessionKey]
    lines: list[UnreadLine]


class _Needle:
    """A text to look for in any case, as it is and as it looks inside JSON."""

    def __init__(self, text: str) -> None:
        self.in_json = orjson.dumps(text).decode()[1:-1].casefold()
        self._forms = {text.casefold(), self.in_json}
        self.may_be_id = len(text) >= _SHORTEST_ID

    def is_in(self, *texts: str) -> bool:
        return any(form in text.casefold() for text in texts for form in self._forms)


def find_text(store: Store, keys: Sequence[SessionKey], text: str, progress: Progress) -> Matches:
    """Look into all that is held of these sessions, and into lines that could not be read."""
    needle = _Needle(text)
    by_file, lines = _in_files(store, set(keys), needle)
    sessions = set(by_file)
    for done, key in enumerate(keys, start=1):
        if key in by_file or _holds(store, key, needle):
            sessions.add(key)
        progress("searching", done, len(keys))
    return Matches(sessions, lines)


def _in_files(store: Store, keys: Collection[SessionKey], needle: _Needle) -> tuple[set[SessionKey], list[UnreadLine]]:
    """Sessions whose files have the text in their path or in an unread line; unread lines of nobody's that have it."""
    owners = store.texts.owners()
    files = {source for source, text in store.texts.of_sources() if needle.is_in(text, unquote(text))}
    sessions = {owner for source in files if (owner := owners.get(source))}
    roots = {SessionKey(agent, native_id.partition("/")[0]) for agent, native_id in keys}
    unowned = (line for line in store.texts.unread_lines() if owners.get(line.source) is None)
    return sessions & {*keys, *roots}, [line for line in unowned if needle.is_in(line.raw.decode("utf-8", "replace"))]


def _holds(store: Store, key: SessionKey, needle: _Needle) -> bool:
    if any(needle.is_in(text) for text in store.texts.of_session(key)):
        return True
    if needle.may_be_id and any(needle.is_in(text) for text in store.texts.ids(key)):
        return True
    # Not payload by payload: what was replaced or dropped since belongs to no event, but its bytes are still there.
    before = b""
    for content in store.events.iter_content(*key):
        if needle.in_json in (before + content).decode("utf-8", "replace").casefold():
            return True
        before = content[-4 * len(needle.in_json) :]
    return False
