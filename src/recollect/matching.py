"""Where in the store a text stands: in which sessions, and in which lines that could not be read."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from urllib.parse import unquote

import orjson

from recollect.progress import Progress
from recollect.store import Store
from recollect.store.mentions import UnreadLine
from recollect.store.tombstones import Name

_SHORTEST_ID = 8  # what is shorter stands in some id of every large store by chance


class Found(NamedTuple):
    """Sessions that hold a text, and lines that do and are no session's: a history's, say."""

    sessions: set[Name]
    lines: list[UnreadLine]


class _Needle:
    """A text to look for, whatever its case, as it is and as it looks inside of JSON."""

    def __init__(self, text: str) -> None:
        self.in_json = orjson.dumps(text).decode()[1:-1].casefold()
        self._forms = {text.casefold(), self.in_json}
        self.may_be_id = len(text) >= _SHORTEST_ID

    def is_in(self, *texts: str) -> bool:
        return any(form in text.casefold() for text in texts for form in self._forms)


def find_text(store: Store, names: Sequence[Name], text: str, progress: Progress) -> Found:
    """Look into all that is held of these sessions, and into lines that could not be read."""
    needle = _Needle(text)
    beside, lines = _beside_sessions(store, set(names), needle)
    found = set[Name]()
    for done, name in enumerate(names, start=1):
        if name in beside or _holds(store, name, needle):
            found.add(name)
        progress("searching", done, len(names))
    return Found(found | beside, lines)


def _beside_sessions(store: Store, names: Collection[Name], needle: _Needle) -> tuple[set[Name], list[UnreadLine]]:
    """The sessions whose files have the text in their paths or in a line that could not be read; other such lines."""
    owners = store.mentions.owners()
    told = {source for source, path in store.mentions.paths() if needle.is_in(path, unquote(path))}
    lines = [line for line in store.mentions.unread_lines() if needle.is_in(line.raw.decode("utf-8", "replace"))]
    chosen = {owner for source in told | {line.source for line in lines} if (owner := owners.get(source))}
    return chosen & _with_roots(names), [line for line in lines if owners.get(line.source) is None]


def _with_roots(names: Iterable[Name]) -> set[Name]:
    return {*names, *((agent, native_id.partition("/")[0]) for agent, native_id in names)}


def _holds(store: Store, name: Name, needle: _Needle) -> bool:
    if any(needle.is_in(text) for text in store.mentions.texts(name)):
        return True
    if needle.may_be_id and any(needle.is_in(text) for text in store.mentions.ids(name)):
        return True
    # Not payload by payload: what was replaced or dropped since is no event any more, but its bytes are still there.
    before = b""
    for content in store.events.iter_content(*name):
        if needle.in_json in (before + content).decode("utf-8", "replace").casefold():
            return True
        before = content[-4 * len(needle.in_json) :]
    return False
