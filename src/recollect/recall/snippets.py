"""The texts of events, read from the packs, and the place in a text that shows why it was found."""

import re
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

import orjson

from recollect.model.kinds import SessionKey
from recollect.model.text import CJK_RUN, ELLIPSIS, cut_short, evidence, identifier_words, payload_text
from recollect.recall.query import Phrase
from recollect.store import EventHeader, Store

Pattern = re.Pattern[str]
Span = tuple[int, int]  # where in a text something begins and ends

SNIPPET_CHARS = 240
_MOST_PLACES = 20  # of a word, of which the best is shown
_WORD = re.compile(r"[^\W_]+")
_ACCENTED = "[\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff]"
_PUNCTUATION = ".,;:!?()'"  # around a word in a sentence
_SPACES = re.compile(r"\s+")


class _Folding(dict[int, int]):
    """Each character without its accent and small, one for one, so that places in the text stay the same."""

    def __missing__(self, code: int) -> int:
        import unicodedata

        base = unicodedata.normalize("NFD", chr(code))[0].lower()
        self[code] = ord(base) if len(base) == 1 else code
        return self[code]


_FOLDING: Final = _Folding()


def folded(text: str) -> str:
    """The text as the index compares it, of the same length."""
    # `lower` is much quicker than `translate`, and enough for most texts: their other letters are dashes and arrows.
    others = () if text.isascii() else {ord(letter) for letter in set(text) if letter > "\x7f"}
    return text.lower() if all(_FOLDING[code] == code for code in others) else text.translate(_FOLDING)


def is_exact(phrase: Phrase) -> bool:
    """Whether more is asked for than words: a path, a URL, a flag, a call. `is_there` can then tell."""
    text = phrase.text if phrase.is_quoted else phrase.text.strip(_PUNCTUATION)
    return bool(_WORD.search(text)) and _WORD.fullmatch(text) is None


def is_there(phrase: Phrase, text: str) -> bool:
    """Whether the text has the phrase exactly, but for case, accents and the kind of space."""
    wanted = _plain(phrase.text)
    lowered = _SPACES.sub(" ", text.lower())
    if wanted in lowered or phrase.text.lower() in lowered:
        return True
    return re.search(_ACCENTED, lowered) is not None and wanted in _plain(lowered)


def _plain(text: str) -> str:
    import unicodedata

    letters = unicodedata.normalize("NFD", text.lower())
    letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return _SPACES.sub(" ", letters.replace("ß", "ss"))


def pattern_of(phrases: Sequence[Phrase]) -> Pattern | None:
    """What finds any of the phrases in a folded text."""
    parts = [part for phrase in phrases if (part := _pattern(phrase))]
    return re.compile("|".join(parts)) if parts else None


def _pattern(phrase: Phrase) -> str:
    spellings = [phrase.text]
    if len(words := identifier_words(phrase.text)) > 1:
        spellings.append(" ".join(words))
    return "|".join(part for text in spellings if (part := _spelling(folded(text), phrase.is_prefix)))


def _spelling(text: str, is_prefix: bool) -> str:
    if not text.isascii() and re.search(CJK_RUN, text):
        return r"\s*".join(re.escape(piece) for piece in text.split())
    words = _WORD.findall(text)
    if not words:
        return ""
    end = "" if is_prefix else r"(?![^\W_])"
    # Nothing of a word may stand before it. Told after its first letter: `re` finds a letter much sooner than that.
    first = words[0][0]
    rest = [word.replace("ß", "ss").replace("ss", "(?:ss|ß)") for word in (words[0][1:], *words[1:])]
    return rf"{first}(?<![^\W_]{first})" + r"[\W_]+".join(rest) + end


def snippet(text: str, patterns: Sequence[Pattern], lowered: str) -> str:
    """A line of the text round the first of the patterns that is there, where most of the others are close to it.

    `lowered` is the text folded.
    """
    for pattern in patterns:
        if places := [match.start() for match in islice(pattern.finditer(lowered), _MOST_PLACES)]:
            return snippet_at(text, max(places, key=lambda place: _count_near(lowered, place, patterns)))
    return snippet_at(text, 0)


def _count_near(text: str, place: int, patterns: Sequence[Pattern]) -> int:
    start = max(0, place - SNIPPET_CHARS // 4)
    return sum(pattern.search(text, start, start + SNIPPET_CHARS - 20) is not None for pattern in patterns)


def snippet_at(text: str, place: int) -> str:
    """A window of the text that begins a little before `place`, at a word's edge, on one line."""
    start = max(0, min(place - SNIPPET_CHARS // 4, len(text) - SNIPPET_CHARS))
    if start:
        edge = text.find(" ", start, place)
        start = edge + 1 if edge >= 0 else start
    end = min(len(text), start + 2 * SNIPPET_CHARS)  # spaces are taken out below
    line = " ".join(text[start:end].split())
    shown = cut_short(line, SNIPPET_CHARS)
    is_cut = shown == line and end < len(text)
    return f"{ELLIPSIS if start else ''}{shown}{ELLIPSIS if is_cut else ''}"


class Texts(dict[int, str]):
    """Events' texts, each read once; a session's pack is opened once for all that are asked for together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: dict[int, SessionKey] = {}
        self._folded: dict[int, str] = {}
        self.headers: dict[int, EventHeader] = {}

    def folded(self, event: int) -> str:
        if event not in self._folded:
            self._folded[event] = folded(self[event])
        return self._folded[event]

    def read(self, events: Collection[int]) -> None:
        """Have these at hand. An event that was deleted meanwhile stays away."""
        missing = set(events) - self.keys()
        if not missing:
            return
        headers = self._store.events.of(missing)
        self.headers |= headers
        by_stream: dict[int, list[EventHeader]] = {}
        for header in sorted(headers.values(), key=lambda header: header.payload_start):
            by_stream.setdefault(header.stream, []).append(header)
        self._keys |= self._store.events.keys(by_stream.keys() - self._keys.keys())
        for batch in by_stream.values():
            for header, payload in zip(batch, self.payloads(batch), strict=True):
                self[header.id] = evidence(payload_text(header.kind, payload)) or header.summary

    def payloads(self, headers: list[EventHeader]) -> list[dict[str, object]]:
        """Whole payloads of one session's events, in the order given."""
        if not headers:
            return []
        stream = headers[0].stream
        if stream not in self._keys:
            self._keys |= self._store.events.keys({stream})
        places = [(header.payload_start, header.payload_bytes) for header in headers]
        return [orjson.loads(raw) for raw in self._store.payloads.iter(self._keys[stream], places)]
