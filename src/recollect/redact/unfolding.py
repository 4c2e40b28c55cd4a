"""Text behind colours, `\\u00xx`, percent signs and base64: undone, with the way back to where it stood."""

import binascii
import re
from array import array
from bisect import bisect_right

_SEQUENCE = rb"(?:\[[0-9;:?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[()][0-9A-B])"
# Each way begins with a character of its own: `re` then runs over all others five times as fast.
_FOLDS = re.compile(
    rb"\x1b" + _SEQUENCE + rb"|\\\\{0,15}u001[bB]" + _SEQUENCE + rb"|\\\\{0,15}u00(?P<unicode>[2-7][0-9a-fA-F])"
    rb"|%(?P<percent>[2-7][0-9a-fA-F]|0[9aAdD])"
)
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


COLOUR, ESCAPE = b"\x1b", b"\\u00"  # what begins a fold; JSON writes the first as one of the second


class Unfolded:
    """A text with its folds undone. `span` tells where a part of it stands in the text as given."""

    def __init__(self, data: bytes) -> None:
        unfolded = bytearray()
        # Of stretches that were copied as they are; a text of many megabytes may have a million of them.
        self._starts, self._sources = array("q", [0]), array("q", [0])
        last = 0
        for fold in _FOLDS.finditer(data):
            unfolded += data[last : fold.start()]
            unfolded += _undone(fold)
            last = fold.end()
            self._starts.append(len(unfolded))
            self._sources.append(last)
        unfolded += data[last:]
        self.data = bytes(unfolded)

    def span(self, start: int, end: int) -> tuple[int, int]:
        return self._source(start), self._source(end - 1) + 1

    def _source(self, place: int) -> int:
        number = bisect_right(self._starts, place) - 1
        source = self._sources[number] + place - self._starts[number]
        # The byte itself may be a fold: then it stands just before the next stretch.
        following = self._sources[number + 1] if number + 1 < len(self._sources) else source + 1
        return min(source, following - 1)


def _undone(fold: re.Match[bytes]) -> bytes:
    code = fold["unicode"] or fold["percent"]
    return bytes.fromhex(code.decode()) if code else b""


def decode_base64(run: bytes) -> bytes | None:
    """What a run of base64, ordinary or for addresses, stands for; a cut end is left out."""
    letters = run.rstrip(b"=").translate(_URL_SAFE)
    letters = letters[: -1 if len(letters) % 4 == 1 else None]
    try:
        return binascii.a2b_base64(letters + b"=" * (-len(letters) % 4))
    except binascii.Error:
        return None


def base64_span(start: int, end: int) -> tuple[int, int]:
    """Where bytes of a decoded run stand in it, in whole groups of four letters."""
    return start // 3 * 4, -(-end // 3) * 4
