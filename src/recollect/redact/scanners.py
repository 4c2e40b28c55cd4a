"""Finds where a rule may apply, fast and over whole blocks.

Two scanners have the same hits: Hyperscan, with one compiled database for all rules, and Aho-Corasick for the openers
with `re` behind it. The second is 40 times slower but ready at once, so it is used where there is no Hyperscan, and for
the first texts of a new store. Everything that decides comes after them and is the same for both.

`rules.py` explains how a rule is matched and what its patterns may contain. Of the parts that several rules share, one
called `SOME_…` or `…_OR_CODE` is for scanners: looser, and matched wherever its strict twin is.
"""

import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol

from ahocorasick_rs import BytesAhoCorasick, Implementation

from recollect.model.files import replace_file

MOST_HITS = 400_000  # in one scan; no real text of that size comes near
SECONDS = 2.0  # of processor time, for a text of any usual size
SECONDS_PER_MB = 0.5  # for larger ones
_HITS_PER_CHECK = 1024
_STRETCH_BYTES = 256 * 1024
_BEFORE_SIGN, _AFTER_SIGN = 80, 160
_CACHE_PREFIX = "redaction-"
_SEAL_BYTES = 32
_LITTLE_BYTES = 1024 * 1024  # searched without Hyperscan in a tenth of a second; compiling takes four times as long

Hit = tuple[int, int]  # number of the expression, offset


class TooManyHits(Exception):
    """A text with so many hits that checking them would take forever."""


class OutOfTime(Exception):
    """A text took longer than any text should."""


class Clock:
    """The processor time one text may take, from the first look at it on: most texts have nothing to look into."""

    def __init__(self, size: int) -> None:
        self._seconds = max(SECONDS, size * SECONDS_PER_MB / 1e6)
        self._until: float | None = None

    def check(self) -> None:
        now = time.thread_time()
        if self._until is None:
            self._until = now + self._seconds
        elif now > self._until:
            raise OutOfTime


class Expression(NamedTuple):
    """What to look for: an opener and the least that follows, or a pattern that ends `fixed` bytes after the hit."""

    openers: tuple[bytes, ...]
    pattern: bytes  # what follows an opener; all of it if there is none
    reach: int
    is_caseless: bool = False
    fixed: int | None = None
    sign: bytes = b""  # part of every match of a pattern without openers
    is_whole: bool = False  # the pattern includes the openers
    is_once: bool = False  # one hit is enough: it only matters whether the sign is there

    @property
    def whole(self) -> bytes:
        either = b"|".join(map(re.escape, self.openers))
        whole = b"(?:" + either + b")" + self.pattern if self.openers and not self.is_whole else self.pattern
        return b"(?i)" + whole if self.is_caseless else whole


class Scanner(Protocol):
    def hits(self, data: bytes, clock: Clock, *, is_exact: bool = True) -> list[Hit]:
        """Where each expression matches: the offset of its opener. Raises TooManyHits or OutOfTime.

        Inexact hits may include others, and take less time.
        """
        ...


class _Openers:
    """The openers of one expression, looked for near the end of a match; compiled when first needed."""

    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    def starts(self, data: bytes, end: int, is_exact: bool) -> list[int]:
        if self._expression.fixed is not None:
            return [end - self._expression.fixed]
        begin = max(0, end - self._expression.reach)
        window = data[begin:end]
        if self._expression.is_caseless:
            window = window.lower()
        starts = {begin + start for _, start, _ in self._search(window, overlapping=True)}
        # What ends here need not begin there: the end may belong to another match within reach.
        return [start for start in starts if not is_exact or self._whole.match(data, start)]

    @cached_property
    def _whole(self) -> re.Pattern[bytes]:
        return re.compile(self._expression.whole)

    @cached_property
    def _search(self) -> Callable[..., list[tuple[int, int, int]]]:
        openers = self._expression.openers
        openers = tuple({opener.lower() for opener in openers}) if self._expression.is_caseless else openers
        return BytesAhoCorasick(openers, implementation=Implementation.DFA).find_matches_as_indexes


class HyperscanScanner:
    """All expressions in one Hyperscan database, cached in a file that is sealed with the store's key."""

    def __init__(self, expressions: Sequence[Expression], folder: Path | None, key: bytes) -> None:
        import hyperscan  # not installed everywhere, and slow to load

        self._openers = [_Openers(expression) for expression in expressions]
        self._terminated = hyperscan.ScanTerminated
        database = _Cache(expressions, folder, key).database()
        database.scratch = hyperscan.Scratch(database)
        self._scan: Callable[..., Any] = database.scan
        self._lock = Lock()  # the scratch space serves one scan at a time, and scanning lets other threads run

    def hits(self, data: bytes, clock: Clock, *, is_exact: bool = True) -> list[Hit]:
        ends: list[Hit] = []

        def note(number: int, start: int, end: int, flags: int, context: Any) -> bool:
            ends.append((number, end))
            return len(ends) > MOST_HITS

        try:
            with self._lock:
                self._scan(data, match_event_handler=note)
        except self._terminated:
            raise TooManyHits from None
        hits: dict[Hit, None] = {}
        for count, (number, end) in enumerate(dict.fromkeys(ends)):
            if count % _HITS_PER_CHECK == 0:
                clock.check()
            for start in self._openers[number].starts(data, end, is_exact):
                hits[number, start] = None
        return list(hits)


class AhoCorasickScanner:
    """The openers of all expressions at once, each then tried by `re`; expressions without openers by `re` alone."""

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self._patterns: list[tuple[int, Expression, re.Pattern[bytes]]] = []
        openers: dict[bytes, list[tuple[int, re.Pattern[bytes], int]]] = {}
        self._once = [(number, expression.sign) for number, expression in enumerate(expressions) if expression.is_once]
        for number, expression in enumerate(expressions):
            if expression.is_once:
                continue
            if expression.fixed is not None:
                flags = b"(?i)" if expression.is_caseless else b""
                anywhere = re.compile(flags + b"(?=(" + expression.pattern + b"))")
                self._patterns.append((number, expression, anywhere))
                continue
            whole = re.compile(expression.whole)
            for opener in expression.openers:
                openers.setdefault(opener.lower(), []).append((number, whole, expression.reach))
        self._wholes = list(openers.values())
        self._search = BytesAhoCorasick(list(openers)).find_matches_as_indexes

    def hits(self, data: bytes, clock: Clock, *, is_exact: bool = True) -> list[Hit]:
        hits: dict[Hit, None] = {}
        for count, (opener, start, _) in enumerate(self._search(data.lower(), overlapping=True)):
            if count % _HITS_PER_CHECK == 0:
                clock.check()
            for number, whole, reach in self._wholes[opener]:
                if whole.match(data, start, start + reach):
                    hits[number, start] = None
            if len(hits) > MOST_HITS:
                raise TooManyHits
        for number, sign in self._once:
            if (offset := data.find(sign)) >= 0:
                hits[number, offset] = None
        for number, expression, pattern in self._patterns:
            for start, end in _windows(data, expression.sign):
                clock.check()
                for match in pattern.finditer(data, start, end):
                    hits[number, match.end(1) - (expression.fixed or 0)] = None
        return list(hits)


class LateScanner:
    """Hyperscan; but until its rules are compiled for this store, the first texts are searched with Aho-Corasick."""

    def __init__(self, expressions: Sequence[Expression], folder: Path | None, key: bytes) -> None:
        self._compile = partial(HyperscanScanner, expressions, folder, key)
        is_compiled = _Cache(expressions, folder, key).exists()
        self._scanner: Scanner = self._compile() if is_compiled else AhoCorasickScanner(expressions)
        self._left_bytes = 0 if is_compiled else _LITTLE_BYTES

    def hits(self, data: bytes, clock: Clock, *, is_exact: bool = True) -> list[Hit]:
        if self._left_bytes > 0:
            self._left_bytes -= len(data)
            if self._left_bytes <= 0:
                self._scanner = self._compile()
        return self._scanner.hits(data, clock, is_exact=is_exact)


def _windows(data: bytes, sign: bytes) -> Iterator[tuple[int, int]]:
    """The stretches of a text near a sign; without a sign, all of it."""
    if not sign:
        for start in range(0, max(1, len(data)), _STRETCH_BYTES):
            yield start, start + _STRETCH_BYTES + _AFTER_SIGN
        return
    start = end = -1
    offset = data.find(sign)
    while offset >= 0:
        if offset - _BEFORE_SIGN > end:
            if end >= 0:
                yield start, end
            start = max(0, offset - _BEFORE_SIGN)
        end = offset + _AFTER_SIGN
        offset = data.find(sign, offset + 1)
    if end >= 0:
        yield start, end


@lru_cache(maxsize=4)  # a process may open several stores, mostly with the same rules
def _compiled(patterns: tuple[bytes, ...], flags: tuple[int, ...]) -> bytes:
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    count = len(patterns)
    database.compile(expressions=list(patterns), ids=list(range(count)), elements=count, flags=list(flags))
    return bytes(hyperscan.dumpb(database))


class _Cache:
    """The compiled database in the store's folder. A file without the right seal is compiled anew, never trusted."""

    def __init__(self, expressions: Sequence[Expression], folder: Path | None, key: bytes) -> None:
        import hyperscan

        self._patterns = tuple(expression.whole for expression in expressions)
        self._flags = tuple(hyperscan.HS_FLAG_SINGLEMATCH if expression.is_once else 0 for expression in expressions)
        self._key = key
        content = repr((getattr(hyperscan, "__version__", ""), platform.machine(), self._patterns, self._flags))
        name = blake2b(content.encode(), digest_size=12).hexdigest()
        self._path = folder / f"{_CACHE_PREFIX}{name}.hs" if folder else None

    def exists(self) -> bool:
        return self._path is not None and self._path.exists()

    def database(self) -> Any:
        import hyperscan

        content = self._read() if self._path else b""
        if content[:_SEAL_BYTES] == self._seal(content[_SEAL_BYTES:]):
            with suppress(hyperscan.error):  # made for another processor
                return hyperscan.loadb(content[_SEAL_BYTES:], hyperscan.HS_MODE_BLOCK)
        content = _compiled(self._patterns, self._flags)
        if self._path is not None:
            with suppress(OSError):  # a full or read-only disk costs time at the next start, nothing else
                self._write(self._path, content)
        return hyperscan.loadb(content, hyperscan.HS_MODE_BLOCK)

    def _read(self) -> bytes:
        with suppress(OSError):
            fd = os.open(self._path or "", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                return file.read()
        return b""

    def _write(self, path: Path, content: bytes) -> None:
        replace_file(path, self._seal(content) + content, is_durable=False)
        for old in path.parent.glob(f"{_CACHE_PREFIX}*.hs"):
            if old != path:
                old.unlink(missing_ok=True)

    def _seal(self, content: bytes) -> bytes:
        return blake2b(content, key=self._key[:64], digest_size=_SEAL_BYTES, person=b"hyperscan").digest()


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
