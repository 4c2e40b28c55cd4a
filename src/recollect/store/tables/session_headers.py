"""Sessions as a search needs them: by many at once, a few columns, and no more work than that."""

from collections.abc import Collection
from typing import Any, NamedTuple

from recollect.kinds import SessionKey
from recollect.store.search import ensure_terms
from recollect.store.sqlite.database import Database, escaped
from recollect.store.tables.table import json_keys, json_list


class SessionHeader(NamedTuple):
    """What a hit says of its session. `host_key` is the name that an agent host knows it by."""

    agent: str
    native_session_id: str
    session_uid: str
    root_session_uid: str
    title: str | None
    repo: str | None
    started_ms: int | None
    ended_ms: int | None
    outcome: str | None
    evicted_ms: int | None = None
    cwd: str | None = None
    host_key: str | None = None
    channel: str | None = None
    chat_id: str | None = None
    path: str | None = None  # of one of its files

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.agent, self.native_session_id)

    def is_of_repo(self, name: str | None) -> bool:
        """Whether its repository has this name, or one that ends so; None is any."""
        return name is None or f"/{self.repo or ''}".lower().endswith(f"/{name.strip('/')}".lower())


class HeaderFilter(NamedTuple):
    """Which sessions count: for each column any of its values, and for `excluded` none of them.

    `uids` are the only ones that do, None any; `excluded_uids` do not. Times: active at or after `since_ms`, begun
    before `before_ms`.
    """

    chosen: tuple[tuple[str, tuple[str, ...]], ...] = ()
    excluded: tuple[tuple[str, tuple[str, ...]], ...] = ()
    uids: frozenset[str] | None = None
    excluded_uids: frozenset[str] = frozenset()
    since_ms: int | None = None
    before_ms: int | None = None


ANY_SESSION = HeaderFilter()
# How a column is compared.
_TESTS = {
    "agent": "agent = ? COLLATE NOCASE",
    "repo": "repo = ?",
    "branch": "git_branch = ? COLLATE NOCASE",
    "model": "model LIKE '%' || ? || '%' ESCAPE '\\'",
    "outcome": "outcome = ?",
    "class": "session_class = ?",
    "group": '"group" = ? COLLATE NOCASE',
    "channel": "channel = ? COLLATE NOCASE",
    "user": "user_id = ? COLLATE NOCASE",
    "domain": "domain = ? COLLATE NOCASE",
    "task": "task_ref = ? COLLATE NOCASE",
    "session": "session_uid = ?",
}
_ENDS_WITH = "('/' || repo) LIKE '%/' || ? ESCAPE '\\'"
# Nobody asked for anything and no model answered: `/status`, `/login`, a start without a prompt; or a warm-up.
IS_IDLE = "(session_class = 'warm-up' OR (turns = 0 AND output_tokens = 0))"
_BEST_DIGESTS = 1_000
_SELECTED = {
    "host_key": 's."key"',
    "path": "(SELECT f.path FROM session_sources f"
    " WHERE (f.agent, f.native_session_id) = (s.agent, s.native_session_id)"
    " ORDER BY f.gone_ms IS NOT NULL, f.path LIMIT 1)",
}
_COLUMNS = ", ".join(_SELECTED.get(name, f"s.{name}") for name in SessionHeader._fields)
_HAS_TABLE = "SELECT 1 FROM sqlite_schema WHERE name = ?"


class SessionHeaders:
    """The rows of memory.db that hits are named by."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tables: set[str] = set()  # that the store is known to have

    def of(self, keys: Collection[SessionKey]) -> dict[SessionKey, SessionHeader]:
        """The headers of these sessions; one that is still being read for the first time has none."""
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM json_each(?) k CROSS JOIN sessions s"
            " ON s.agent = k.value ->> 0 AND s.native_session_id = k.value ->> 1",
            (json_keys(keys),),
        )
        return {SessionKey(row[0], row[1]): SessionHeader(*row) for row in rows}

    def named(self, uids: Collection[str]) -> dict[str, SessionHeader]:
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM sessions s WHERE session_uid IN (SELECT value FROM json_each(?))",
            (json_list(uids),),
        )
        return {header.session_uid: header for header in (SessionHeader(*row) for row in rows)}

    def latest(self, limit: int, offset: int) -> dict[SessionKey, int]:
        """Sessions of any kind, those active last first, and when that was."""
        sql = (
            "SELECT agent, native_session_id, coalesce(ended_ms, 0) FROM sessions"
            " ORDER BY ended_ms DESC, session_uid LIMIT ? OFFSET ?"
        )
        rows = self._database.rows(sql, (limit, offset))
        return {SessionKey(agent, native_id): ended_ms for agent, native_id, ended_ms in rows}

    def names(self, of: str) -> list[str]:
        """The agents, repos, branches or models that there are sessions of, the latest first."""
        column = {"agent": "agent", "repo": "repo", "branch": "git_branch", "model": "model"}[of]
        return self._database.column(
            f"SELECT {column} FROM sessions WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY max(ended_ms) DESC, 1"
        )

    def folders(self) -> list[tuple[str, str]]:
        """Every folder that sessions worked in or called their checkout, with the repository's name."""
        return self._database.rows(
            "SELECT cwd, repo FROM sessions WHERE cwd IS NOT NULL AND repo IS NOT NULL"
            " UNION SELECT git_root, repo FROM sessions WHERE git_root IS NOT NULL AND repo IS NOT NULL"
        )

    def evicted_count(self, criteria: HeaderFilter) -> int:
        """How many sessions have no raw detail any more, sub-agents not counted."""
        conditions, bindings = header_conditions(criteria)
        sql = "SELECT count(*) FROM sessions WHERE evicted_ms IS NOT NULL AND parent_session_uid IS NULL AND "
        return int(self._database.value(sql + conditions, bindings))

    def evicted_with_edits(self) -> list[SessionKey]:
        """Sessions without raw detail whose digests tell of files that they changed."""
        if not self._has("digests"):
            return []
        return self._database.read(
            SessionKey,
            "SELECT agent, native_session_id FROM sessions JOIN digests USING (agent, native_session_id)"
            " WHERE evicted_ms IS NOT NULL AND digest ->> 'file_count' > 0",
        )

    def digest(self, key: SessionKey) -> str | None:
        """A session's digest as JSON; None if there is none of its own yet, or the store is older than digests."""
        if not self._has("digests"):
            return None
        sql = "SELECT digest FROM digests WHERE agent = ? AND native_session_id = ?"
        digest = self._database.value(sql, key)
        return None if digest is None else str(digest)

    def digest_words(self, uids: Collection[str]) -> dict[str, str]:
        """The texts by which sessions' digests are found, of those that have one."""
        if not self._has("digest_text"):
            return {}
        rows = self._database.rows(
            "SELECT s.session_uid, t.text FROM sessions s JOIN digests d USING (agent, native_session_id)"
            " JOIN digest_text t ON t.rowid = d.id WHERE s.session_uid IN (SELECT value FROM json_each(?))",
            (json_list(uids),),
        )
        return dict(rows)

    def digest_count(self) -> int:
        return int(self._database.value("SELECT count(*) FROM digests")) if self._has("digests") else 0

    def word_counts(self, words: Collection[str]) -> dict[str, int]:
        """In how many digests each of these words stands, without those that stand in none."""
        if not self._has("digest_text"):
            return {}
        ensure_terms(self._database, "digest_text")
        # A join, for fts5vocab takes one word at a time: with IN it would read every word there is.
        sql = "SELECT v.term, v.doc FROM json_each(?) k CROSS JOIN temp.terms_digest_text v ON v.term = k.value"
        return dict(self._database.rows(sql, (json_list(words),)))

    def matching(self, criteria: HeaderFilter) -> list[SessionKey]:
        conditions, bindings = header_conditions(criteria)
        return self._database.read(
            SessionKey, f"SELECT agent, native_session_id FROM sessions WHERE {conditions}", bindings
        )

    def _has(self, table: str) -> bool:
        """Whether a store, which may be an older one that cannot be written, has a table."""
        if table not in self._tables and self._database.value(_HAS_TABLE, (table,)) is not None:
            self._tables.add(table)
        return table in self._tables

    def by_digest(
        self, expression: str, criteria: HeaderFilter, *, is_evicted: bool = False, most: int = _BEST_DIGESTS
    ) -> list[tuple[SessionHeader, float]]:
        """Sessions whose digests match an expression of FTS5, and how well (BM25), best first.

        `is_evicted`: only those without raw detail.
        """
        if not self._has("digest_text"):
            return []
        conditions, bindings = header_conditions(criteria)
        filtered = f" AND s.rowid IN (SELECT rowid FROM sessions WHERE {conditions})" if bindings else ""
        # Looking up a session takes as long as ranking ten; without a filter the best are enough.
        most = -1 if bindings or is_evicted else most
        rows = self._database.rows(
            "WITH hit AS MATERIALIZED (SELECT rowid, bm25(digest_text) AS rank FROM digest_text"
            " WHERE digest_text MATCH ? ORDER BY 2 LIMIT ?)"
            f" SELECT {_COLUMNS}, -hit.rank FROM hit CROSS JOIN digests d ON d.id = hit.rowid"
            " CROSS JOIN sessions s ON s.agent = d.agent AND s.native_session_id = d.native_session_id"
            f" WHERE {'s.evicted_ms IS NOT NULL' if is_evicted else '1'}{filtered}"
            " ORDER BY hit.rank, s.session_uid",
            [expression, most, *bindings],
        )
        return [(SessionHeader(*row[:-1]), row[-1]) for row in rows]

    def digest_matches(self, expression: str) -> int:
        """How many digests match an expression of FTS5."""
        if not expression or not self._has("digest_text"):
            return 0
        return int(self._database.value("SELECT count(*) FROM digest_text WHERE digest_text MATCH ?", (expression,)))

    def roots_by_digest(self, expression: str) -> set[str]:
        """The roots of the sessions whose digests match an expression of FTS5."""
        if not self._has("digest_text"):
            return set()
        return set(
            self._database.column(
                "SELECT DISTINCT s.root_session_uid FROM digest_text t CROSS JOIN digests d ON d.id = t.rowid"
                " CROSS JOIN sessions s ON s.agent = d.agent AND s.native_session_id = d.native_session_id"
                " WHERE t.digest_text MATCH ?",
                (expression,),
            )
        )

    def roots_of_repo(self, name: str) -> set[str]:
        """The roots of the sessions in repositories of this name."""
        sql = f"SELECT DISTINCT root_session_uid FROM sessions WHERE {_ENDS_WITH}"
        return set(self._database.column(sql, (escaped(name.strip("/")),)))

    def households(self, uids: Collection[str]) -> list[SessionKey]:
        """These sessions with all sub-agents below their roots."""
        return self._database.read(
            SessionKey,
            "SELECT agent, native_session_id FROM sessions WHERE session_uid IN (SELECT value FROM json_each(?1))"
            " OR root_session_uid IN (SELECT value FROM json_each(?1))",
            (json_list(uids),),
        )

    def trees(self, keys: Collection[SessionKey]) -> set[str]:
        """The ids of all sessions that belong together with any of these: its root, and what that spawned."""
        return set(
            self._database.column(
                "SELECT session_uid FROM sessions WHERE root_session_uid IN"
                " (SELECT s.root_session_uid FROM json_each(?) k CROSS JOIN sessions s"
                " ON s.agent = k.value ->> 0 AND s.native_session_id = k.value ->> 1)",
                (json_keys(keys),),
            )
        )

    def kin(self, uid: str) -> list[tuple[SessionHeader, str]]:
        """What a session goes on from, what goes on from it or from the same one, and who spawned it, each with why."""
        rows = self._database.rows(
            f"SELECT {_COLUMNS}, CASE WHEN s.session_uid = o.base_session_uid THEN 'it was forked from this'"
            " WHEN s.base_session_uid = o.session_uid THEN 'a fork of it'"
            " WHEN s.session_uid = o.parent_session_uid THEN 'spawned it' ELSE 'forked from the same session' END"
            " FROM sessions o JOIN sessions s ON s.session_uid IN (o.base_session_uid, o.parent_session_uid)"
            " OR s.base_session_uid IN (o.session_uid, o.base_session_uid) WHERE o.session_uid = ?"
            " ORDER BY s.started_ms, s.session_uid",
            (uid,),
        )
        return [(SessionHeader(*row[:-1]), row[-1]) for row in rows]

    def recent(self, limit: int, criteria: HeaderFilter, offset: int = 0) -> list[SessionHeader]:
        """Sessions that people or scripts began and that did something, those active last first.

        A sub-agent is among them if it was chosen and the session that it belongs to was not.
        """
        where, bindings = _recent(criteria)
        return self._database.read(
            SessionHeader,
            f"SELECT {_COLUMNS} FROM sessions s WHERE {where} ORDER BY ended_ms DESC, session_uid LIMIT ? OFFSET ?",
            [*bindings, limit, offset],
        )

    def recent_count(self, criteria: HeaderFilter) -> int:
        where, bindings = _recent(criteria)
        return int(self._database.value(f"SELECT count(*) FROM sessions WHERE {where}", bindings))


def _recent(criteria: HeaderFilter) -> tuple[str, list[Any]]:
    conditions, bindings = header_conditions(criteria)
    if criteria.uids is None:
        return f"parent_session_uid IS NULL AND NOT {IS_IDLE} AND {conditions}", bindings
    is_shown = "(parent_session_uid IS NULL OR root_session_uid NOT IN (SELECT value FROM json_each(?)))"
    return f"{is_shown} AND session_class <> 'warm-up' AND {conditions}", [json_list(criteria.uids), *bindings]


def header_conditions(criteria: HeaderFilter) -> tuple[str, list[Any]]:
    """What a session must meet, as SQL on the table `sessions`."""
    clauses: list[str] = []
    bindings: list[Any] = []
    for columns, is_chosen in ((criteria.chosen, True), (criteria.excluded, False)):
        for name, values in columns:
            tests = " OR ".join([_TESTS[name]] * len(values))
            clauses.append(f"({tests})" if is_chosen else f"NOT coalesce({tests}, 0)")
            bindings += map(escaped, values) if name == "model" else values
    if criteria.uids is not None:
        clauses.append("session_uid IN (SELECT value FROM json_each(?))")
        bindings.append(json_list(criteria.uids))
    if criteria.excluded_uids:
        clauses.append("session_uid NOT IN (SELECT value FROM json_each(?))")
        bindings.append(json_list(criteria.excluded_uids))
    for test, moment_ms in (("ended_ms >= ?", criteria.since_ms), ("started_ms < ?", criteria.before_ms)):
        if moment_ms is not None:
            clauses.append(test)
            bindings.append(moment_ms)
    return " AND ".join(clauses) or "1", bindings
