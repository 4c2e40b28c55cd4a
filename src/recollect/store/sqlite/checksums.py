"""A checksum in every page of a database, so that a flipped bit is noticed and never taken for content.

SQLite's own checks look at structure: of 60 flipped bytes they found 2. The checksums are kept by a file system
layer of SQLite that comes with apsw; where a build lacks it, databases work without.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from recollect.errors import RecollectError

if TYPE_CHECKING:
    from recollect.store.sqlite.database import Database

PAGE_BYTES = 4096  # of every database, whatever a damaged header says
RESERVED_BYTES = 8  # room for the checksum at the end of each page: cannot be added later

_LAYER = "cksmvfs"
_FILE_NAMES = ("cksumvfs.so", "cksumvfs.dylib", "cksumvfs.dll")
_SAME_PAGE_TRIES = 5


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


def iter_damaged_pages(path: Path, open_database: Callable[[], "Database"]) -> Iterator[int | None]:
    """Look at one page after the other: yields its number if its checksum is wrong, else None.

    At the end come pages of zeros, whose checksum is right, that some table or index uses. A page that somebody is just
    writing is looked at again.
    """
    has_checksums, blank = _has_checksums(open_database), list[int]()
    with _opened(path) as file, closing(apsw.Connection(":memory:")) as judge:
        for number in range(1, -(-file.xFileSize() // PAGE_BYTES) + 1):  # the last page may be incomplete
            page = _read_page(judge if has_checksums else None, file, number)
            if page is not None and not page.strip(b"\0"):
                blank.append(number)
            yield number if page is None else None
    yield from _used_pages(blank, open_database) if blank else ()


def _has_checksums(open_database: Callable[[], "Database"]) -> bool:
    """A database that was written without checksums is left to the other checks."""
    try:
        with closing(open_database()) as database:
            return database.has_checksums()
    except (RecollectError, OSError, apsw.Error):
        return True  # it cannot even be asked: all the more reason to look


def _used_pages(pages: list[int], open_database: Callable[[], "Database"]) -> list[int]:
    """Those that some table or index has; none if the database cannot be asked, which others find out."""
    sql = "SELECT pageno FROM dbstat WHERE pageno IN (SELECT value FROM json_each(?))"
    try:
        with closing(open_database()) as database:
            return database.column(sql, (str(pages),))
    except (RecollectError, apsw.Error):
        return []


@contextmanager
def _opened(path: Path) -> Iterator[apsw.VFSFile]:
    """A database file, read as it is, through SQLite's own file system layer: any other descriptor, closed, would drop
    the locks that this process may hold on it."""
    file = apsw.VFSFile(apsw.vfs_names()[0], str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        yield file
    finally:
        file.xClose()


def _read_page(judge: apsw.Connection | None, file: apsw.VFSFile, number: int) -> bytes | None:
    """Return a page; None if its checksum is wrong and stays so."""
    seen = b""
    for _ in range(_SAME_PAGE_TRIES):
        page = file.xRead(PAGE_BYTES, (number - 1) * PAGE_BYTES)
        # Any connection may be the judge.
        if judge is None or judge.execute("SELECT verify_checksum(?)", (page,)).get == 1:
            return page
        if page == seen:
            break
        seen = page
    return None
