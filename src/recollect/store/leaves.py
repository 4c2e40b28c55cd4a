"""Rows read page by page from a damaged database: a page that is lost takes no other page's rows with it.

SQLite reaches the rows of a table from its root downwards, so that one damaged page hides all that lie below it. Here
every page is looked at by itself, and its table is found on the way up. Two things tell the page above: that page
names its children, and the file keeps a map of parents (what `auto_vacuum` is for); one of them is enough. Where
both are lost, or the list of tables is, rows are known by their shape. The format: sqlite.org/fileformat2.html

Nothing deleted comes back: only rows that a page lists are read, and free pages are not (they are blank anyway, by
`secure_delete`).
"""

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from recollect.store import checksums

Values = list[Any]

_TABLE_LEAF, _TABLE_INNER, _INDEX_LEAF, _INDEX_INNER = 0x0D, 0x05, 0x0A, 0x02
_INNER = (_TABLE_INNER, _INDEX_INNER)
_WITH_ROWS = (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER)
_HEADER_BYTES = 100  # of the file, before the first page's own
_MAGIC = b"SQLite format 3\0"
_SCHEMA = 1  # the page where the list of tables begins
_NO_TREE = 0xFFFFFFFF  # in the place of a parent: a page that is free, or goes on with a long row
_DEEPEST = 20
_SAMPLE = 1000
_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_TYPES: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "REAL": (int, float), "TEXT": (str,), "BLOB": (bytes,)}


class _Unreadable(Exception):
    """A row that goes on where nothing can be read."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table's rows look like in its file. `number` is the place of the column that is the row's number."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    is_needed: tuple[bool, ...]
    number: int | None
    has_row_numbers: bool

    def fits(self, values: Values) -> bool:
        """Whether values may be a row of this table; columns that were added later may be missing."""
        if not sum(self.is_needed) <= len(values) <= len(self.columns):
            return False
        return all(self._fits(place, value) for place, value in enumerate(values))

    def _fits(self, place: int, value: Any) -> bool:
        if value is None:
            return not self.is_needed[place] or place == self.number
        return place != self.number and isinstance(value, _TYPES[self.types[place]])

    @property
    def is_telling(self) -> bool:
        """Whether rows are known by their looks: those of a short table without row numbers may be an index's."""
        return self.has_row_numbers or len(self.columns) > 3


class Leaves:
    """The rows of a database file that lie on sound pages."""

    def __init__(self, path: Path) -> None:
        self._pages = _Pages(path)
        self._kinds = bytearray(self._pages.count + 1)
        self._parents = array("I", bytes(4 * (self._pages.count + 1)))
        self._survey()
        self._roots: dict[int, str] = {row[3]: row[1] for row in self._schema() if len(row) == 5 and row[3]}

    def iter_rows(self, shapes: dict[str, Shape]) -> Iterator[tuple[str, Values]]:
        """Every row of these tables, with the table's name."""
        for page, kind in enumerate(self._kinds):
            root = self._root(page)
            if kind not in _WITH_ROWS or root == _SCHEMA or self._roots.get(root, "") not in ("", *shapes):
                continue
            rows = list(self._rows(page, kind))
            name = self._roots.get(root) or self._guess(kind, rows, shapes)
            if name is not None:
                shape = shapes[name]
                fitting = (row for row in rows if 0 < len(row[1]) <= len(shape.columns))
                yield from ((name, _numbered(values, number, shape)) for number, values in fitting)

    def iter_index(self, name: str) -> Iterator[Values]:
        """Every entry of an index that the list of tables tells of: its columns, and the row's number."""
        for page, kind in enumerate(self._kinds):
            if kind in _WITH_ROWS and self._roots.get(self._root(page)) == name:
                yield from (values for _, values in self._rows(page, kind))

    def close(self) -> None:
        self._pages.close()

    def _survey(self) -> None:
        """Note for each page what it is, and which one is above it."""
        for number in range(1, self._pages.count + 1):
            page = self._pages.read(number)
            if page is None or self._parents[number] == _NO_TREE:
                continue
            if (number - 2) % (self._pages.noted_at_once + 1) == 0:
                self._read_map(number, page)
                continue
            self._kinds[number] = kind = page[_start(number)]
            if kind in _INNER:
                for child in _children(number, page):
                    if child <= self._pages.count:
                        self._parents[child] = number

    def _read_map(self, number: int, page: bytes) -> None:
        for place in range(min(self._pages.noted_at_once, self._pages.count - number)):
            kind, parent = struct.unpack_from(">BI", page, place * 5)
            child = number + 1 + place
            if kind == 5:  # a page of a tree that has a parent
                self._parents[child] = self._parents[child] or parent
            elif kind in (2, 3, 4):
                self._parents[child] = _NO_TREE

    def _schema(self) -> Iterator[Values]:
        for page, kind in enumerate(self._kinds):
            if kind == _TABLE_LEAF and self._root(page) == _SCHEMA:
                yield from (values for _, values in self._rows(page, kind))

    def _root(self, page: int) -> int:
        for _ in range(_DEEPEST):
            if not 0 < self._parents[page] < len(self._parents):
                break
            page = self._parents[page]
        return page

    def _guess(self, kind: int, rows: list[tuple[int, Values]], shapes: dict[str, Shape]) -> str | None:
        """The only table that all rows of a page may belong to; one whose place is not known comes first."""
        fitting = [
            name
            for name, shape in shapes.items()
            if rows and shape.is_telling and shape.has_row_numbers == (kind == _TABLE_LEAF)
            if all(shape.fits(values) for _, values in rows)
        ]
        known = set(self._roots.values())
        fitting = [name for name in fitting if name not in known] or fitting
        return fitting[0] if len(fitting) == 1 else None

    def _rows(self, number: int, kind: int) -> Iterator[tuple[int, Values]]:
        """The rows of a page with their numbers (0 where rows have none)."""
        page = self._pages.read(number) or b""
        try:
            places = _places(number, page)
        except struct.error:
            return
        for place in places:
            try:
                yield self._row(page, place, kind)
            except (_Unreadable, IndexError, KeyError, UnicodeDecodeError, struct.error):
                continue  # where pages have no checksums, anything may stand there

    def _row(self, page: bytes, at: int, kind: int) -> tuple[int, Values]:
        row_number = 0
        size, at = _varint(page, at + 4 if kind == _INDEX_INNER else at)
        if kind == _TABLE_LEAF:
            row_number, at = _varint(page, at)
        return _signed(row_number), _values(self._pages.content(page, at, size, kind == _TABLE_LEAF))


class _Pages:
    """The pages of a database as its write-ahead log leaves them."""

    def __init__(self, path: Path) -> None:
        self._has_layer = checksums.layer() is not None  # loaded first: it brings the judge's measure
        self._judge = apsw.Connection(":memory:")
        self._file = checksums.open_file(path)
        log = path.with_name(path.name + "-wal")
        self._log = checksums.open_file(log) if log.exists() else None
        self._size = checksums.page_bytes(self._file)
        self._places: dict[int, int] = {}  # of pages in the log
        self.count = self._file.xFileSize() // self._size
        self._read_log()
        self._has_checksums = self._are_checked()
        first = self.read(1) if self.count else None
        reserved = first[20] if first is not None else checksums.RESERVED_BYTES
        if first is not None and not self._places:  # behind its end a file may have pages of an older state
            self.count = min(self.count, int.from_bytes(first[28:32]) or self.count)
        self._usable = self._size - reserved
        self.noted_at_once = self._usable // 5  # parents in one page of the map

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

    def read(self, number: int) -> bytes | None:
        """A page, or None if it is not what was written."""
        if not 0 < number <= self.count:
            return None
        if number in self._places and self._log is not None:
            return self._log.xRead(self._size, self._places[number])  # which has its own sums
        page = self._stored(number)
        if number == _SCHEMA and not page.startswith(_MAGIC):  # a page of zeros has the sum of a sound one
            return None
        is_sound = not self._has_checksums or checksums.is_sound(self._judge, page)
        return page if len(page) == self._size and is_sound else None

    def content(self, page: bytes, at: int, size: int, is_table: bool) -> bytes:
        """A row's bytes: those on its page, and those that found no room there."""
        if size > self.count * self._size:
            raise _Unreadable
        here = self._bytes_here(size, is_table)
        pieces = [page[at : at + here]]
        (following,) = struct.unpack_from(">I", page, at + here) if here < size else (0,)
        missing = size - here
        while missing > 0:
            more = self.read(following)
            if more is None or not any(more):  # zeros are what is left of a page that was blanked
                raise _Unreadable
            pieces.append(more[4 : min(4 + missing, self._usable)])
            missing -= len(pieces[-1])
            following = int.from_bytes(more[:4])
        return b"".join(pieces)

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


def _start(number: int) -> int:
    return _HEADER_BYTES if number == _SCHEMA else 0


def _places(number: int, page: bytes) -> tuple[int, ...]:
    """Where on a page its cells begin."""
    start = _start(number)
    (count,) = struct.unpack_from(">H", page, start + 3)
    return struct.unpack_from(f">{count}H", page, start + (12 if page[start] in _INNER else 8))


def _children(number: int, page: bytes) -> Iterator[int]:
    try:
        for place in (_start(number) + 8, *_places(number, page)):
            yield struct.unpack_from(">I", page, place)[0]
    except struct.error:
        return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    value = 0
    for place in range(at, at + 8):
        value = value << 7 | data[place] & 0x7F
        if data[place] < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _values(record: bytes) -> Values:
    """The columns of a row: their types stand before their contents."""
    end, at = _varint(record, 0)
    place, values = end, []
    while at < end:
        kind, at = _varint(record, at)
        size = _bytes_of(kind)
        if place + size > len(record):
            raise _Unreadable
        values.append(_value(kind, record[place : place + size]))
        place += size
    return values


def _bytes_of(kind: int) -> int:
    if kind >= 12:
        return (kind - 12) // 2
    return 8 if kind == 7 else _INTEGER_BYTES.get(kind, 0)


def _value(kind: int, raw: bytes) -> Any:
    if kind >= 12:
        return raw.decode() if kind % 2 else raw
    if kind == 7:
        return struct.unpack(">d", raw)[0]
    if kind in _INTEGER_BYTES:
        return int.from_bytes(raw, signed=True)
    return {0: None, 8: 0, 9: 1}[kind]


def _numbered(values: Values, number: int, shape: Shape) -> Values:
    """A row as it was inserted: its number does not stand among its columns in the file."""
    if shape.number is not None and shape.number < len(values):
        values[shape.number] = number
    return values
