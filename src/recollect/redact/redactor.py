"""Replaces secrets in texts and JSON documents, before anything is stored, hashed or indexed.

A quick scan over the raw documents of a batch picks those in which a rule may apply; only they are parsed. What is
replaced is always decided on the leaves, so the result does not depend on the path.
"""

import json
import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from recollect.model.kinds import SessionKey
from recollect.redact import values
from recollect.redact.finder import BY_NAME, ESCAPED, EVERYTHING, NAMES, Finder, Learned, Span, expressions
from recollect.redact.marks import UNSCANNABLE, NamedValue, key_id, mark
from recollect.redact.named import COMMANDS, FLAG_NAME
from recollect.redact.rules import (
    NAME_FIELDS,
    VALUE_FIELDS,
    VERSION,
    AllowList,
    RedactionRules,
    UserRule,
    find_beginning,
)
from recollect.redact.scanners import (
    ANY_KEYWORD,
    KEYWORD,
    AhoCorasickScanner,
    Clock,
    HyperscanScanner,
    LateScanner,
    OutOfTime,
    Scanner,
    TooManyHits,
)
from recollect.redact.values import COLOUR, ESCAPE

HYPERSCAN = "hyperscan"
AHO_CORASICK = "ahocorasick"

BLOCK_BYTES = 512 * 1024  # one escape makes all of a block be searched for escapes, so it is better small
_LEAST_BYTES = 8  # no rule matches less
_MOST_ROUNDS = 4
_MOST_VALUE = 512
_MOST_SECRETS = 1000
_MOST_ARGUMENTS = 200
_SEPARATOR = b"\n\x00\n"
_NAME = re.compile(rf"(?i)[A-Za-z0-9_. -]{{0,40}}{ANY_KEYWORD}[A-Za-z0-9_.-]{{0,32}}")
_NAME_END = re.compile(rb"[A-Za-z0-9_.-]{0,32}")
_FLAG = re.compile(rf"(?i)--({FLAG_NAME})")
_WITH_NAME = frozenset({"cookie", "set-cookie", "auth", "_auth"})  # fields whose rules need the name beside the value
_NAME_START = re.compile(r"[A-Za-z0-9_]")
_KEYWORDS_ONLY = frozenset({KEYWORD})
_COMMAND_RULES = frozenset(rule.name for rule in COMMANDS)
_LONG_NUMBER = 1e18
_STUB = orjson.dumps({"text": UNSCANNABLE})

NamedBefore = Mapping[SessionKey, Mapping[str, str]]  # rules of values, by session and by the digits of their marks
MayApply = Callable[[bytes, int, int], bool]  # block, number of the expression, offset


class Changed(NamedTuple):
    """A document of a batch as it is to be stored, and the secrets that were in its leaves.

    `is_learned`: at least one is hidden only because another document of the batch names it.
    """

    number: int
    document: bytes
    secrets: list[str]
    is_learned: bool = False


class Redactor:
    """Replaces secrets with marks. Each process makes its own; `replaced` counts replacements by rule."""

    def __init__(
        self,
        rules: RedactionRules,
        key: bytes,
        engine: str | None = None,
        *,
        folder: Path | None = None,
        named: NamedBefore | None = None,
    ) -> None:
        """`folder` caches the compiled rules. Without `engine`, the fastest one installed is used."""
        self._key = key
        self._named = named or {}
        users = [UserRule(name, pattern) for name, pattern in rules.rules.items()]
        self._scanner, self.engine = _scanner(users, key, engine, folder)
        self._finder = Finder(self._scanner, users, AllowList(rules.allow))
        self.version = f"{VERSION}.{rules.digest}.{key_id(key)}"
        self.replaced: Counter[str] = Counter()
        self.unscannable = 0
        self._secrets: deque[bytes] = deque(maxlen=_MOST_SECRETS)  # of the current document
        self._learned = Learned()  # from the current text or batch

    def text(self, text: str) -> str:
        """A text without its secrets. A value that it names once is hidden wherever it occurs."""
        self._learned = Learned()
        redacted = self._guarded(text, EVERYTHING)
        if not self._learned.rules:
            return redacted
        data = redacted.encode("utf-8", "surrogatepass")
        return self._marked(data, self._learned.find(data, is_json=False)).decode("utf-8", "surrogatepass")

    def functional(self, text: str) -> str:
        """A path, id, branch or tool name without the secrets that are known by their own look."""
        return self._guarded(text, NAMES)

    def beginning(self, text: str) -> tuple[str, str] | None:
        """An unfinished text without the token that begins at its end, and that beginning; None if there is none."""
        begun = find_beginning(text)
        return None if begun is None else (text[: -len(begun)] + self._mark("unfinished", begun.encode()), begun)

    def value(self, value: Any) -> Any:
        """A JSON value without the secrets in its texts and keys; a field's name counts for what it holds."""
        self._learned = Learned()
        document = orjson.dumps(value)
        document = self._document(document) or document
        return orjson.loads(self._marked(document, self._learned.find(document, is_json=True)))

    def payloads(self, payloads: Sequence[bytes]) -> dict[int, bytes]:
        """The documents of a batch that change, by their number in it, as they are to be stored."""
        return {changed.number: changed.document for changed in self.changes(payloads)}

    def changes(self, payloads: Sequence[bytes], learned: Learned | None = None) -> list[Changed]:
        """The same with their secrets, in order. A value that one document names is hidden in the whole batch.

        Values `learned` from earlier batches are hidden too, and those of this one are added to them.
        """
        self._learned = known = Learned() if learned is None else learned
        changes: dict[int, Changed] = {}
        for number in self._suspects(payloads, self._finder.may_apply):
            self._secrets.clear()
            document = self._document(payloads[number])
            if document is not None:
                changes[number] = Changed(number, document, _decoded(self._secrets))
        known.recognise(payloads)
        for number, payload in enumerate(payloads) if known.rules else ():
            changed = changes.get(number, Changed(number, payload, []))
            spans = known.find(changed.document, is_json=True)
            if spans:
                hidden = _decoded(dict.fromkeys(span.secret for span in spans))
                is_learned = not set(hidden) <= set(changed.secrets)
                document = self._marked(changed.document, spans)
                changes[number] = Changed(number, document, [*changed.secrets, *hidden], is_learned)
        return [changes[number] for number in sorted(changes)]

    def learned(self, root: SessionKey) -> Learned:
        """What the reading of a session starts from: what it named before, to be recognised."""
        return Learned(self._named.get(root), self._key)

    def known_values(self, marks: Mapping[str, str], named: Iterable[NamedValue]) -> "KnownValues":
        """What replaces nothing but these values: those known by the digits of their marks, and those at hand."""
        learned = Learned(marks, self._key)
        for value, rule, _ in named:
            learned.add(value, rule)
        return KnownValues(learned, self._marked)

    def keyed(self, digest: bytes) -> bytes:
        """A keyed hash of the hash of something with a secret in it: without the key, nobody can try secrets on it."""
        return blake2b(digest, key=self._key, digest_size=len(digest)).digest()

    def suspects(self, texts: Sequence[str]) -> list[int]:
        """The numbers of the texts in which a rule may apply, after a quick scan over all of them."""
        return self._suspects([text.encode("utf-8", "surrogatepass") for text in texts])

    def texts(self, texts: Sequence[str]) -> dict[int, str]:
        """The texts that change, by their number."""
        redacted = {number: self.text(texts[number]) for number in self.suspects(texts)}
        return {number: text for number, text in redacted.items() if text != texts[number]}

    def _suspects(
        self, items: Sequence[bytes], may_apply: MayApply | None = None, clock: Clock | None = None
    ) -> list[int]:
        """The numbers of the items in which a rule may apply."""
        if self._finder.always_parses:
            return list(range(len(items)))
        if len(items) == 1 and len(items[0]) < _LEAST_BYTES:
            return []
        numbers: list[int] = []
        for start, end in _blocks(items):
            numbers += sorted(start + number for number in self._suspects_of_block(items[start:end], may_apply, clock))
        return numbers

    def _suspects_of_block(
        self, items: Sequence[bytes], may_apply: MayApply | None, clock: Clock | None
    ) -> Iterable[int]:
        block = items[0] if len(items) == 1 else _SEPARATOR.join(items)
        ends = list(accumulate(map(len(_SEPARATOR).__add__, map(len, items))))
        try:
            hits = self._scanner.hits(block, clock or Clock(len(block)), is_exact=False)
        except (TooManyHits, OutOfTime):  # then each item is scanned by itself
            return range(len(items))
        suspects: set[int] = set()
        for number, offset in hits:
            item = bisect_right(ends, offset)
            if item not in suspects and (may_apply is None or may_apply(block, number, offset)):
                suspects.add(item)
        has_escape = any(number == ESCAPED for number, _ in hits)
        for sign in (COLOUR, ESCAPE) if has_escape else (COLOUR,):
            suspects |= _items_with(sign, block, ends)
        return suspects

    def _document(self, document: bytes) -> bytes | None:
        """A document redacted leaf by leaf; None if nothing changes, a stub if that fails."""
        before = self.replaced.total()
        try:
            value, dumps, texts = _parsed(document)
            clock = Clock(len(document))
            texts = [text for text in texts if len(text) >= _LEAST_BYTES]
            encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
            suspects = {texts[number] for number in self._suspects(encoded, clock=clock)}
            del encoded  # may be large
            value = self._walk(value, clock, suspects)
            return dumps(value) if self.replaced.total() != before else None
        except Exception:  # whatever it is: a document that cannot be searched is not stored
            self.unscannable += 1
            return _STUB

    def _walk(self, value: Any, clock: Clock, suspects: set[str]) -> Any:
        """A value with its leaves redacted; only those among `suspects` are searched."""
        if isinstance(value, str):
            return self._redacted(value, EVERYTHING, clock) if value in suspects else value
        if isinstance(value, dict):
            return self._walk_fields(value, clock, suspects)
        return self._walk_items(value, clock, suspects) if isinstance(value, list) else value

    def _walk_items(self, items: list[Any], clock: Clock, suspects: set[str], name: str = "") -> list[Any]:
        """A list redacted item by item; the `name` of its field counts up to the first item that is no secret."""
        redacted: list[Any] = []
        for number, item in enumerate(items):
            new = self._walk(item, clock, suspects)
            if isinstance(item, str) and new == item:
                before = items[number - 1] if number else None
                flag = _FLAG.fullmatch(before) if isinstance(before, str) else None
                new = self._field(flag[1], item, "command-line-flag") if flag else self._field(name, item)
            name = name if new != item else ""
            redacted.append(new)
        return self._command(redacted, clock) if _is_command(redacted) else redacted

    def _command(self, arguments: list[Any], clock: Clock) -> list[Any]:
        """The arguments of a command without the secrets that its own flags take."""
        data = _dumps(arguments)
        spans = [span for span in self._finder.spans(data, _KEYWORDS_ONLY, clock) if span.rule in _COMMAND_RULES]
        redacted: list[Any] = json.loads(self._marked(data, spans)) if spans else arguments
        return redacted

    def _walk_fields(self, fields: dict[str, Any], clock: Clock, suspects: set[str]) -> dict[str, Any]:
        redacted = {}
        name = next((fields[key] for key in NAME_FIELDS if isinstance(fields.get(key), str)), "")
        for key, value in fields.items():
            is_list = isinstance(value, list)
            new = self._walk_items(value, clock, suspects, key) if is_list else self._walk(value, clock, suspects)
            if isinstance(value, str) and new == value:
                is_pair = key in VALUE_FIELDS and _NAME.fullmatch(name)
                new = self._field(name if is_pair else key, value)
                if key.lower() in _WITH_NAME and _NAME_START.match(new):
                    new = self._redacted(f"{key}: {new}", EVERYTHING, clock)[len(key) + 2 :]
            redacted[self._redacted(key, EVERYTHING, clock) if key in suspects else key] = new
        return redacted

    def _field(self, name: str, value: str, rule: str = "assignment") -> str:
        """The value of a field, replaced whole if the field's name makes it a secret."""
        encoded = name.encode("utf-8", "surrogatepass")
        keyword = values.names_secret(encoded) if len(value) <= _MOST_VALUE else None
        if keyword is None or not _NAME_END.fullmatch(encoded, keyword.end()):
            return value
        secret = value.encode("utf-8", "surrogatepass")
        if not values.is_secret(encoded[keyword.start() :], secret, is_quoted=True) or self._finder.allows(secret):
            return value
        self._learned.add(secret, rule)
        return self._mark(rule, secret)

    def _guarded(self, text: str, kinds: frozenset[str]) -> str:
        try:
            return self._redacted(text, kinds, Clock(len(text)))
        except (OutOfTime, TooManyHits):
            self.unscannable += 1
            return UNSCANNABLE

    def _redacted(self, text: str, kinds: frozenset[str], clock: Clock) -> str:
        """A text without its secrets. A mark may uncover what stood beside a secret, so it takes several rounds."""
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
        view, last = memoryview(data), 0  # a view, because the text may be large
        for span in spans:
            pieces += (view[last : span.start], self._mark(span.rule, span.secret).encode())
            last = span.end
            if span.rank == BY_NAME:
                self._learned.add(span.secret, span.rule)
        return b"".join((*pieces, view[last:]))

    def _mark(self, rule: str, secret: bytes) -> str:
        self.replaced[rule] += 1
        self._secrets.append(secret)
        return mark(rule, secret, self._key)


class KnownValues:
    """Replaces some values and nothing else, in what was stored before they were named. Names and ids stay."""

    def __init__(self, learned: Learned, marked: Callable[[bytes, Sequence[Span]], bytes]) -> None:
        self._learned = learned
        self._marked = marked

    def payloads(self, payloads: Sequence[bytes]) -> dict[int, bytes]:
        """The documents that change, by their number."""
        self._learned.recognise(payloads)
        spans = ((number, self._learned.find(payload, is_json=True)) for number, payload in enumerate(payloads))
        return {number: self._marked(payloads[number], found) for number, found in spans if found}

    def texts(self, texts: Sequence[str]) -> dict[int, str]:
        """The texts that change, by their number; one that was shortened within a value ends before it."""
        redacted = {number: self._text(text) for number, text in enumerate(texts)}
        return {number: text for number, text in redacted.items() if text != texts[number]}

    def _text(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        plain = self._marked(data, self._learned.find(data, is_json=False)).decode("utf-8", "surrogatepass")
        head = plain.removesuffix("…")
        cut = self._learned.cut_at_end(head) if head != plain else 0
        return f"{head[: len(head) - cut]}…" if cut else plain

    def suspects(self, texts: Sequence[str]) -> list[int]:
        return []

    def functional(self, text: str) -> str:
        return text


def _scanner(users: Sequence[UserRule], key: bytes, engine: str | None, folder: Path | None) -> tuple[Scanner, str]:
    if engine != AHO_CORASICK:
        try:
            make = LateScanner if engine is None else HyperscanScanner
            return make(expressions(users), folder, key), HYPERSCAN
        except ImportError:
            if engine == HYPERSCAN:
                raise
    return AhoCorasickScanner(expressions(users)), AHO_CORASICK


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
    items = set()
    offset = block.find(sign)
    while offset >= 0:
        number = bisect_right(ends, offset)
        items.add(number)
        offset = block.find(sign, ends[number])
    return items


def _decoded(secrets: Iterable[bytes]) -> list[str]:
    return [secret.decode("utf-8", "replace") for secret in secrets]


def _parsed(document: bytes) -> tuple[Any, Callable[[Any], bytes], list[str]]:
    """A document, how to write it, and its texts. Where orjson makes a float of a long whole number, json reads it."""
    value = orjson.loads(document)
    texts, floats = _leaves(value)
    if any(abs(number) >= _LONG_NUMBER for number in floats):
        return json.loads(document), _dumps, texts
    return value, orjson.dumps, texts


def _leaves(value: Any) -> tuple[list[str], list[float]]:
    """All texts of a JSON value, keys included, and its floats; not recursive, so depth does not matter."""
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
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, float):
            floats.append(item)
    return texts, floats


def _dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
