"""What a search looks through: the words of an event's payload, by who said them.

Pure and quick, since every byte of every log passes here: about 5 µs for a kilobyte. Also numbers as people read them
(counts, sizes, money, time), and how long-running work reports its progress.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from operator import add
from typing import Any, NamedTuple

from recollect.model import kinds

# Letters of scripts without spaces between words: Han, kana, hangul.
CJK = (
    "\u3005\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)

# Escape sequences of any kind, and control characters but for tab and line end: a log may hold ones that
# retitle the window or write to the clipboard.
TERMINAL_CONTROL = (
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[\s\S]|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)

# Patterns that are compiled at their first use: `re` keeps them, and most programs need few of them.
CJK_RUN = f"[{CJK}]+"
# The only bytes that matter to `_has_cjk`: how the UTF-8 of such a character may begin.
_CJK_LEADS = bytes(range(0xE3, 0xEE)) + b"\xef\xf0"
_NOT_CJK_LEADS = bytes(byte for byte in range(256) if byte not in _CJK_LEADS)
_HUMP = "[a-z0-9][A-Z]"
# Every byte as `a`, `A` or a space: a name with humps is where `aA` stands.
_LETTERS = bytes(
    ord("A" if 65 <= byte <= 90 else "a" if 97 <= byte <= 122 or 48 <= byte <= 57 else " ") for byte in range(256)
)
_PARTS = "[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+"
_IDENTIFIER_CHARS = 100
_PIECE_CHARS = 1024 * 1024
ELLIPSIS = "…"
_FENCE = r"recollect-([0-9a-f]{16})(?![0-9a-f])"
_SKIPPED_KEYS = frozenset({"type", "native", "media"})


def cut_short(line: str, chars: int) -> str:
    """A line of at most so many characters, cut where a word ends if one does near there, with `…` behind it."""
    if len(line) <= chars:
        return line
    space = line.rfind(" ", chars * 3 // 4, chars)
    return line[: space if space > 0 else chars - 1].rstrip() + ELLIPSIS


def begins_with(text: str, line: str) -> bool:
    """Whether a line that may have been cut short is how a text begins."""
    return text.startswith(line.removesuffix(ELLIPSIS))


class Columns(NamedTuple):
    """The text of one event as the index takes it, in UTF-8: one column by weight, and the words inside its names.

    Results come first: their words are the most, and those of the first column take the least room.
    """

    got: bytes = b""
    said: bytes = b""
    did: bytes = b""
    asked: bytes = b""
    parts: bytes = b""


_COLUMN_OF = {
    kinds.USER_MSG: "asked",
    kinds.DECISION: "asked",
    kinds.HUMAN_INTERVENTION: "asked",
    kinds.ASSISTANT_MSG: "said",
    kinds.COMPLETION: "said",
    kinds.THINKING: "said",
    kinds.TOOL_CALL: "did",
    kinds.TEST_RUN: "did",
    kinds.EDIT: "did",
    kinds.RETRY: "did",
}


def column_of(kind: str) -> str:
    """The column that holds the words of such an event."""
    return _COLUMN_OF.get(kind, "got")


def columns_of(kind: str, payload: Mapping[str, Any]) -> Columns | None:
    """What is indexed of an event; None if it says nothing.

    Kinds that are found out later (`retry`, `completion`) have the column of the kind they come from.
    """
    text = evidence(payload_text(kind, payload))
    if not text:
        return None
    data = text.encode()
    column = column_of(kind)
    parts = b"" if column == "got" else b" ".join(_identifier_parts(data))
    if not text.isascii() and _has_cjk(data):
        data = spaced(text).encode()
    return Columns(data) if column == "got" else Columns(**{column: data, "parts": parts})


def payload_text(kind: str, payload: Mapping[str, Any]) -> str:
    """All that a payload says, line by line; of an unknown record also what its native fields say."""
    values = (payload.get("text"), payload.get("input"), payload.get("output"))
    texts = [value if isinstance(value, str) else "\n".join(_leaves(value)) for value in values if value]
    if kind == kinds.OTHER and "native" in payload:
        texts += _leaves(payload["native"])
    return texts[0] if len(texts) == 1 else "\n".join(texts)


def _leaves(value: Any) -> Iterator[str]:
    """The texts in a nested value; a key that is no plain name (a path) is a text too. Not recursive: logs are deep."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            waiting += [part for key, part in reversed(item.items()) if key not in _SKIPPED_KEYS]
            yield from (key for key in item if isinstance(key, str) and not key.isidentifier())
        elif isinstance(item, list | tuple):
            waiting += reversed(item)


def evidence(text: str) -> str:
    """The text without what an earlier recall put into it, from one fence marker to its twin or to the end."""
    if "recollect-" not in text:
        return text
    kept, offset = [], 0
    while opening := re.compile(_FENCE).search(text, offset):
        kept.append(text[offset : text.rfind("\n", offset, opening.start()) + 1 or offset])
        closing = text.rfind(opening[0])
        if closing == opening.start():
            return "".join(kept)
        end = text.find("\n", closing)
        offset = len(text) if end < 0 else end + 1
    return "".join([*kept, text[offset:]])


def _identifier_parts(data: bytes) -> Iterator[bytes]:
    """The words inside names such as `parseInvoiceHeader`, each name once.

    A regular expression over the text would take ten times as long.
    """
    letters = data.translate(_LETTERS)
    seen: set[bytes] = set()
    hump = letters.find(b"aA")
    while hump >= 0:
        start, end = letters.rfind(b" ", 0, hump) + 1, letters.find(b" ", hump)
        end = len(letters) if end < 0 else end
        name = data[start:end] if end - start <= _IDENTIFIER_CHARS else b""
        if name and name not in seen:
            seen.add(name)
            yield _parts_of(name)
        hump = letters.find(b"aA", end)


@lru_cache(maxsize=16 * 1024)
def _parts_of(name: bytes) -> bytes:
    return " ".join(re.findall(_PARTS, name.decode())).encode()


def identifier_words(word: str) -> list[str]:
    """`parseInvoiceHeader` -> parse, Invoice, Header; a name without humps is one word."""
    return re.findall(_PARTS, word) if re.search(_HUMP, word) else [word]


def _has_cjk(data: bytes) -> bool:
    """Quick for the many texts whose only other letters are an arrow or a dash."""
    return bool(data.translate(None, _NOT_CJK_LEADS))


def spaced(text: str) -> str:
    """The text with every run of CJK letters as its pairs, which then count as words."""
    return "".join(re.sub(CJK_RUN, _pairs, piece) for piece in _pieces(text))


def _pairs(run: re.Match[str]) -> str:
    return f" {' '.join(bigrams(run[0]))} "


def _pieces(text: str) -> Iterator[str]:
    """A long text in pieces that cut no run: to replace millions of runs at once takes ten times its memory."""
    start = 0
    while start < len(text):
        end = start + _PIECE_CHARS
        if rest := re.compile(CJK_RUN).match(text, end):
            end = rest.end()
        yield text[start:end]
        start = end


def bigrams(run: str) -> list[str]:
    """Each character with the next one, and the last by itself.

    The last keeps two runs apart, and with it every character begins some gram: one character is found by a prefix.
    """
    return [*map(add, run, run[1:]), *run[-1:]]


def size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def number(count: int) -> str:
    return f"{count:,}"


def plural(count: int, thing: str) -> str:
    return f"{number(count)} {thing}" if count == 1 else f"{number(count)} {thing}s"


def session_counts(total: int, sub_agents: int, warm_ups: int) -> str:
    """`325 sessions, 7 sub-agents, 1 warm-up`, the same wherever sessions are counted; `total` is of all three."""
    others = [plural(count, thing) for count, thing in ((sub_agents, "sub-agent"), (warm_ups, "warm-up")) if count]
    return ", ".join([plural(total - sub_agents - warm_ups, "session"), *others])


def money(usd: float | None, is_estimate: bool = False, is_incomplete: bool = False) -> str:
    """An amount: `~` if it is estimated, `+` if more was spent at a price that is not known."""
    if usd is None:
        return "–"
    return f"{'~' if is_estimate else ''}${usd:,.2f}{'+' if is_incomplete else ''}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 86_400 else f"{seconds / 86_400:.0f} d"


Progress = Callable[[str, int, int], None]  # stage, done, total


def silent(stage: str, done: int, total: int) -> None:
    """Report to nobody."""
