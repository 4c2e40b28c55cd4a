"""Rows read page by page from a damaged database: a page that is lost takes no other page's rows with it.

SQLite reaches the rows of a table from its root downwards, so that one damaged page hides all that lie below it. Here
every page is looked at by itself, and its table is found on the way up. Two things tell the page above: that page
names its children, and the file keeps a map of parents (what `auto_vacuum` is for); one of them is enough. Where
both are lost, or the list of tables is, or a page stands where another's should, rows are known by their shape. The
format: sqlite.org/fileformat2.html

Nothing deleted comes back: only rows that a page lists are read, and free pages are not (they are blank anyway, by
`secure_delete`).
"""

import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recollect.store.pages import FIRST, Pages, Unreadable
from recollect.store.shapes import Shape, Values

Rows = list[tuple[int, Values]]  # with their numbers

_TABLE_LEAF, _TABLE_INNER, _INDEX_LEAF, _INDEX_INNER = 0x0D, 0x05, 0x0A, 0x02
_INNER = (_TABLE_INNER, _INDEX_INNER)
_WITH_ROWS = (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER)
_HEADER_BYTES = 100  # of the file, before the first page's own
_DEEPEST = 20
_MANY_COLUMNS = 5  # no index has so many, and no table of SQLite's own
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class Leaves:
    """The rows of a database file that lie on sound pages."""

    def __init__(self, path: Path) -> None:
        self._pages = Pages(path)
        self._kinds = bytearray(self._pages.count + 1)
        self._parents = array("I", bytes(4 * (self._pages.count + 1)))
        self._survey()
        self._roots: dict[int, str] = {row[3]: row[1] for row in self._schema() if len(row) == 5 and row[3]}

    def iter_rows(self, shapes: dict[str, Shape]) -> Iterator[tuple[str, Values]]:
        """Every row of these tables, with the table's name."""
        for page, kind in enumerate(self._kinds):
            root = self._root(page)
            if kind not in _WITH_ROWS or root == FIRST:
                continue
            rows = list(self._rows(page, kind))
            name = self._table(self._roots.get(root), kind, rows, shapes)
            if name is not None:
                shape = shapes[name]
                fitting = (row for row in rows if shape.fits(row[1]))
                yield from ((name, _numbered(values, number, shape)) for number, values in fitting)

    def _table(self, told: str | None, kind: int, rows: Rows, shapes: dict[str, Shape]) -> str | None:
        """Which of the tables a page is of. `told` is the one whose place it has, be it not one of them."""
        if told is None:
            return self._guess(kind, rows, shapes)
        if told in shapes and _are_of(shapes[told], kind, rows):
            return told
        telling = {name: shape for name, shape in shapes.items() if len(shape.columns) >= _MANY_COLUMNS}
        return self._guess(kind, rows, telling) or (told if told in shapes else None)

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
            page, place = self._pages.read(number), self._pages.place(number)
            if page is None or self._pages.is_map(number) or (place is not None and place.is_free):
                continue
            if place is not None and place.is_below:
                self._parents[number] = self._parents[number] or place.parent
            self._kinds[number] = kind = page[_start(number)]
            if kind in _INNER:
                for child in _children(number, page):
                    if child <= self._pages.count:
                        self._parents[child] = number

    def _schema(self) -> Iterator[Values]:
        for page, kind in enumerate(self._kinds):
            if kind == _TABLE_LEAF and self._root(page) == FIRST:
                yield from (values for _, values in self._rows(page, kind))

    def _root(self, page: int) -> int:
        for _ in range(_DEEPEST):
            if not 0 < self._parents[page] < len(self._parents):
                break
            page = self._parents[page]
        return page

    def _guess(self, kind: int, rows: Rows, shapes: dict[str, Shape]) -> str | None:
        """The only table that all rows of a page may belong to; one whose place is not known comes first."""
        fitting = [name for name, shape in shapes.items() if rows and shape.is_telling and _are_of(shape, kind, rows)]
        known = set(self._roots.values())
        fitting = [name for name in fitting if name not in known] or fitting
        return fitting[0] if len(fitting) == 1 else None

    def _rows(self, number: int, kind: int) -> Iterator[tuple[int, Values]]:
        """The rows of a page with their numbers (0 where rows have none)."""
        page = self._pages.read(number) or b""
        for place in _places(number, page):
            try:
                yield _row(self._pages, number, page, place, kind)
            except _NO_ROW:
                continue


def iter_blanked(path: Path) -> Iterator[int | None]:
    """Look at one page after the other: yields its number if a row goes on there, and zeros are all there is.

    No checksum tells: that of zeros is right. Nor does SQLite where nothing follows.
    """
    pages = Pages(path, has_log=False)
    try:
        for number in pages.iter_blank():
            yield number if number is not None and _is_missed(path, number) else None
    finally:
        pages.close()


def _is_missed(path: Path, number: int) -> bool:
    """Whether a row cannot be read since it goes on at a blank page; that its last few bytes are zeros may well be."""
    pages = Pages(path)
    try:
        owner = pages.owner(number) if pages.is_blank(number) else None
        page = pages.read(owner) if owner is not None else None
        return owner is not None and page is not None and not _has_all_rows(pages, owner, page)
    finally:
        pages.close()


def _has_all_rows(pages: Pages, number: int, page: bytes) -> bool:
    try:
        for place in _places(number, page):
            _row(pages, number, page, place, page[_start(number)])
    except _NO_ROW:
        return False
    return True


# Where pages have no checksums, anything may stand there.
_NO_ROW = (Unreadable, IndexError, KeyError, UnicodeDecodeError, struct.error)


def _row(pages: Pages, number: int, page: bytes, at: int, kind: int) -> tuple[int, Values]:
    row_number = 0
    size, at = _varint(page, at + 4 if kind == _INDEX_INNER else at)
    if kind == _TABLE_LEAF:
        row_number, at = _varint(page, at)
    return _signed(row_number), _values(pages.content(number, at, size, kind == _TABLE_LEAF))


def _are_of(shape: Shape, kind: int, rows: Rows) -> bool:
    is_right_kind = shape.has_row_numbers == (kind == _TABLE_LEAF)
    return is_right_kind and all(shape.fits(values) for _, values in rows)


def _start(number: int) -> int:
    return _HEADER_BYTES if number == FIRST else 0


def _places(number: int, page: bytes) -> tuple[int, ...]:
    """Where on a page its cells begin; nowhere if it is none of a tree."""
    start = _start(number)
    try:
        (count,) = struct.unpack_from(">H", page, start + 3)
        return struct.unpack_from(f">{count}H", page, start + (12 if page[start] in _INNER else 8))
    except struct.error:
        return ()


def _children(number: int, page: bytes) -> Iterator[int]:
    for place in (_start(number) + 8, *_places(number, page)):
        if place + 4 <= len(page):
            yield struct.unpack_from(">I", page, place)[0]


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
            raise Unreadable
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
