"""A digest as it is stored: JSON without what reading puts back. Small sessions have mostly empty fields."""

from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any

import msgspec
import orjson

from recollect.schema import Digest

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_read = msgspec.json.Decoder(Digest).decode


def write_digest(digest: Digest) -> bytes:
    """The bytes to store; fields that have their default are left out, and so are sorts of tokens not used."""
    used = {name: count for name, count in digest.tokens.items() if count}
    return orjson.dumps(_lean(replace(digest, tokens=used)))


def parse_digest(raw: bytes) -> Digest:
    """The digest that was written, whether or not what is empty was left out."""
    digest = _read(raw)
    return replace(digest, tokens=dict.fromkeys(TOKENS, 0) | dict(digest.tokens))


def _lean(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_lean(item) for item in value]
    if not is_dataclass(value):
        return value
    told = ((field, getattr(value, field.name)) for field in fields(value))
    return {field.name: _lean(item) for field, item in told if item != _default(field)}


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
