"""What rules are made of: their fields, and the parts of patterns that several of them have.

`rules.py` says how a rule is found and what may stand in its patterns.
"""

from dataclasses import dataclass

PREFIX = "prefix"  # an opener that nothing else has
STRUCTURE = "structure"  # known by the text around it
KEYWORD = "keyword"  # known by the name it is given; only as good as the test of the value
HIDDEN = "hidden"  # base64 of text, to be looked into


@dataclass(frozen=True, slots=True)
class Lead:
    """What stands before an opener and belongs to the secret: a run of bytes, or the part of it from `first` on."""

    characters: str
    least: int
    most: int
    first: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One format. The secret is the group `s` of `whole`, or all of the match."""

    name: str
    finds: str
    kind: str
    openers: tuple[str, ...]
    least: str
    rest: str
    reach: int  # bytes from an opener to the end of `least`, at most
    test: str = "token"
    lead: Lead | None = None
    is_caseless: bool = False
    is_whole: bool = False  # `least` begins with the openers, each followed by what may follow it: that scans faster
    is_guarded: bool = False  # no letter or digit may stand before it
    needs_digit: bool = False


QUOTE = r"(?:\\{0,16}[\"'`]|&quot;|&#0?39;|&#x27;)"
SPACE = r"(?:[ \t]|\\{1,16}t){0,3}"
SOME_SPACE = r"[ \t\\t]{0,8}"
WIDE_SPACE = r"(?:[ \t]|\\{1,16}t){1,12}"
# As many backslashes as there are: a scanner need not count them.
SOME_QUOTE = r"(?:\\*[\"'`]|&quot;|&#0?39;|&#x27;)"
SPACE_OR_CODE = r"(?:[ \t+]|\\+t|%20){0,3}"
QUOTE_OR_CODE = r"(?:\\*[\"'`]|&quot;|&#0?39;|&#x27;|%2[27]|\\+u002[27])"
PLAIN = r"[^\x00-\x20\"'`<>(){}\[\],;$\\\x7f]"
IN_QUOTES = r"[^\x00-\x20\"'`\\]"
ANY = r"[^\x00-\x1f]"  # between quotes; quotes and backslashes may be escaped there
# After a quote that opens; after one that closes there is mostly a sign, a blank or the end of a line.
IN_ANY = rf"(?:{IN_QUOTES}{{5}}|[^\x00-\x20\"'`\\,;:.)\]}}+=]{ANY}{{4}})"
# Before a quote: the kinds of literals of Python, C, C# (`b'…'`, `rb"…"`, `L"…"`, `@"…"`).
LITERAL = r"(?:[bru]|[rf][bf]?|br|fr|u8|L|@\$?|\$@?)"
SOME_LITERAL = r"[A-Za-z@$]?[A-Za-z8@$]?"
# The next line, and what stands before its text: indentation, the sign of a difference, a number.
ARROW = r"(?:→|\\{1,16}u2192)"
LINE = (
    r"(?:\r?\n|(?:\\{1,16}r)?\\{1,16}n)"
    rf"(?:[ \t+-]|\\{{1,16}}t|[0-9]{{1,6}}(?:\t|\\{{1,16}}t|[:|]|{ARROW})){{0,40}}"
)
LINE_END = r"[ \t]{0,8}(?:[\r\n\\\"]|\Z)"
LINE_BYTES = r"[\t\r\n 0-9+:|\\nrtu\xe2\x86\x92-]"  # all that it is made of

_KEYS = "api access auth encryption private signing master account session license deploy shared".split()  # noqa: SIM905
KEYWORDS = (
    *("pass", "password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "credential"),
    *(f"{word}{joint}key" for word in (*_KEYS, "secret") for joint in ("_", "-", "")),
)
# The same, in as few branches as can be: it is tried at many places.
ANY_KEYWORD = (
    rf"(?:pass(?:word|wd|phrase|code)?|pwd|secret(?:[_-]?key)?|token|credential|(?:{'|'.join(_KEYS)})[_-]?key)"
)
