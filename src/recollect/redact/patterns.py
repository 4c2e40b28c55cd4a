"""What rules are made of: their fields, and parts of patterns that several of them share.

`rules.py` explains how a rule is matched and what its patterns may contain. A part called `SOME_…` or `…_OR_CODE` is
for scanners: looser, and matched wherever its strict twin is.
"""

from dataclasses import dataclass

PREFIX = "prefix"  # an opener that nothing else has
STRUCTURE = "structure"  # known by the text around it
KEYWORD = "keyword"  # known by its name; only as good as the check of the value
HIDDEN = "hidden"  # base64 of text, to be decoded


@dataclass(frozen=True, slots=True)
class Lead:
    """The part of a secret before its opener: a run of bytes, or what of it begins with `first`."""

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
    check: str = "token"
    lead: Lead | None = None
    is_caseless: bool = False
    is_whole: bool = False  # `least` includes the openers, each with what may follow it: that scans faster
    is_guarded: bool = False  # no letter or digit may come before it
    needs_digit: bool = False


QUOTE = r"(?:\\{0,16}[\"'`]|&quot;|&#0?39;|&#x27;)"
# Formatters align signs and values in columns; pages and chats write blanks that do not break.
_BLANK = "[ \\t]|\u00a0|\u3000"
SPACE = rf"(?:{_BLANK}|\\{{1,16}}t){{0,64}}"
SOME_SPACE = rf"(?:{_BLANK}|\\+t)*"
WIDE_SPACE = rf"(?:{_BLANK}|\\{{1,16}}t){{1,64}}"
# Any number of backslashes: a scanner need not count them.
SOME_QUOTE = r"(?:\\*[\"'`]|&quot;|&#0?39;|&#x27;)"
SPACE_OR_CODE = rf"(?:{_BLANK}|\+|\\+t|%20)*"
QUOTE_OR_CODE = r"(?:\\*[\"'`]|&quot;|&#0?39;|&#x27;|%2[27]|\\+u002[27])"
PLAIN = r"[^\x00-\x20\"'`<>(){}\[\],;$\\\x7f]"
IN_QUOTES = r"[^\x00-\x20\"'`\\]"
ANY = r"[^\x00-\x1f]"  # between quotes, where quotes and backslashes may be escaped
# After an opening quote; a closing one is mostly followed by a sign, a blank or the end of a line.
IN_ANY = rf"(?:{IN_QUOTES}{{5}}|[^\x00-\x20\"'`\\,;:.)\]}}+=]{ANY}{{4}})"
# Before a quote: literals of Python, C, C#, Rust, SQL (`b'…'`, `rb"…"`, `L"…"`, `@"…"`, `r#"…"#`, `N'…'`).
LITERAL = r"(?:b?r#{1,2}|[brun]|[rf][bf]?|br|fr|u8|L|@\$?|\$@?)"
SOME_LITERAL = r"[A-Za-z@$]?[A-Za-z8@$]?#{0,2}"
# The next line, and what comes before its text: indentation, the sign of a diff, a line number.
ARROW = r"(?:→|\\{1,16}u2192)"
LINE_BREAK = r"(?:\r?\n|(?:\\{1,16}r)?\\{1,16}n)"
LINE = (
    rf"{LINE_BREAK}"
    rf"(?:[ \t+-]|\\{{1,16}}t|[0-9]{{1,6}}(?:\t|\\{{1,16}}t|[:|]|{ARROW})){{0,40}}"
)
LINE_END = r"[ \t]{0,8}(?:[\r\n\\\"]|\Z)"
LINE_BYTES = r"[\t\r\n 0-9+:|\\nrtu\xe2\x86\x92-]"  # all bytes of it

_KEYS = "api access auth encryption private signing master account session license deploy shared".split()  # noqa: SIM905
_FOREIGN = "passwort kennwort contraseña senha wachtwoord lösenord пароль Пароль 密码 密碼 パスワード 비밀번호".split()  # noqa: SIM905
KEYWORDS = (
    *("pass", "password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "credential"),
    *("_pw", "-pw", "mot de passe", *_FOREIGN),
    *(f"{word}{joint}key" for word in (*_KEYS, "secret") for joint in ("_", "-", " ", "")),
)
# The same in as few branches as possible: it is tried often.
ANY_KEYWORD = (
    r"(?:pass(?:word|wd|phrase|code|wort)?|pwd|[_-]pw|secret(?:[_ -]?key)?|token|credential|mot de passe"
    rf"|{'|'.join(_FOREIGN[1:])}|(?:{'|'.join(_KEYS)})[_ -]?key)"
)
