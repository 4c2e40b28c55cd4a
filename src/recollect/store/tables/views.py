"""Lists of sessions that the user named: filters and an order, as the query of an address."""

from typing import NamedTuple

from recollect.clock import now_ms
from recollect.store.sqlite.database import Database
from recollect.store.tables import column
from recollect.store.tables.table import MEMORY, Table

VIEWS = Table(
    "views",
    MEMORY,
    (*column.plain("group_name"), *column.texts("name", "query"), *column.numbers("made_ms")),
    key=("group_name", "name"),
    group_column="group_name",
)


class View(NamedTuple):
    """A list of sessions by its name."""

    name: str
    query: str
    made_ms: int


class ViewTable:
    """The saved lists of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self, group: str) -> list[View]:
        """The lists of a group, the oldest first."""
        rows = self._database.rows(
            "SELECT name, query, made_ms FROM views WHERE group_name = ? ORDER BY made_ms, name", (group,)
        )
        return [View(*row) for row in rows]

    def put(self, group: str, name: str, query: str) -> None:
        """Keep a list, in place of one of the same name."""
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO views VALUES (?, ?, ?, ?)", (group, name, query, now_ms()))

    def drop(self, group: str, name: str) -> None:
        """Remove a list, if there is one of this name."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM views WHERE group_name = ? AND name = ?", (group, name))
