"""From places to secrets: the rule's whole pattern at the place, then the test of the value."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from recollect.redact import values
from recollect.redact.marks import MARK, OPENING
from recollect.redact.rules import (
    HIDDEN,
    KEYWORD,
    NAME_FIELDS,
    NAMED,
    PERCENT,
    PREFIX,
    QUOTE,
    RULES,
    STRUCTURE,
    Lead,
    Rule,
)
from recollect.redact.scanners import Clock, Expression, Scanner
from recollect.redact.unfolding import COLOUR, ESCAPE, Unfolded, base64_span, decode_base64
from recollect.redact.userrules import AllowList, UserRule

EVERYTHING = frozenset({PREFIX, STRUCTURE, KEYWORD, HIDDEN})
NAMES = frozenset({PREFIX, STRUCTURE})  # for paths, ids, branches: what is known by its own look

_MOST_BEFORE = 80  # bytes from a call's bracket to the keyword in its first argument
_COMMAND_BYTES = 400  # from a command's name to its flags
_DEPTH = 2  # base64 of base64
_KEY_BYTES = 20_000  # of the largest private key
_ESCAPE_BEFORE = re.compile(rb"\\[nrtbf]\Z|%[0-7][0-9A-Fa-f]\Z")
_RANK = {PREFIX: 0, STRUCTURE: 1, KEYWORD: 2, HIDDEN: 3}

_MOST_QUOTED = 512
_DEEP = b"\\" * 17  # before a quote: more than a pattern takes, but in JSON they are twice as many as in the leaf
_UNESCAPED = re.compile(rb"[^\"'`&\\\r\n\x00]{0,512}")
_LINE_ENDS = re.compile(rb"[\r\n\x00]")
_CALLED = re.compile(rb"\((?:\s|\\+[nrt])*" + QUOTE.encode() + rb"[\w.-]*\Z")
_QUOTE_END = re.compile(rb"[\"'`;]\s*\Z")
_IN_PATTERN = re.compile(rb"[\\\[\](){}]")  # of a regular expression; no sign of it is in most passwords
_CODE = re.compile(rb"[\w.:>-]+")
_KEY_END = re.compile(rb"-----END[ A-Z0-9]{0,40}KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile(rb"[A-Za-z0-9+/]{32}")
_KEY_LINES = re.compile(
    rb"(?:(?:\s|\\+[nrt]|\d{1,6}(?=[\t:|\-\xe2])|[\t:|+>\-,\"'\x80-\xff]){0,40}[A-Za-z0-9+/=]{20,80}(?![A-Za-z0-9+/=]))*"
    rb"(?:(?:\s|\\+[nrt]){0,8}[A-Za-z0-9+/=]{1,80}\Z)?"
)


class Span(NamedTuple):
    """Where a secret stands, and the secret as it was before it was escaped or encoded."""

    start: int
    end: int
    rule: str
    rank: int
    secret: bytes


Found = tuple[int, int] | None
Test = Callable[[Rule, bytes, re.Match[bytes], bool], Found]


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
            elif (found := self._matchers[number].find(data, place, False)) is not None:
                rule = RULES[number]
                yield Span(*found, rule.name, _RANK[rule.kind], data[found[0] : found[1]])
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
        self._test: Test = _TESTS[rule.test]

    @cached_property
    def whole(self) -> re.Pattern[bytes]:
        either = "|".join(re.escape(opener) for opener in sorted(self.rule.openers, key=len, reverse=True))
        opener = f"(?P<opener>{either})" if either else ""
        return re.compile((("(?i)" if self.rule.is_caseless else "") + opener + self.rule.rest).encode())

    @cached_property
    def _lead(self) -> re.Pattern[bytes]:
        lead = self.rule.lead or Lead("", 0, 0)
        return re.compile(f"{lead.characters}{{0,{lead.most + 1}}}".encode())

    def find(self, data: bytes, place: int, is_json: bool) -> Found:
        """Where the secret at a place begins and ends. In JSON text bytes before the place are not looked at."""
        match = self.whole.match(data, place)
        if match is None or (self.rule.is_guarded and _is_glued(data, place)):
            return None
        found = self._test(self.rule, data, match, is_json)
        if found is None or self.rule.lead is None:
            return found
        start = self._start(self.rule.lead, data, place)
        return None if start is None else (start, found[1])

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
        if self.rule.test in _OTHER_IN_JSON:
            return True
        match = self.whole.match(raw, place)
        if match is not None and self.rule.is_guarded and _is_glued(raw, place):
            return False
        if match is not None and self._test(self.rule, raw, match, True) is not None:
            return True
        nearby = raw[place : place + self.rule.reach]
        return _DEEP in nearby or b"%" in (nearby if match is None else match[0])


def _is_glued(data: bytes, place: int) -> bool:
    """Whether a letter or digit stands just before, and is not the end of an escaped newline or of `%3D`."""
    before = data[max(0, place - 3) : place]
    if not before[-1:].isalnum():
        return False
    return not (_ESCAPE_BEFORE.search(before))


def _is_odd(data: bytes, match: re.Match[bytes], start: int, end: int) -> bool:
    """Whether a value taken from JSON text may be another one once the JSON is read."""
    value = data[start:end]
    has_lost_end = match["quote"][:1] == b"\\" and data[end : end + 1] == b'"'  # which ends the leaf, not the value
    return has_lost_end or b"\\" in value or b'"' in value


def _test_token(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    group = "s" if "s" in match.re.groupindex else 0
    body = data[match.end("opener") : match.end()] if rule.openers else match[0]
    if rule.lead is not None:
        body = data[max(0, match.start() - rule.lead.least) : match.end()]
    if rule.needs_digit and not any(48 <= byte <= 57 for byte in body):
        return None
    return match.span(group) if values.is_token(body) else None


def _value(data: bytes, match: re.Match[bytes]) -> tuple[bytes, int, int, bool]:
    """The value a name is given: all between its quotes, or up to the first byte that ends a bare word."""
    start = match.start("s")
    if match["quote"]:
        end = _quoted_end(data, start, match["quote"])
        end = match.end("s") if end < 0 else end
        return data[start:end], start, end, True
    value = match["s"].rstrip(b".:")
    return value, start, start + len(value), False


def _quoted_end(data: bytes, start: int, quote: bytes) -> int:
    """Where the text between quotes ends; -1 if its line has no closing one."""
    plain = _UNESCAPED.match(data, start)  # nearly all are
    if plain and data.startswith(quote, plain.end()):
        return plain.end()
    limit = start + _MOST_QUOTED + len(quote)
    stop = _LINE_ENDS.search(data, start, limit)
    limit = stop.start() if stop else limit
    if quote[-1:] not in b"\"'`":
        return data.find(quote, start, limit)
    # Each time a text is put into a JSON string the backslashes before its quotes become twice as many and one more.
    depth = len(quote) - 1
    first = place = data.find(quote[-1:], start, limit)
    while place >= 0:
        count = _backslashes(data, start, place)
        if count % (2 * depth + 2) != 2 * depth + 1:
            return place - min(count, depth)
        place = data.find(quote[-1:], place + 1, limit)
    # No escape after all: many languages have strings in which a backslash is only that.
    return first - min(_backslashes(data, start, first), depth) if first >= 0 else -1


def _backslashes(data: bytes, start: int, end: int) -> int:
    return end - start - len(data[start:end].rstrip(b"\\"))


def _test_assignment(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    keyword, rest, sign = match["opener"], match["rest"], match["sign"]
    if values.is_about(keyword, rest):
        return None
    if len(keyword) <= 4 and not is_json and _is_glued(data, match.start()):
        return None  # `bypass`, `compass`
    if match["block"] is not None:
        return match.span("block") if values.is_secret(keyword + rest, match["block"], is_quoted=False) else None
    value, start, end, is_quoted = _value(data, match)
    is_argument = sign.startswith(b",")
    if is_argument and not (is_quoted and _is_in_call(data, match)):
        return None
    if (
        sign == b":"
        and keyword.lower() == b"pass"
        and not is_quoted
        and data[match.start() - 1 : match.start()] not in (b"_", b"-")
    ):
        return None  # `PASS: TestLogin/2`
    if is_json and _is_odd(data, match, start, end):
        return start, end
    following = data[end : end + 1]
    if (sign.startswith(b"(") and not is_quoted) or (sign == b">" and following != b"<" and not is_json):
        return None
    if not is_quoted and following in (b"(", b"[") and _CODE.fullmatch(value):
        return None
    if _is_made(match["literal"], value) or (is_argument and values.is_numbered(value)):
        return None
    return (start, end) if values.is_secret(keyword + rest, value, is_quoted=is_quoted) else None


def _is_in_call(data: bytes, match: re.Match[bytes]) -> bool:
    """Whether a name is the first argument of a call, in quotes; of the items of a list none is another's value."""
    before = data[max(0, match.start() - _MOST_BEFORE) : match.start()]
    return (
        _CALLED.search(before) is not None
        and _QUOTE_END.search(data, match.end("rest"), match.start("sign")) is not None
    )


def _is_made(literal: bytes | None, value: bytes) -> bool:
    """Whether the kind of a literal says that its text is no value: a pattern, or put together from others."""
    kind = (literal or b"").lower()
    return (b"r" in kind and _IN_PATTERN.search(value) is not None) or (
        (b"f" in kind or b"$" in kind) and b"{" in value
    )


def _test_flag(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    value, start, end, is_quoted = _value(data, match)
    if is_json and _is_odd(data, match, start, end):
        return start, end
    name = match["name"] if "name" in match.re.groupindex else b"password"
    if values.names_secret(name) is None:
        return None
    return (start, end) if values.is_secret(name, value, is_quoted=is_quoted) else None


def _test_curl_user(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    before = data[max(0, match.start() - _COMMAND_BYTES) : match.start()]
    if b"curl" not in before or match["s"].startswith(b"//"):  # `docker run -u 1000:1000`, an address
        return None
    return _test_flag(rule, data, match, is_json)


def _test_declaration(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    if match["opener"].lower() == b"define " and not match["quote"]:
        return None  # `#define TOKEN_MASK 0xFF00FF00ul`
    if not is_json and _is_made(match["literal"], _value(data, match)[0]):
        return None
    return _test_flag(rule, data, match, is_json)


def _test_environment_key(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    value, start, end, _ = _value(data, match)
    if is_json and _is_odd(data, match, start, end):
        return start, end
    if data[max(0, match.start() - 6) : match.start()].upper().endswith(b"PUBLIC"):
        return None
    return (start, end) if values.is_environment_key(value) else None


def _test_url(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    if match["user"] is not None:
        return match.span("user") if values.is_url_user(match["user"]) else None
    return match.span("s") if values.is_url_password(match["s"]) else None


def _test_header(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    return match.span("s") if values.is_header_value(match["s"], match["opener"]) else None


def _test_private_key(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    body = match.end()
    limit = data.find(b"-----BEGIN", body, body + _KEY_BYTES)
    end = _KEY_END.search(data, body, limit if limit >= 0 else body + _KEY_BYTES)
    if end is not None:
        return (match.start(), end.end()) if _KEY_LINE.search(data, body, end.start()) else None
    lines = _KEY_LINES.match(data, body)
    return (match.start(), lines.end()) if lines and lines.end() - body >= 20 else None


def _test_base64(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    raise AssertionError("base64 is looked into, not replaced")


_TESTS: dict[str, Test] = {
    "token": _test_token,
    "assignment": _test_assignment,
    "declaration": _test_declaration,
    "flag": _test_flag,
    "curl-user": _test_curl_user,
    "environment-key": _test_environment_key,
    "url": _test_url,
    "header": _test_header,
    "private-key": _test_private_key,
    "base64": _test_base64,
}
_OTHER_IN_JSON = frozenset({"private-key", "base64"})
ESCAPED = len(RULES) + 1
_FOLDED = (len(RULES), ESCAPED)  # percent signs and `\\u00xx`
_BASE64 = next(number for number, rule in enumerate(RULES) if rule.kind == HIDDEN)
