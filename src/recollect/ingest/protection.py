"""Redaction of what a batch holds beside its payloads: every text stored with an event, a session or a bad line."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from recollect.redact import HYPERSCAN, NamedBefore, RedactionRules, Redactor, load_key
from recollect.store import EventRow

_SUMMARY, _COPY_KEY, _RETRY_KEY = map(EventRow._fields.index, ("summary", "copy_key", "retry_key"))
_APART = "\n\0\n"  # no secret reaches from one name into the next
_SHARED_CHARS = 6  # this many characters of a secret in a row are a part of it


class Protection(NamedTuple):
    """How a store is protected; each process that reads makes its own redactor from it."""

    folder: Path
    rules: RedactionRules
    named: NamedBefore | None = None

    def redactor(self) -> Redactor:
        return Redactor(self.rules, load_key(self.folder), folder=self.folder, named=self.named)

    def compile_rules(self) -> None:
        """Compile the rules once for all readers, which find them in the store's folder."""
        with suppress(ImportError):  # without Hyperscan there is nothing to compile
            Redactor(self.rules, load_key(self.folder), HYPERSCAN, folder=self.folder)


def without_secrets(redactor: Redactor, values: Sequence[Any], secrets: list[str]) -> list[Any]:
    """The row of an event whose payload held secrets: hashes of them are keyed, pieces of them cut out."""
    row = list(values)
    row[_SUMMARY] = without_parts(redactor.text(row[_SUMMARY]), secrets)
    if row[_RETRY_KEY] is not None:
        row[_RETRY_KEY] = redactor.keyed(row[_RETRY_KEY])
    if row[_COPY_KEY] is not None:
        keyed = redactor.keyed(row[_COPY_KEY].to_bytes(8, "big", signed=True))
        row[_COPY_KEY] = int.from_bytes(keyed, "big", signed=True)
    return row


def without_parts(text: str, secrets: list[str]) -> str:
    """A shortened text without pieces of secrets: cut in the middle, they are not known by their look any more."""
    for secret in secrets:
        line = " ".join(secret.split())
        for start in range(len(line) - _SHARED_CHARS + 1):
            piece = line[start : start + _SHARED_CHARS]
            while (offset := text.find(piece)) >= 0:
                text = text[:offset] + "…" + text[offset + _shared(text, offset, line, start) :]
    return text


def _shared(text: str, offset: int, secret: str, start: int) -> int:
    """How many characters the text and the secret have in common from these offsets on."""
    size = 0
    while offset + size < len(text) and start + size < len(secret) and text[offset + size] == secret[start + size]:
        size += 1
    return size


def protected_line(redactor: Redactor, raw: bytes) -> bytes:
    """A line that could not be read, without its secrets; its bytes need not be text."""
    try:
        return redactor.text(raw.decode()).encode()
    except UnicodeDecodeError:
        return redactor.text(raw.decode("latin-1")).encode("latin-1", "replace")


def protected_json(redactor: Redactor, documents: list[bytes]) -> list[bytes]:
    changed = redactor.payloads(documents)
    return [changed.get(number, document) for number, document in enumerate(documents)] if changed else documents


def protected_names(redactor: Redactor, values: Sequence[Any]) -> tuple[Any, ...]:
    """A row with the secrets in its own texts replaced; in names and ids only their look gives them away."""
    return tuple(redactor.text(value) if isinstance(value, str) else value for value in values)


def protect_names(redactor: Redactor, rows: list[list[Any]], names_of: Callable[[list[Any]], tuple[Any, ...]]) -> None:
    """Take secrets out of the names in rows.

    Most names are clean and many the same, so first all different ones are looked at together.
    """
    names = set(chain.from_iterable(map(names_of, rows))) - {None}
    if names and redactor.suspects([_APART.join(names)]):
        for number in redactor.suspects([_APART.join(filter(None, names_of(row))) for row in rows]):
            rows[number] = list(protected_names(redactor, rows[number]))
