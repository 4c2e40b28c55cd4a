"""OpenCode's sessions: all in one database, each a unit of it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import apsw

from recollect.agentkit.files import Source, read_database

AGENT = "opencode"
DATABASE, SESSION = "database", "session"
# Never `account`, `credential` and their like; `event` repeats every change of a part.
COLUMNS = {
    "session": {
        *("id", "parent_id", "project_id", "directory", "title", "version", "time_created", "time_updated"),
        *("agent", "model"),
    },
    "message": {"id", "session_id", "time_created", "time_updated", "data"},
    "part": {"id", "message_id", "session_id", "time_created", "time_updated", "data"},
    "project": {"id", "worktree", "vcs"},
    "event_sequence": {"aggregate_id", "seq"},
    "sqlite_master": {"name", "type"},
}
# `time_updated` of a session stands still while its parts change; the sequence does not, where there is one.
_STAMPS = (
    "SELECT s.id, s.parent_id, s.time_updated || '.' || coalesce(e.seq, '') FROM session s"
    " LEFT JOIN event_sequence e ON e.aggregate_id = s.id ORDER BY s.time_created DESC, s.id"
)
_STAMPS_BY_TIME = (
    "SELECT s.id, s.parent_id, s.time_updated || '.' || (SELECT count(*) || '.' || coalesce(max(p.time_updated), 0)"
    " FROM part p WHERE p.session_id = s.id) FROM session s ORDER BY s.time_created DESC, s.id"
)


def discover(root: Path) -> Iterator[Source]:
    """Find the databases of OpenCode's release channels."""
    for path in sorted(root.glob("opencode*.db")):
        if path.is_file() and not path.is_symlink():
            yield Source(AGENT, DATABASE, root, path, holds_units=True)


def units(container: Source) -> list[Source]:
    """The sessions of a database, each with a stamp that changes whenever the session does."""

    def read(connection: apsw.Connection) -> list[Source]:
        return [
            replace(container, kind=SESSION, holds_units=False, unit=native_id, session=name, stamp=stamp)
            for native_id, name, stamp in sessions(connection)
        ]

    return read_database(container.root, container.path, COLUMNS, read)


def sessions(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    """Id, name in the store and stamp of every session, the newest first.

    The name of a sub-agent begins with that of the session at its root.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    rows = list(connection.execute(_STAMPS if "event_sequence" in tables else _STAMPS_BY_TIME))
    parents = {native_id: parent for native_id, parent, _ in rows}
    return [(native_id, _name(native_id, parents), stamp) for native_id, _, stamp in rows]


def _name(native_id: str, parents: Mapping[str, str | None]) -> str:
    root, seen = native_id, {native_id}
    while (parent := parents.get(root)) is not None and parent in parents and parent not in seen:
        root = parent
        seen.add(root)
    return native_id if root == native_id else f"{root}/{native_id}"
