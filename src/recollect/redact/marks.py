"""What stands in the place of a secret, the key that makes it, and the name of the rules that did."""

import os
import re
from hashlib import blake2b
from pathlib import Path

from recollect.errors import StoreDamaged, StoreUnwritable

KEY_FILE = "redaction.key"
KEY_BYTES = 32
MARK = re.compile(rb"\[REDACTED:[a-z0-9-]+(:[0-9a-f]{8})?\]")
OPENING = b"[REDACTED:"
UNSCANNABLE = "[REDACTED:unscannable]"

OLDER, SAME, NEWER, OTHER = "older", "same", "newer", "other"

_LINE_ENDS = re.compile(rb"(?:\\+[nrt]|\s)+")


def mark(rule: str, secret: bytes, key: bytes) -> str:
    """The stand-in of a secret: the same wherever and however often it was written, escaped or not."""
    plain = _LINE_ENDS.sub(b"", secret) if rule == "private-key" else secret.replace(b"\\", b"")
    return f"[REDACTED:{rule}:{blake2b(plain, key=key, digest_size=4).hexdigest()}]"


def without_rules(text: bytes) -> bytes:
    """A text whose marks tell which secret stood there, and not which rule found it: a newer rule may find it too."""
    return MARK.sub(rb"[REDACTED\1]", text)


def key_id(key: bytes) -> str:
    return blake2b(b"id", key=key, digest_size=4).hexdigest()


def key_of(version: str) -> str | None:
    """The id of the key in the name of a version of the rules; None where it tells none."""
    parts = version.split(".")
    return parts[2] if len(parts) == 3 else None


def load_key(folder: Path) -> bytes:
    """The store's key, made at the first call; processes that make it at the same time get the same one."""
    path = folder / KEY_FILE
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_bytes()
    except OSError as error:
        raise StoreUnwritable(
            f"Cannot make or read the key of redaction ({error.strerror}): {path}",
            "free some space or check its permissions; nothing is stored without it",
        ) from error
    if len(key) != KEY_BYTES:
        raise StoreDamaged(
            f"Key of redaction is damaged ({len(key)} bytes instead of {KEY_BYTES}): {path}",
            "move it away: a new one is made, and secrets get new marks",
        )
    return key


def _make_key(path: Path) -> None:
    """Write the key beside its place, and link it there unless another process was faster: it is never half there."""
    new = path.with_name(f"{KEY_FILE}.{os.getpid()}.{os.urandom(4).hex()}")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)
        except FileExistsError:
            return
    finally:
        new.unlink(missing_ok=True)


def compare_versions(one: str, other: str) -> str:
    """Whether rules were `older`, the `same`, `newer`, or `other` ones that cannot be set in order.

    A larger number of the published list is newer, whoever's key and own rules it was used with.
    """
    if one == other:
        return SAME
    first, second = one.partition(".")[0], other.partition(".")[0]
    if first == second or not (first.isdigit() and second.isdigit()):
        return OTHER
    return OLDER if int(first) < int(second) else NEWER
