"""Sessions that were left out because the user said so, by id: what comes later of them is left out too."""

from collections.abc import Collection
from typing import NamedTuple

from recollect.store.sqlite import Database


class Exclusion(NamedTuple):
    """A session that a rule of the user leaves out, and the file it was met in."""

    agent: str
    native_id: str
    host: str
    path: str
    rule: str


class Exclusions:
    """The left-out sessions of a store."""

    def __init__(self, cache: Database, memory: Database) -> None:
        self._cache = cache
        self._memory = memory

    def all(self) -> list[Exclusion]:
        return [
            Exclusion(*row)
            for row in self._memory.rows("SELECT agent, native_session_id, host, path, rule FROM exclusions")
        ]

    def add(self, exclusions: Collection[Exclusion]) -> None:
        with self._memory.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO exclusions VALUES (?, ?, ?, ?, ?)", exclusions)

    def lift(self, exclusions: Collection[Exclusion]) -> None:
        """Let sessions in again; their files will be read from the start."""
        with self._cache.transaction() as connection:
            connection.executemany(
                "UPDATE sources SET mtime_ns = -1, offset = 0, line = 0, head = '', tail = '', state = '{}'"
                " WHERE host = ? AND agent = ? AND path = ?",
                [(exclusion.host, exclusion.agent, exclusion.path) for exclusion in exclusions],
            )
        with self._memory.transaction() as connection:
            connection.executemany(
                "DELETE FROM exclusions WHERE agent = ? AND native_session_id = ? AND host = ? AND path = ?",
                [exclusion[:4] for exclusion in exclusions],
            )
