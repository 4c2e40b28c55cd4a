"""Tells a value that was made to be secret from a name, a path, a word, a placeholder.

Each function looks at the bytes of the text and nothing else, so the verdict does not depend on what found the value.
Folded texts (colours, unicode escapes, percent signs, base64) are undone here, and what is found in them is mapped back
to where it was.
"""

import binascii
import math
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from recollect.redact.scanners import ANY_KEYWORD

_SEQUENCE = rb"(?:\[[0-9;:?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[()][0-9A-B])"
# Each branch begins with a different character: `re` then skips all others five times as fast.
_FOLDS = re.compile(
    rb"\x1b" + _SEQUENCE + rb"|\\\\{0,15}u001[bB]" + _SEQUENCE + rb"|\\\\{0,15}u00(?P<unicode>[2-7][0-9a-fA-F])"
    rb"|%(?P<percent>[2-7][0-9a-fA-F]|0[9aAdD])"
)
_URL_SAFE = bytes.maketrans(b"-_", b"+/")

COLOUR, ESCAPE = b"\x1b", b"\\u00"  # what begins a fold; JSON writes the first as one of the second


class Unfolded:
    """A text with its folds undone; `span` maps a part of it back to the original."""

    def __init__(self, data: bytes) -> None:
        unfolded = bytearray()
        # Where stretches that were copied unchanged begin; in many megabytes there may be a million of them.
        self._starts, self._sources = array("q", [0]), array("q", [0])
        last = 0
        for fold in _FOLDS.finditer(data):
            code = fold["unicode"] or fold["percent"]
            unfolded += data[last : fold.start()]
            unfolded += bytes.fromhex(code.decode()) if code else b""
            last = fold.end()
            self._starts.append(len(unfolded))
            self._sources.append(last)
        unfolded += data[last:]
        self.data = bytes(unfolded)

    def span(self, start: int, end: int) -> tuple[int, int]:
        return self._source(start), self._source(end - 1) + 1

    def _source(self, offset: int) -> int:
        number = bisect_right(self._starts, offset) - 1
        source = self._sources[number] + offset - self._starts[number]
        # The byte itself may be a fold: then it ends just before the next stretch.
        following = self._sources[number + 1] if number + 1 < len(self._sources) else source + 1
        return min(source, following - 1)


def decode_base64(run: bytes) -> bytes:
    """What a run of base64, ordinary or URL-safe, decodes to; a cut end is dropped."""
    letters = run.rstrip(b"=").translate(_URL_SAFE)
    letters = letters[: -1 if len(letters) % 4 == 1 else None]
    try:
        return binascii.a2b_base64(letters + b"=" * (-len(letters) % 4))
    except binascii.Error:
        return b""


def base64_span(start: int, end: int) -> tuple[int, int]:
    """Where bytes of a decoded run are in the run, in whole groups of four letters."""
    return start // 3 * 4, -(-end // 3) * 4


LEAST_DISTINCT = 6
# Searched in small letters, each branch with a different first byte: `re` then skips all others many times as fast.
_STRONG = re.compile(rb"pass|pwd|[_-]pw|secret|credential|kennwort|wachtwoord|senha|[\x80-\xff]")
_STAND_INS = rb"example|placeholder|xxxxx|000000000000|12345678|abcdefgh|redacted"
_PLACEHOLDER = re.compile(
    _STAND_INS + rb"|change[-_]?(?:me|this)|(?<![a-z0-9])xxx(?![a-z0-9])"
    rb"|dummy|fake|not[-_]?real|your[-_ ]|-here\b|_here\b|\.\.\.|\*\*\*"
)
_STAND_IN = re.compile(_STAND_INS + rb"|your[-_]")
_TEMPLATE = re.compile(
    rb"\$(?:\{|\(|[A-Za-z_]\w*)|\{\{?[ \w.$-]+\}?\}|<[^<>]*>?|%[sdrv]|%\(\w+\)[sd]|%[A-Za-z_][\w.]*(?:\([^()]*\))?%"
    rb"|#\{.*"
    rb"|\{[A-Za-z_][\w.]*[.(].*\}|<[?/A-Za-z].*>"
    rb"|@[A-Za-z_.]+@|[*.xX_-]+"
)
# A value that is put together: `blk.{bid}.pw1`, `%s:cert=%s`, `$2a$4$#{salt}`; or the file that has it.
_FORMATTED = re.compile(
    rb"\{[a-z_]{2,}\}|#\{|aws4_request|\[a-z|\\[swd][*+?)$]|%[sd].*%[sd]|\A\d{1,6}\xe2\x86\x92|\w\.(?:pem|crt|p12|jks)(?![A-Za-z0-9])"
)
_ADDRESS = re.compile(rb"https?://[^\s@?]*")
_REFERENCE = re.compile(
    rb"/\^|//|(?:https?|file|vault|env|ssm|op|arn|data|sha\d{1,3}|md5|ref|urn|asset|npm|workspace)[:-]|@[\w-]+/|[\w-]+/\*/|(?:process\.env|os\.environ|env|ENV)[.\[(]|\.{0,2}/[\w.-]+/|~/|/\w+/"
)
_PART = rb"(?:[a-z_]{2,}\d{1,4}[a-z_]+|[A-Za-z_$][A-Za-z_]*)"
_NAMES = (
    rb"_*"
    + _PART
    + rb"\d?(?:\[-?\d*\])?(?:(?:\.|::|->|\?\.|!\.|/|:|-)"
    + _PART
    + rb"\d?(?:\[-?\d*\])?)+[!?]?"  # dotted, or a path
    rb"|[a-z]+(?:[-_.][a-z]+)*"  # words
    rb"|\*{0,2}[A-Za-z]+(?:\*[a-z]+)*\*{0,2}"
    rb"|[A-Z]?[a-z]+(?:[A-Z]{1,4}[a-z]+)*[A-Z]{0,3}"  # camels
    rb"|_*[A-Z]+(?:[_-][A-Z0-9]+)*_*"  # constants
    rb"|[A-Z]?[a-z]+(?:[-_ ][A-Z]?[a-z]*)+"
)
_IDENTIFIER = re.compile(_NAMES)
_NUMBERED = re.compile(rb"(?:" + _NAMES + rb")\d{1,2}|_*[a-z]+\d{0,2}(?:[_.]+[a-z]+\d{0,2})+")
# Names of keys that are kept elsewhere: `Apache-2.0`, `KMS-default-2024`; `agent:main:42`; `rsa.RSAPrivateKey`.
_WORD = rb"(?:[A-Z]?[a-z]+(?:[A-Z][a-z]+)*|[A-Z]{1,8}|v?\d{1,6})"
_LABEL = re.compile(_WORD + rb"(?:[-_./:]" + _WORD + rb")+|(?:[a-z][a-z_-]*:){2,}.*|[a-z][a-z_-]*:[\da-f:]+")
_OF_A_KEY = re.compile(rb"(?i)[a-z_][\w.]*(?:(?:private|api)_?key|secret|token|credential|password)[a-z_]{0,12}")
_OF_A_CAMEL = re.compile(rb"[A-Za-z][\w.]*(?:Secret|Token|Password|Credential|Key)[A-Za-z]*\d?(?:[A-Z][a-z]+)*")
# Names with a secret's in them, which stand for it: `new_password1`, `TOKEN_INVALID`, `AdminAPIKeysWithResponse`.
_OF_SECRETS = re.compile(
    rb"[a-z_.-]*(?:password|passwd|passphrase|secret|token|credentials?)(?:[_.-]?[a-z]{1,4})?[_.-]?\d{0,2}[a-z]{0,3}"
    rb"|(?=\w*_)[A-Z0-9_]*(?:PASS|PASSWORD|SECRET|TOKEN|KEY)[A-Z0-9_]*"
)
_KEYWORD_IN_CAMEL = re.compile(rb"Secret|Token|Password|Passwd|Credential|(?:Api|API|Access|Private)Key")
_MEMBER = re.compile(rb"[a-z_]{2,}(?:(?:\.|->|::)[A-Za-z_]+\d{0,3}[A-Za-z_]*)+")
# A longer hexadecimal number is a key, but for one of 40 digits: that is the public address of an account.
_NUMBER = re.compile(rb"[+-]?\d[\d_.,:eExX+/-]*[A-Za-z%]{0,3}|0[xX](?:[0-9a-fA-F]{1,31}|[0-9a-fA-F]{40})")
_JOINTS = re.compile(rb"\.|::|->")
_CAMEL = re.compile(rb"_*[A-Za-z]+(?:[-_.][A-Za-z]+)*(?:\d{1,2}[A-Za-z]+)?\d?")
_HUMP = re.compile(rb"[A-Z]?[a-z]{2,}")
_VOWEL = re.compile(rb"[aeiouyAEIOUY]")
_FIELD = re.compile(rb"[A-Za-z_]+=\W{0,3}")  # another name that is given next to nothing
# Another name with its own value (`MODEL=acme-4`), a place in a file (`app.py:42`, `a.md#b`), a branch (`main/fix-12`).
_STEM = rb"(?>(?:[a-z]+\d{0,4}|\d{1,8}|[0-9a-f]{7,12})(?![a-z0-9]))"
_NOT_A_VALUE = re.compile(
    rb"(?:/|--)?(?:[A-Z][A-Z0-9_]{2,}|[a-z]+(?:[-_][a-z]+)+|(?:[A-Z][a-z]+)+)=(?:[a-z]{3,}+|[A-Z_]{3,}+|[:+/.\x80-\xff-])++=?"
    rb"|(?:id|env|src|source|target|type|file)=[A-Za-z_./-][\w./-]*|[a-z]+=\.{0,2}/[\w./-]+"  # of `docker --secret`
    rb"|[A-Z]{3,}[A-Z_:]*@default(?:[?/].*)?"
    rb"|[a-z_]+(?::[\w,]+)?(?:\|[a-z_]+(?::[\w,]+)?)+|"  # rules for a form: `required|min:8`
    rb"(?:[A-Z][A-Z0-9]+(?:_[A-Z0-9]{2,})+|[a-z]{2,}(?:_[a-z]{2,})+)=[^=].*|[A-Za-z]{2,}=(?:[A-Z]?[a-z]+(?:[-_][a-z]+)*|\d+[a-z]{0,2})|(?:[\w.-]+/)*[\w.-]+\.[a-z]{1,4}(?::\d+(?::.*)?|#[\w-]+)"
    rb"|(?:" + _STEM + rb"[-_.])*" + _STEM + rb"/(?:" + _STEM + rb"[-_./])*" + _STEM
)
_UUID = re.compile(rb"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEX = re.compile(rb"(?i)(?:0x)?[0-9a-f]+")
_BASE64 = re.compile(rb"/[A-Za-z0-9+/]+={0,2}")
_AWS_SECRET = re.compile(rb"[A-Za-z0-9/+]{40}")
_UNSPEAKABLE = re.compile(rb"(?i)[bcdfghjklmnpqrstvwxz]{5}")
_LOWER = re.compile(rb"[a-z]")
_UPPER = re.compile(rb"[A-Z]")
_DIGIT = re.compile(rb"\d")
_SIGN = re.compile(rb"[!@#%^&*+=~?|]")

# The end of a name that is about a secret without holding one.
_ABOUT = re.compile(
    rb"(?i)(?:id|ids|name|names|type|types|count|counts|total|url|uri|path|file|filename|dir|field|input|label|placeholder|length|len"
    rb"|size|limit|expiry|expires|expires[-_]?(?:at|in)|expiration|ttl|at|time|date|policy|ref|env|var|header|prefix|suffix|hint|reset|error"
    rb"|regex|pattern|usage|budget|index|idx|start|end|pos|position|format|version|kind|class|arn|endpoint|status|state|manager|provider"
    rb"|store|service|rotation|scope|scopes|match|list|map|set|test|tests|rules?|min|max|used|left|key[-_]?id"
    rb"|flag|const|constant|encryption|algorithm|alg|mode|method|scheme|headers|hashers?|namespace|variants?|options?)"
)
_OF_TOKENS = re.compile(rb"(?i)data|table|groups?|source|mixers?|highlighter|resource")  # of a parser's tokens
# Before `token` in the names of page and sync tokens.
_OF_PAGES = re.compile(
    rb"(?:\A|[^A-Za-z]|(?<=[a-z])(?=[A-Z]))"
    rb"(?i:pag(?:e|ing|ination)|next|prev(?:ious)?|continu(?:e|ation)|sync|cursor|resume|start(?:ing)?|delta|skip)"
    rb"[-_. ]?\Z"
)
# What code and prose have in them, and what is drawn at random hardly ever.
_CODE = re.compile(rb"\s|[\"'`].*[\"'`]|[A-Za-z_]{3,}[(\[]|[A-Za-z_]{2,}\.[A-Za-z_]{2,}|://|=>|&&|\|\|")
_WHO = re.compile(
    rb"(?i)sess|sid\Z|auth|token|jwt|csrf|xsrf|sso|remember|identity|credential|secret|passport|clearance"
)
_LAST_PART = re.compile(rb"[A-Z]?[a-z0-9]+\Z|[A-Z0-9]+\Z")


def entropy(value: bytes) -> float:
    """Bits per byte, by how often each byte occurs in the value itself."""
    size = len(value)
    return -sum(count / size * math.log2(count / size) for count in Counter(value).values()) if size else 0.0


def is_token(value: bytes) -> bool:
    """Whether what follows a distinctive opener is random rather than a stand-in."""
    return len(set(value)) >= LEAST_DISTINCT and not _STAND_IN.search(value.lower())


@lru_cache(4096)
def names_secret(name: bytes) -> re.Match[bytes] | None:
    """The keyword that makes a field or variable a secret's, if it is one."""
    keywords = list(_KEYWORD.finditer(name))
    if not keywords:
        return None
    last = keywords[-1]  # the one that counts: `secret_token_name`
    is_other = is_about(last[0], name[last.end() :]) or is_of_pages(last[0], name[: last.start()])
    return None if is_other else last


_KEYWORD = re.compile(b"(?i)" + ANY_KEYWORD.encode())
find_keywords = _KEYWORD.finditer


def is_about(keyword: bytes, rest: bytes) -> bool:
    """Whether the rest of a name after the keyword makes it another word, or something about a secret."""
    if rest[:1] in (b"s", b"S") and not rest[1:2].islower():
        rest = rest[1:]
    if not rest:
        return False
    if rest[:1].isalpha() and not (rest[:1].isupper() and keyword[-1:].islower()):
        return True  # `tokenizer`, `passenger`, `secretary`
    last = _LAST_PART.search(rest.rstrip(b"-_."))
    if last is None:
        return False
    is_parser = keyword.lower() == b"token" and _OF_TOKENS.fullmatch(last[0]) is not None
    return is_parser or _ABOUT.fullmatch(last[0]) is not None


def is_of_pages(keyword: bytes, before: bytes) -> bool:
    """Whether a name is that of a page or sync token: `next_page_token`."""
    return keyword.lower() == b"token" and _OF_PAGES.search(before) is not None


def is_strong(name: bytes) -> bool:
    """Whether a name is so clearly a secret's that a short or simple value is one too."""
    return _STRONG.search(name.lower()) is not None


def is_secret(name: bytes, value: bytes, *, is_quoted: bool) -> bool:
    """Whether the value of a name that a secret may have is one."""
    if _AWS_SECRET.fullmatch(value) and entropy(value) >= 4.2 and _UPPER.search(value) and _DIGIT.search(value):
        return True
    if _is_other(value):
        return False
    if is_strong(name):
        return _is_password(value, is_quoted)
    return not is_numbered(value) and not _is_label(value) and _is_key(value)


def _is_other(value: bytes) -> bool:
    """A placeholder, template, reference, number, identifier or plain words."""
    return (  # the most frequent first
        is_identifier(value)
        or _NUMBER.fullmatch(value) is not None
        or (_FIELD.fullmatch(value) is not None and not is_scrambled(value))
        or value.startswith((b"$(", b"{{", b"[REDACTED:"))
        or b"${" in value
        or _TEMPLATE.fullmatch(value) is not None
        or _FORMATTED.search(value) is not None
        or _ADDRESS.fullmatch(value) is not None
        or _names_one(value)
        or (_REFERENCE.match(value) is not None and entropy(value) < 4.5 and not _is_slashed_base64(value))
        or not (_LOWER.search(value) or _UPPER.search(value))
        or _PLACEHOLDER.search(value.lower()) is not None
        or _NOT_A_VALUE.fullmatch(value) is not None
    )


def has_placeholder(text: str) -> bool:
    """Whether a text contains a placeholder for a secret."""
    return _PLACEHOLDER.search(text.encode("utf-8", "replace").lower()) is not None


def _is_slashed_base64(value: bytes) -> bool:
    """Whether a value that begins like a path is base64: most of it is random."""
    return _BASE64.fullmatch(value) is not None and _is_mostly_drawn(value.split(b"/"))


def is_identifier(value: bytes) -> bool:
    """Whether a value is a name without digits, like that of a field or variable."""
    return _IDENTIFIER.fullmatch(value) is not None and not any(map(is_scrambled, _JOINTS.split(value)))


def is_camel(value: bytes) -> bool:
    """Whether a value is made of words that begin with capitals: `OAuth2ConfigurerUtils`, but not `Summer2024`."""
    if _CAMEL.fullmatch(value) is None:
        return False
    # In what is drawn at random, words of four letters are rare.
    least, share = (4, 0.6) if _DIGIT.search(value) else (3, 0.7)
    words = [word for word in _HUMP.findall(value) if len(word) >= least and _VOWEL.search(word)]
    return sum(map(len, words)) >= share * len(value) and not any(map(_UNSPEAKABLE.search, words))


def _names_one(value: bytes) -> bool:
    """Whether a value is a name with that of a secret in it."""
    return _OF_SECRETS.fullmatch(value) is not None or (_KEYWORD_IN_CAMEL.search(value) is not None and is_camel(value))


def is_variable(value: bytes) -> bool:
    """Whether a value without quotes is a variable or a member of one: `resp.JSON201.Key`, `myJwtSecret`, `*token`."""
    name = value.lstrip(b"&!*+~?@:").rstrip(b"?|&*,;").replace(b".#", b".")
    if b"|" in name:  # a type that may be another one
        return all(map(is_variable, name.split(b"|")))
    return (
        is_identifier(name)
        or is_camel(name)
        or _MEMBER.fullmatch(name) is not None
        or _OF_A_CAMEL.fullmatch(name) is not None
    )


def is_numbered(value: bytes) -> bool:
    """Whether a value is a name with a number at its end, like that of a field or variable."""
    return _NUMBERED.fullmatch(value) is not None and not is_scrambled(value)


def _is_label(value: bytes) -> bool:
    """Whether a value is made of words and numbers: the name of a key, hardly ever a key."""
    if _OF_A_KEY.fullmatch(value):
        return True
    return _LABEL.fullmatch(value) is not None and not is_scrambled(value)


def _is_password(value: bytes, is_quoted: bool) -> bool:
    if len(value) < (6 if is_quoted else 8) or entropy(value) < 2.3:
        return False
    if b" " in value:
        return _is_mostly_drawn(value.split())
    return bool(_DIGIT.search(value) or _SIGN.search(value)) or (len(value) >= 8 and is_scrambled(value))


def _is_mostly_drawn(words: Sequence[bytes]) -> bool:
    """Whether more than half of the words is random; prose is not, nor a passphrase."""
    return 2 * sum(len(word) for word in words if _is_drawn(word.rstrip(b"?!.,:"))) > sum(map(len, words))


def _is_drawn(word: bytes) -> bool:
    if len(word) < 6 or _is_other(word) or is_numbered(word):
        return False
    return _kinds(word) >= 3 or is_scrambled(word)


def _kinds(value: bytes) -> int:
    """How many of small letters, capitals, digits and signs are in a value."""
    return sum(kind.search(value) is not None for kind in (_LOWER, _UPPER, _DIGIT, _SIGN))


def is_distinctive(value: bytes) -> bool:
    """Whether a secret cannot be mistaken for a word, so that it can be hidden where no name is near it."""
    if len(value) < 8 or is_numbered(value) or _is_label(value) or _is_other(value) or _CODE.search(value):
        return False
    if _DIGIT.search(value) is None:
        return len(value) >= 20 and is_scrambled(value)
    return _kinds(value) >= 3 or (len(value) >= 12 and _kinds(value) >= 2)


def is_drawn(name: bytes, value: bytes) -> bool:
    """Whether a value that follows a name by chance, perhaps, is so random that it must be its secret."""
    if len(value) < 8 or is_numbered(value) or _is_label(value) or is_variable(value):
        return False
    has_many = _kinds(value) >= 3 or (len(value) >= 16 and value.isalnum() and _DIGIT.search(value) is not None)
    return has_many and is_secret(name, value, is_quoted=True)


def _is_key(value: bytes) -> bool:
    if len(value) < 10 or b" " in value or _UUID.fullmatch(value) or entropy(value) < 2.9:
        return False
    has_both = _LOWER.search(value) and _UPPER.search(value)
    if _DIGIT.search(value):
        return bool(has_both) or len(value) >= (12 if _SIGN.search(value) else 16)
    return bool(has_both) and (_SIGN.search(value) is not None or is_scrambled(value))


def is_scrambled(value: bytes) -> bool:
    """Whether capitals are spread at random: in names they begin words, or are all of one."""
    if value.islower() or value.isupper() or is_camel(value):
        return False
    letters = [byte for byte in value if 65 <= (byte & 0xDF) <= 90]
    if len(letters) < 8:
        return False
    pairs = list(pairwise(byte < 97 for byte in letters))
    turns = sum(a != b for a, b in pairs)
    return turns >= len(letters) / 4 and ((True, True) in pairs or _UNSPEAKABLE.search(value) is not None)


def is_environment_key(value: bytes) -> bool:
    """Whether the value of a variable that ends in `_KEY` looks random: such a name may be any kind of key's."""
    if len(value) < 16 or _is_other(value) or is_variable(value) or _UUID.fullmatch(value) or entropy(value) < 3.3:
        return False
    if not _DIGIT.search(value) or (b" " in value and not _is_mostly_drawn(value.split())):
        return False
    return bool(_LOWER.search(value) and _UPPER.search(value)) or (
        len(value) >= 32 and _HEX.fullmatch(value) is not None
    )


# Constants, escaped signs, and what is left of `[user[:password]@]host`.
_NO_PASSWORD = re.compile(rb"[A-Z]+(?:[_-][A-Z]+)*|(?:%[0-9A-Fa-f]{2})+|[^\[]*\].*")
_DEFAULT_PASSWORDS = frozenset(
    b"password pass pwd passwd secret token xxx postgres root user username admin guest test changeme example"
    b" mysql redis rabbitmq minio mongo foo bar baz"
    b" x-oauth-basic oauth2 passw0rd dbpass dbpassword mypassword userpass pw".split()
)


def is_url_password(value: bytes) -> bool:
    """Whether the part of an address between the colon and the `@` is a real password."""
    low = value.lower()
    if (
        low in _DEFAULT_PASSWORDS
        or _NO_PASSWORD.fullmatch(value)
        or _TEMPLATE.fullmatch(value)
        or b"${" in value
        or b"$(" in value
        or b"[REDACTED:" in value
        or (_OF_A_KEY.fullmatch(value.rstrip(b"]")) and (b"_" in value or not value.islower()))
    ):
        return False
    is_pattern = b"..." in value or b"[^" in value or value[:1] in b"{<[(" or value.startswith(b"&lt;")
    return not (is_pattern or value.isdigit() or _STAND_IN.search(low))


def is_url_user(value: bytes) -> bool:
    """Whether a user without a password is a token, as in `https://TOKEN@host`."""
    return not _is_other(value) and _is_key(value) and entropy(value) >= 3.3


def is_header_value(value: bytes, opener: bytes) -> bool:
    """Whether what follows `Authorization:`, `Bearer` or `Basic` is a credential."""
    if opener.lower() == b"basic":
        return _is_basic(value)
    if (
        _is_other(value)
        or is_camel(value)
        or value.startswith(b"AWS4-")
        or len(set(value)) < LEAST_DISTINCT
        or entropy(value) < 2.9
    ):
        return False
    return len(value) >= 16 and (_DIGIT.search(value) is not None or (len(value) >= 20 and is_scrambled(value)))


def _is_basic(value: bytes) -> bool:
    credentials = decode_base64(value)
    return b":" in credentials and all(32 <= byte < 127 for byte in credentials)


def is_registry_auth(value: bytes) -> bool:
    """Whether base64 holds a user and a password that is no stand-in."""
    if not _is_basic(value):
        return False
    return is_url_password(decode_base64(value).partition(b":")[2])


def is_cookie(name: bytes, value: bytes) -> bool:
    """Whether a cookie is one by which a server recognises somebody."""
    if _WHO.search(name) is None or _is_other(value) or is_numbered(value):
        return False
    return _UUID.fullmatch(value) is not None or _is_key(value)
