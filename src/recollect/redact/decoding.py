"""Decodes colours, `\\u00xx`, percent signs and base64, and maps what is found back to where it was."""

import binascii
import re
from array import array
from bisect import bisect_right

_SEQUENCE = rb"(?:\[[0-9;:?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[()][0-9A-B])"
# Each branch begins with a different character: `re` then skips all others five times as fast.
_FOLDS = re.compile(
    rb"\x1b" + _SEQUENCE + rb"|\\\\{0,15}u001[bB]" + _SEQUENCE + rb"|\\\\{0,15}u00(?P<unicode>[2-7][0-9a-fA-F])"
    rb"|%(?P<percent>[2-7][0-9a-fA-F]|0[9aAdD])"
)
_URL_SAFE = bytes.maketrans(b"-_", b"+/")

COLOUR, ESCAPE = b"\x1b", b"\\u00"  # what begins a fold; JSON writes the first as one of the second


class Unfolded:
    """A text with its folds undone; `span` maps a part of it back to the original."""

    def __init__(self, data: bytes) -> None:
        unfolded = bytearray()
        # Where stretches that were copied unchanged begin; in many megabytes there may be a million of them.
        self._starts, self._sources = array("q", [0]), array("q", [0])
        last = 0
        for fold in _FOLDS.finditer(data):
            code = fold["unicode"] or fold["percent"]
            unfolded += data[last : fold.start()]
            unfolded += bytes.fromhex(code.decode()) if code else b""
            last = fold.end()
            self._starts.append(len(unfolded))
            self._sources.append(last)
        unfolded += data[last:]
        self.data = bytes(unfolded)

    def span(self, start: int, end: int) -> tuple[int, int]:
        return self._source(start), self._source(end - 1) + 1

    def _source(self, offset: int) -> int:
        number = bisect_right(self._starts, offset) - 1
        source = self._sources[number] + offset - self._starts[number]
        # The byte itself may be a fold: then it ends just before the next stretch.
        following = self._sources[number + 1] if number + 1 < len(self._sources) else source + 1
        return min(source, following - 1)


def decode_base64(run: bytes) -> bytes:
    """What a run of base64, ordinary or URL-safe, decodes to; a cut end is dropped."""
    letters = run.rstrip(b"=").translate(_URL_SAFE)
    letters = letters[: -1 if len(letters) % 4 == 1 else None]
    try:
        return binascii.a2b_base64(letters + b"=" * (-len(letters) % 4))
    except binascii.Error:
        return b""


def base64_span(start: int, end: int) -> tuple[int, int]:
    """Where bytes of a decoded run are in the run, in whole groups of four letters."""
    return start // 3 * 4, -(-end // 3) * 4
