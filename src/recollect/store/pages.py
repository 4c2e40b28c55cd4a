"""The pages of a database file as its write-ahead log leaves them, each by itself; a damaged one is none.

The format: sqlite.org/fileformat2.html
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import apsw

from recollect.store import checksums

FIRST = 1  # where the header of the file stands, and the list of tables begins
_MAGIC = b"SQLite format 3\0"
_SAMPLE = 1000
_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_FIRST_MAP = 2
_FREE, _FIRST_OF_REST, _MORE_OF_REST, _BELOW = 2, 3, 4, 5  # what the map of parents tells of a page; 1: a root
_FEW_BYTES = 8  # so many of a row may well be zeros


class Unreadable(Exception):
    """A row that goes on where nothing can be read."""


class Place(NamedTuple):
    """What the map of parents tells of a page: its kind, and the page above it or before it."""

    kind: int
    parent: int

    @property
    def is_free(self) -> bool:
        return self.kind == _FREE

    @property
    def is_below(self) -> bool:
        """Whether the page has one above it in a tree."""
        return self.kind == _BELOW


class Pages:
    """The pages of a database as its write-ahead log leaves them, or without it as they stand in the file."""

    def __init__(self, path: Path, *, has_log: bool = True) -> None:
        self._has_layer = checksums.layer() is not None  # loaded first: it brings the judge's measure
        self._judge = apsw.Connection(":memory:")
        self._file = checksums.open_file(path)
        log = path.with_name(path.name + "-wal")
        self._log = checksums.open_file(log) if has_log and log.exists() else None
        self._size = checksums.page_bytes(self._file, self._judge)
        self._places: dict[int, int] = {}  # of pages in the log
        self.count = self._file.xFileSize() // self._size
        self._read_log()
        self._has_checksums = self._are_checked()
        first = self.read(1) if self.count else None
        reserved = first[20] if first is not None else checksums.RESERVED_BYTES
        if first is not None and not self._places:  # behind its end a file may have pages of an older state
            self.count = min(self.count, int.from_bytes(first[28:32]) or self.count)
        self._usable = self._size - reserved
        self._noted_at_once = self._usable // 5  # parents in one page of the map
        self._maps: dict[int, list[Place]] = {}

    def _read_log(self) -> None:
        """Find the newest state of each page up to the last commit of the log that is as it was written."""
        if self._log is None or self._log.xFileSize() < _LOG_HEADER_BYTES:
            return
        header = self._log.xRead(_LOG_HEADER_BYTES, 0)
        order = ">" if header[3] & 1 else "<"
        sums = _log_sums((0, 0), header[:24], order)
        step = _FRAME_HEADER_BYTES + self._size
        waiting: dict[int, int] = {}
        for at in range(_LOG_HEADER_BYTES, self._log.xFileSize() - step + 1, step):
            frame = self._log.xRead(step, at)
            page, count = struct.unpack_from(">II", frame)
            sums = _log_sums(_log_sums(sums, frame[:8], order), frame[_FRAME_HEADER_BYTES:], order)
            if frame[8:16] != header[16:24] or struct.unpack_from(">II", frame, 16) != sums:
                break  # of an earlier round, or damaged: nothing behind it counts
            waiting[page] = at + _FRAME_HEADER_BYTES
            if count:
                self._places |= waiting
                self.count, waiting = count, {}

    def _are_checked(self) -> bool:
        """Whether the pages have checksums at all: the first one, or most, are as they should be."""
        pages = range(1, self._file.xFileSize() // self._size + 1, self.count // _SAMPLE + 1)
        return self._is_sound(1) or sum(map(self._is_sound, pages)) * 2 > len(pages)

    def _stored(self, number: int) -> bytes:
        return self._file.xRead(self._size, (number - 1) * self._size)

    def _is_sound(self, number: int) -> bool:
        return self._has_layer and checksums.is_sound(self._judge, self._stored(number))

    def _raw(self, number: int) -> bytes:
        if number in self._places and self._log is not None:
            return self._log.xRead(self._size, self._places[number])
        return self._stored(number)

    def read(self, number: int) -> bytes | None:
        """A page, or None if it is not what was written."""
        if not 0 < number <= self.count:
            return None
        page = self._raw(number)
        if number in self._places:
            return page  # the log has its own sums
        if number == FIRST and not page.startswith(_MAGIC):  # a page of zeros has the sum of a sound one
            return None
        is_sound = not self._has_checksums or checksums.is_sound(self._judge, page)
        return page if len(page) == self._size and is_sound else None

    def is_map(self, number: int) -> bool:
        """Whether the place is one of those where the file keeps its map of parents."""
        return (number - _FIRST_MAP) % (self._noted_at_once + 1) == 0

    def place(self, number: int) -> Place | None:
        """What the map tells of a page; None where that part of it cannot be had."""
        behind = (number - _FIRST_MAP) % (self._noted_at_once + 1)
        places = self._map(number - behind)
        return places[behind - 1] if number > _FIRST_MAP and 0 < behind <= len(places) else None

    def _map(self, number: int) -> list[Place]:
        """One page of the map; nothing if another page is in its place."""
        if number not in self._maps:
            page = self.read(number) or b""
            count = min(self._noted_at_once, self.count - number) if page else 0
            places = [Place(*struct.unpack_from(">BI", page, at * 5)) for at in range(count)]
            is_map = places and places[0].kind and all(place.kind <= _BELOW for place in places)
            self._maps[number] = places if is_map else []
        return self._maps[number]

    def iter_blank(self) -> Iterator[int | None]:
        """Look at one page after the other: yields its number if it is blank and a row is to go on there."""
        for number in range(1, self.count + 1):
            yield number if self.is_blank(number) and self.owner(number) is not None else None

    def is_blank(self, number: int) -> bool:
        return self._raw(number) == bytes(self._size)

    def owner(self, number: int) -> int | None:
        """The page of the row that goes on at this one."""
        for _ in range(self.count):
            place = self.place(number)
            if place is None or place.kind != _MORE_OF_REST:
                return place.parent if place is not None and place.kind == _FIRST_OF_REST else None
            number = place.parent
        return None

    def content(self, number: int, at: int, size: int, is_table: bool) -> bytes:
        """The bytes of a row that begins on a page: those there, and those that found no room.

        Raises Unreadable where they go on at a page that is damaged, blank, or another row's.
        """
        page = self.read(number) or b""
        if size > self.count * self._size:
            raise Unreadable
        here = self._bytes_here(size, is_table)
        pieces = [page[at : at + here]]
        (following,) = struct.unpack_from(">I", page, at + here) if here < size else (0,)
        missing, expected = size - here, Place(_FIRST_OF_REST, number)
        while missing > 0:
            more = self.read(following)
            is_blank = missing > _FEW_BYTES and more is not None and not more.strip(b"\0")
            if more is None or is_blank or self._is_of_another(following, expected):
                raise Unreadable
            pieces.append(more[4 : min(4 + missing, self._usable)])
            missing -= len(pieces[-1])
            following, expected = int.from_bytes(more[:4]), Place(_MORE_OF_REST, following)
        return b"".join(pieces)

    def _is_of_another(self, number: int, expected: Place) -> bool:
        """Whether a row goes on at a page that is not its own; a page that names it may stand in another's place."""
        place = self.place(number)
        if place is None or place == expected:
            return False
        above = self.read(place.parent) or b""
        return place.kind != expected.kind or number.to_bytes(4) in above

    def _bytes_here(self, size: int, is_table: bool) -> int:
        """How many bytes of a row lie on its page; the rest goes on elsewhere."""
        most = self._usable - 35 if is_table else (self._usable - 12) * 64 // 255 - 23
        if size <= most:
            return size
        least = (self._usable - 12) * 32 // 255 - 23
        fitting = least + (size - least) % (self._usable - 4)
        return fitting if fitting <= most else least

    def close(self) -> None:
        for file in (self._file, self._log):
            if file is not None:
                file.xClose()
        self._judge.close()


def _log_sums(sums: tuple[int, int], data: bytes, order: str) -> tuple[int, int]:
    """The two sums of a write-ahead log, gone on with more of it."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
