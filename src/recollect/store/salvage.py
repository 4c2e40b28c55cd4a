"""What can still be read of a damaged database, put into a whole one of its own, and taken over from there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from recollect.store import CACHE_NAME, migrations, packs
from recollect.store.leaves import Leaves
from recollect.store.shapes import TEXT_OF_DIGESTS, drop_nonsense, shape_of, tables
from recollect.store.sqlite import Database, connect, translated

_OF_STORE = ("tombstones", "kept_forks", "copies")
_ONE_ROW = ("retention_clock",)
_OF_DIGESTS = ("signals", "activity", "tool_use", "command_use")


class SalvagedDatabase(Database):
    """The rows on sound pages of a damaged database. The file is only read; this copy is gone when it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path  # messages are about the damaged one
        self.read_only = True
        self.is_new = False
        self._copy = path.with_name(f"{path.name}-salvaged")
        self._copy.unlink(missing_ok=True)
        self.connection = connect(self._copy, read_only=False)
        try:
            with translated(path):
                self._maketables()
                self.has_rows = self._fill()
        except BaseException:
            self.close()
            raise

    def _maketables(self) -> None:
        """The tables of today without their indexes: rows are read in the order of their keys."""
        self.connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)  # the words of digests are in a table of SQLite's own
        for name, value in (("journal_mode", "off"), ("synchronous", 0)):
            self.connection.pragma(name, value)
        self.connection.execute("BEGIN")
        for migrate in migrations.CACHE if self.path.name == CACHE_NAME else migrations.MEMORY:
            migrate(self.connection)
        for (name,) in self.rows("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"):
            self.connection.execute(f"DROP INDEX {name}")

    def _fill(self) -> bool:
        leaves = Leaves(self.path)
        try:
            before = self.connection.total_changes()
            shapes = {name: shape_of(self, name, has_no_rowid) for name, has_no_rowid in tables(self)}
            for table, values in leaves.iter_rows(shapes):
                columns = shapes[table].columns[: len(values)]
                self.connection.execute(_insert(table, columns), values)
            drop_nonsense(self)
            self._add_named(leaves)
            self.connection.execute("COMMIT")
            return self.connection.total_changes() > before
        finally:
            leaves.close()

    def _add_named(self, leaves: Leaves) -> None:
        """Sessions and files whose rows are lost, by the indexes of their names: else all they have would be lost."""
        for agent, native_id, number in leaves.iter_index("sqlite_autoindex_streams_1"):
            generation, size = packs.find_newest(self.path.parent, agent, native_id)
            row = (number, agent, native_id, generation, size, 0)
            columns = ("id", "agent", "native_id", "pack_generation", "pack_bytes", "discovered_ms")
            self.connection.execute(_insert("streams", columns), row)
        for host, agent, path, number in leaves.iter_index("sqlite_autoindex_sources_1"):
            self.connection.execute(
                "INSERT OR IGNORE INTO sources VALUES"
                " (?, ?, ?, ?, 'unknown', 0, 0, 0, 0, 0, 0, 0, '', '', '{}', NULL, 0, NULL)",
                (number, host, agent, path),
            )

    def close(self) -> None:
        super().close()
        self._copy.unlink(missing_ok=True)


def _insert(table: str, columns: tuple[str, ...]) -> str:
    listed = ", ".join(f'"{name}"' for name in columns)
    return f"INSERT OR IGNORE INTO {table} ({listed}) VALUES ({', '.join('?' * len(columns))})"


def take_over_rows(old: Database, new: Database) -> None:
    """Have a memory.db that was just made hold what can be read of the old one, and nothing else.

    Numbers of digests are kept, since other tables tell of digests by them; so nothing may be there before.
    """
    with new.transaction() as connection:
        for table in [name for name, _ in tables(new) if name != TEXT_OF_DIGESTS]:
            connection.execute(f"DELETE FROM {table}")
            columns = _columns(old, table)
            connection.executemany(_insert(table, columns), _all_rows(old, table, columns))
        connection.execute("DELETE FROM digest_text")
        connection.executemany(
            "INSERT INTO digest_text (rowid, text) SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM digests WHERE id = ?1)",
            _all_rows(old, TEXT_OF_DIGESTS, ("id", "c0")),
        )
        for table in _OF_DIGESTS:  # of digests that are lost: another may get their number
            connection.execute(f"DELETE FROM {table} WHERE digest NOT IN (SELECT id FROM digests)")
        # Something of a digest may be lost that nobody misses: where events are held, all of it is made again.
        connection.execute("UPDATE digests SET checked_by = 0 WHERE sealed IS NULL")


def add_rows(old: Database, new: Database) -> None:
    """Have a memory.db that is in use hold also the sessions that only an older one knows.

    All that it tells of a session stays as it is, and what was forgotten stays so. Digests get new numbers.
    """
    wanted = {name: _columns(old, name) for name, _ in tables(new) if name not in (TEXT_OF_DIGESTS, *_ONE_ROW)}
    with new.transaction() as connection:
        for table in _OF_STORE:  # first: they tell what was forgotten
            connection.executemany(_insert(table, wanted[table]), _all_rows(old, table, wanted.pop(table)))
        unknown = _unknown_sessions(old, new)
        digests = _new_numbers(old, new, unknown)
        for table, columns in wanted.items():
            connection.executemany(_insert(table, columns), _rows_of(old, table, columns, unknown, digests))
        texts = _all_rows(old, TEXT_OF_DIGESTS, ("id", "c0"))
        taken = ((digests[number], text) for number, text in texts if number in digests)
        connection.executemany("INSERT INTO digest_text (rowid, text) VALUES (?, ?)", taken)
        numbers = [(number,) for number in digests.values()]
        connection.executemany("UPDATE digests SET checked_by = 0 WHERE id = ? AND sealed IS NULL", numbers)


def _unknown_sessions(old: Database, new: Database) -> set[tuple[Any, ...]]:
    """The sessions of the old one that the new one neither knows nor has forgotten."""
    told = "SELECT agent, native_session_id FROM sessions"
    known = {*new.rows(f"{told} UNION SELECT agent, native_session_id FROM digests")}
    forgotten = {*new.rows("SELECT agent, native_id FROM tombstones")}
    unknown = {*old.rows(told)} - known
    return {name for name in unknown if not {name, (name[0], name[1].partition("/")[0])} & forgotten}


def _new_numbers(old: Database, new: Database, sessions: set[tuple[Any, ...]]) -> dict[int, int]:
    """By the numbers that those sessions' digests had, numbers that no digest has."""
    highest = new.value("SELECT coalesce(max(id), 0) FROM digests")
    rows = old.rows("SELECT id, agent, native_session_id FROM digests ORDER BY id")
    taken = [number for number, *name in rows if tuple(name) in sessions]
    return {number: highest + place for place, number in enumerate(taken, start=1)}


def _rows_of(
    old: Database, table: str, columns: tuple[str, ...], sessions: set[tuple[Any, ...]], digests: dict[int, int]
) -> Iterator[tuple[Any, ...]]:
    """The rows of a table that belong to those sessions, with numbers that are free."""
    for values in _all_rows(old, table, columns):
        row = dict(zip(columns, values, strict=True))
        if table in _OF_DIGESTS:
            is_wanted = row["digest"] in digests
            row["digest"] = digests.get(row["digest"])
        else:
            is_wanted = (row["agent"], row["native_session_id"]) in sessions
        if "id" in row:
            row["id"] = digests.get(row["id"]) if table == "digests" else None
        if is_wanted:
            yield tuple(row.values())


def _columns(database: Database, table: str) -> tuple[str, ...]:
    return tuple(name for (name,) in database.rows("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,)))


def _all_rows(database: Database, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    listed = ", ".join(f'"{name}"' for name in columns)
    return database.iter_rows(f"SELECT {listed} FROM {table}")
