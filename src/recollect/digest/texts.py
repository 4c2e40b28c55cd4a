"""Text out of payloads, made safe and short: what is quoted is data, whoever wrote it; and how many tokens it is."""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from recollect.model.text import ELLIPSIS, TERMINAL_CONTROL, cut_short

# Escape sequences, control characters, and characters that hide text or turn its direction.
_CONTROL = re.compile(
    f"{TERMINAL_CONTROL}|[\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]"
)
# Any character that makes a text unclean: to look for one of them is far quicker than the pattern above.
_UNCLEAN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
_LINE_ENDS = str.maketrans(dict.fromkeys("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", "\n"))
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])(?<![eE]\.g\.)(?<![iI]\.e\.)\s+|\n+")

# A line that opens or closes a code block, in a list too; what follows the backticks has none.
_FENCE = re.compile(r"^([ \t]*(?:`{3,}(?=[^`\n]*$)|~{3,}))[^\n]*$", re.MULTILINE)

# Tokenizers cut English and code into pieces of about four characters. Scripts without spaces take nearly a token a
# character, other alphabets one for about two and a half. Within a quarter of the truth: enough to size things by.
ASCII_CHARS = 4.0
WIDE_CHARS = 1.2  # Han, kana, Hangul
OTHER_CHARS = 2.5  # Cyrillic, Greek, Arabic, Devanagari, accented Latin, symbols

_WIDE = re.compile("[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_ASCII = re.compile("[\x00-\x7f]+")


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def clean(text: str) -> str:
    """Text without anything a terminal or a page would act on; line ends stay."""
    if _UNCLEAN.search(text) is None:
        return text
    return _CONTROL.sub("", text.replace("\r\n", "\n").translate(_LINE_ENDS))


def one_line(text: str) -> str:
    return " ".join(clean(text).split())


def shortened(text: str, chars: int) -> str:
    """One line of at most that many characters, cut at a word where one ends near."""
    if len(text) <= chars and text.isprintable() and "  " not in text:
        return text  # as summaries and names are
    return cut_short(one_line(text[: chars * 3 + 200]), chars)


def excerpt(text: str, chars: int) -> str:
    """The beginning and the end of a text, with its line ends: answers begin and end with what matters.

    A code block that is cut is closed before the gap, and opened again after it.
    """
    text = clean(text).strip()
    if len(text) <= chars:
        return text
    head = _to_edge(text[: chars * 2 // 3])
    tail = _to_edge(text[: -(chars - len(head) - 4) : -1])[::-1]
    if opened := _open_fence(head):
        head += f"\n{opened[1]}"
    if opened := _open_fence(text[: len(text) - len(tail)]):
        tail = f"{opened[0]}\n{tail}"
    return f"{head}\n{ELLIPSIS}\n{tail}"


def _to_edge(text: str) -> str:
    """A cut text without the piece of a line, or else of a word, that it ends in; the line's indentation stays."""
    for edge in ("\n", " "):
        if (place := text.rfind(edge, len(text) * 2 // 3)) > 0:
            return text[:place].strip("\n") if edge == "\n" else text[:place].strip()
    return text.strip()


def _open_fence(text: str) -> re.Match[str] | None:
    """The line that opens the code block in which a text ends, and what closes it; None if it ends in none."""
    fences = list(_FENCE.finditer(text))
    return fences[-1] if len(fences) % 2 else None


def sentences(text: str) -> list[str]:
    """Sentences and lines of a text, without the marks of lists and headings before them."""
    pieces = (piece.strip().lstrip("-*#>•0123456789.) ").strip() for piece in _SENTENCE_END.split(clean(text)))
    return [piece for piece in pieces if piece]


def payload_text(payload: Mapping[str, Any]) -> str:
    """What a payload says, as text."""
    for key in ("text", "output", "input"):
        value = payload.get(key)
        if value:
            return as_text(value)
    return ""


def input_text(payload: Mapping[str, Any]) -> str:
    """The first text among a call's arguments: what it is about."""
    given = payload.get("input")
    values = given.values() if isinstance(given, Mapping) else [given]
    return next((value for value in values if isinstance(value, str)), "")


def as_text(value: Any) -> str:
    """A message's text, whether told as text, in parts, or as an object."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        texts = [part["text"] for part in value if isinstance(part.get("text"), str)]
        if texts:
            return "\n".join(text.removesuffix("\n") for text in texts)
    return orjson.dumps(value).decode("utf-8", "replace")


def estimate_tokens(text: str) -> int:
    """Tokens of a text, rounded up: only an empty one has none."""
    if text.isascii():
        return -int(-len(text) // ASCII_CHARS)
    rest = _ASCII.sub("", text)
    wide = len(_WIDE.findall(rest))
    plain = (len(text) - len(rest)) / ASCII_CHARS
    return int(plain + wide / WIDE_CHARS + (len(rest) - wide) / OTHER_CHARS) + 1
