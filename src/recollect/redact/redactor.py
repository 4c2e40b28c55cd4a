"""Secrets out of texts and JSON documents, before anything is stored, hashed or indexed.

The fast path scans the documents of a batch as they are, in one block, and parses only those in which a rule may
apply. What is replaced is always decided on the leaves, so that it does not depend on the path.
"""

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson

from recollect.redact import values
from recollect.redact.commands import COMMANDS, FLAG_NAME
from recollect.redact.finder import ESCAPED, EVERYTHING, NAMES, Finder, Span, expressions
from recollect.redact.marks import UNSCANNABLE, key_id, mark
from recollect.redact.pieces import ANY_KEYWORD, KEYWORD
from recollect.redact.rules import NAME_FIELDS, VALUE_FIELDS, VERSION
from recollect.redact.scanners import AhoCorasickScanner, Clock, HyperscanScanner, OutOfTime, Scanner, TooManyPlaces
from recollect.redact.unfinished import find_beginning
from recollect.redact.unfolding import COLOUR, ESCAPE
from recollect.redact.userrules import AllowList, RedactionRules, UserRule

IsSuspect = Callable[[bytes, int, int], bool]  # block, number of the expression, place

HYPERSCAN = "hyperscan"
AHO_CORASICK = "ahocorasick"

BLOCK_BYTES = 512 * 1024  # one with an escape in it is searched for all of them, so it is better small
_LEAST_BYTES = 8  # no rule finds anything in less
_MOST_ROUNDS = 4
_MOST_VALUE = 512
_MOST_SEEN = 1000
_SEPARATOR = b"\n\x00\n"
_NAME = re.compile(rf"(?i)[A-Za-z0-9_. -]{{0,40}}{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}")
_FIELD_END = re.compile(rb"[A-Za-z0-9_.-]{0,32}")
_FLAG = re.compile(rf"(?i)--({FLAG_NAME})")
_TELLING = frozenset({"cookie", "set-cookie", "auth", "_auth"})  # fields that tell of what they hold as no other does
_NAME_START = re.compile(r"[A-Za-z0-9_]")
_MOST_ARGUMENTS = 200
_BY_NAME = frozenset({KEYWORD})
_OF_COMMANDS = frozenset(rule.name for rule in COMMANDS)
_LONG_NUMBER = 1e18
_STUB = orjson.dumps({"text": UNSCANNABLE})


class Redactor:
    """Replaces secrets by marks. Each process makes its own; `replaced` counts by rule what it has replaced."""

    def __init__(
        self, rules: RedactionRules, key: bytes, engine: str | None = None, *, folder: Path | None = None
    ) -> None:
        """`folder` keeps the compiled rules from one start to the next; without `engine` it is the faster there is."""
        self._key = key
        users = [UserRule(name, pattern) for name, pattern in rules.rules.items()]
        scanner, self.engine = _scanner(users, key, engine, folder)
        self._finder = Finder(scanner, users, AllowList(rules.allow))
        self._places = scanner.places
        self.version = f"{VERSION}.{rules.digest}.{key_id(key)}"
        self.replaced: Counter[str] = Counter()
        self.unscannable = 0
        self._seen: list[bytes] = []

    def text(self, text: str) -> str:
        """A text with its secrets replaced."""
        return self._guarded(text, EVERYTHING)

    def functional(self, text: str) -> str:
        """A path, an id, a branch or the name of a tool: only what is known by its own look is replaced."""
        return self._guarded(text, NAMES)

    def beginning(self, text: str) -> tuple[str, str] | None:
        """A text that is still being written, without the secret that its end may be the beginning of; and that."""
        begun = find_beginning(text)
        return None if begun is None else (text[: -len(begun)] + self._mark("unfinished", begun.encode()), begun)

    def value(self, value: Any) -> Any:
        """A JSON value with the secrets in its texts and keys replaced; a field's name counts for what it holds."""
        try:
            return self._walked(value, _leaves(value)[0], Clock(0))
        except (OutOfTime, TooManyPlaces, RecursionError):
            self.unscannable += 1
            return {"text": UNSCANNABLE}

    def payloads(self, payloads: Sequence[bytes]) -> dict[int, bytes]:
        """Those of a batch of JSON documents that change, by their place in it, as they are to be stored."""
        return {number: changed for number, changed, _ in self.iter_changed(payloads)}

    def iter_changed(self, payloads: Sequence[bytes]) -> Iterator[tuple[int, bytes, list[str]]]:
        """The same one by one, each with its secrets as they stood in its leaves."""
        for number in self._suspects(payloads, self._finder.is_hit):
            self._seen = []
            changed = self._document(payloads[number])
            if changed is not None:
                yield number, changed, [secret.decode("utf-8", "replace") for secret in self._seen]

    def keyed(self, digest: bytes) -> bytes:
        """A hash of something that held a secret, made so that nobody without the key can try secrets on it."""
        return blake2b(digest, key=self._key, digest_size=len(digest)).digest()

    def suspects(self, texts: Sequence[str]) -> list[int]:
        """The numbers of those texts in which a rule may apply: a quick look over many."""
        return self._suspects([text.encode("utf-8", "surrogatepass") for text in texts], _always)

    def texts(self, texts: Sequence[str]) -> dict[int, str]:
        """Those of many texts that change, by their place."""
        found = {}
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        for number in self._suspects(encoded, _always):
            changed = self.text(texts[number])
            if changed != texts[number]:
                found[number] = changed
        return found

    def _suspects(self, items: Sequence[bytes], is_suspect: IsSuspect, clock: Clock | None = None) -> list[int]:
        """The items in which a rule may apply."""
        if self._finder.always_parses:
            return list(range(len(items)))
        found: list[int] = []
        for start, end in _blocks(items):
            some = items[start:end]
            found += sorted(start + number for number in self._suspects_of(some, is_suspect, clock))
        return found

    def _suspects_of(self, some: Sequence[bytes], is_suspect: IsSuspect, clock: Clock | None) -> set[int]:
        block = some[0] if len(some) == 1 else _SEPARATOR.join(some)
        ends = list(accumulate(map(len(_SEPARATOR).__add__, map(len, some))))
        try:
            places = self._places(block, clock or Clock(len(block)), is_exact=False)
        except (TooManyPlaces, OutOfTime):  # each is then looked at by itself
            return set(range(len(some)))
        found: set[int] = set()
        for number, place in places:
            item = bisect_right(ends, place)
            if item not in found and is_suspect(block, number, place):
                found.add(item)
        has_escape = any(number == ESCAPED for number, _ in places)
        for sign in (COLOUR, ESCAPE) if has_escape else (COLOUR,):
            found |= _items_with(sign, block, ends)
        return found

    def _document(self, document: bytes) -> bytes | None:
        """A document redacted leaf by leaf; None if nothing changes, a stub if it cannot be done."""
        before = self.replaced.total()
        try:
            value, dumps, texts = _parsed(document)
            value = self._walked(value, texts, Clock(len(document)))
            return dumps(value) if self.replaced.total() != before else None
        except Exception:  # whatever it is: what cannot be looked through is not stored
            self.unscannable += 1
            return _STUB

    def _walked(self, value: Any, texts: Sequence[str], clock: Clock) -> Any:
        """A value with every leaf redacted. All texts are scanned at once to see which need to be looked at."""
        texts = [text for text in texts if len(text) >= _LEAST_BYTES]
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        suspects = {texts[number] for number in self._suspects(encoded, _always, clock)}
        del encoded  # may be large
        return self._walk(value, clock, suspects)

    def _walk(self, value: Any, clock: Clock, suspects: set[str]) -> Any:
        if isinstance(value, str):
            return self._redacted(value, EVERYTHING, clock) if value in suspects else value
        if isinstance(value, dict):
            return self._walk_fields(value, clock, suspects)
        if isinstance(value, (list, tuple)):
            return self._walk_items(value, clock, suspects)
        return value

    def _walk_items(self, items: Sequence[Any], clock: Clock, suspects: set[str]) -> list[Any]:
        found: list[Any] = []
        for number, item in enumerate(items):
            new = self._walk(item, clock, suspects)
            if number and isinstance(item, str) and new == item:
                flag = _FLAG.fullmatch(items[number - 1]) if isinstance(items[number - 1], str) else None
                new = self._field(flag[1], item, "command-line-flag") if flag else item
            found.append(new)
        return self._command(found, clock) if _is_command(found) else found

    def _command(self, arguments: list[Any], clock: Clock) -> list[Any]:
        """The arguments of a command without what a flag of its own tells it, found as in a text that lists them."""
        data = json.dumps(arguments, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        spans = [span for span in self._finder.spans(data, _BY_NAME, clock) if span.rule in _OF_COMMANDS]
        if not spans:
            return arguments
        redacted: list[Any] = json.loads(self._marked(data, spans).decode("utf-8", "surrogatepass"))
        return redacted

    def _walk_fields(self, fields: dict[Any, Any], clock: Clock, suspects: set[str]) -> dict[Any, Any]:
        found = {}
        name = next((fields[key] for key in NAME_FIELDS if isinstance(fields.get(key), str)), None)
        for key, value in fields.items():
            told = key if isinstance(key, str) else str(key)
            new = self._walk(value, clock, suspects)
            if isinstance(value, str) and new == value:
                is_named = name is not None and told in VALUE_FIELDS and _NAME.fullmatch(name)
                new = self._field(name if is_named and name else told, value)
                new = self._told(told, new, clock) if told.lower() in _TELLING and _NAME_START.match(new) else new
            found[self._redacted(told, EVERYTHING, clock) if told in suspects else told] = new
        return found

    def _field(self, name: str, value: str, rule: str = "assignment") -> str:
        """The value of a field, replaced whole if the field's name says that it is a secret."""
        told = name.encode("utf-8", "surrogatepass")
        keyword = values.names_secret(told) if len(value) <= _MOST_VALUE else None
        if keyword is None or not _FIELD_END.fullmatch(told, keyword.end()):
            return value
        data = value.encode("utf-8", "surrogatepass")
        if not values.is_secret(told[keyword.start() :], data, is_quoted=True) or self._finder.allows(data):
            return value
        return self._mark(rule, data)

    def _told(self, name: str, value: str, clock: Clock) -> str:
        """The value of a field, looked at together with its name."""
        before = f"{name}: "
        return self._redacted(before + value, EVERYTHING, clock)[len(before) :]

    def _guarded(self, text: str, kinds: frozenset[str]) -> str:
        try:
            return self._redacted(text, kinds, Clock(len(text)))
        except (OutOfTime, TooManyPlaces):
            self.unscannable += 1
            return UNSCANNABLE

    def _redacted(self, text: str, kinds: frozenset[str], clock: Clock) -> str:
        """The text after so many rounds as find something: a mark may uncover what stood beside a secret."""
        if len(text) < _LEAST_BYTES:
            return text
        data, has_changed = text.encode("utf-8", "surrogatepass"), False
        for _ in range(_MOST_ROUNDS):
            spans = self._finder.spans(data, kinds, clock)
            if not spans:
                break
            data, has_changed = self._marked(data, spans), True
        return data.decode("utf-8", "surrogatepass") if has_changed else text

    def _marked(self, data: bytes, spans: Sequence[Span]) -> bytes:
        pieces: list[bytes | memoryview] = []
        view, last = memoryview(data), 0  # a view, for the text may be large
        for span in spans:
            pieces += (view[last : span.start], self._mark(span.rule, span.secret).encode())
            last = span.end
        return b"".join((*pieces, view[last:]))

    def _mark(self, rule: str, secret: bytes) -> str:
        self.replaced[rule] += 1
        self._seen = [*self._seen[-_MOST_SEEN:], secret]
        return mark(rule, secret, self._key)


def _scanner(users: Sequence[UserRule], key: bytes, engine: str | None, folder: Path | None) -> tuple[Scanner, str]:
    wanted = expressions(users)
    if engine != AHO_CORASICK:
        try:
            return HyperscanScanner(wanted, folder, key), HYPERSCAN
        except ImportError:
            if engine == HYPERSCAN:
                raise
    return AhoCorasickScanner(wanted), AHO_CORASICK


def _is_command(items: list[Any]) -> bool:
    """Whether a list may be a command with its arguments: texts, one of which begins with a dash."""
    return len(items) <= _MOST_ARGUMENTS and (
        any(isinstance(item, str) and item[:1] == "-" for item in items)
        and all(isinstance(item, str) for item in items)
    )


def _blocks(items: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Stretches of items that are scanned together."""
    totals = list(accumulate(map(len, items), initial=0))
    start = 0
    while start < len(items):
        end = max(start + 1, bisect_right(totals, totals[start] + BLOCK_BYTES) - 1)
        yield start, end
        start = end


def _items_with(sign: bytes, block: bytes, ends: Sequence[int]) -> set[int]:
    found = set()
    place = block.find(sign)
    while place >= 0:
        number = bisect_right(ends, place)
        found.add(number)
        place = block.find(sign, ends[number])
    return found


def _always(block: bytes, number: int, place: int) -> bool:
    return True


def _parsed(document: bytes) -> tuple[Any, Callable[[Any], bytes], list[str]]:
    """A document, how to write it, and its texts: orjson makes a float of a whole number that is too long for it."""
    value = orjson.loads(document)
    texts, floats = _leaves(value)
    if any(abs(number) >= _LONG_NUMBER for number in floats):
        return json.loads(document), _dumps, texts
    return value, orjson.dumps, texts


def _leaves(value: Any) -> tuple[list[str], list[float]]:
    """All texts of a JSON value, keys included, and its floats; not recursive, so that depth is no matter."""
    texts: list[str] = []
    floats: list[float] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict):
            waiting += item
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            waiting += item
        elif isinstance(item, float):
            floats.append(item)
    return texts, floats


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
