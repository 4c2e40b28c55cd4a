"""Whether a match of a rule is a secret, and where that begins and ends: one test for each way of writing them."""

import re
from collections.abc import Callable

from recollect.redact import values
from recollect.redact.pieces import QUOTE, Rule

Found = tuple[int, int] | None
Test = Callable[[Rule, bytes, re.Match[bytes], bool], Found]

_MOST_BEFORE = 80  # bytes from a call's bracket to the keyword in its first argument
_COMMAND_BYTES = 400  # from a command's name to its flags
_KEY_BYTES = 20_000  # of the largest private key
_ESCAPE_BEFORE = re.compile(rb"\\[nrtbf]\Z|%[0-7][0-9A-Fa-f]\Z")
_MOST_QUOTED = 512
DEEP = b"\\" * 17  # before a quote: more than a pattern takes, but in JSON they are twice as many as in the leaf
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


def is_glued(data: bytes, place: int) -> bool:
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
    if len(keyword) <= 4 and not is_json and is_glued(data, match.start()):
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


TESTS: dict[str, Test] = {
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
OTHER_IN_JSON = frozenset({"private-key", "base64"})
