"""Whether a store is what it was: damage in its files, rows that were never written, commits that were lost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from recollect.store.sqlite import high_water
from recollect.store.sqlite.database import Database, translated
from recollect.store.tables import declared
from recollect.store.tables.column import Column, Role
from recollect.store.tables.table import hash_of

_TYPES = {"INTEGER": "('integer')", "REAL": "('integer', 'real')", "TEXT": "('text')", "BLOB": "('blob')"}


KeepGoing = Callable[[], bool]


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
        known, alarms = high_water.read_mark(self._folder), []
        for database in self._databases:
            name, connection = database.path.name, database.connection
            with translated(database.path):
                alarms.append(high_water.behind_mark(name, connection, known.get(name), self._counts(database)))
                alarms.append(high_water.behind_last(database.path, connection))
        return [alarm for alarm in alarms if alarm]

    def new_marks(self) -> dict[str, high_water.Mark]:
        """A mark for each database; none if nothing was written since the last one, or if one is behind that."""
        known = high_water.read_mark(self._folder)
        if all(self._is_marked(database, known) for database in self._databases) or self._is_behind(known):
            return {}
        marks = {}
        for database in self._databases:
            counts = self._counts(database)
            with database.transaction() as connection:
                marks[database.path.name] = high_water.add_mark(connection, counts)
        return marks

    def write_marks(self, marks: dict[str, high_water.Mark]) -> None:
        with translated(self._folder / high_water.MARK_NAME):
            high_water.write_mark(self._folder, marks)

    def _is_marked(self, database: Database, known: dict[str, high_water.Mark]) -> bool:
        mark = known.get(database.path.name)
        with translated(database.path):
            return mark is not None and mark.commits == high_water.last_commit(database.connection).number

    def _is_behind(self, known: dict[str, high_water.Mark]) -> bool:
        """Whether a database has less than was marked. A cache that was read again whole is as good as the lost one."""
        for database in self._databases:
            name, counts = database.path.name, self._counts(database)
            mark = known.get(name)
            is_whole = mark is not None and all(counts.get(noun, 0) >= had for noun, had in mark.counts.items())
            is_refilled = database is self._cache and is_whole
            with translated(database.path):
                is_behind = high_water.behind_mark(name, database.connection, mark, counts) is not None
            if is_behind and not is_refilled:
                return True
        return False

    def _counts(self, database: Database) -> dict[str, int]:
        if database is not self._cache:
            return {"sessions": database.value("SELECT count(*) FROM sessions")}
        sessions, events = database.rows("SELECT count(*), coalesce(sum(next_seq - 1), 0) FROM streams")[0]
        return {"sessions": sessions, "events": events}

    def forget_marks(self) -> None:
        """Take the store as it is for whole: the alarms were answered."""
        high_water.forget_history(self._folder, [database.path.name for database in self._databases])


def _row_faults(database: Database) -> Iterator[str]:
    """Describe tables with rows of the wrong type, broken JSON or a content that does not match its hash.

    SQLite checks how a file is built, not what its rows say.
    """
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
