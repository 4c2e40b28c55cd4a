"""A digest as it is stored: JSON without what reading puts back. Small sessions have mostly empty fields."""

from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from typing import Any

import msgspec
import orjson

from recollect.schema import Digest

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_read = msgspec.json.Decoder(Digest).decode


def write_digest(digest: Digest) -> bytes:
    """The bytes to store; fields that have their default are left out, and so are sorts of tokens not used."""
    used = {name: count for name, count in digest.tokens.items() if count}
    return orjson.dumps(_lean(digest) | {"tokens": used})


def parse_digest(raw: bytes) -> Digest:
    """The digest that was written, whether or not what is empty was left out."""
    digest = _read(raw)
    return replace(digest, tokens=dict.fromkeys(TOKENS, 0) | dict(digest.tokens))


def _lean(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that have not their default, and of those within them."""
    told = ((name, getattr(value, name), default) for name, default in _defaults(value.__class__))
    return {name: _leaner(item) for name, item, default in told if item != default}


def _leaner(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_leaner(item) for item in value]
    return _lean(value) if is_dataclass(value) else value


@cache
def _defaults(of: type) -> list[tuple[str, Any]]:
    """Its fields, each with its default, which no value equals where there is none."""
    return [
        (field.name, field.default if field.default_factory is MISSING else field.default_factory())
        for field in fields(of)
    ]
