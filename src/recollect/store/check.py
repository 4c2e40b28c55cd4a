"""Whether a store is what it was: damage in its files, rows that were never written, commits that were lost.

An old copy of a database looks sound to SQLite. So a sweep that has everything on the disk writes the high-water mark,
one file that names a random token which each database keeps: a database without the token is older, or another one.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw
import orjson

from recollect.model.clock import now_ms, rfc3339
from recollect.model.errors import RecollectError
from recollect.model.files import replace_file
from recollect.store.sqlite.database import PAGE_BYTES, Database, translated
from recollect.store.sqlite.locks import drop_note
from recollect.store.tables import declared
from recollect.store.tables.table import Column, Role, hash_of

MARK_NAME = "high-water.json"
_MARKS_KEPT = 100  # commits
_TYPES = {"INTEGER": "('integer')", "REAL": "('integer', 'real')", "TEXT": "('text')", "BLOB": "('blob')"}

_SAME_PAGE_TRIES = 5

KeepGoing = Callable[[], bool]


class Mark(NamedTuple):
    """How far a database had come when a sweep ended: a token that it holds since then, and what it held."""

    token: str
    commits: int
    counts: dict[str, int]
    made_ms: int


class Check:
    """The health of a store, and the high-water mark that it is compared with."""

    def __init__(self, cache: Database, memory: Database, folder: Path) -> None:
        self._cache = cache
        self._databases = (cache, memory)
        self._folder = folder

    def damage(self) -> list[str]:
        """What SQLite's own quick check and a look at the rows find wrong."""
        faults = []
        for database in self._databases:
            rows = database.rows("PRAGMA quick_check(20)")
            faults += [f"{database.path.name}: {message}" for (message,) in rows if message != "ok"]
            faults += self.iter_content_faults(database.path.name, lambda: True)
        return faults

    def iter_structure_faults(self, name: str, keep_going: KeepGoing) -> Iterator[str]:
        """What SQLite's full check finds wrong with a database; raises apsw.InterruptError when told to stop."""
        with self._stoppable(name, keep_going) as database:
            for (message,) in database.rows("PRAGMA integrity_check(100)"):
                if message != "ok":
                    yield f"{name}: {message}"

    def iter_content_faults(self, name: str, keep_going: KeepGoing) -> Iterator[str]:
        """Rows that can be read, but that this project never writes; stops like a check of the structure."""
        with self._stoppable(name, keep_going) as database:
            for message in _row_faults(database):
                yield f"{name}: {message}"

    @contextmanager
    def _stoppable(self, name: str, keep_going: KeepGoing) -> Iterator[Database]:
        database = next(database for database in self._databases if database.path.name == name)
        database.connection.set_progress_handler(lambda: not keep_going(), 100_000)
        try:
            yield database
        finally:
            database.connection.set_progress_handler(None)

    def alarms(self) -> list[str]:
        """Describe databases that have less than they had: a lost log, an old copy put back."""
        marks = read_marks(self._folder)
        found = [
            alarm
            for database in self._databases
            for alarm in (self._behind(database, marks.get(database.path.name)), database.lost_commits())
        ]
        return [alarm for alarm in found if alarm]

    def mark_is_missing(self) -> bool:
        """True if the store was marked once, and has no file of marks any more."""
        return not (self._folder / MARK_NAME).exists() and any(
            database.value("SELECT 1 FROM marks LIMIT 1") for database in self._databases
        )

    def new_marks(self) -> dict[str, Mark]:
        """Mark both databases with new tokens; none if nothing was written since the last marks, or one is behind.

        The file of marks may name them only when they are on the disk.
        """
        marks, made = read_marks(self._folder), dict[str, Mark]()
        known = [(database, marks.get(database.path.name)) for database in self._databases]
        if all(mark is not None and mark.commits == database.commits() for database, mark in known):
            return {}
        if any(self._behind(database, mark) and not self._is_refilled(database, mark) for database, mark in known):
            return {}
        for database in self._databases:
            mark = Mark(os.urandom(8).hex(), database.commits() + 1, self._counts(database), now_ms())
            with database.transaction() as connection:
                connection.execute("INSERT INTO marks (token, commits) VALUES (?, ?)", (mark.token, mark.commits))
                connection.execute(f"DELETE FROM marks WHERE commits < ? - {_MARKS_KEPT}", (mark.commits,))
            made[database.path.name] = mark
        return made

    def _behind(self, database: Database, mark: Mark | None) -> str | None:
        """Describe a database that is older than its mark, or another one; None if it is the one that was marked."""
        if mark is None or database.value("SELECT 1 FROM marks WHERE token = ?", (mark.token,)):
            return None
        had, has = (
            ", ".join(f"{count:,} {noun}" for noun, count in counts.items())
            for counts in (mark.counts, self._counts(database))
        )
        return f"{database.path.name} has lost data since {rfc3339(mark.made_ms)}: it held {had}, now {has}"

    def _is_refilled(self, database: Database, mark: Mark | None) -> bool:
        """True for a cache that was read again whole: it is as good as the one that was marked."""
        counts = self._counts(database)
        is_whole = mark is not None and all(counts.get(noun, 0) >= had for noun, had in mark.counts.items())
        return database is self._cache and is_whole

    def _counts(self, database: Database) -> dict[str, int]:
        if database is not self._cache:
            return {"sessions": database.value("SELECT count(*) FROM sessions")}
        sessions, events = database.rows("SELECT count(*), coalesce(sum(next_seq - 1), 0) FROM streams")[0]
        return {"sessions": sessions, "events": events}

    def forget_marks(self) -> None:
        """Accept the current state and clear its alarms."""
        forget_marks(self._folder, [database.path.name for database in self._databases])


def read_marks(folder: Path) -> dict[str, Mark]:
    """Return the marks by name of database; none if there is no file of them, or it cannot be read."""
    try:
        marks = orjson.loads((folder / MARK_NAME).read_bytes())
        return {name: Mark(**fields) for name, fields in marks.items()}
    except (OSError, orjson.JSONDecodeError, AttributeError, TypeError):
        return {}


def write_marks(folder: Path, marks: dict[str, Mark]) -> None:
    content = orjson.dumps({name: mark._asdict() for name, mark in marks.items()}, option=orjson.OPT_INDENT_2)
    with translated(folder / MARK_NAME):
        replace_file(folder / MARK_NAME, content)


def forget_marks(folder: Path, names: Collection[str]) -> None:
    """Remove what is noted about databases that were replaced on purpose."""
    for name in names:
        drop_note(folder / name)
    kept = {name: mark for name, mark in read_marks(folder).items() if name not in names}
    if kept:
        write_marks(folder, kept)
    else:
        (folder / MARK_NAME).unlink(missing_ok=True)


def _row_faults(database: Database) -> Iterator[str]:
    """Describe tables with rows of the wrong type, broken JSON or a content that does not match its hash.

    SQLite checks how a file is built, not what its rows say. Nor does it read an index that should be empty because its
    condition holds for no row; counting these rows does.
    """
    indexes = database.rows(
        "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'index' AND sql LIKE '% WHERE %'"
    )
    for index, name, sql in indexes:
        database.value(f"SELECT count(*) FROM {name} INDEXED BY {index} WHERE {sql.partition(' WHERE ')[2]}")
    for table in declared(database.path.name):
        tests = " AND ".join(test for column in table.columns for test in _tests(column))
        if count := database.value(f"SELECT count(*) FROM {table.name} WHERE NOT ({tests})"):
            yield f"{count:,} rows of {table.name} are damaged"
        for column in table.columns:
            if column.hash_of is None:
                continue
            rows = database.iter_rows(f"SELECT {column.hash_of}, {column.name} FROM {table.name}")
            if count := sum(content is not None and hash_of(content.encode()) != known for content, known in rows):
                yield f"{count:,} {table.name} are damaged"


def _tests(column: Column) -> Iterator[str]:
    yield f'(typeof("{column.name}") IN {_TYPES[column.type]} OR {int(column.is_optional)} AND "{column.name}" IS NULL)'
    if column.role is Role.DOCUMENT:
        yield f"ifnull(json_valid({column.name}), 1)"
    if column.check:
        yield column.check


def iter_damaged_pages(path: Path, open_database: Callable[[], Database]) -> Iterator[int | None]:
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


def _has_checksums(open_database: Callable[[], Database]) -> bool:
    """A database that was written without checksums is left to the other checks."""
    try:
        with closing(open_database()) as database:
            return database.has_checksums()
    except (RecollectError, OSError, apsw.Error):
        return True  # it cannot even be asked: all the more reason to look


def _used_pages(pages: list[int], open_database: Callable[[], Database]) -> list[int]:
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
