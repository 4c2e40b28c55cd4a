"""The marks that replace secrets, the key that makes them, and the versions of the rules."""

import os
import re
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from recollect.model.errors import StoreDamaged, StoreUnwritable
from recollect.model.files import write_new

KEY_FILE = "redaction.key"
KEY_BYTES = 32
MARK = re.compile(rb"\[REDACTED:[a-z0-9-]+(:[0-9a-f]{8})?\]")
OPENING = b"[REDACTED:"
UNSCANNABLE = "[REDACTED:unscannable]"

OLDER, SAME, NEWER, OTHER = "older", "same", "newer", "other"

_LINE_ENDS = re.compile(rb"(?:\\+[nrt]|\s)+")


class NamedValue(NamedTuple):
    """A value that was marked by its name: in memory only, but for its rule and the digits of its mark."""

    value: bytes
    rule: str
    digits: str


def mark(rule: str, secret: bytes, key: bytes) -> str:
    """What replaces a secret: always the same for the same secret, escaped or not."""
    return f"[REDACTED:{rule}:{mark_digits(rule, secret, key)}]"


def mark_digits(rule: str, secret: bytes, key: bytes) -> str:
    plain = _LINE_ENDS.sub(b"", secret) if rule == "private-key" else secret.replace(b"\\", b"")
    return blake2b(plain, key=key, digest_size=4).hexdigest()


def without_rules(text: bytes) -> bytes:
    """A text whose marks name the secret but not the rule, which may differ between versions."""
    return MARK.sub(rb"[REDACTED\1]", text)


def key_id(key: bytes) -> str:
    return blake2b(b"id", key=key, digest_size=4).hexdigest()


def key_of(version: str) -> str | None:
    """The id of the key in a version; None if it has none."""
    parts = version.split(".")
    return parts[2] if len(parts) == 3 else None


def load_key(folder: Path) -> bytes:
    """The store's key, created on first use; processes that create it at the same time get the same one."""
    path = folder / KEY_FILE
    try:
        if not path.exists():
            with suppress(FileExistsError):
                write_new(path, os.urandom(KEY_BYTES))
        key = path.read_bytes()
    except OSError as error:
        raise StoreUnwritable(
            f"Cannot create or read the redaction key ({error.strerror}): {path}",
            "free some space or check its permissions; nothing is stored without it",
        ) from error
    if len(key) != KEY_BYTES:
        raise StoreDamaged(
            f"Redaction key is damaged ({len(key)} bytes instead of {KEY_BYTES}): {path}",
            "move it away: a new one is created, and secrets get new marks",
        )
    return key


def compare_versions(version: str, other: str) -> str:
    """Whether a version of the rules is `older` than another, the `same`, `newer`, or `other`: neither.

    A higher number of the published list is newer, whatever key and rules of the user's were used with it.
    """
    if version == other:
        return SAME
    number, other_number = version.partition(".")[0], other.partition(".")[0]
    if number == other_number or not (number.isdigit() and other_number.isdigit()):
        return OTHER
    return OLDER if int(number) < int(other_number) else NEWER
