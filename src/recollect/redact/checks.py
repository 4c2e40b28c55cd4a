"""Checks whether a match of a rule is a secret, and where it begins and ends: a check for each way to write them.

A table gives a secret away by its heading: CSV, Markdown, `psql`, the rows of an `INSERT`.
"""

import re
from collections.abc import Callable, Iterator

from recollect.redact import values
from recollect.redact.scanners import ANY_KEYWORD, ARROW, LINE_BREAK, LINE_END, QUOTE, Rule

_MOST_ROWS = 200
_MOST_HEADING, _MOST_NAME = 400, 40  # bytes
_SIGN = re.compile(rb"[,;|\t]|\\{1,16}t")
_HEADING = re.compile(rb"(?:[\w .\"'`|,;-]|\t|\\{1,16}(?:t|(?=[\"'`])))*\Z")
_NO_NAME = re.compile(rb"(?:\A|[,;\t]|\\+t)[ \"'`]*(?=[,;\t]|\\+t|\Z)")
_NEXT = re.compile(LINE_BREAK.encode())
# What agents and `cat -n` write before each line of a file they show: no column of it.
_LINE_NUMBER = re.compile(rb"(?:[ +-]|\\{1,16}t){0,8}\d{1,6}(?:\t|\\{1,16}t|" + ARROW.encode() + rb")")
_LEAF_START = re.compile(rb"(?<!\\)\"")
_RULER = re.compile(rb"[-+|:= ]+")
_IN_BRACKETS = re.compile(rb"(?:[\s,]|\\+[nrt])*\(([^()\x00]*)\)")
_CELL = re.compile(rb"(?:[ \t]|\\+[nrt])*(\\{0,16}[\"'`]?)(.*?)\1[ \t]*", re.S)


def find_cells(match: re.Match[bytes], is_json: bool) -> list[tuple[int, int]]:
    """The secrets of a column, given the name in its heading; in raw JSON also what may be one."""
    data, name = match.string, match["opener"] + match["rest"]
    is_insert = match["end"][:1] == b")"
    if not match["after"] and _SIGN.search(data, max(0, match.start() - _MOST_NAME), match.start()) is None:
        return []  # most lines that end in such a word
    before = data[max(0, match.start() - _MOST_HEADING) : match.start()]
    before = before.rpartition(b"(")[2] if is_insert else _NEXT.split(before)[-1]
    before = _LEAF_START.split(before)[-1] if is_json else before
    is_numbered = (number := _LINE_NUMBER.match(before)) is not None
    before = before[number.end() :] if number else before
    signs, column = set(_SIGN.findall(before + match["after"])), len(_SIGN.findall(before))
    if (
        len(signs) != 1
        or _NO_NAME.search(before + b"x" + match["after"])
        or not _HEADING.match(before)
        or values.is_about(match["opener"], match["rest"])
    ):
        return []
    sign = signs.pop()
    count = column + len(_SIGN.findall(match["after"]))
    cells = []
    for start, end in _rows_in_brackets(match) if is_insert else _lines(match):
        if is_numbered and (number := _LINE_NUMBER.match(data, start, end)):
            start = number.end()
        row = data[start:end].split(sign)
        if len(row) != count + 1:
            if _RULER.fullmatch(data, start, end):
                continue
            break
        cell = _CELL.fullmatch(row[column])
        if cell and cell[2] == name:
            break  # another heading: its rows are found by itself
        offset = start + sum(len(other) + len(sign) for other in row[:column])
        if cell and ((is_json and b"\\" in cell[2]) or values.is_drawn(name, cell[2])):
            cells.append((offset + cell.start(2), offset + cell.end(2)))
    return cells


def _lines(match: re.Match[bytes]) -> Iterator[tuple[int, int]]:
    data, start = match.string, match.end()
    for _ in range(_MOST_ROWS):
        following = _NEXT.search(data, start)
        yield start, following.start() if following else len(data)
        if following is None:
            return
        start = following.end()


def _rows_in_brackets(match: re.Match[bytes]) -> Iterator[tuple[int, int]]:
    end = match.end()
    for _ in range(_MOST_ROWS):
        row = _IN_BRACKETS.match(match.string, end)
        if row is None:
            return
        yield row.span(1)
        end = row.end()


Bounds = tuple[int, int] | None
Check = Callable[[Rule, bytes, re.Match[bytes], bool], Bounds]

_MOST_BEFORE = 80  # bytes from a call's bracket to the keyword in its first argument
_COMMAND_BYTES = 200  # from a command's name to its flags; in JSON they may be twice as many
_KEY_BYTES = 20_000  # of the largest private key
_ESCAPE_BEFORE = re.compile(rb"\\[nrtbf]\Z|%[0-7][0-9A-Fa-f]\Z")
_MOST_QUOTED = 512
DEEP = b"\\" * 17  # before a quote: more than a pattern takes, but JSON writes twice as many as the leaf has
_UNESCAPED = re.compile(rb"[^\"'`&\\\r\n\x00]{0,512}")
_LINE_ENDS = re.compile(rb"[\r\n\x00]")
# The first argument of a call may be a selector: `fill('input[name="password"]'`.
_CALLED = re.compile(rb"\((?:\s|\\+[nrt])*" + QUOTE.encode() + rb"(?:[#\w.\[\]^$*~:>@/ -]|=\\*[\"']?)*\Z")
_QUOTE_END = re.compile(rb"[\"'`;]\s*\Z")
_IN_PATTERN = re.compile(rb"[\\\[\](){}]")  # in regular expressions, and rarely in passwords
_CODE = re.compile(rb"[\w.:>-]+")
_ASKING = re.compile(
    rb"\.(?:encode|decode|split|replace|strip|starts_?with|ends_?with|includes|contains|match|indexOf|join|format"
    rb"|(?:with|get|has|find|load|read|create)\w*|remove|delete|open)\Z",
    re.I,
)
# Of code that was made small: `e.credentials||t.credentials`, `=a.token&`, `t.Token=t.CancellationToken=void`.
_OPERATION = re.compile(
    rb"\A={1,3}[a-z]{1,4}\.[A-Za-z]|!==|\w\|\|(?=\w)|&&|/\*|\A[a-z_$][\w$]{0,30}(?:\.[A-Za-z_$][\w$]+)+[=?&]|\A[a-z]{1,2}\?\w+:\w"
    rb"|\A@[a-z]+_\d\Z"  # a parameter of SQL
)
# A function that looks at texts, rather than being given a secret: `looks_like_secret("…")`, `_load_hashsecret("…")`.
_LOOKING = re.compile(
    rb"(?i)(?:\A|[^A-Za-z])(?:should|looks?_?like|is|has|redact|split|normali[sz]e|parse|mask|strip|load|find|count)_?\w*\Z"
)
_SET = re.compile(rb"(?i)s?(?:_?hash)?")
_ARN = re.compile(rb":\d{12}:\Z")  # of AWS, which names a secret and does not have it
_NAME_ONLY = re.compile(rb"(?:\A|[\r\n]|\\+n)[ \t+>-]*(?:\\+t)*[\w./:-]*\Z")
_JOINED = re.compile(rb"[ ]?\+[ ]?([A-Za-z_][\w.]*)(?:[),]|[ ]\+)")
_FILE_END = re.compile(rb"\.\w{1,5}\Z")
_MOST_GIVEN = 200
# A name, its sign, and an expression.
_GIVEN = re.compile(
    rb"(?i:(?P<keyword>"
    + ANY_KEYWORD.encode()
    + rb"))(?P<rest>[\w.-]{0,32})\\*[\"'`]?\]?[ \t]*(?::[ \t]*[A-Za-z]{2,10}[ \t]*)?(?:[:=]=?|=>)[ \t]*"
    rb"(?:[\w.$@?!:>-]|\([^()\r\n]{0,80}\)|\[[^\[\]\r\n]{0,80}\]){0,120}\(?[ \t]*"
)
_END_OF_LINE = re.compile(LINE_END.encode())
_TAG_END = re.compile(rb"[ \t]*[<\]]")
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


def is_glued(data: bytes, offset: int) -> bool:
    """Whether a letter or digit comes just before, other than the end of an escaped newline or of `%3D`."""
    before = data[max(0, offset - 3) : offset]
    return before[-1:].isalnum() and not _ESCAPE_BEFORE.search(before)


def find_cookies(match: re.Match[bytes], is_json: bool) -> list[tuple[int, int]]:
    """The values of the cookies by which a server recognises somebody; in raw JSON also what may be one."""
    if is_json and match.string[match.end() : match.end() + 1] == b"\\":
        return [match.span("s")]  # a backslash ends cookies, and there may be none in the leaf
    pairs = _COOKIE_PAIR.finditer(match.string, *match.span("s"))
    return [pair.span(2) for pair in pairs if values.is_cookie(pair[1], pair[2])]


def _value(data: bytes, match: re.Match[bytes]) -> tuple[bytes, int, int, bool]:
    """The value of a name: all between its quotes, or up to the first byte that ends a bare word."""
    start = match.start("s")
    if match["quote"]:
        end = _quoted_end(data, start, match["quote"])
        end = match.end("s") if end < 0 else end
        return data[start:end], start, end, True
    value = match["s"].rstrip(b".:")
    return value, start, start + len(value), False


def _quoted_end(data: bytes, start: int, quote: bytes) -> int:
    """Where the text between quotes ends; -1 if its line has no closing quote."""
    plain = _UNESCAPED.match(data, start)  # nearly all are
    if plain and data.startswith(quote, plain.end()):
        return plain.end()
    limit = start + _MOST_QUOTED + len(quote)
    stop = _LINE_ENDS.search(data, start, limit)
    limit = stop.start() if stop else limit
    if quote[-1:] not in b"\"'`":
        return data.find(quote, start, limit)
    # Each time a text is put into a JSON string, n backslashes before a quote become 2n + 1.
    depth = len(quote) - 1
    first = offset = data.find(quote[-1:], start, limit)
    while offset >= 0:
        count = _backslashes(data, start, offset)
        if count % (2 * depth + 2) != 2 * depth + 1:
            return offset - min(count, depth)
        offset = data.find(quote[-1:], offset + 1, limit)
    # No escape after all: in many languages a backslash in a string is only that.
    return first - min(_backslashes(data, start, first), depth) if first >= 0 else -1


def _backslashes(data: bytes, start: int, end: int) -> int:
    return end - start - len(data[start:end].rstrip(b"\\"))


def _is_odd(data: bytes, match: re.Match[bytes], start: int, end: int) -> bool:
    """Whether a value taken from raw JSON may be another one once the JSON is read."""
    value = data[start:end]
    has_lost_end = match["quote"][:1] == b"\\" and data[end : end + 1] == b'"'  # which ends the leaf, not the value
    return has_lost_end or b"\\" in value or b'"' in value


def _taken(data: bytes, match: re.Match[bytes], is_json: bool, is_secret: Callable[[bytes, bool], bool]) -> Bounds:
    """The bounds of a value if it is a secret; raw JSON in doubt counts as one, for it is parsed and checked again."""
    value, start, end, is_quoted = _value(data, match)
    is_taken = (is_json and _is_odd(data, match, start, end)) or is_secret(value, is_quoted)
    return (start, end) if is_taken else None


def _check_token(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    group = "s" if "s" in match.re.groupindex else 0
    body = data[match.end("opener") : match.end()] if rule.openers else match[0]
    if rule.lead is not None:
        body = data[max(0, match.start() - rule.lead.least) : match.end()]
    if rule.needs_digit and not any(48 <= byte <= 57 for byte in body):
        return None
    return match.span(group) if values.is_token(body) else None


def _check_assignment(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    name, sign = match["opener"] + match["rest"], match["sign"] or b""
    if values.is_about(match["opener"], match["rest"]) or (not is_json and _is_other_name(data, match)):
        return None
    if lines := match["block"] or match["inner"]:
        return match.span(match.lastgroup or "") if values.is_secret(name, lines, is_quoted=False) else None
    value, start, end, is_quoted = _value(data, match)
    if _is_no_assignment(data, match, sign, is_quoted):
        return None
    if is_json and _is_odd(data, match, start, end):
        return start, end
    is_tag = sign.endswith(b">") and sign != b"=>"
    if (is_tag and not is_json and not _TAG_END.match(data, end)) or _is_code(data, match, value, end):
        return None
    is_secret = values.is_drawn(name, value) if match["said"] else values.is_secret(name, value, is_quoted=is_quoted)
    return (start, end) if is_secret else None


def _is_no_assignment(data: bytes, match: re.Match[bytes], sign: bytes, is_quoted: bool) -> bool:
    """Whether a comma is not that of a call, or a sign that of `PASS: TestLogin/2`, `PASS (…)` or `app.py:12:`."""
    if sign.startswith(b","):
        return not (is_quoted and (sign.endswith(b"with:") or _is_in_call(data, match)))
    if sign == b":" and _FILE_END.search(match["rest"]) and match["s"][:1].isdigit():
        return True  # `secrets.py:7:import re`
    if match["opener"].lower() != b"pass":
        return False
    before = data[match.start() - 1 : match.start()]
    if b"fail" in data[max(0, match.start() - _MOST_BEFORE) : match.start()].lower():
        return True  # what a check must refuse, and what it must let pass
    is_apart = sign.startswith(b"(") and data[match.start("sign") - 1 : match.start("sign")] == b" "
    return is_apart or (sign == b":" and not is_quoted and before not in (b"_", b"-", b"/"))


def _is_code(data: bytes, match: re.Match[bytes], value: bytes, end: int) -> bool:
    """Whether what surrounds a value makes it part of an expression."""
    sign, is_quoted = match["sign"] or b"", bool(match["quote"])
    if (sign.startswith(b",") or match["compared"] is not None) and values.is_numbered(value):
        return True
    if sign.startswith((b"(", b"{")) and (not is_quoted or _ASKING.search(match["rest"])):
        return True
    if sign.startswith(b"(") and b"." not in match["rest"] and _is_looking(data, match):
        return True
    if not (is_quoted and data.startswith(match["quote"], end)) and _is_expression(data, match, value):
        return True
    if match["quote"][-1:] == b"`" and b" " in value:
        return True  # a command in prose
    if is_quoted and (joined := _JOINED.match(value)) and values.is_variable(joined[1]):
        return True  # `"token: "+key)`
    if not is_quoted and data[end : end + 1] in (b"(", b"[") and (_CODE.fullmatch(value) or value.startswith(b"=")):
        return True
    return _is_composed(match["literal"], value) or (match["marked"] is not None and sign != b":")


def _is_looking(data: bytes, match: re.Match[bytes]) -> bool:
    """Whether a function with a secret's name takes none: `normalize_token_spacing(`, `is_secret(`."""
    before = data[max(0, match.start() - _MOST_NAME) : match.start()]
    return _SET.fullmatch(match["rest"]) is None or _LOOKING.search(before) is not None


def _is_expression(data: bytes, match: re.Match[bytes], value: bytes) -> bool:
    """Whether a value without quotes is a variable: `&tokens`, `!isSecret`, `"token": self._key2`, `f(secret=key1)`."""
    start, after = match.start("s"), match.end("rest")
    if _OPERATION.search(value):
        return True
    if (data[start - 1 : start] != b"=" or b"." in value) and values.is_variable(value):
        return True
    is_given = data[start - 3 : start] == b" = " and b"_" in value  # in settings, too, but hardly to such a value
    is_of_code = (
        is_given or b"." in match["rest"] or data[after : after + 1] in (b'"', b"'", b"]") or match["sign"] == b"=>"
    )
    return (is_of_code or data[start + len(value) : start + len(value) + 1] in (b",", b")")) and values.is_numbered(
        value
    )


def _is_other_name(data: bytes, match: re.Match[bytes]) -> bool:
    """Whether what comes before a keyword makes it another word, or the token of a page."""
    keyword, offset = match["opener"], match.start()
    if len(keyword) <= 4 and keyword[:1].isalpha() and is_glued(data, offset):
        return True  # `bypass`, `compass`
    before = data[max(0, offset - _MOST_NAME) : offset]
    if keyword.lower() == b"token" and before.lower().endswith((b"publickey", b"public_key_")):
        return True
    return _ARN.search(before) is not None or values.is_of_pages(keyword, before)


def _is_in_call(data: bytes, match: re.Match[bytes]) -> bool:
    """Whether a name is the first argument of a call, in quotes; an item of a list names no other item."""
    before = data[max(0, match.start() - _MOST_BEFORE) : match.start()]
    return (
        _CALLED.search(before) is not None
        and _QUOTE_END.search(data, match.end("rest"), match.start("sign")) is not None
    )


def _is_composed(literal: bytes | None, value: bytes) -> bool:
    """Whether the kind of a literal means that its text is no value: a pattern, or a template."""
    kind = (literal or b"").lower()
    return (b"r" in kind and _IN_PATTERN.search(value) is not None) or (
        (b"f" in kind or b"$" in kind) and b"{" in value
    )


def _check_fallback(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    """What is used instead of an expression, if that is given to a secret's name."""
    bounds = _taken(data, match, is_json, lambda value, _: not values.is_numbered(value) and _is_password(value))
    if bounds is None or (not is_json and _is_composed(match["literal"], data[slice(*bounds)])):
        return None
    line = data[max(0, match.start() - _MOST_GIVEN) : match.start()].rpartition(b"\n")[2].rpartition(b"\\n")[2]
    given = next(
        (given for name in values.find_keywords(line) if (given := _GIVEN.fullmatch(line, name.start()))), None
    )
    if given is None or values.is_about(given["keyword"], given["rest"]):
        return None
    if len(given["keyword"]) <= 4 and is_glued(line, given.start()):
        return None
    name = given["keyword"] + given["rest"]
    return bounds if is_json or values.is_secret(name, data[slice(*bounds)], is_quoted=True) else None


def _check_spaced(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    """A random value behind a name and blanks: in a table, in quotes, or both alone on their line."""
    name = match["opener"] + match["rest"]
    if values.is_about(match["opener"], match["rest"]) or (not is_json and _is_other_name(data, match)):
        return None
    is_apart = bool(match["quote"]) or b"|" in match["sign"]
    if not is_json and not is_apart and not _is_alone(data, match):
        return None
    return _taken(data, match, is_json, lambda value, _: values.is_drawn(name, value))


def _is_alone(data: bytes, match: re.Match[bytes]) -> bool:
    before = data[max(0, match.start() - _MOST_BEFORE) : match.start()]
    return _NAME_ONLY.search(before) is not None and _END_OF_LINE.match(data, match.end()) is not None


def _check_flag(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    name = match["name"] if "name" in match.re.groupindex else b"password"

    def is_secret(value: bytes, is_quoted: bool) -> bool:
        return values.names_secret(name) is not None and values.is_secret(name, value, is_quoted=is_quoted)

    return _taken(data, match, is_json, is_secret)


def _check_program(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    """The value of a program's own flag; no such value is there by chance, so a short one counts without quotes too."""
    most = 2 * _COMMAND_BYTES if is_json else _COMMAND_BYTES
    if "flag" in match.re.groupindex and match.start("flag") - match.start() > most:
        return None
    return _taken(data, match, is_json, lambda value, _: not _PORTS.fullmatch(value) and _is_password(value))


def _check_option(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    name = match["opener"][1:]

    def is_secret(value: bytes, _: bool) -> bool:  # `-pass pass:…` has a rule of its own
        return not value.startswith(b"pass:") and _is_password(value, b"password" if name == b"pw" else name)

    return _taken(data, match, is_json, is_secret)


def _is_password(value: bytes, name: bytes = b"password") -> bool:
    return values.is_secret(name, value, is_quoted=True)


def _check_curl_user(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    most = (4 if is_json else 2) * _COMMAND_BYTES
    before = data[max(0, match.start() - most) : match.start()]
    if b"curl" not in before or match["s"].startswith(b"//"):  # `docker run -u 1000:1000`, an address
        return None
    return _check_flag(rule, data, match, is_json)


def _check_declaration(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    if match["opener"].lower() == b"define " and not match["quote"]:
        return None  # `#define TOKEN_MASK 0xFF00FF00ul`
    value, start, end, _ = _value(data, match)
    if not is_json and _is_composed(match["literal"], value):
        return None
    if data[start - 1 : start] == b">" and data[end : end + 1] != b"<" and not is_json:
        return None  # `<input name="password"> 8 characters`
    return _check_flag(rule, data, match, is_json)


def _check_environment_key(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    is_public = data[max(0, match.start() - 11) : match.start()].upper().endswith((b"PUBLIC", b"PUBLISHABLE"))
    return _taken(data, match, is_json, lambda value, _: not is_public and values.is_environment_key(value))


def _check_url(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    if match["user"] is not None:
        return match.span("user") if values.is_url_user(match["user"]) else None
    return match.span("s") if values.is_url_password(match["s"]) else None


def _check_header(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    if data[match.end() : match.end() + 1] == b"(":
        return None  # `authorization = base64.decodebytes(`
    return match.span("s") if values.is_header_value(match["s"], match["opener"]) else None


def _check_private_key(rule: Rule, data: bytes, match: re.Match[bytes], is_json: bool) -> Bounds:
    body = match.end()
    limit = data.find(b"-----BEGIN", body, body + _KEY_BYTES)
    end = _KEY_END.search(data, body, limit if limit >= 0 else body + _KEY_BYTES)
    if end is not None:
        return (match.start(), end.end()) if _KEY_LINE.search(data, body, end.start()) else None
    lines = _KEY_LINES.match(data, body)
    return (match.start(), lines.end()) if lines and lines.end() - body >= 20 else None


CHECKS: dict[str, Check] = {
    "token": _check_token,
    "assignment": _check_assignment,
    "fallback": _check_fallback,
    "declaration": _check_declaration,
    "spaced": _check_spaced,
    "words": lambda rule, data, match, is_json: match.span("s"),
    "flag": _check_flag,
    "default": _check_flag,
    "program": _check_program,
    "piped": _check_program,
    "argument": lambda rule, data, match, is_json: _taken(
        data, match, is_json, lambda value, _: values.is_drawn(b"password", value)
    ),
    "option": _check_option,
    "registry": lambda rule, data, match, is_json: match.span("s") if values.is_registry_auth(match["s"]) else None,
    "curl-user": _check_curl_user,
    "environment-key": _check_environment_key,
    "url": _check_url,
    "header": _check_header,
    "private-key": _check_private_key,
}  # base64 is decoded instead
FINDERS = {"cookie": find_cookies, "table": find_cells}  # of which there may be many
UNLIKE_IN_JSON = frozenset({"private-key", "base64", "piped", "default"})  # raw JSON cannot be judged by these
