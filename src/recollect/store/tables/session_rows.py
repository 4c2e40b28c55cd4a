"""Tier 2: the lasting row of each session, as it is declared and written. `sessions` reads it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from recollect.model.kinds import SessionKey
from recollect.store.sqlite.database import Database
from recollect.store.tables.digest_rows import drop_digests
from recollect.store.tables.groups import name_sessions
from recollect.store.tables.table import BY_SESSION, KEYS, MEMORY, TOKENS, Table, column, json_keys

SESSIONS_BY_NAMES = (
    "CREATE INDEX IF NOT EXISTS sessions_by_repo ON sessions (repo, ended_ms)",
    "CREATE INDEX IF NOT EXISTS sessions_by_base ON sessions (base_session_uid) WHERE base_session_uid IS NOT NULL",
)

SESSIONS_BY_CLASS = "CREATE INDEX IF NOT EXISTS sessions_by_class ON sessions (session_class)"

SESSIONS = Table(
    "sessions",
    MEMORY,
    (
        *column.plain(
            "agent",
            "native_session_id",
            "session_uid",
            "root_session_uid",
            "parent_session_uid?",
            "base_session_uid?",
            "base_end?",
            "session_class",
            "group",
            "host?",
        ),
        *column.names("repo?", "domain?", "cwd?", "git_root?", "git_remote?", "git_branch?", "model?", "provider?"),
        *column.plain("agent_version?"),
        *column.texts("title?"),
        *column.documents("instructions"),
        *column.numbers("started_ms?", "ended_ms?", "updated_ms?"),
        *column.plain("outcome"),
        *column.numbers(*TOKENS),
        *column.reals("usd?"),
        *column.numbers("usd_is_estimate", "wall_clock_ms?", "turns", "retries", "message_count", "event_count"),
        *column.names("task_ref?"),
        *column.plain("content_hash?", "spawn_call_id?"),
        *column.numbers("schema_version", "discovered_ms?", "ingested_ms?", "analyzed_ms?", "evicted_ms?"),
        *column.plain("key?", "channel?", "chat_id?", "user_id?", "character_id?"),
        *column.documents("metadata"),
    ),
    owner=BY_SESSION,
    key=("agent", "native_session_id"),
    has_rowid=True,
    is_exported=True,
    is_derived=True,
    extras=(
        # Two sessions may be shown by one name: `top/sub`, and `sub` whose root is `top`.
        "CREATE INDEX sessions_by_uid ON sessions (session_uid)",
        "CREATE INDEX sessions_by_time ON sessions (ended_ms)",
        *SESSIONS_BY_NAMES,
        SESSIONS_BY_CLASS,
        "CREATE INDEX sessions_by_root ON sessions (root_session_uid)",
        'CREATE INDEX sessions_by_group ON sessions ("group") WHERE "group" <> \'main\'',
        "CREATE INDEX sessions_to_distil ON sessions (agent) WHERE analyzed_ms IS NULL AND evicted_ms IS NULL",
    ),
)

SESSION_SOURCES = Table(
    "session_sources",
    MEMORY,
    (
        *column.plain("agent", "native_session_id", "host"),
        *column.paths("path"),
        *column.numbers("bytes", "gone_ms?"),
    ),
    owner=BY_SESSION,
    key=("agent", "native_session_id", "host", "path"),
    is_exported=True,
    is_derived=True,
)


class SessionRow(NamedTuple):
    """A session as stored. The last five fields are those of live hosts, empty for sessions read from logs."""

    agent: str
    native_session_id: str
    session_uid: str
    root_session_uid: str
    parent_session_uid: str | None
    base_session_uid: str | None
    base_end: str | None
    session_class: str
    group: str
    host: str | None
    repo: str | None
    domain: str | None
    cwd: str | None
    git_root: str | None
    git_remote: str | None
    git_branch: str | None
    model: str | None
    provider: str | None
    agent_version: str | None
    title: str | None
    instructions: str
    started_ms: int | None
    ended_ms: int | None
    updated_ms: int | None
    outcome: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    usd: float | None
    usd_is_estimate: int  # 2: of some requests the price is not known
    wall_clock_ms: int | None
    turns: int
    retries: int
    message_count: int
    event_count: int
    task_ref: str | None
    content_hash: str | None
    spawn_call_id: str | None
    schema_version: int
    discovered_ms: int | None
    ingested_ms: int | None
    metadata: str
    key: str | None = None
    channel: str | None = None
    chat_id: str | None = None
    user_id: str | None = None
    character_id: str | None = None


class SourceOfSession(NamedTuple):
    host: str
    path: str
    bytes: int
    gone_ms: int | None


class Place(NamedTuple):
    """Where a session worked, as its log has it and as it is named, and the names and the group that this makes."""

    agent: str
    native_session_id: str
    session_uid: str
    root_session_uid: str
    cwd: str | None
    git_root: str | None
    git_remote: str | None
    repo: str | None
    domain: str | None
    git_branch: str | None
    parent_session_uid: str | None
    base_session_uid: str | None
    group: str
    key: str | None  # by which a live host knows it: such a session has the group that the host gave it

    @property
    def session(self) -> SessionKey:
        return SessionKey(self.agent, self.native_session_id)


_COLUMNS = ", ".join(f'"{name}"' for name in SessionRow._fields)
READ_COLUMNS = (*SessionRow._fields, "analyzed_ms", "evicted_ms")
# A repair may have given up events that were then read again from a source: no eviction keeps them out.
_TAKE_BACK = (
    "UPDATE sessions SET evicted_ms = NULL WHERE agent = ?1 AND native_session_id = ?2 AND evicted_ms IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM evictions WHERE agent = ?1 AND native_session_id = ?2)"
)
# Until it is made again: has_outdated sees that.
_OUTDATE_DIGEST = (
    "UPDATE digests SET checked_by = 0 WHERE agent = ?1 AND native_session_id = ?2 AND ingested_ms IS NOT"
    " (SELECT ingested_ms FROM sessions WHERE agent = ?1 AND native_session_id = ?2)"
)


class SessionRows:
    """The rows of sessions, for the steps that write them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, rows: Sequence[tuple[SessionRow, Sequence[SourceOfSession]]]) -> None:
        """Write sessions' rows; what other steps added (watermarks) stays."""
        updates = ", ".join(
            f'"{name}" = excluded."{name}"'
            for name in SessionRow._fields[2:]
            if name not in ("repo", "domain", "group")
        )
        keys = [SessionKey(row.agent, row.native_session_id) for row, _ in rows]
        with self._database.transaction() as connection:
            connection.executemany(
                f"INSERT INTO sessions ({_COLUMNS}) VALUES ({', '.join('?' * len(SessionRow._fields))})"
                f" ON CONFLICT (agent, native_session_id) DO UPDATE SET {updates}",
                [row for row, _ in rows],
            )
            name_sessions(connection, keys)
            connection.executemany(_TAKE_BACK, keys)
            connection.executemany(_OUTDATE_DIGEST, keys)
            connection.executemany("DELETE FROM session_sources WHERE agent = ? AND native_session_id = ?", keys)
            connection.executemany(
                "INSERT INTO session_sources VALUES (?, ?, ?, ?, ?, ?)",
                [(*key, *source) for key, (_, sources) in zip(keys, rows, strict=True) for source in sources],
            )

    def task_refs(self) -> list[str]:
        """Return the tasks of all sessions, each once."""
        return self._database.column("SELECT DISTINCT task_ref FROM sessions WHERE task_ref <> ''")

    def set(self, columns: Sequence[str], values: Mapping[SessionKey, Sequence[Any]]) -> None:
        """Write these columns of some sessions: what they worked on, their repository, their group."""
        if values:
            sets = ", ".join(f'"{name}" = ?' for name in columns)
            self._database.write_all(
                f"UPDATE sessions SET {sets} WHERE agent = ? AND native_session_id = ?",
                [(*row, *key) for key, row in values.items()],
            )

    def spawned(self, parent_uid: str) -> list[SessionKey]:
        """Return the sessions that this one spawned itself."""
        sql = "SELECT agent, native_session_id FROM sessions WHERE parent_session_uid = ?"
        return self._database.read(SessionKey, sql, (parent_uid,))

    def places(self, keys: Iterable[SessionKey] | None = None) -> list[Place]:
        """Return where every session worked, or each of these."""
        columns = ", ".join(f's."{name}"' for name in Place._fields)
        if keys is None:
            return self._database.read(Place, f"SELECT {columns} FROM sessions s ORDER BY session_uid")
        sql = (
            f"{KEYS}SELECT {columns} FROM keys k JOIN sessions s USING (agent) WHERE s.native_session_id = k.native_id"
        )
        return self._database.read(Place, sql, (json_keys(keys),))

    def analyzed_events(self, key: SessionKey) -> int:
        """Return how many events the row of a session counts; 0 without a digest."""
        sql = "SELECT event_count FROM sessions WHERE agent = ? AND native_session_id = ? AND analyzed_ms IS NOT NULL"
        return int(self._database.value(sql, key) or 0)

    def below(self, folder: str) -> list[SessionKey]:
        """Sessions with a file below a folder."""
        sql = "SELECT DISTINCT agent, native_session_id FROM session_sources WHERE substr(path, 1, ?) = ?"
        return self._database.read(SessionKey, sql, (len(folder) + 1, f"{folder}/"))

    def has_groups(self) -> bool:
        """Check whether any session belongs to a group other than the main one."""
        return self._database.value("SELECT 1 FROM sessions WHERE \"group\" <> 'main' LIMIT 1") is not None

    def drop(self, sessions: Sequence[tuple[str, str]]) -> None:
        """Delete the rows of sessions that turned out to be none; not of evicted ones."""
        if not sessions:
            return
        evicted = set(self._database.rows("SELECT agent, native_session_id FROM sessions WHERE evicted_ms IS NOT NULL"))
        sessions = [session for session in sessions if session not in evicted]
        if sessions:
            with self._database.transaction() as connection:
                drop_digests(connection, sessions)
                for table in ("sessions", "session_sources"):
                    connection.executemany(f"DELETE FROM {table} WHERE agent = ? AND native_session_id = ?", sessions)

    def event_counts(self) -> dict[tuple[str, str], int]:
        """Count the events each session had when its row was made, without sessions whose events were dropped since."""
        sql = "SELECT agent, native_session_id, event_count FROM sessions WHERE evicted_ms IS NULL"
        return {(agent, native_id): count for agent, native_id, count in self._database.rows(sql)}
