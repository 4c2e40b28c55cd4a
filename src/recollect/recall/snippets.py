"""The place in a text that shows why it was found, and whether it is there letter by letter."""

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final

from recollect.recall.query import Phrase
from recollect.text import CJK_RUN, ELLIPSIS, cut_short, identifier_words

SNIPPET_CHARS = 240
_MOST_PLACES = 400
_WORD = re.compile(r"[^\W_]+")
_ACCENTED = "[\u00c0-\u024f\u0300-\u036f\u1e00-\u1eff]"
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
    return text.lower() if text.isascii() else text.translate(_FOLDING)


def is_exact(phrase: Phrase) -> bool:
    """Whether more is asked for than words: a path, a URL, a flag, a call. `is_there` can then tell."""
    return bool(_WORD.search(phrase.text)) and _WORD.fullmatch(phrase.text) is None


def is_there(phrase: Phrase, text: str) -> bool:
    """Whether the phrase stands in the text letter by letter, but for case, accents and the kind of space."""
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


def pattern_of(phrases: Sequence[Phrase]) -> re.Pattern[str] | None:
    """What finds any of the phrases in a folded text; a group for each."""
    parts = [_pattern(phrase) for phrase in phrases]
    return re.compile("|".join(f"({part})" for part in parts if part)) if any(parts) else None


def _pattern(phrase: Phrase) -> str:
    spellings = [phrase.text]
    if len(words := identifier_words(phrase.text)) > 1:
        spellings.append(" ".join(words))
    return "|".join(part for text in spellings if (part := _spelling(folded(text), phrase.is_prefix)))


def _spelling(text: str, is_prefix: bool) -> str:
    if re.search(CJK_RUN, text):
        return r"\s*".join(re.escape(piece) for piece in text.split())
    words = _WORD.findall(text)
    if not words:
        return ""
    end = "" if is_prefix else r"(?![^\W_])"
    # Nothing of a word may stand before it. Told after its first letter: `re` finds a letter much sooner than that.
    first = words[0][0]
    rest = [word.replace("ß", "ss").replace("ss", "(?:ss|ß)") for word in (words[0][1:], *words[1:])]
    return rf"{first}(?<![^\W_]{first})" + r"[\W_]+".join(rest) + end


def snippet(text: str, pattern: re.Pattern[str] | None) -> str:
    """A line of the text round the place where most of what was looked for stands together."""
    places = list(islice(pattern.finditer(folded(text)), _MOST_PLACES)) if pattern else []
    return snippet_at(text, _best_start(places) if places else 0)


def _best_start(places: Sequence[re.Match[str]]) -> int:
    best, kinds = places[0].start(), 0
    for number, place in enumerate(places):
        end = place.start() + SNIPPET_CHARS - 40
        together = {other.lastindex for other in places[number : number + 12] if other.end() <= end}
        if len(together) > kinds:
            best, kinds = place.start(), len(together)
    return best


def snippet_at(text: str, place: int) -> str:
    """A window of the text that begins a little before `place`, at a word's edge, on one line."""
    start = max(0, place - SNIPPET_CHARS // 4)
    if start:
        edge = text.find(" ", start, place)
        start = edge + 1 if edge >= 0 else start
    end = min(len(text), start + 2 * SNIPPET_CHARS)  # spaces are taken out below
    line = " ".join(text[start:end].split())
    shown = cut_short(line, SNIPPET_CHARS)
    is_cut = shown == line and end < len(text)
    return f"{ELLIPSIS if start else ''}{shown}{ELLIPSIS if is_cut else ''}"
