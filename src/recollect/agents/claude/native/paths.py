"""Where Claude Code keeps the sessions of a folder: the folder's path as one name, which cannot be undone by itself."""

import os
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

_MOST_CHARS = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_OTHER = re.compile("[^a-zA-Z0-9]")


def encode_path(path: str) -> str:
    """The name of a project's folder: every character but ASCII letters and digits becomes `-`.

    Counted as JavaScript counts, so that an emoji is two. What is longer than 200 is cut and gets a hash of the path.
    """
    units = _utf16(path)
    name = _OTHER.sub("-", "".join(map(chr, units)))
    return name if len(name) <= _MOST_CHARS else f"{name[:_MOST_CHARS]}-{_hash(units)}"


def _utf16(text: str) -> list[int]:
    data = text.encode("utf-16-le", "surrogatepass")
    return [int.from_bytes(data[place : place + 2], "little") for place in range(0, len(data), 2)]


def _hash(units: list[int]) -> str:
    """h × 31 + unit over 32 bits with a sign, its absolute value in base 36."""
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    value = abs(value - (1 << 32) if value >= 1 << 31 else value)
    digits = ""
    while value or not digits:
        value, digit = divmod(value, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def real_path(path: str | os.PathLike[str]) -> str:
    """A folder's path as Claude Code sees it: links resolved, letters composed."""
    return unicodedata.normalize("NFC", os.path.realpath(path))


def decode_path(name: str, below: Path = Path("/")) -> Iterator[Path]:
    """The folders below `below` that exist and have this name in Claude Code's storage; there may be several, or none.

    A name alone does not say which characters were replaced, so folders are looked up level by level.
    """
    encoded = encode_path(str(below))
    if encoded == name:
        yield below
    is_cut = len(name) > _MOST_CHARS and name[_MOST_CHARS] == "-"
    beginning = name[:_MOST_CHARS] if is_cut else name
    here = _OTHER.sub("-", str(below).rstrip("/"))[:_MOST_CHARS]
    if not beginning.startswith(here) or not below.is_dir():
        return
    for folder in sorted(_folders(below)):
        step = _OTHER.sub("-", "".join(map(chr, _utf16(str(folder)))))[:_MOST_CHARS]
        if beginning == step or beginning.startswith(f"{step}-") or (is_cut and len(step) == _MOST_CHARS):
            yield from decode_path(name, folder)


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
