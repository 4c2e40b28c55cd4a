"""Reading values from logs in which anything may stand anywhere."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson

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
