"""A checksum in every page of a database, so that a flipped bit is noticed and never taken for content.

SQLite's own checks look at structure: of 60 flipped bytes they found 2. The checksums are kept by a file system
layer of SQLite that comes with apsw; where a build lacks it, databases work without.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from recollect.errors import RecollectError

if TYPE_CHECKING:
    from recollect.store.sqlite.database import Database

RESERVED_BYTES = 8  # room for the checksum at the end of each page: cannot be added later

_LAYER = "cksmvfs"
_FILE_NAMES = ("cksumvfs.so", "cksumvfs.dylib", "cksumvfs.dll")
_SAME_PAGE_TRIES = 5
_PAGE_BYTES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
_USUAL_BYTES = 4096
_SAMPLE_PAGES = 200


@cache
def layer() -> str | None:
    """The name of the layer that keeps checksums, loaded once in a process; None where there is none."""
    folder = Path(apsw.__file__).parent / "sqlite_extra_binaries"
    library = next((folder / name for name in _FILE_NAMES if (folder / name).exists()), None)
    if library is None:
        return None
    before = apsw.vfs_names()[0]
    connection = apsw.Connection(":memory:")
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1)
    try:
        connection.load_extension(str(library))
    except apsw.Error:
        return None  # built for another system
    finally:
        connection.close()
    apsw.set_default_vfs(before)  # other users of apsw in this process keep theirs
    return _LAYER


def set_verification(connection: apsw.Connection, is_on: bool) -> None:
    """Verify each page when it is read. Checksums are written either way."""
    if layer() is not None:
        connection.execute(f"PRAGMA checksum_verification={'ON' if is_on else 'OFF'}")


def iter_damaged_pages(path: Path) -> Iterator[int | None]:
    """Check page after page: yields its number if its checksum is wrong, else None.

    The file is read through SQLite's own file system layer: any other descriptor, closed, would drop the locks that
    this process may hold on it. A page that somebody is just writing is looked at again.
    """
    judge = apsw.Connection(":memory:")
    file = open_file(path)
    try:
        size = page_bytes(file, judge)
        for number in range(-(-file.xFileSize() // size)):  # the last page may be incomplete
            yield None if _is_in_order(judge, file, size, number) else number + 1
    finally:
        file.xClose()
        judge.close()


def iter_blank_pages(path: Path, open_database: Callable[[], "Database"]) -> Iterator[int | None]:
    """Look at one page after the other: yields its number if it is in use, and zeros are all there is.

    No checksum tells: that of zeros is right.
    """
    judge, file = apsw.Connection(":memory:"), open_file(path)
    try:
        size = page_bytes(file, judge)
        blank = []
        for number in range(file.xFileSize() // size):
            if not file.xRead(size, number * size).strip(b"\0"):
                blank.append(number + 1)
            yield None
    finally:
        file.xClose()
        judge.close()
    yield from _used_pages(blank, open_database) if blank else ()


def _used_pages(pages: list[int], open_database: Callable[[], "Database"]) -> list[int]:
    """Those that some table or index has; none if the database cannot be asked, which others find out."""
    try:
        with closing(open_database()) as database:
            rows = database.connection.execute(
                "SELECT pageno FROM dbstat WHERE pageno IN (SELECT value FROM json_each(?))", (str(pages),)
            )
            return [page for (page,) in rows]
    except (RecollectError, apsw.Error):
        return []


def open_file(path: Path) -> apsw.VFSFile:
    """A database file, read as it is; close it with `xClose`."""
    return apsw.VFSFile(apsw.vfs_names()[0], str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])


def page_bytes(file: apsw.VFSFile, judge: apsw.Connection) -> int:
    """The size of a page: as the file's header tells if its first page is sound, else that which most are sound with.

    A file without checksums has no sound pages, and pages of the usual size.
    """
    stated = _stated_page_bytes(file)
    if stated is not None and (layer() is None or _is_sound_at(judge, file, stated, 0)):
        return stated
    counts = {size: _sound_bytes(judge, file, size) for size in (stated or _USUAL_BYTES, _USUAL_BYTES, *_PAGE_BYTES)}
    return max(counts, key=lambda size: counts[size])


def _stated_page_bytes(file: apsw.VFSFile) -> int | None:
    (stated,) = struct.unpack(">H", file.xRead(18, 0)[16:]) if file.xFileSize() >= 18 else (0,)
    size = 65536 if stated == 1 else stated
    return size if size in _PAGE_BYTES else None


def _sound_bytes(judge: apsw.Connection, file: apsw.VFSFile, size: int) -> int:
    """How many bytes of a sample are on sound pages, if they have this size; zeros are sound with any."""
    count = file.xFileSize() // size
    places = range(0, count, count // _SAMPLE_PAGES + 1) if layer() is not None else ()
    return sum(size for place in places if _is_sound_at(judge, file, size, place))


def _is_sound_at(judge: apsw.Connection, file: apsw.VFSFile, size: int, place: int) -> bool:
    page = file.xRead(size, place * size)
    return bool(page.strip(b"\0")) and is_sound(judge, page)


def is_sound(judge: apsw.Connection, page: bytes) -> bool:
    """Whether a page's checksum is right; any connection may be the judge."""
    return bool(judge.execute("SELECT verify_checksum(?)", (page,)).get == 1)


def _is_in_order(judge: apsw.Connection, file: apsw.VFSFile, size: int, number: int) -> bool:
    seen = b""
    for _ in range(_SAME_PAGE_TRIES):
        page = file.xRead(size, number * size)
        if is_sound(judge, page):
            return True
        if page == seen:
            return False
        seen = page
    return False
