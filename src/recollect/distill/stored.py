"""A digest as it is stored: its JSON, and the words by which it is found. Reading one needs no rule that makes one."""

from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from typing import Any

import msgspec
import orjson

from recollect.schema import Asked, Digest, Quote
from recollect.sessions import TOKENS
from recollect.text import spaced

_read = msgspec.json.Decoder(Digest).decode
_PLAIN = (str, int, float, bool)


def searchable(digest: Digest) -> str:
    """The words by which a digest is found."""
    ends = digest.open
    quotes: list[Quote | Asked | None] = [
        *digest.requests,
        digest.final_answer,
        *digest.commits,
        digest.tests.last_run,
        *digest.errors,
    ]
    quotes += digest.pull_requests
    quotes += [
        *ends.todos,
        *ends.questions,
        *ends.next_steps,
        *digest.interventions,
        *digest.decisions,
        *digest.snippets,
    ]
    names = [*(tally.name for tally in (*digest.files, *digest.commands)), *digest.deleted]
    said = [part for quote in quotes if quote for part in (quote.text, getattr(quote, "note", None) or "")]
    return spaced("\n".join(part for part in (digest.title or "", *said, *names, *digest.sub_agents) if part))


def write_digest(digest: Digest) -> bytes:
    """The bytes to store; fields that have their default are left out, and so are sorts of tokens not used."""
    used = {name: count for name, count in digest.tokens.items() if count}
    return orjson.dumps(_lean(digest) | {"tokens": used})


def parse_digest(raw: bytes) -> Digest:
    """The digest that was written, whether or not what is empty was left out."""
    digest = _read(raw)
    return replace(digest, tokens=dict.fromkeys(TOKENS, 0) | dict(digest.tokens))


def _lean(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their default, and of those within them."""
    lean: dict[str, Any] = {}
    for name, default in _defaults(value.__class__):
        item = getattr(value, name)
        if item != default:
            lean[name] = item if item.__class__ in _PLAIN else _leaner(item)
    return lean


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
