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


def iter_damaged_pages(path: Path) -> Iterator[int | None]:
    """Check page after page: yields its number if its checksum is wrong, else None.

    A page that somebody is just writing is looked at again.
    """
    with _opened(path) as file, closing(apsw.Connection(":memory:")) as judge:
        for number in range(-(-file.xFileSize() // PAGE_BYTES)):  # the last page may be incomplete
            yield None if _is_in_order(judge, file, number) else number + 1


def iter_blank_pages(path: Path, open_database: Callable[[], "Database"]) -> Iterator[int | None]:
    """Look at one page after the other: yields its number if it is in use, and zeros are all there is.

    No checksum tells: that of zeros is right.
    """
    blank = []
    with _opened(path) as file:
        for number in range(file.xFileSize() // PAGE_BYTES):
            if not file.xRead(PAGE_BYTES, number * PAGE_BYTES).strip(b"\0"):
                blank.append(number + 1)
            yield None
    yield from _used_pages(blank, open_database) if blank else ()


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


def _is_in_order(judge: apsw.Connection, file: apsw.VFSFile, number: int) -> bool:
    seen = b""
    for _ in range(_SAME_PAGE_TRIES):
        page = file.xRead(PAGE_BYTES, number * PAGE_BYTES)
        if judge.execute("SELECT verify_checksum(?)", (page,)).get == 1:  # any connection may be the judge
            return True
        if page == seen:
            return False
        seen = page
    return False
