"""From hits of a scanner to secrets: the rule's whole pattern at the offset, then the check of the value."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from recollect.redact.checks import CHECKS, DEEP, FINDERS, UNLIKE_IN_JSON, is_glued
from recollect.redact.decoding import COLOUR, ESCAPE, Unfolded, base64_span, decode_base64
from recollect.redact.marks import MARK, OPENING
from recollect.redact.patterns import HIDDEN, KEYWORD, PREFIX, STRUCTURE, Lead, Rule
from recollect.redact.rules import NAME_FIELDS, NAMED, PERCENT, RULES
from recollect.redact.scanners import Clock, Expression, Scanner
from recollect.redact.user_rules import AllowList, UserRule

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
