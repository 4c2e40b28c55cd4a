"""What of a batch is redacted beside its payloads: every text that is stored with an event, a session or a bad line."""

from pathlib import Path
from typing import Any, NamedTuple

from recollect.redact.marks import load_key
from recollect.redact.redactor import Redactor
from recollect.redact.userrules import RedactionRules
from recollect.store.batch import EventRow

_SUMMARY, _COPY_KEY, _RETRY_KEY = map(EventRow._fields.index, ("summary", "copy_key", "retry_key"))
_SHARED_CHARS = 6  # so many characters of a secret in a row are a part of it


class Protection(NamedTuple):
    """How a store is protected; each process that reads makes its own redactor from it."""

    folder: Path
    rules: RedactionRules

    def redactor(self) -> Redactor:
        return Redactor(self.rules, load_key(self.folder), folder=self.folder)


def without_secrets(redactor: Redactor, row: tuple[Any, ...], secrets: list[str]) -> tuple[Any, ...]:
    """A row, or the first half of one, whose payload held secrets: hashes of them are keyed, pieces of them cut out."""
    found = list(row)
    found[_SUMMARY] = without_parts(redactor.text(row[_SUMMARY]), secrets)
    if row[_RETRY_KEY] is not None:
        found[_RETRY_KEY] = redactor.keyed(row[_RETRY_KEY])
    if row[_COPY_KEY] is not None:
        keyed = redactor.keyed(row[_COPY_KEY].to_bytes(8, "big", signed=True))
        found[_COPY_KEY] = int.from_bytes(keyed, "big", signed=True)
    return tuple(found)


def without_parts(text: str, secrets: list[str]) -> str:
    """A shortened text without pieces of secrets: cut in the middle, they are not known by their look any more."""
    for secret in secrets:
        told = " ".join(secret.split())
        for start in range(len(told) - _SHARED_CHARS + 1):
            piece = told[start : start + _SHARED_CHARS]
            while (place := text.find(piece)) >= 0:
                text = text[:place] + "…" + text[place + _shared(text, place, told, start) :]
    return text


def _shared(text: str, place: int, secret: str, start: int) -> int:
    """How many characters the text and the secret have in common from these places on."""
    size = 0
    while place + size < len(text) and start + size < len(secret) and text[place + size] == secret[start + size]:
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


def protected_names(redactor: Redactor, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row's own texts: names, ids and summaries are known as secrets by their look alone."""
    return tuple(redactor.text(value) if isinstance(value, str) else value for value in values)
