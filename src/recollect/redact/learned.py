"""Values marked by their name, found wherever else they occur.

A password in `DB_PASSWORD=…` often turns up again where nothing gives it away: in prose, in a program's output.
Nothing is remembered beyond one text, one batch of documents, or what is read of a session's file at once; and never
on disk.
"""

import re

import orjson
from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from recollect.redact.finder import Span, without_marked
from recollect.redact.values import is_distinctive

_MOST_VALUES = 1000
_DFA_BYTES = 16 * 1024  # the fast automaton takes some hundred times as much memory
_ESCAPE_BEFORE = re.compile(rb"(?:\\[nrtbf]|%[0-7][0-9A-Fa-f]|\\u[0-9a-f]{4})\Z")


class Learned:
    """The values of one text, batch or reading, each with the rule that marked it."""

    def __init__(self) -> None:
        self.rules: dict[bytes, str] = {}
        self._search: BytesAhoCorasick | None = None
        self._values: list[bytes] = []

    def add(self, value: bytes, rule: str) -> None:
        if len(self.rules) < _MOST_VALUES and is_distinctive(value):
            self.rules.setdefault(value, rule)
            self._search = None

    def find(self, data: bytes, *, is_json: bool) -> list[Span]:
        """The values that stand as whole words outside marks; in a JSON document, as JSON writes them."""
        if not self.rules:
            return []
        if self._search is None:
            self._values = list(self.rules)
            written = [_in_json(value) for value in self._values] if is_json else self._values
            is_small = sum(map(len, written)) < _DFA_BYTES
            kind = Implementation.DFA if is_small else Implementation.ContiguousNFA
            self._search = BytesAhoCorasick(written, MatchKind.LeftmostLongest, kind)
        matches = self._search.find_matches_as_indexes(data)
        values = ((start, end, self._values[number]) for number, start, end in matches)
        spans = [
            Span(start, end, self.rules[value], -1, value)
            for start, end, value in values
            if _is_word(data, start, end, is_json)
        ]
        return without_marked(data, spans)


def _in_json(value: bytes) -> bytes:
    return orjson.dumps(value.decode("utf-8", "replace"))[1:-1]


def _is_word(data: bytes, start: int, end: int, is_json: bool) -> bool:
    """Whether neither a letter nor a digit touches a value; the `n` of `\\n` does not count."""
    if data[end : end + 1].isalnum():
        return False
    before = data[max(0, start - 65) : start]
    if before[-1:].isalnum():
        return _ESCAPE_BEFORE.search(before) is not None
    # Behind an odd number of backslashes, the first letter of the value is part of an escape.
    return not is_json or (len(before) - len(before.rstrip(b"\\"))) % 2 == 0
