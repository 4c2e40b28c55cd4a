"""Reading sessions: headers, of which a search needs many at once, and whole rows. `session_rows` writes them."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from recollect.model.clock import rfc3339
from recollect.model.kinds import SessionKey
from recollect.store.sqlite.database import Database, escaped, translated
from recollect.store.tables.table import KEYS, TOKENS, json_keys, json_list

if TYPE_CHECKING:
    from recollect.model.schema import Session, SessionSource


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
        """Check whether its repository has this name, or one that ends so; None is any."""
        return name is None or f"/{self.repo or ''}".lower().endswith(f"/{name.strip('/')}".lower())


class SessionFilter(NamedTuple):
    """Which sessions count: for each column any of its values, and for `excluded` none of them.

    `uids` are the only ones that do, None any; `excluded_uids` do not. Times: active at or after `since_ms`, begun
    before `before_ms`. `text` is a part of the title, `root` the uid of what began it all. `is_idle`: True only
    sessions without any work, False only those with some. `is_evicted`: without raw detail.
    """

    chosen: tuple[tuple[str, tuple[str, ...]], ...] = ()
    excluded: tuple[tuple[str, tuple[str, ...]], ...] = ()
    uids: frozenset[str] | None = None
    excluded_uids: frozenset[str] = frozenset()
    since_ms: int | None = None
    before_ms: int | None = None
    text: str | None = None
    root: str | None = None
    roots_only: bool = False
    is_idle: bool | None = None
    is_evicted: bool = False


class Match(NamedTuple):
    """A session that goes by some name."""

    session_uid: str
    root_session_uid: str
    is_exact: bool


ANY_SESSION = SessionFilter()
# How a column is compared.
_TESTS = {
    "agent": "agent = ? COLLATE NOCASE",
    "repo": "repo = ?",
    "repo ending": "('/' || repo) LIKE '%/' || ? ESCAPE '\\'",
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
_IN_PART = frozenset({"model", "repo ending"})  # compared by LIKE
# Nobody asked for anything and no model answered: `/status`, `/login`, a start without a prompt; or a warm-up.
IS_IDLE = "(session_class = 'warm-up' OR (turns = 0 AND output_tokens = 0))"
_SELECTED = {
    "host_key": 's."key"',
    "path": "(SELECT f.path FROM session_sources f"
    " WHERE (f.agent, f.native_session_id) = (s.agent, s.native_session_id)"
    " ORDER BY f.gone_ms IS NOT NULL, f.path LIMIT 1)",
}
HEADER_COLUMNS = ", ".join(_SELECTED.get(name, f"s.{name}") for name in SessionHeader._fields)
# What lists can be sorted by, the greatest first.
_ORDERS = {
    "recent": "coalesce(ended_ms, 0)",
    "cost": "coalesce(usd, 0)",
    "duration": "coalesce(wall_clock_ms, 0)",
    "tokens": "input_tokens + output_tokens + cache_write_tokens",
}
SORTS = tuple(_ORDERS)
_MOMENTS = ("started", "ended", "updated", "discovered", "ingested", "analyzed", "evicted")


class Sessions:
    """The rows of sessions in memory.db, for whoever reads them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, keys: Collection[SessionKey]) -> dict[SessionKey, SessionHeader]:
        """Return the headers of these sessions; one that is still being read for the first time has none."""
        rows = self._database.rows(
            f"SELECT {HEADER_COLUMNS} FROM json_each(?) k CROSS JOIN sessions s"
            " ON s.agent = k.value ->> 0 AND s.native_session_id = k.value ->> 1",
            (json_keys(keys),),
        )
        return {SessionKey(row[0], row[1]): SessionHeader(*row) for row in rows}

    def named(self, uids: Collection[str]) -> dict[str, SessionHeader]:
        rows = self._database.rows(
            f"SELECT {HEADER_COLUMNS} FROM sessions s WHERE session_uid IN (SELECT value FROM json_each(?))",
            (json_list(uids),),
        )
        return {header.session_uid: header for header in (SessionHeader(*row) for row in rows)}

    def find(
        self, criteria: SessionFilter = ANY_SESSION, *, sort: str = "recent", limit: int | None = None, offset: int = 0
    ) -> "list[Session]":
        """Sessions that match, newest first unless sorted by something else."""
        conditions, bindings = session_conditions(criteria)
        return self._select(conditions, bindings, sort, f" LIMIT {-1 if limit is None else limit:d} OFFSET {offset:d}")

    def count(self, criteria: SessionFilter = ANY_SESSION) -> int:
        """Count how many sessions match."""
        conditions, bindings = session_conditions(criteria)
        return int(self._database.value(f"SELECT count(*) FROM sessions WHERE {conditions}", bindings))

    def find_named(self, key: SessionKey) -> "Session | None":
        """Return the session with these ids, if there is a row of it."""
        return next(iter(self._select("agent = ? AND native_session_id = ?", [*key])), None)

    def _select(self, conditions: str, bindings: list[Any], sort: str = "recent", limit: str = "") -> "list[Session]":
        from recollect.model.schema import SessionSource  # these take time to load, and a search needs none
        from recollect.store.tables.session_rows import READ_COLUMNS

        order = f"{_ORDERS[sort]} DESC, {_ORDERS['recent']} DESC, session_uid"
        names = ", ".join(f'"{name}"' for name in READ_COLUMNS)
        rows = self._database.rows(f"SELECT {names} FROM sessions WHERE {conditions} ORDER BY {order}{limit}", bindings)
        sources: dict[tuple[str, str], list[SessionSource]] = {row[:2]: [] for row in rows}
        for agent, native_id, host, path, size, gone_ms in self._database.iter_rows(
            f"{KEYS}SELECT keys.agent, native_id, host, path, bytes, gone_ms FROM keys CROSS JOIN session_sources s"
            " ON s.agent = keys.agent AND s.native_session_id = keys.native_id",
            (json_keys(sources),),
        ):
            sources[agent, native_id].append(SessionSource(path, size, host, rfc3339(gone_ms)))
        with translated(self._database.path):
            return [_session(dict(zip(READ_COLUMNS, row, strict=True)), sources[row[:2]]) for row in rows]

    def named_like(self, text: str) -> list[Match]:
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

    def latest(self, limit: int, offset: int) -> dict[SessionKey, int]:
        """Sessions of any kind, those active last first, and when that was."""
        sql = (
            "SELECT agent, native_session_id, coalesce(ended_ms, 0) FROM sessions"
            " ORDER BY ended_ms DESC, session_uid LIMIT ? OFFSET ?"
        )
        rows = self._database.rows(sql, (limit, offset))
        return {SessionKey(agent, native_id): ended_ms for agent, native_id, ended_ms in rows}

    def names(self, of: str) -> list[str]:
        """Return the agents, repos, branches or models that there are sessions of, the latest first."""
        column = {"agent": "agent", "repo": "repo", "branch": "git_branch", "model": "model"}[of]
        return self._database.column(
            f"SELECT {column} FROM sessions WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY max(ended_ms) DESC, 1"
        )

    def folders(self) -> list[tuple[str, str]]:
        """Return every folder that sessions worked in or called their checkout, with the repository's name."""
        return self._database.rows(
            "SELECT cwd, repo FROM sessions WHERE cwd IS NOT NULL AND repo IS NOT NULL"
            " UNION SELECT git_root, repo FROM sessions WHERE git_root IS NOT NULL AND repo IS NOT NULL"
        )

    def keys(self, criteria: SessionFilter) -> list[SessionKey]:
        conditions, bindings = session_conditions(criteria)
        return self._database.read(
            SessionKey, f"SELECT agent, native_session_id FROM sessions WHERE {conditions}", bindings
        )

    def roots_of_repo(self, name: str) -> set[str]:
        """Return the roots of the sessions in repositories of this name."""
        sql = f"SELECT DISTINCT root_session_uid FROM sessions WHERE {_TESTS['repo ending']}"
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
        """Return the ids of all sessions that belong together with any of these: its root, and what that spawned."""
        return set(
            self._database.column(
                "SELECT session_uid FROM sessions WHERE root_session_uid IN"
                " (SELECT s.root_session_uid FROM json_each(?) k CROSS JOIN sessions s"
                " ON s.agent = k.value ->> 0 AND s.native_session_id = k.value ->> 1)",
                (json_keys(keys),),
            )
        )

    def kin(self, uid: str) -> list[tuple[SessionHeader, str]]:
        """Return what a session continues, what continues it or the same one, and who spawned it, each with why."""
        rows = self._database.rows(
            f"SELECT {HEADER_COLUMNS}, CASE WHEN s.session_uid = o.base_session_uid THEN 'it was forked from this'"
            " WHEN s.base_session_uid = o.session_uid THEN 'a fork of it'"
            " WHEN s.session_uid = o.parent_session_uid THEN 'spawned it' ELSE 'forked from the same session' END"
            " FROM sessions o JOIN sessions s ON s.session_uid IN (o.base_session_uid, o.parent_session_uid)"
            " OR s.base_session_uid IN (o.session_uid, o.base_session_uid) WHERE o.session_uid = ?"
            " ORDER BY s.started_ms, s.session_uid",
            (uid,),
        )
        return [(SessionHeader(*row[:-1]), row[-1]) for row in rows]

    def recent(self, limit: int, criteria: SessionFilter, offset: int = 0) -> list[SessionHeader]:
        """Sessions that people or scripts began and that did something, those active last first.

        A sub-agent is among them if it was chosen and the session that it belongs to was not.
        """
        where, bindings = _recent(criteria)
        return self._database.read(
            SessionHeader,
            f"SELECT {HEADER_COLUMNS} FROM sessions s WHERE {where}"
            " ORDER BY ended_ms DESC, session_uid LIMIT ? OFFSET ?",
            [*bindings, limit, offset],
        )

    def recent_count(self, criteria: SessionFilter) -> int:
        where, bindings = _recent(criteria)
        return int(self._database.value(f"SELECT count(*) FROM sessions WHERE {where}", bindings))


def _recent(criteria: SessionFilter) -> tuple[str, list[Any]]:
    conditions, bindings = session_conditions(criteria)
    if criteria.uids is None:
        return f"parent_session_uid IS NULL AND NOT {IS_IDLE} AND {conditions}", bindings
    is_shown = "(parent_session_uid IS NULL OR root_session_uid NOT IN (SELECT value FROM json_each(?)))"
    return f"{is_shown} AND session_class <> 'warm-up' AND {conditions}", [json_list(criteria.uids), *bindings]


def session_conditions(criteria: SessionFilter) -> tuple[str, list[Any]]:
    """Return what a session must meet, as SQL on the table `sessions`."""
    clauses: list[str] = []
    bindings: list[Any] = []
    for columns, is_chosen in ((criteria.chosen, True), (criteria.excluded, False)):
        for name, values in columns:
            tests = " OR ".join([_TESTS[name]] * len(values))
            clauses.append(f"({tests})" if is_chosen else f"NOT coalesce({tests}, 0)")
            bindings += [escaped(value.strip("/")) for value in values] if name in _IN_PART else values
    if criteria.uids is not None:
        clauses.append("session_uid IN (SELECT value FROM json_each(?))")
        bindings.append(json_list(criteria.uids))
    if criteria.roots_only:
        clauses.append("parent_session_uid IS NULL")
    if criteria.is_evicted:
        clauses.append("evicted_ms IS NOT NULL")
    if criteria.is_idle is not None:
        clauses.append(IS_IDLE if criteria.is_idle else f"NOT {IS_IDLE}")
    if criteria.excluded_uids:
        clauses.append("session_uid NOT IN (SELECT value FROM json_each(?))")
        bindings.append(json_list(criteria.excluded_uids))
    for test, value in (
        ("ended_ms >= ?", criteria.since_ms),
        ("started_ms < ?", criteria.before_ms),
        (
            "title LIKE '%' || ? || '%' ESCAPE '\\'",
            None if criteria.text is None else escaped(criteria.text.strip("/")),
        ),
        ("root_session_uid = ?", criteria.root),
    ):
        if value is not None:
            clauses.append(test)
            bindings.append(value)
    return " AND ".join(clauses) or "1", bindings


# The sessions' own columns are meant by what is put in: `digests` has some of the same names.
OF_DIGESTS = (
    "digest IN (SELECT d.id FROM (SELECT agent, native_session_id FROM sessions WHERE {}) s JOIN digests d"
    " ON d.agent = s.agent AND d.native_session_id = s.native_session_id)"
)


def row_conditions(criteria: SessionFilter, of_sessions: str, moment: str) -> tuple[list[str], list[Any]]:
    """Return what rows of sessions in other tables must meet; the times are those of the rows, in the column `moment`.

    `of_sessions` is the test for a row whose session is among those that `{}` selects from `sessions`.
    """
    conditions, bindings = session_conditions(criteria._replace(since_ms=None, before_ms=None))
    tests = [of_sessions.format(conditions)] if bindings else ["1"]
    for test, moment_ms in ((f"{moment} >= ?", criteria.since_ms), (f"{moment} < ?", criteria.before_ms)):
        if moment_ms is not None:
            tests.append(test)
            bindings.append(moment_ms)
    return tests, bindings


def _session(row: dict[str, Any], sources: "list[SessionSource]") -> "Session":
    from recollect.model.schema import Cost, Session  # takes time to load, and most sweeps need none

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
