"""The user's rules: which ones all rows of sessions were made with, and the sessions that they leave out.

What comes later of a left-out session is left out too. So are folders, by hash, that one of them shows to be a checkout
of an excluded repository: others have only the folder.
"""

from collections.abc import Collection
from typing import NamedTuple

from recollect.store.sqlite.database import Database
from recollect.store.tables.table import BY_SESSION, MEMORY, Table, column

# What repositories and groups are named by
_PLACE = ("root_session_uid", "base_session_uid", "cwd", "git_root", "git_remote")
_OLD, _NEW = (", ".join(f"{row}.{name}" for name in _PLACE) for row in ("OLD", "NEW"))
_NOTE = "BEGIN UPDATE rules SET has_moved = 1 WHERE has_moved IS NULL; END"

# One line, or none before the first sweep. `has_moved` is written with the sessions' rows: whatever stops a
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
        """None before the first sweep."""
        text = self._database.value("SELECT text FROM rules")
        return None if text is None else str(text)

    def has_moved(self) -> bool:
        """Return True if any session came, went, or worked elsewhere since `set`."""
        return bool(self._database.value("SELECT has_moved FROM rules"))

    def set(self, text: str, *, is_named: bool) -> None:
        """Note that all rows are made with these rules, or marked to be; and whether all repositories and groups are
        named."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM rules")
            connection.execute("INSERT INTO rules VALUES (?, ?)", (text, None if is_named else 1))


EXCLUSIONS = Table(
    "exclusions",
    MEMORY,
    (
        *column.plain("agent", "native_session_id", "host"),
        *column.paths("path"),
        *column.plain("rule"),
    ),
    owner=BY_SESSION,
    key=("agent", "native_session_id", "host", "path"),
)

_FOLDER = "folder:"  # begins what stands for a folder in place of a session's id
_IS_SESSION = "agent <> ''"


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
        return self._memory.read(
            Exclusion, f"SELECT agent, native_session_id, host, path, rule FROM exclusions WHERE {_IS_SESSION}"
        )

    def folders(self) -> dict[str, str]:
        """Hashes of the folders that are checkouts of excluded repositories, with the rules."""
        rows = self._memory.rows(f"SELECT native_session_id, rule FROM exclusions WHERE NOT {_IS_SESSION}")
        return {name.removeprefix(_FOLDER): rule for name, rule in rows}

    def add_folder(self, key: str, rule: str) -> None:
        """Remember a folder by its hash: the session that showed it is not stored."""
        self.add([Exclusion("", _FOLDER + key, "", "", rule)])

    def add(self, exclusions: Collection[Exclusion]) -> None:
        self._memory.write_all("INSERT OR REPLACE INTO exclusions VALUES (?, ?, ?, ?, ?)", exclusions)

    def lift(self, exclusions: Collection[Exclusion]) -> None:
        """Let sessions in again; their files will be read from the start."""
        self._cache.write_all(
            "UPDATE sources SET mtime_ns = -1, offset = 0, line = 0, head = '', tail = '', state = '{}'"
            " WHERE host = ? AND agent = ? AND path = ?",
            [(exclusion.host, exclusion.agent, exclusion.path) for exclusion in exclusions],
        )
        self._memory.write_all(
            "DELETE FROM exclusions WHERE agent = ? AND native_session_id = ? AND host = ? AND path = ?",
            [exclusion[:4] for exclusion in exclusions],
        )
