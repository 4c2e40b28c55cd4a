"""Whether a match of a rule is a secret, and where that begins and ends: one test for each way of writing them."""

import re
from collections.abc import Callable

from recollect.redact import values
from recollect.redact.pieces import QUOTE, Rule

Found = tuple[int, int] | None
Test = Callable[[Rule, bytes, re.Match[bytes], bool], Found]
TestOfMany = Callable[[re.Match[bytes]], list[tuple[int, int]]]

_MOST_BEFORE = 80  # bytes from a call's bracket to the keyword in its first argument
_COMMAND_BYTES = 200  # from a command's name to its flags; in JSON they may be twice as many
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
_MOST_NAME = 40  # bytes of a name that are looked at before its keyword
_ASKING = re.compile(
    rb"\.(?:encode|decode|split|replace|strip|starts_?with|ends_?with|includes|contains|match|indexOf|join)\Z", re.I
)
_PORTS = re.compile(rb"[\w.-]*:\d{1,5}(?:[:/]\w+)?")
_COOKIE_PAIR = re.compile(
    rb"([A-Za-z0-9_.-]+)(?:=|" + QUOTE.encode() + rb"[ ]?:[ ]?)" + QUOTE.encode() + rb"?([^\x00-\x20\"'`\\;,{}]+)"
)
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
    if not is_json and _is_other_name(data, match):
        return None
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
    if sign.endswith(b">") and sign != b"=>" and data[end : end + 1] not in (b"<", b"]") and not is_json:
        return None
    if _is_code(data, match, value, end) or (is_argument and values.is_numbered(value)):
        return None
    return (start, end) if values.is_secret(keyword + rest, value, is_quoted=is_quoted) else None


def _is_code(data: bytes, match: re.Match[bytes], value: bytes, end: int) -> bool:
    """Whether what stands around a value says that it is part of an expression."""
    sign, is_quoted = match["sign"], bool(match["quote"])
    if sign.startswith(b"(") and (not is_quoted or _ASKING.search(match["rest"])):
        return True
    if not is_quoted and data[end : end + 1] in (b"(", b"[") and (_CODE.fullmatch(value) or value.startswith(b"=")):
        return True
    return _is_made(match["literal"], value) or (match["marked"] is not None and sign != b":")


def _is_other_name(data: bytes, match: re.Match[bytes]) -> bool:
    """Whether what stands before a keyword makes another word of it, or a token by which pages are turned."""
    keyword, place = match["opener"], match.start()
    if len(keyword) <= 4 and is_glued(data, place):
        return True  # `bypass`, `compass`
    return values.is_of_pages(keyword, data[max(0, place - _MOST_NAME) : place])


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


def _test_program(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    """A value that a program is given; no such list has one by chance, so a short one counts without quotes too."""
    most = 2 * _COMMAND_BYTES if is_json else _COMMAND_BYTES
    if "flag" in match.re.groupindex and match.start("flag") - match.start() > most:
        return None
    value, start, end, _ = _value(data, match)
    if is_json and _is_odd(data, match, start, end):
        return start, end
    return None if _PORTS.fullmatch(value) else _if_secret(b"password", value, start)


def _test_option(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    value, start, end, _ = _value(data, match)
    if is_json and _is_odd(data, match, start, end):
        return start, end
    name = match["opener"][1:]
    # `-pass pass:…` has a rule of its own.
    return None if value.startswith(b"pass:") else _if_secret(b"password" if name == b"pw" else name, value, start)


def _if_secret(name: bytes, value: bytes, start: int) -> Found:
    return (start, start + len(value)) if values.is_secret(name, value, is_quoted=True) else None


def _test_registry(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    return match.span("s") if values.is_registry_auth(match["s"]) else None


def find_cookies(match: re.Match[bytes]) -> list[tuple[int, int]]:
    """The values of those cookies by which a server knows somebody."""
    pairs = _COOKIE_PAIR.finditer(match.string, *match.span("s"))
    return [pair.span(2) for pair in pairs if values.is_cookie(pair[1], pair[2])]


def _test_curl_user(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    most = (4 if is_json else 2) * _COMMAND_BYTES
    before = data[max(0, match.start() - most) : match.start()]
    if b"curl" not in before or match["s"].startswith(b"//"):  # `docker run -u 1000:1000`, an address
        return None
    return _test_flag(rule, data, match, is_json)


def _test_declaration(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    if match["opener"].lower() == b"define " and not match["quote"]:
        return None  # `#define TOKEN_MASK 0xFF00FF00ul`
    value, start, end, _ = _value(data, match)
    if not is_json and _is_made(match["literal"], value):
        return None
    if data[start - 1 : start] == b">" and data[end : end + 1] != b"<" and not is_json:
        return None  # `<input name="password"> 8 characters`
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
    if data[match.end() : match.end() + 1] == b"(":
        return None  # `authorization = base64.decodebytes(`
    return match.span("s") if values.is_header_value(match["s"], match["opener"]) else None


def _test_private_key(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    body = match.end()
    limit = data.find(b"-----BEGIN", body, body + _KEY_BYTES)
    end = _KEY_END.search(data, body, limit if limit >= 0 else body + _KEY_BYTES)
    if end is not None:
        return (match.start(), end.end()) if _KEY_LINE.search(data, body, end.start()) else None
    lines = _KEY_LINES.match(data, body)
    return (match.start(), lines.end()) if lines and lines.end() - body >= 20 else None


def _test_never(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Found:
    raise AssertionError("base64 is looked into, not replaced; of cookies there may be many")


TESTS: dict[str, Test] = {
    "token": _test_token,
    "assignment": _test_assignment,
    "declaration": _test_declaration,
    "flag": _test_flag,
    "default": _test_flag,
    "program": _test_program,
    "piped": _test_program,
    "option": _test_option,
    "registry": _test_registry,
    "curl-user": _test_curl_user,
    "environment-key": _test_environment_key,
    "url": _test_url,
    "header": _test_header,
    "private-key": _test_private_key,
    "base64": _test_never,
    "cookie": _test_never,
}
TESTS_OF_MANY: dict[str, TestOfMany] = {"cookie": find_cookies}
OTHER_IN_JSON = frozenset({"private-key", "base64", "piped", "default"})
