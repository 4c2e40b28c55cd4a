"""What all rows of sessions were made with, and whether their repositories and groups are to be named again."""

from recollect.store.sqlite.database import Database
from recollect.store.tables import column
from recollect.store.tables.table import MEMORY, Table

# What repositories and groups are named by
_PLACE = ("root_session_uid", "base_session_uid", "cwd", "git_root", "git_remote")
_OLD, _NEW = (", ".join(f"{row}.{name}" for name in _PLACE) for row in ("OLD", "NEW"))
_NOTE = "BEGIN UPDATE rules SET has_moved = 1 WHERE has_moved IS NULL; END"

# One line, or none before the first sweep has ended. `has_moved` is written with the sessions' rows: whatever stops a
# sweep between these and the names, the next one gives them.
RULES = Table(
    "rules",
    MEMORY,
    (*column.plain("text"), *column.numbers("has_moved?")),
    extras=(
        f"CREATE TRIGGER session_came AFTER INSERT ON sessions {_NOTE}",
        f"CREATE TRIGGER session_went AFTER DELETE ON sessions {_NOTE}",
        f"CREATE TRIGGER session_moved AFTER UPDATE OF {', '.join(_PLACE)} ON sessions"
        f" WHEN ({_OLD}) IS NOT ({_NEW}) {_NOTE}",
    ),
)


class Rules:
    """The user's rules that all rows were made with."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def text(self) -> str | None:
        """None before the first sweep has ended."""
        text = self._database.value("SELECT text FROM rules")
        return None if text is None else str(text)

    def has_moved(self) -> bool:
        """Whether any session came, went, or worked elsewhere since `set`."""
        return bool(self._database.value("SELECT has_moved FROM rules"))

    def set(self, text: str) -> None:
        """Note that all rows are made with these rules, and all repositories and groups named."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM rules")
            connection.execute("INSERT INTO rules VALUES (?, NULL)", (text,))
