"""Values marked by their name, found wherever else they occur.

A password in `DB_PASSWORD=…` often turns up again where nothing gives it away: in prose, in a program's output.
Values are remembered for one text, one batch of documents, or what is read of a session's file at once; and never on
disk. What an earlier reading named is recognised by the digits of its mark.
"""

import re
from collections.abc import Iterable, Mapping

import orjson
from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from recollect.redact.finder import Span, without_marked
from recollect.redact.marks import NamedValue, mark_digits
from recollect.redact.values import is_distinctive

_MOST_VALUES = 1000
_LEAST_CUT = 6  # characters of a value that give it away
_DFA_BYTES = 16 * 1024  # the fast automaton takes some hundred times as much memory
_ESCAPE_BEFORE = re.compile(rb"(?:\\[nrtbf]|%[0-7][0-9A-Fa-f]|\\u[0-9a-f]{4})\Z")
_ESCAPE = re.compile(rb"\\(?:u[0-9a-f]{4}|.)")
_DEEP_ESCAPE = re.compile(rb"\\{2,}(?:u[0-9a-f]{4}|[^\\])")  # of JSON inside JSON
_BETWEEN_BLANKS = re.compile(rb"[^\x00-\x20\"'`]{8,512}")
_WORD = re.compile(rb"[A-Za-z0-9]{8,512}")
_BRACKETS = b".,:;!?()[]{}<>="


class Learned:
    """The values of one text, batch or reading, each with the rule that marked it.

    `marks` are the rules of values that were named before, by the digits of their marks, which `key` makes.
    """

    def __init__(self, marks: Mapping[str, str] | None = None, key: bytes = b"") -> None:
        self.rules: dict[bytes, str] = {}
        self._before = frozenset(marks or ())
        self._marks = dict(marks or ())  # not recognised yet
        self._key = key
        self._searches: dict[bool, BytesAhoCorasick] = {}
        self._values: list[bytes] = []
        self._handed_over = 0

    def add(self, value: bytes, rule: str) -> None:
        if len(self.rules) < _MOST_VALUES and is_distinctive(value):
            self.rules.setdefault(value, rule)
            self._searches.clear()
            if self._marks:
                self._marks.pop(mark_digits(rule, value, self._key), None)

    def take_new(self) -> list[NamedValue]:
        """The values that were added since this was last asked, and not named before."""
        added = list(self.rules.items())[self._handed_over :]
        self._handed_over = len(self.rules)
        named = (NamedValue(value, rule, mark_digits(rule, value, self._key)) for value, rule in added)
        return [value for value in named if value.digits not in self._before]

    def recognise(self, documents: Iterable[bytes]) -> None:
        """Learn again what was named before, where JSON documents have it between blanks, quotes or signs."""
        for document in documents if self._marks else ():
            plain = _ESCAPE.sub(b" ", document)
            if b"\\\\" in document:
                plain += b" " + _ESCAPE.sub(b" ", _DEEP_ESCAPE.sub(b" ", document))
            runs = set(_BETWEEN_BLANKS.findall(plain))
            for word in runs | {run.strip(_BRACKETS) for run in runs} | set(_WORD.findall(plain)):
                rule = self._marks.get(mark_digits("", word, self._key)) if is_distinctive(word) else None
                if rule is not None:
                    self.add(word, rule)

    def find(self, data: bytes, *, is_json: bool) -> list[Span]:
        """The values that occur as whole words outside marks; in a JSON document, as JSON writes them."""
        if not self.rules:
            return []
        matches = self._search(is_json).find_matches_as_indexes(data)
        values = ((start, end, self._values[number]) for number, start, end in matches)
        spans = [
            Span(start, end, self.rules[value], -1, value)
            for start, end, value in values
            if _is_word(data, start, end, is_json)
        ]
        return without_marked(data, spans)

    def cut_at_end(self, text: str) -> int:
        """How many characters at the end of a shortened text are the beginning of a value."""
        values = (value.decode("utf-8", "replace") for value in self.rules)
        sizes = (size for value in values for size in range(_LEAST_CUT, len(value)) if text.endswith(value[:size]))
        return max(sizes, default=0)

    def _search(self, is_json: bool) -> BytesAhoCorasick:
        if is_json not in self._searches:
            self._values = values = list(self.rules)
            written = [orjson.dumps(value.decode("utf-8", "replace"))[1:-1] for value in values] if is_json else values
            is_small = sum(map(len, written)) < _DFA_BYTES
            kind = Implementation.DFA if is_small else Implementation.ContiguousNFA
            self._searches[is_json] = BytesAhoCorasick(written, MatchKind.LeftmostLongest, kind)
        return self._searches[is_json]


def _is_word(data: bytes, start: int, end: int, is_json: bool) -> bool:
    """Whether neither a letter nor a digit touches a value; the `n` of `\\n` does not count."""
    if data[end : end + 1].isalnum():
        return False
    before = data[max(0, start - 65) : start]
    if before[-1:].isalnum():
        return _ESCAPE_BEFORE.search(before) is not None
    # Behind an odd number of backslashes, the first letter of the value is part of an escape.
    return not is_json or (len(before) - len(before.rstrip(b"\\"))) % 2 == 0
