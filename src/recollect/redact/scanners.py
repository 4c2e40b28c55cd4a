"""Finding the places where a rule may apply, fast and over whole blocks.

Two scanners that find the same places: Hyperscan, with one compiled database for all rules, and Aho-Corasick for the
openers with `re` behind it where there is no Hyperscan. Everything that decides is after them and is the same for both.
"""

import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol

MOST_PLACES = 400_000  # in one scan; no real text of that size comes near
SECONDS = 2.0  # of processor time, for a text of any usual size
SECONDS_PER_MB = 0.5  # for larger ones
_PLACES_PER_CHECK = 1024
_STRETCH_BYTES = 256 * 1024
_BEFORE_SIGN, _AFTER_SIGN = 80, 160
_CACHE_PREFIX = "redaction-"
_SEAL_BYTES = 32


class TooManyPlaces(Exception):
    """A text with so many places to look at that looking would take for ever."""


class OutOfTime(Exception):
    """A text took longer than any text should."""


class Clock:
    """The time one text may take."""

    def __init__(self, size: int) -> None:
        self._until = time.thread_time() + max(SECONDS, size * SECONDS_PER_MB / 1e6)

    def check(self) -> None:
        if time.thread_time() > self._until:
            raise OutOfTime


class Expression(NamedTuple):
    """What to look for: an opener and the least that follows, or a pattern that ends `fixed` bytes after the place."""

    openers: tuple[bytes, ...]
    pattern: bytes  # what follows an opener; all of it if there is none
    reach: int
    is_caseless: bool = False
    fixed: int | None = None
    sign: bytes = b""  # stands in all that a pattern without openers matches
    is_whole: bool = False  # the pattern has the openers in it
    is_once: bool = False  # all that is asked is whether its sign is there: one place is enough

    @property
    def whole(self) -> bytes:
        either = b"|".join(map(re.escape, self.openers))
        found = b"(?:" + either + b")" + self.pattern if self.openers and not self.is_whole else self.pattern
        return b"(?i)" + found if self.is_caseless else found


Place = tuple[int, int]  # number of the expression, offset


class Scanner(Protocol):
    def places(self, data: bytes, clock: Clock, *, is_exact: bool = True) -> list[Place]:
        """Where each expression applies: the start of an opener. Raises TooManyPlaces or OutOfTime.

        Places that are not exact may be more than those; that takes less time.
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
        starts = [begin + match.start() for match in self._pattern.finditer(window)]
        # What ends here may not be what begins there: another match within reach may have the end.
        return [start for start in starts if self._whole.match(data, start)] if is_exact else starts

    @cached_property
    def _whole(self) -> re.Pattern[bytes]:
        return re.compile(self._expression.whole)

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        """One byte, then the rest looked ahead at: openers may overlap, and `re` tells branches by their first byte."""
        openers = self._expression.openers
        openers = tuple({opener.lower() for opener in openers}) if self._expression.is_caseless else openers
        branches = []
        for first in sorted({opener[:1] for opener in openers}):
            rests = sorted(re.escape(opener[1:]) for opener in openers if opener[:1] == first)
            branches.append(re.escape(first) + b"(?=" + b"|".join(rests) + b")")
        return re.compile(b"|".join(branches))


class HyperscanScanner:
    """All expressions in one Hyperscan database, kept compiled in a file that only its own key can seal."""

    def __init__(self, expressions: Sequence[Expression], folder: Path | None, key: bytes) -> None:
        import hyperscan

        self._openers = [_Openers(expression) for expression in expressions]
        self._terminated = hyperscan.ScanTerminated
        database = _Cache(expressions, folder, key).database()
        database.scratch = hyperscan.Scratch(database)
        self._scan: Callable[..., Any] = database.scan

    def places(self, data: bytes, clock: Clock, *, is_exact: bool = True) -> list[Place]:
        ends: list[Place] = []

        def note(number: int, start: int, end: int, flags: int, context: Any) -> bool:
            ends.append((number, end))
            return len(ends) > MOST_PLACES

        try:
            self._scan(data, match_event_handler=note)
        except self._terminated:
            raise TooManyPlaces from None
        if not ends:
            return []
        found: dict[Place, None] = {}
        for count, (number, end) in enumerate(dict.fromkeys(ends)):
            if count % _PLACES_PER_CHECK == 0:
                clock.check()
            for start in self._openers[number].starts(data, end, is_exact):
                found[number, start] = None
        return list(found)


class AhoCorasickScanner:
    """The openers of all expressions at once, each then tried by `re`; expressions without openers by `re` alone."""

    def __init__(self, expressions: Sequence[Expression]) -> None:
        from ahocorasick_rs import BytesAhoCorasick

        self._tails: list[list[tuple[int, re.Pattern[bytes]]]] = []
        self._patterns: list[tuple[int, Expression, re.Pattern[bytes]]] = []
        openers: dict[bytes, list[tuple[int, re.Pattern[bytes]]]] = {}
        self._once = [(number, told.sign) for number, told in enumerate(expressions) if told.is_once]
        for number, expression in enumerate(expressions):
            if expression.is_once:
                continue
            if expression.fixed is not None:
                self._patterns.append((number, expression, _anywhere(expression)))
                continue
            whole = re.compile(expression.whole)
            for opener in expression.openers:
                openers.setdefault(opener.lower(), []).append((number, whole))
        self._tails = list(openers.values())
        self._search = BytesAhoCorasick(list(openers)).find_matches_as_indexes

    def places(self, data: bytes, clock: Clock, *, is_exact: bool = True) -> list[Place]:
        found: dict[Place, None] = {}
        for count, (opener, start, _) in enumerate(self._search(data.lower(), overlapping=True)):
            if count % _PLACES_PER_CHECK == 0:
                clock.check()
            for number, whole in self._tails[opener]:
                if whole.match(data, start):
                    found[number, start] = None
            if len(found) > MOST_PLACES:
                raise TooManyPlaces
        for number, sign in self._once:
            if (place := data.find(sign)) >= 0:
                found[number, place] = None
        for number, expression, pattern in self._patterns:
            for start, end in _windows(data, expression.sign):
                clock.check()
                for match in pattern.finditer(data, start, end):
                    found[number, match.end(1) - (expression.fixed or 0)] = None
        return list(found)


def _windows(data: bytes, sign: bytes) -> Iterator[tuple[int, int]]:
    """The stretches of a text near a sign; all of it if there is none to look for."""
    if not sign:
        for start in range(0, max(1, len(data)), _STRETCH_BYTES):
            yield start, start + _STRETCH_BYTES + _AFTER_SIGN
        return
    start = end = -1
    place = data.find(sign)
    while place >= 0:
        if place - _BEFORE_SIGN > end:
            if end >= 0:
                yield start, end
            start = max(0, place - _BEFORE_SIGN)
        end = place + _AFTER_SIGN
        place = data.find(sign, place + 1)
    if end >= 0:
        yield start, end


def _anywhere(expression: Expression) -> re.Pattern[bytes]:
    flags = b"(?i)" if expression.is_caseless else b""
    return re.compile(flags + b"(?=(" + expression.pattern + b"))")


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

        self._patterns = [expression.whole for expression in expressions]
        self._flags = [hyperscan.HS_FLAG_SINGLEMATCH if expression.is_once else 0 for expression in expressions]
        self._key = key
        told = repr((getattr(hyperscan, "__version__", ""), platform.machine(), self._patterns, self._flags))
        self._name = blake2b(told.encode(), digest_size=12).hexdigest()
        self._path = folder / f"{_CACHE_PREFIX}{self._name}.hs" if folder else None

    def database(self) -> Any:
        return self._load() or self._compile()

    def _load(self) -> Any:
        import hyperscan

        content = self._read()
        if content is None or content[:_SEAL_BYTES] != self._seal(content[_SEAL_BYTES:]):
            return None
        with suppress(hyperscan.error):  # made for another processor
            return hyperscan.loadb(content[_SEAL_BYTES:], hyperscan.HS_MODE_BLOCK)
        return None

    def _read(self) -> bytes | None:
        if self._path is None:
            return None
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file, suppress(OSError):
            return file.read()
        return None

    def _compile(self) -> Any:
        import hyperscan

        content = _compiled(tuple(self._patterns), tuple(self._flags))
        if self._path is not None:
            with suppress(OSError):  # a full or read-only disk costs time at the next start, nothing else
                self._write(self._path, content)
        return hyperscan.loadb(content, hyperscan.HS_MODE_BLOCK)

    def _write(self, path: Path, content: bytes) -> None:
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(self._seal(content) + content)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
        for old in path.parent.glob(f"{_CACHE_PREFIX}*.hs"):
            if old != path:
                old.unlink(missing_ok=True)

    def _seal(self, content: bytes) -> bytes:
        return blake2b(content, key=self._key[:64], digest_size=_SEAL_BYTES, person=b"hyperscan").digest()
