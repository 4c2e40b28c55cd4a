"""Tier 2: the lasting row of each session, as it is declared and written. `sessions` reads it.

Beside it, what a user says about sessions: stars, tags, notes, names, and views: lists of sessions that the user named.
Those rows are kept until the user or `forget` removes them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import apsw

from recollect.clock import now_ms
from recollect.errors import NotFound
from recollect.kinds import SessionKey
from recollect.store.ledger import Ledger
from recollect.store.sqlite.database import Database
from recollect.store.tables import column
from recollect.store.tables.column import TOKENS
from recollect.store.tables.digest_rows import drop_digests
from recollect.store.tables.table import BY_SESSION, KEYS, MEMORY, Table, json_keys, json_list
from recollect.text import spaced

STAR, TAG, NOTE, NAME = "star", "tag", "note", "name"
FORGET = "forget"  # an agent's request, which the user may confirm; its text is the reason
MANY = (TAG, NOTE)  # of which a session may have several

ANNOTATIONS = Table(
    "annotations",
    MEMORY,
    (
        *column.plain("agent"),
        *column.identifiers("native_session_id"),
        *column.plain("kind"),
        *column.texts("text"),
        *column.numbers("made_ms"),
    ),
    owner=BY_SESSION,
    key=("agent", "native_session_id", "kind", "text"),
    is_exported=True,
)


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


class Annotation(NamedTuple):
    """One thing a user said about a session; a star says nothing more."""

    agent: str
    native_session_id: str
    kind: str
    text: str
    made_ms: int


class AnnotationTable:
    """The annotations and saved lists of a store; in a group's only its own."""

    def __init__(self, database: Database, writer: Callable[[], tuple[Database, Ledger]]) -> None:
        self._database = database
        self._writer = writer

    def put(self, key: SessionKey, kind: str, text: str) -> None:
        """Keep an annotation; of a kind that a session has one of, in place of the one before."""
        with self._writing(key).transaction() as connection:
            if kind not in MANY:
                _drop(connection, key, kind)
            connection.execute("INSERT OR IGNORE INTO annotations VALUES (?, ?, ?, ?, ?)", (*key, kind, text, now_ms()))
            if kind == NAME:
                name_sessions(connection, [key])
                _index_name(connection, key, text)

    def drop(self, key: SessionKey, kind: str, text: str | None = None) -> None:
        """Remove one annotation, or all of a kind."""
        with self._writing(key).transaction() as connection:
            _drop(connection, key, kind, text)

    def _writing(self, key: SessionKey) -> Database:
        if not self._database.value("SELECT 1 FROM sessions WHERE agent = ? AND native_session_id = ?", key):
            raise NotFound(f"No session has this id: {':'.join(key)}")
        return self._writer()[0]

    def of(self, key: SessionKey) -> list[Annotation]:
        """Return what was said about a session, the oldest first."""
        return self._database.read(
            Annotation,
            "SELECT * FROM annotations WHERE agent = ? AND native_session_id = ? ORDER BY made_ms, kind, text",
            key,
        )

    def tags(self) -> list[str]:
        """Return all tags, the most frequent first."""
        sql = "SELECT text FROM annotations WHERE kind = 'tag' GROUP BY text ORDER BY count(*) DESC, text"
        return self._database.column(sql)

    def of_kind(self, kind: str) -> list[Annotation]:
        """Return all of one kind, the oldest first."""
        return self._database.read(Annotation, "SELECT * FROM annotations WHERE kind = ? ORDER BY made_ms", (kind,))

    def having(self, kind: str, texts: Collection[str] = ()) -> list[SessionKey]:
        """Return the sessions with such an annotation; with `texts`, with one of these, in any case."""
        return self._database.read(
            SessionKey,
            "SELECT DISTINCT agent, native_session_id FROM annotations WHERE kind = ?1"
            " AND (?2 = '[]' OR lower(text) IN (SELECT lower(value) FROM json_each(?2)))",
            (kind, json_list(texts)),
        )

    def views(self, group: str) -> list[View]:
        """Return the lists of a group, the oldest first."""
        return self._database.read(
            View, "SELECT name, query, made_ms FROM views WHERE group_name = ? ORDER BY made_ms, name", (group,)
        )

    def put_view(self, group: str, name: str, query: str) -> None:
        """Keep a list, in place of one of the same name."""
        self._writer()[0].write("INSERT OR REPLACE INTO views VALUES (?, ?, ?, ?)", (group, name, query, now_ms()))

    def drop_view(self, group: str, name: str) -> None:
        """Remove a list, if there is one of this name."""
        self._writer()[0].write("DELETE FROM views WHERE group_name = ? AND name = ?", (group, name))


def _drop(connection: apsw.Connection, key: SessionKey, kind: str, text: str | None = None) -> None:
    connection.execute(
        "DELETE FROM annotations WHERE agent = ?1 AND native_session_id = ?2 AND kind = ?3 AND coalesce(text = ?4, 1)",
        (*key, kind, text),
    )


def _index_name(connection: apsw.Connection, key: SessionKey, name: str) -> None:
    """Make search find a session by its name, as it finds others by the titles in their digests."""
    connection.execute(
        "UPDATE digest_text SET text = ?1 || char(10) || text WHERE NOT instr(text, ?1)"
        " AND rowid IN (SELECT id FROM digests WHERE agent = ?2 AND native_session_id = ?3)",
        (spaced(name), *key),
    )


def name_sessions(connection: apsw.Connection, keys: Sequence[SessionKey]) -> None:
    """Give sessions that the user named that title, whatever their logs say."""
    connection.executemany(
        "UPDATE sessions SET title = n.text FROM annotations n WHERE n.kind = 'name'"
        " AND n.agent = sessions.agent AND n.native_session_id = sessions.native_session_id"
        " AND sessions.agent = ? AND sessions.native_session_id = ?",
        keys,
    )


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
