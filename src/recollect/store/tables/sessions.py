"""Tier 2: the lasting row of each session."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from recollect.clock import rfc3339
from recollect.kinds import SessionKey
from recollect.store.sqlite.database import Database, escaped, translated
from recollect.store.tables import column
from recollect.store.tables.annotations import name_sessions
from recollect.store.tables.column import TOKENS
from recollect.store.tables.digests import drop_digests
from recollect.store.tables.session_headers import ANY_SESSION, IS_IDLE, HeaderFilter, header_conditions
from recollect.store.tables.table import BY_SESSION, KEYS, MEMORY, Table, json_keys

if TYPE_CHECKING:
    from recollect.schema import Session, SessionSource

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


class StoredRow(NamedTuple):
    """The part of a row that other sessions' rows depend on."""

    session_uid: str
    root_session_uid: str
    parent_session_uid: str | None
    event_count: int
    analyzed_ms: int | None


class SourceOfSession(NamedTuple):
    host: str
    path: str
    bytes: int
    gone_ms: int | None


class Match(NamedTuple):
    session_uid: str
    root_session_uid: str
    is_exact: bool


class Place(NamedTuple):
    """Where a session worked, as its log has it and as it is named."""

    agent: str
    native_session_id: str
    session_uid: str
    root_session_uid: str
    cwd: str | None
    git_root: str | None
    git_remote: str | None
    repo: str | None
    domain: str | None
    git_branch: str | None = None


class Member(NamedTuple):
    """A session as far as its group depends on it; what a live host keeps has the group that the host gave it."""

    key: SessionKey
    session_uid: str
    root_session_uid: str
    base_session_uid: str | None
    cwd: str | None
    group: str
    is_live: bool


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions to list. `text` is a part of the title, `repo` any ending of the repository's name."""

    headers: HeaderFilter = ANY_SESSION
    uid: str | None = None
    repo: str | None = None
    text: str | None = None
    root: str | None = None
    roots_only: bool = False
    is_idle: bool | None = None  # True: only sessions without any work, False: only those with some
    sort: str = "recent"
    limit: int | None = None
    offset: int = 0


# What lists can be sorted by, the greatest first.
_ORDERS = {
    "recent": "coalesce(ended_ms, 0)",
    "cost": "coalesce(usd, 0)",
    "duration": "coalesce(wall_clock_ms, 0)",
    "tokens": "input_tokens + output_tokens + cache_write_tokens",
}
SORTS = tuple(_ORDERS)
_MOMENTS = ("started", "ended", "updated", "discovered", "ingested", "analyzed", "evicted")
_COLUMNS = ", ".join(f'"{name}"' for name in SessionRow._fields)
_READ = f"{_COLUMNS}, analyzed_ms, evicted_ms"
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


class Sessions:
    """The sessions of a store."""

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

    def stored(self, keys: Iterable[SessionKey]) -> dict[SessionKey, StoredRow]:
        """What the rows of these sessions say by now, as far as there are any."""
        columns = ", ".join(StoredRow._fields)
        rows = self._database.rows(
            f"{KEYS}SELECT agent, k.native_id, {columns}"
            " FROM keys k JOIN sessions s USING (agent) WHERE s.native_session_id = k.native_id",
            (json_keys(keys),),
        )
        return {SessionKey(agent, native_id): StoredRow(*rest) for agent, native_id, *rest in rows}

    def task_refs(self) -> list[str]:
        """The tasks of all sessions, each once."""
        return self._database.column("SELECT DISTINCT task_ref FROM sessions WHERE task_ref <> ''")

    def set_task_refs(self, refs: Mapping[SessionKey, str]) -> None:
        """Say what sessions whose rows were just put worked on."""
        self._database.write_all(
            "UPDATE sessions SET task_ref = ? WHERE agent = ? AND native_session_id = ?",
            [(ref, *key) for key, ref in refs.items()],
        )

    def find(self, criteria: SessionFilter) -> "list[Session]":
        """Sessions that match, newest first unless sorted by something else."""
        conditions, bindings = _conditions(criteria)
        limit = -1 if criteria.limit is None else criteria.limit
        return self._select(conditions, bindings, criteria.sort, f" LIMIT {limit:d} OFFSET {criteria.offset:d}")

    def count(self, criteria: SessionFilter | None = None) -> int:
        """How many sessions match, whatever the limit."""
        conditions, bindings = _conditions(criteria or SessionFilter())
        return int(self._database.value(f"SELECT count(*) FROM sessions{conditions}", bindings))

    def class_counts(self) -> dict[str, int]:
        """How many sessions there are of each class."""
        return dict(self._database.rows("SELECT session_class, count(*) FROM sessions GROUP BY 1"))

    def find_named(self, agent: str, native_id: str) -> "Session | None":
        """The session with these ids, if there is a row of it."""
        return next(iter(self._select(" WHERE agent = ? AND native_session_id = ?", [agent, native_id])), None)

    def spawned(self, parent_uid: str) -> list[SessionKey]:
        """The sessions that this one spawned itself."""
        sql = "SELECT agent, native_session_id FROM sessions WHERE parent_session_uid = ?"
        return self._database.read(SessionKey, sql, (parent_uid,))

    def _select(self, conditions: str, bindings: list[Any], sort: str = "recent", limit: str = "") -> "list[Session]":
        order = f"{_ORDERS[sort]} DESC, {_ORDERS['recent']} DESC, session_uid"
        rows = self._database.rows(f"SELECT {_READ} FROM sessions{conditions} ORDER BY {order}{limit}", bindings)
        sources = self._sources_of({(row[0], row[1]) for row in rows})
        with translated(self._database.path):
            return [_session(row, sources.get((row[0], row[1]), [])) for row in rows]

    def _sources_of(self, keys: set[tuple[str, str]]) -> "dict[tuple[str, str], list[SessionSource]]":
        from recollect.schema import SessionSource  # takes time to load, and most sweeps need none

        found: dict[tuple[str, str], list[SessionSource]] = {}
        where, bindings = "", []
        if len(keys) < 200:
            where = (
                f" WHERE (agent, native_session_id) IN (VALUES {', '.join(['(?, ?)'] * len(keys))})"
                if keys
                else " WHERE 0"
            )
            bindings = [part for key in keys for part in key]
        for agent, native_id, host, path, size, gone_ms in self._database.iter_rows(
            f"SELECT agent, native_session_id, host, path, bytes, gone_ms FROM session_sources{where}",
            bindings,
        ):
            found.setdefault((agent, native_id), []).append(SessionSource(path, size, host, rfc3339(gone_ms)))
        return found

    def matching(self, text: str) -> list[Match]:
        """Sessions whose id begins or ends with `text` (6 characters or more), or whose id or title it is.

        Of two sessions with one uid both match if one does, so that neither is taken for the other.
        """
        rows = self._database.rows(
            "WITH matching AS (SELECT session_uid, session_uid = ?1 OR native_session_id = ?1 AS is_exact FROM sessions"
            " WHERE session_uid = ?1 OR native_session_id = ?1 OR title = ?1 COLLATE NOCASE"
            " OR (length(?1) >= 6 AND (native_session_id LIKE ?2 || '%' ESCAPE '\\'"
            " OR native_session_id LIKE '%' || ?2 ESCAPE '\\' OR session_uid LIKE ?2 || '%' ESCAPE '\\')))"
            " SELECT session_uid, root_session_uid, max(is_exact) FROM matching JOIN sessions USING (session_uid)"
            " GROUP BY agent, native_session_id ORDER BY session_uid",
            (text, escaped(text)),
        )
        return [Match(uid, root, bool(is_exact)) for uid, root, is_exact in rows]

    def checkouts(self) -> list[Place]:
        """Where every session worked."""
        columns = ", ".join(Place._fields)
        return self._database.read(Place, f"SELECT {columns} FROM sessions ORDER BY session_uid")

    def members(self) -> list[Member]:
        """What decides on the group of each session, but for its files."""
        rows = self._database.rows(
            "SELECT agent, native_session_id, session_uid, root_session_uid, base_session_uid, cwd,"
            ' "group", "key" IS NOT NULL FROM sessions ORDER BY session_uid'
        )
        return [Member(SessionKey(row[0], row[1]), *row[2:]) for row in rows]

    def below(self, folder: str) -> list[SessionKey]:
        """Sessions with a file below a folder."""
        sql = "SELECT DISTINCT agent, native_session_id FROM session_sources WHERE substr(path, 1, ?) = ?"
        return self._database.read(SessionKey, sql, (len(folder) + 1, f"{folder}/"))

    def has_groups(self) -> bool:
        """Whether any session belongs to a group other than the main one."""
        return self._database.value("SELECT 1 FROM sessions WHERE \"group\" <> 'main' LIMIT 1") is not None

    def set_repos(self, repos: Sequence[tuple[str | None, str | None, str, str]]) -> None:
        """Write (repo, domain, agent, native id)."""
        if repos:
            self._database.write_all(
                "UPDATE sessions SET repo = ?, domain = ? WHERE agent = ? AND native_session_id = ?", repos
            )

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
        """How many events each session had when its row was made; without those whose events were dropped since."""
        sql = "SELECT agent, native_session_id, event_count FROM sessions WHERE evicted_ms IS NULL"
        return {(agent, native_id): count for agent, native_id, count in self._database.rows(sql)}

    def set_evicted(self, sessions: Sequence[tuple[str, str]], at_ms: int) -> None:
        """Note that the events of sessions (agent, native id) are no longer held."""
        if sessions:
            self._database.write_all(
                f"UPDATE sessions SET evicted_ms = {at_ms:d} WHERE agent = ? AND native_session_id = ?", sessions
            )

    def totals(self) -> list[dict[str, Any]]:
        """Per agent: sessions, events, messages, tokens, money and if any is estimated, first and last activity."""
        sums = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "usd")
        counts = ("agent", "sessions", "sub_agents", "warm_ups", "events", "messages")
        names = (*counts, *sums, "usd_is_estimate", "usd_is_incomplete", "started_at", "ended_at")
        rows = self._database.rows(
            "SELECT agent, count(*), sum(session_class = 'sub-agent'), sum(session_class = 'warm-up'),"
            f" sum(event_count), sum(message_count), {', '.join(f'sum({name})' for name in sums)},"
            " max(usd_is_estimate), min(started_ms), max(ended_ms)"
            " FROM sessions GROUP BY agent ORDER BY agent"
        )
        return [
            dict(zip(names, (*sums, doubt > 0, doubt > 1, rfc3339(started_ms), rfc3339(ended_ms)), strict=True))
            for *sums, doubt, started_ms, ended_ms in rows
        ]


def _conditions(criteria: SessionFilter) -> tuple[str, list[Any]]:
    clause, bindings = header_conditions(criteria.headers)
    tests: list[tuple[str, Any]] = [
        ("session_uid = ?", criteria.uid),
        ("('/' || repo) LIKE '%/' || ? ESCAPE '\\'", _like(criteria.repo)),
        ("title LIKE '%' || ? || '%' ESCAPE '\\'", _like(criteria.text)),
        ("root_session_uid = ?", criteria.root),
    ]
    used = [(test, value) for test, value in tests if value is not None]
    clauses = [clause, *(test for test, _ in used), *(["parent_session_uid IS NULL"] if criteria.roots_only else [])]
    if criteria.is_idle is not None:
        clauses.append(IS_IDLE if criteria.is_idle else f"NOT {IS_IDLE}")
    return f" WHERE {' AND '.join(clauses)}", [*bindings, *(value for _, value in used)]


def _like(text: str | None) -> str | None:
    return None if text is None else escaped(text.strip("/"))


def _session(values: tuple[Any, ...], sources: "list[SessionSource]") -> "Session":
    from recollect.schema import Cost, Session  # takes time to load, and most sweeps need none

    row = dict(zip((*SessionRow._fields, "analyzed_ms", "evicted_ms"), values, strict=True))
    if row["analyzed_ms"] is not None:  # the first time counts for eviction; what came later was analysed as it came
        row["analyzed_ms"] = max(row["analyzed_ms"], row["ingested_ms"] or 0)
    moments = {f"{name}_at": rfc3339(row.pop(f"{name}_ms")) for name in _MOMENTS}
    doubt, wall_clock_ms = row.pop("usd_is_estimate"), row.pop("wall_clock_ms")
    wall_clock_s = None if wall_clock_ms is None else wall_clock_ms / 1000
    figures = {name: row.pop(name) for name in (*TOKENS, "usd", "turns", "retries")}
    has_usd = figures["usd"] is not None
    cost = Cost(
        usd_is_estimate=has_usd and doubt > 0, usd_is_incomplete=doubt > 1, wall_clock_s=wall_clock_s, **figures
    )
    documents = {"instructions": tuple(orjson.loads(row["instructions"])), "metadata": orjson.loads(row["metadata"])}
    told = {name: value for name, value in row.items() if name not in ("git_root", "git_remote")}
    return Session(**told | moments | documents, cost=cost, sources=tuple(sources))
