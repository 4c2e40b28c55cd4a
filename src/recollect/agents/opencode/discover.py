"""OpenCode's sessions: all in one database, each a unit of it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import apsw

from recollect.agentkit.files import Source, read_database

AGENT = "opencode"
DATABASE, SESSION = "database", "session"
_MOST_DEEP = 50  # sub-agents of sub-agents; damaged ones may form a circle
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
# Damaged rows have ids that no program would write: they are no sessions.
_SESSIONS = (
    "SELECT s.id, p.id, CAST(s.time_updated AS INTEGER) || '.' || {} FROM session s"
    " LEFT JOIN session p ON p.id = s.parent_id AND p.id NOT GLOB '*[^-0-9A-Za-z_]*' {}"
    " WHERE typeof(s.id) = 'text' AND s.id NOT GLOB '*[^-0-9A-Za-z_]*' ORDER BY s.time_created DESC, s.id"
)
# `time_updated` of a session stands still while its parts change; the sequence does not, where there is one.
_STAMPED = _SESSIONS.format(
    "coalesce(CAST(e.seq AS INTEGER), '')", "LEFT JOIN event_sequence e ON e.aggregate_id = s.id"
)
_STAMPED_BY_TIME = _SESSIONS.format(
    "count(c.session_id) || '.' || coalesce(CAST(max(c.time_updated) AS INTEGER), 0)",
    "LEFT JOIN part c ON c.session_id = s.id",
).replace(" ORDER", " GROUP BY s.id ORDER")


def discover(root: Path) -> Iterator[Source]:
    """Find the databases of OpenCode's release channels."""
    for path in sorted(root.glob("opencode*.db")):
        if not path.is_symlink() and not path.is_dir():
            yield Source(AGENT, DATABASE, root, path, holds_units=True)


def units(container: Source) -> list[Source]:
    """The sessions of a database, each with a stamp that changes whenever the session does."""

    def read(connection: apsw.Connection) -> list[Source]:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        rows = list(connection.execute(_STAMPED if "event_sequence" in tables else _STAMPED_BY_TIME))
        parents = {native_id: parent for native_id, parent, _ in rows}
        part = partial(replace, container, kind=SESSION, holds_units=False)
        return [part(unit=unit, session=_name(unit, parents), stamp=stamp or "") for unit, _, stamp in rows]

    return read_database(container.root, container.path, COLUMNS, read)


def _name(native_id: str, parents: Mapping[str, str | None]) -> str:
    """The session's name in the store: that of a sub-agent begins with the session at its root."""
    root = native_id
    for _ in range(_MOST_DEEP):
        root = parents[root] or root
    return native_id if root == native_id else f"{root}/{native_id}"
