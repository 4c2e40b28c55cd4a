"""Names and keys that adapters take from logs, or make."""

import hashlib
from typing import Any

import orjson

from recollect.agentkit.values import storable

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
