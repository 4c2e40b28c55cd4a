"""From hits of a scanner to secrets: the rule's whole pattern at the offset, then the check of the value.

A password in `DB_PASSWORD=…` often turns up again where nothing gives it away: in prose, in a program's output. Values
marked by their name are found there, too. They are remembered for one text, one batch of documents, or what is read of
a session's file at once; and never on disk. What an earlier reading named is recognised by the digits of its mark.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import orjson
from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from recollect.redact.checks import CHECKS, DEEP, FINDERS, UNLIKE_IN_JSON, is_glued
from recollect.redact.marks import MARK, OPENING, NamedValue, mark_digits
from recollect.redact.rules import NAME_FIELDS, NAMED, PERCENT, RULES, AllowList, UserRule
from recollect.redact.scanners import HIDDEN, KEYWORD, PREFIX, STRUCTURE, Clock, Expression, Lead, Rule, Scanner
from recollect.redact.values import COLOUR, ESCAPE, Unfolded, base64_span, decode_base64, is_distinctive

EVERYTHING = frozenset({PREFIX, STRUCTURE, KEYWORD, HIDDEN})
NAMES = frozenset({PREFIX, STRUCTURE})  # for paths, ids, branches

_DEPTH = 2  # base64 of base64
_CODED = re.compile(rb"%[0-7][0-9A-Fa-f]")  # a byte written with a percent sign
_RANK = {PREFIX: 0, STRUCTURE: 1, KEYWORD: 2, HIDDEN: 3}
BY_NAME = _RANK[KEYWORD]
ESCAPED = len(RULES) + 1
_FOLDED = (len(RULES), ESCAPED)  # percent signs and `\\u00xx`


class Span(NamedTuple):
    """Where a secret is, and the secret as it was before it was escaped or encoded."""

    start: int
    end: int
    rule: str
    rank: int
    secret: bytes


def expressions(users: Sequence[UserRule]) -> list[Expression]:
    """What a scanner looks for: the rules, then three hints, then the words of the user's rules."""
    rules = [
        Expression(
            tuple(opener.encode() for opener in rule.openers),
            rule.least.encode(),
            rule.reach,
            rule.is_caseless,
            None if rule.openers else rule.reach,
            is_whole=rule.is_whole,
        )
        for rule in RULES
    ]
    names = tuple(f'"{name}"'.encode() for name in NAME_FIELDS)
    hints = [
        Expression((), PERCENT.encode(), 0, is_caseless=True, fixed=1, sign=b"%"),
        Expression((), re.escape(ESCAPE), 0, fixed=len(ESCAPE), sign=ESCAPE, is_once=True),
        Expression(names, NAMED.encode(), 120, is_caseless=True),
    ]
    words = [user.literal.encode() for user in users if user.literal]
    return rules + hints + [Expression((word,), b"", len(word), is_caseless=True) for word in words]


class Finder:
    """Finds all secrets of a text."""

    def __init__(self, scanner: Scanner, users: Sequence[UserRule], allow: AllowList) -> None:
        self._scanner = scanner
        self._users = users
        self.allows = allow.has
        self._matchers = [_Matcher(rule) for rule in RULES]
        self.always_parses = any(user.literal is None for user in users)

    def spans(self, data: bytes, kinds: frozenset[str], clock: Clock) -> list[Span]:
        """The secrets in order, none overlapping another or a mark; raises OutOfTime or TooManyHits."""
        spans = [span for span in self._all(data, kinds, clock, 0) if not self.allows(span.secret)]
        return _merged(data, without_marked(data, spans))

    def _all(self, data: bytes, kinds: frozenset[str], clock: Clock, depth: int) -> Iterator[Span]:
        clock.check()
        is_folded = depth == 0 and COLOUR in data
        for count, (number, offset) in enumerate(self._scanner.hits(data, clock)):
            if count & 0xFF == 0:
                clock.check()
            is_folded |= number in _FOLDED and depth == 0
            if number >= len(RULES) or RULES[number].kind not in kinds:
                continue
            rule, matcher = RULES[number], self._matchers[number]
            if rule.kind != HIDDEN:
                for start, end in matcher.find(data, offset):
                    yield Span(start, end, rule.name, _RANK[rule.kind], data[start:end])
            elif depth < _DEPTH and (run := matcher.whole.match(data, offset)):
                for span in self._all(decode_base64(run[0]), kinds, clock, depth + 1):
                    start, end = base64_span(span.start, span.end)
                    yield span._replace(start=offset + start, end=min(offset + end, run.end()))
        yield from self._of_users(data)
        if is_folded and HIDDEN in kinds:
            unfolded = Unfolded(data)
            for span in self._all(unfolded.data, kinds, clock, depth + 1):
                start, end = unfolded.span(span.start, span.end)
                yield span._replace(start=start, end=end)

    def _of_users(self, data: bytes) -> Iterator[Span]:
        text = data.decode("utf-8", "surrogatepass") if self._users else ""
        for user in self._users:
            if user.literal is not None and user.literal not in text.lower():
                continue
            last = offset = 0  # in characters, and in bytes
            for match in user.pattern.finditer(text):
                if secret := (match[user.group] or "").encode("utf-8", "surrogatepass"):
                    start = match.start(user.group)
                    offset += len(text[last:start].encode("utf-8", "surrogatepass"))
                    last = start
                    yield Span(offset, offset + len(secret), user.name, -1, secret)

    def may_apply(self, raw: bytes, number: int, offset: int) -> bool:
        """Whether a hit in raw JSON makes it worth parsing; never False where a leaf of it has a secret."""
        return number >= len(RULES) or self._matchers[number].may_apply(raw, offset)


def without_marked(data: bytes, spans: list[Span]) -> list[Span]:
    """The spans that overlap no mark."""
    if not spans or OPENING not in data:
        return spans
    marks = [match.span() for match in MARK.finditer(data)]
    ends = [end for _, end in marks]
    following = [bisect_right(ends, span.start) for span in spans]  # the first mark that ends after the span's start
    return [
        span
        for span, number in zip(spans, following, strict=True)
        if number == len(marks) or marks[number][0] >= span.end
    ]


def _merged(data: bytes, spans: list[Span]) -> list[Span]:
    """The spans in order, those that overlap joined."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end, span.rank, span.rule)):
        last = merged[-1] if merged else None
        if last is None or span.start >= last.end:
            merged.append(span)
        elif span.secret == last.secret and span.rank < last.rank:
            merged[-1] = last._replace(rule=span.rule, rank=span.rank)
        elif span.end > last.end:
            merged[-1] = last._replace(end=span.end, secret=b"")  # cut out at the end: a chain of them may be long
    return [span if span.secret else span._replace(secret=data[span.start : span.end]) for span in merged]


class _Matcher:
    """One rule at one offset."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._check = CHECKS.get(rule.check)

    @cached_property
    def whole(self) -> re.Pattern[bytes]:
        either = "|".join(re.escape(opener) for opener in sorted(self.rule.openers, key=len, reverse=True))
        opener = f"(?P<opener>{either})" if either else ""
        return re.compile((("(?i)" if self.rule.is_caseless else "") + opener + self.rule.rest).encode())

    @cached_property
    def _lead(self) -> re.Pattern[bytes]:
        lead = self.rule.lead or Lead("", 0, 0)
        return re.compile(f"{lead.characters}{{0,{lead.most + 1}}}".encode())

    def find(self, data: bytes, offset: int) -> list[tuple[int, int]]:
        """Where the secrets at an offset begin and end; of cookies and cells there may be several."""
        match = self.whole.match(data, offset)
        if match is None or (self.rule.is_guarded and is_glued(data, offset)):
            return []
        if self._check is None:
            return FINDERS[self.rule.check](match, False)
        span = self._check(self.rule, data, match, False)
        if span is None or self.rule.lead is None:
            return [span] if span else []
        start = self._start(self.rule.lead, data, offset)
        return [] if start is None else [(start, span[1])]

    def _has_secret(self, raw: bytes, match: re.Match[bytes]) -> bool:
        if self._check is None:
            return bool(FINDERS[self.rule.check](match, True))
        return self._check(self.rule, raw, match, True) is not None

    def _start(self, lead: Lead, data: bytes, offset: int) -> int | None:
        """Where a secret begins that has its opener in the middle."""
        before = data[max(0, offset - lead.most - 1) : offset][::-1]
        run = self._lead.match(before)
        size = run.end() if run else 0
        if lead.first:
            start = data.find(lead.first.encode(), offset - size, offset)
            return start if start >= 0 and offset - start >= lead.least else None
        if lead.least == lead.most:
            return offset - lead.most if size >= lead.most else None
        return offset - size if lead.least <= size <= lead.most else None

    def may_apply(self, raw: bytes, offset: int) -> bool:
        """Whether the rule may apply to a leaf of raw JSON, judged by how the leaf is written there."""
        if self.rule.check in UNLIKE_IN_JSON:
            return True
        match = self.whole.match(raw, offset)
        if match is not None and self.rule.is_guarded and is_glued(raw, offset):
            return False
        if match is not None and self._has_secret(raw, match):
            return True
        nearby = raw[offset : offset + self.rule.reach]
        return DEEP in nearby or _CODED.search(nearby if match is None else match[0]) is not None


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
