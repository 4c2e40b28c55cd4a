"""Values from logs, where any field may hold anything, and the ids, keys, summaries and references made of them."""

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson

from recollect.model.kinds import SUMMARY_CHARS
from recollect.model.text import TERMINAL_CONTROL

_SCALARS = frozenset({bool, float, type(None)})
_DEPTH = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
K = TypeVar("K")
V = TypeVar("V")


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one: logs hold strings where objects are usual."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    """The value if it is a text and not empty."""
    return value if isinstance(value, str) and value else None


def positive_int(value: Any) -> int:
    """A count from a log; 0 for what is no count, or larger than any that could be summed."""
    return value if isinstance(value, int) and 0 < value <= 10**12 else 0


def parse_time_ms(value: Any) -> int | None:
    """Milliseconds since 1970 of an RFC 3339 text; None for anything else, or for a year no clock shows."""
    if value.__class__ is not str:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    if moment.tzinfo is None or not 1970 <= moment.year <= 9000:
        return None
    since = moment - _EPOCH  # `timestamp()` takes longer, and rounds
    return (since.days * 86_400 + since.seconds) * 1000 + round(since.microseconds / 1000)


def storable(value: Any) -> Any:
    """The value as any JSON writer takes it: numbers beyond 64 bits become text, endless nesting is cut.

    U+FFFD replaces lone surrogates.
    """
    if value.__class__ in _SCALARS:
        return value
    try:
        orjson.dumps(value)
    except TypeError:
        return _storable(value, 0)
    return value


def _storable(value: Any, depth: int) -> Any:
    if value.__class__ in _SCALARS:
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, dict | list | tuple) and depth > _DEPTH:
        return "nested too deeply"
    if isinstance(value, list | tuple):
        return [_storable(part, depth + 1) for part in value]
    if isinstance(value, dict):
        return {without_surrogates(str(key)): _storable(part, depth + 1) for key, part in value.items()}
    return without_surrogates(str(value))


def without_surrogates(text: str) -> str:
    """The text with U+FFFD in the place of lone surrogates, which neither JSON writers nor SQLite take."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def remember(entries: dict[K, V], key: K, value: V, limit: int) -> None:
    """Put an entry behind all others, and drop the oldest one beyond the limit."""
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > limit:
        del entries[next(iter(entries))]


ID_CHARS = 128


def as_id(value: Any, chars: int = ID_CHARS) -> str | None:
    """An id as the log has it; None if it is no text, too long, or JSON would escape it.

    So ids never blow up a cursor's state.
    """
    if value.__class__ is not str or not 0 < len(value) <= chars:
        return None
    # A regular expression would take twice as long, and there are several ids in a line.
    is_plain = value.isascii() and value.isprintable() and '"' not in value and "\\" not in value
    return value if is_plain else None


def short_hash(*parts: str) -> str:
    """Sixteen hex digits."""
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()


def call_key(tool: str, arguments: Any) -> tuple[Any, str]:
    """A call's arguments as JSON can hold them, and its retry key.

    The key is equal for two calls of the same tool with the same arguments, whatever their white space.
    """
    call = [tool, arguments]
    try:
        text = orjson.dumps(call, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        call = storable(call)
        text = orjson.dumps(call, option=orjson.OPT_SORT_KEYS)
    return call[1], hashlib.blake2b(text.translate(None, b" \t"), digest_size=8).hexdigest()


_TERMINAL_CONTROL = re.compile(TERMINAL_CONTROL)
_TEXT_FIELDS = ("text", "value", "content", "resource")


def summarise(text: str) -> str:
    """One line of at most SUMMARY_CHARS characters, without colours and control characters."""
    line = " ".join(text[: SUMMARY_CHARS + 40].split())
    if not line.isprintable():
        line = "".join(char for char in _TERMINAL_CONTROL.sub("", line) if char.isprintable())
    return line if len(line) <= SUMMARY_CHARS else line[: SUMMARY_CHARS - 1].rstrip() + "…"


def texts_in(value: Any, depth: int = 8) -> list[str]:
    """The texts of a field that mostly is one: services also write it in parts, or as an object around it."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, list) and depth:
        return [text for part in value for text in texts_in(part, depth - 1)]
    if isinstance(value, dict) and depth:
        return next(filter(None, (texts_in(value.get(name), depth - 1) for name in _TEXT_FIELDS)), [])
    return []


def text_in(value: Any) -> str:
    """The same as one text."""
    return value if isinstance(value, str) else "\n".join(texts_in(value))


def media_reference(kind: str, mime: str | None, data: str, path: str | None = None) -> dict[str, Any]:
    """What is kept of inline base64 media: never the bytes themselves."""
    try:
        content = base64.b64decode(data.partition("base64,")[2] or data)
    except ValueError:
        content = data.encode("utf-8", "replace")
    reference = {"kind": kind, "mime": mime, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    return reference | ({"path": path} if path else {})
