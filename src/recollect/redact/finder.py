"""From places to secrets: the rule's whole pattern at the place, then the test of the value."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from recollect.redact.marks import MARK, OPENING
from recollect.redact.pieces import HIDDEN, KEYWORD, PREFIX, STRUCTURE, Lead, Rule
from recollect.redact.rules import NAME_FIELDS, NAMED, PERCENT, RULES
from recollect.redact.scanners import Clock, Expression, Scanner
from recollect.redact.unfolding import COLOUR, ESCAPE, Unfolded, base64_span, decode_base64
from recollect.redact.userrules import AllowList, UserRule
from recollect.redact.verdicts import DEEP, OTHER_IN_JSON, TESTS, TESTS_OF_MANY, Test, is_glued

EVERYTHING = frozenset({PREFIX, STRUCTURE, KEYWORD, HIDDEN})
NAMES = frozenset({PREFIX, STRUCTURE})  # for paths, ids, branches: what is known by its own look

_DEPTH = 2  # base64 of base64
_CODED = re.compile(rb"%[0-7][0-9A-Fa-f]")  # a byte written with a percent sign
_RANK = {PREFIX: 0, STRUCTURE: 1, KEYWORD: 2, HIDDEN: 3}


class Span(NamedTuple):
    """Where a secret stands, and the secret as it was before it was escaped or encoded."""

    start: int
    end: int
    rule: str
    rank: int
    secret: bytes


def expressions(users: Sequence[UserRule]) -> list[Expression]:
    """What a scanner looks for: the rules, then the three hints, then the words of the user's rules."""
    found = [
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
    found.append(Expression((), PERCENT.encode(), 0, is_caseless=True, fixed=1, sign=b"%"))
    found.append(Expression((), re.escape(ESCAPE), 0, fixed=len(ESCAPE), sign=ESCAPE, is_once=True))
    found.append(Expression(names, NAMED.encode(), 120, is_caseless=True))
    words = [user.literal for user in users if user.literal]
    return found + [Expression((word.encode(),), b"", len(word), is_caseless=True) for word in words]


class Finder:
    """All secrets of a text."""

    def __init__(self, scanner: Scanner, users: Sequence[UserRule], allow: AllowList) -> None:
        self._scanner = scanner
        self._users = users
        self._allow = allow
        self._matchers = [_Matcher(rule) for rule in RULES]
        self.always_parses = any(user.literal is None for user in users)

    def spans(self, data: bytes, kinds: frozenset[str], clock: Clock) -> list[Span]:
        """Secrets in order, none overlapping another or a mark; raises OutOfTime or TooManyPlaces."""
        found = [span for span in self._all(data, kinds, clock, 0) if not self._allow.has(span.secret)]
        if OPENING in data and found:
            marks = [match.span() for match in MARK.finditer(data)]
            found = [span for span in found if not any(a < span.end and span.start < b for a, b in marks)]
        return _merged(data, found)

    def _all(self, data: bytes, kinds: frozenset[str], clock: Clock, depth: int) -> Iterator[Span]:
        clock.check()
        is_folded = depth == 0 and COLOUR in data
        for count, (number, place) in enumerate(self._scanner.places(data, clock)):
            if count & 0xFF == 0:
                clock.check()
            is_folded |= number in _FOLDED and depth == 0
            if number >= len(RULES) or RULES[number].kind not in kinds:
                continue
            if RULES[number].kind == HIDDEN:
                if depth < _DEPTH:
                    yield from self._inside(data, place, kinds, clock, depth)
            else:
                rule = RULES[number]
                for start, end in self._matchers[number].finds(data, place):
                    yield Span(start, end, rule.name, _RANK[rule.kind], data[start:end])
        yield from self._of_users(data)
        if is_folded and HIDDEN in kinds:
            unfolded = Unfolded(data)
            for span in self._all(unfolded.data, kinds, clock, depth + 1):
                start, end = unfolded.span(span.start, span.end)
                yield span._replace(start=start, end=end)

    def _inside(self, data: bytes, place: int, kinds: frozenset[str], clock: Clock, depth: int) -> Iterator[Span]:
        run = self._matchers[_BASE64].whole.match(data, place)
        decoded = decode_base64(run[0]) if run else None
        if decoded is None or run is None:
            return
        for span in self._all(decoded, kinds, clock, depth + 1):
            start, end = base64_span(span.start, span.end)
            yield span._replace(start=place + start, end=min(place + end, run.end()))

    def _of_users(self, data: bytes) -> Iterator[Span]:
        text = data.decode("utf-8", "surrogatepass") if self._users else ""
        for user in self._users:
            if user.literal is not None and user.literal not in text.lower():
                continue
            for match in user.pattern.finditer(text):
                start = len(text[: match.start(user.group)].encode("utf-8", "surrogatepass"))
                secret = match[user.group].encode("utf-8", "surrogatepass") if match[user.group] else b""
                if secret:
                    yield Span(start, start + len(secret), user.name, -1, secret)

    def allows(self, secret: bytes) -> bool:
        return self._allow.has(secret)

    def is_hit(self, raw: bytes, number: int, place: int) -> bool:
        """Whether a place in a JSON text makes it worth parsing; never no where a leaf of it has a secret."""
        if number >= len(RULES):
            return True
        return self._matchers[number].may_apply(raw, place)


def _merged(data: bytes, spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end, span.rank, span.rule)):
        last = merged[-1] if merged else None
        if last is None or span.start >= last.end:
            merged.append(span)
        elif span.secret == last.secret and span.rank < last.rank:
            merged[-1] = last._replace(rule=span.rule, rank=span.rank)
        elif span.end > last.end:
            merged[-1] = last._replace(end=span.end, secret=data[last.start : span.end])
    return merged


class _Matcher:
    """One rule at one place."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._test: Test = TESTS[rule.test]

    @cached_property
    def whole(self) -> re.Pattern[bytes]:
        either = "|".join(re.escape(opener) for opener in sorted(self.rule.openers, key=len, reverse=True))
        opener = f"(?P<opener>{either})" if either else ""
        return re.compile((("(?i)" if self.rule.is_caseless else "") + opener + self.rule.rest).encode())

    @cached_property
    def _lead(self) -> re.Pattern[bytes]:
        lead = self.rule.lead or Lead("", 0, 0)
        return re.compile(f"{lead.characters}{{0,{lead.most + 1}}}".encode())

    def finds(self, data: bytes, place: int) -> list[tuple[int, int]]:
        """Where the secrets at a place begin and end; all rules but a few find one."""
        match = self.whole.match(data, place)
        if match is None or (self.rule.is_guarded and is_glued(data, place)):
            return []
        if self.rule.test in TESTS_OF_MANY:
            return TESTS_OF_MANY[self.rule.test](match)
        found = self._test(self.rule, data, match, False)
        if found is None or self.rule.lead is None:
            return [found] if found else []
        start = self._start(self.rule.lead, data, place)
        return [] if start is None else [(start, found[1])]

    def _has_secret(self, raw: bytes, match: re.Match[bytes]) -> bool:
        if self.rule.test in TESTS_OF_MANY:  # a backslash ends them, and the leaf may have none there
            return raw[match.end() : match.end() + 1] == b"\\" or bool(TESTS_OF_MANY[self.rule.test](match))
        return self._test(self.rule, raw, match, True) is not None

    def _start(self, lead: Lead, data: bytes, place: int) -> int | None:
        """Where a secret begins that has its opener within."""
        before = data[max(0, place - lead.most - 1) : place][::-1]
        run = self._lead.match(before)
        size = run.end() if run else 0
        if lead.first:
            start = data.find(lead.first.encode(), place - size, place)
            return start if start >= 0 and place - start >= lead.least else None
        if lead.least == lead.most:
            return place - lead.most if size >= lead.most else None
        return place - size if lead.least <= size <= lead.most else None

    def may_apply(self, raw: bytes, place: int) -> bool:
        """Whether the rule may apply to a leaf of JSON text: what it looks at is written there as it is in the leaf."""
        if self.rule.test in OTHER_IN_JSON:
            return True
        match = self.whole.match(raw, place)
        if match is not None and self.rule.is_guarded and is_glued(raw, place):
            return False
        if match is not None and self._has_secret(raw, match):
            return True
        nearby = raw[place : place + self.rule.reach]
        return DEEP in nearby or _CODED.search(nearby if match is None else match[0]) is not None


ESCAPED = len(RULES) + 1
_FOLDED = (len(RULES), ESCAPED)  # percent signs and `\\u00xx`
_BASE64 = next(number for number, rule in enumerate(RULES) if rule.kind == HIDDEN)
