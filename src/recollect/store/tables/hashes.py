"""Sets of hashes of eight bytes each, packed one after another: years of work make millions of them."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from sys import byteorder

HASH_BYTES = 8


class PackedHashes:
    """The hashes in packed texts, each of which is sorted."""

    def __init__(self, packed: Iterable[bytes]) -> None:
        texts = list(packed)
        self._values = array("Q", b"".join(texts))
        if byteorder == "little":
            self._values.byteswap()  # they are sorted as bytes
        if len(texts) > 1:
            self._values = array("Q", sorted(self._values))

    def __contains__(self, hashed: bytes) -> bool:
        value = int.from_bytes(hashed, "big")
        index = bisect_left(self._values, value)
        return index < len(self._values) and self._values[index] == value


def pack(hashes: Iterable[bytes]) -> bytes:
    return b"".join(sorted(hashes))


def unpack(packed: bytes) -> set[bytes]:
    return {packed[start : start + HASH_BYTES] for start in range(0, len(packed), HASH_BYTES)}
