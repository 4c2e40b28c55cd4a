"""Tier 2: what sessions add up to by hour, model, tool and command. Statistics read only this, never events."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.store.sqlite.database import Database
from recollect.store.tables import column
from recollect.store.tables.session_headers import ANY_SESSION, HeaderFilter, header_conditions
from recollect.store.tables.table import BY_DIGEST, MEMORY, Table

# A session's work and tokens by hour and model, so that days can be summed up in any time zone.
ACTIVITY = Table(
    "activity",
    MEMORY,
    (
        *column.numbers("digest", "is_sealed", "hour"),
        *column.names("model"),
        *column.numbers(*column.TOKENS),
        *column.reals("usd?"),
        *column.numbers("active_ms", "turns"),
    ),
    owner=BY_DIGEST,
    key=("digest", "is_sealed", "hour", "model"),
    is_exported=True,
    sums=(*column.TOKENS, "usd", "active_ms", "turns"),
    extras=("CREATE INDEX activity_by_hour ON activity (hour)",),
)


def _use(table: str) -> Table:
    """How often tools, or commands, were used on a day, and what the last failure said."""
    counts = ("uses", "failures", "refusals")
    return Table(
        table,
        MEMORY,
        (
            *column.numbers("digest", "is_sealed", "day"),
            *column.names("name"),
            *column.texts("sample"),
            *column.numbers(*counts),
        ),
        owner=BY_DIGEST,
        key=("digest", "is_sealed", "day", "name"),
        is_exported=True,
        sums=counts,
    )


TOOL_USE = _use("tool_use")
COMMAND_USE = _use("command_use")


class ActivityRow(NamedTuple):
    """An hour of a session: its work where `model` is empty, a model's tokens and money elsewhere."""

    hour: int
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    usd: float | None = None
    active_ms: int = 0
    turns: int = 0


class UseRow(NamedTuple):
    """A day of a tool or of a family of commands in a session."""

    day: int
    name: str
    sample: str  # of what it says when it fails
    uses: int
    failures: int
    refusals: int


class StatRow(NamedTuple):
    """A line of the statistics; what a breakdown does not know is None."""

    name: str | None
    sessions: int
    sub_agents: int
    turns: int | None
    active_ms: int | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    usd: float | None
    usd_is_estimate: int
    uses: int | None = None
    failures: int | None = None
    refusals: int | None = None
    sample: str | None = None
    sub_agents_usd: float | None = None
    title: str | None = None


class HourRow(NamedTuple):
    """What an agent's sessions cost in an hour."""

    agent: str
    hour: int
    usd: float
    is_estimate: int


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of the activity: of which sessions, of which time, in milliseconds, and of which root (its uid)."""

    sessions: HeaderFilter = ANY_SESSION
    since_ms: int | None = None
    before_ms: int | None = None
    root: str | None = None


_LOCAL = "iif(a.hour < 0, NULL, strftime('{format}', a.hour * 3600, 'unixepoch', 'localtime'))"
_PERIODS = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}
# What a line is named by: something of the session, or of its hours.
_OF_SESSION = {"repo": "s.repo", "agent": "s.agent", "session": "s.root_session_uid", "total": "'total'"}
_PARTS = {
    **{name: _LOCAL.format(format=form) for name, form in _PERIODS.items()},
    "model": "nullif(a.model, '')",
    "block": "strftime('%Y-%m-%d %H:%M', b.hour * 3600, 'unixepoch', 'localtime') || ' ' || b.agent",
}
_SUMS = ", ".join(
    f"sum(a.{name}) AS {name}"
    for name in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "usd")
)
_UNPRICED = f"max(a.usd IS NULL AND {' + '.join(f'a.{name}' for name in column.TOKENS)} > 0)"
# An hour's work, split over the models that answered in it by how much they wrote.
_WORK_OF_MODEL = (
    "(SELECT sum(w.active_ms) FROM activity w WHERE w.digest = a.digest AND w.hour = a.hour AND w.model = '')"
    " * a.output_tokens / (SELECT nullif(sum(m.output_tokens), 0) FROM activity m"
    " WHERE m.digest = a.digest AND m.hour = a.hour AND m.model <> '')"
)
_TITLE = "(SELECT r.title FROM sessions r WHERE r.session_uid = s.root_session_uid)"
BLOCK_HOURS = 5
_BLOCKS = (
    "WITH blocks (agent, hour) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(?)) ",
    " JOIN digests d ON d.id = a.digest"
    f" JOIN blocks b ON b.agent = d.agent AND a.hour BETWEEN b.hour AND b.hour + {BLOCK_HOURS - 1}",
)
_USES = {"tool": "tool_use", "command": "command_use"}
_IS_SUB_AGENT = "s.parent_session_uid IS NOT NULL"
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class Activity:
    """The aggregates of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def stats(self, by: str, span: Span) -> list[StatRow]:
        """Sums by period, block, session, repo, model, agent, tool or command; times are in the user's own zone."""
        rows = self._uses(_USES[by], span) if by in _USES else self._activity(by, span)
        return [StatRow(*row) for row in rows]

    def _activity(self, by: str, span: Span) -> list[tuple[Any, ...]]:
        where, bindings = _where(span, "a.hour", _HOUR_MS)
        turns, work = f"sum(iif({_IS_SUB_AGENT}, 0, a.turns))", "a.active_ms"
        if by == "model":  # a request is not made to one of them
            where, turns, work = f"{where} AND a.model <> ''", "NULL", _WORK_OF_MODEL
        begin, join = ("", "")
        if by == "block":
            (begin, join), bindings = _BLOCKS, [orjson.dumps(self.blocks()).decode(), *bindings]
        order = "1" if by in _PERIODS or by == "block" else "10 DESC, 1"
        # Summed up by session first: what is said of a session is then looked up once, not for each of its hours. The
        # rows are kept in the order of sessions, so that nothing is sorted unless there are parts.
        groups = "1, 2" if by in _PARTS else "1"
        return self._database.rows(
            f"{begin}SELECT {_OF_SESSION.get(by, 'a.part')}, count(iif({_IS_SUB_AGENT}, NULL, 1)),"
            f" count(iif({_IS_SUB_AGENT}, 1, NULL)), {turns}, sum(a.active_ms), sum(a.input_tokens),"
            " sum(a.output_tokens), sum(a.cache_read_tokens), sum(a.cache_write_tokens), sum(a.usd),"
            " max(iif(a.unpriced, s.usd_is_estimate, a.usd IS NOT NULL AND s.usd_is_estimate)),"
            " NULL, NULL, NULL, NULL,"
            f" sum(iif({_IS_SUB_AGENT}, a.usd, NULL)), {_TITLE if by == 'session' else 'NULL'}"
            f" FROM (SELECT a.digest, {_PARTS.get(by, 'NULL')} AS part, sum(a.turns) AS turns,"
            f" sum({work}) AS active_ms, {_SUMS}, {_UNPRICED} AS unpriced"
            f" FROM activity a{join}{where} GROUP BY {groups}) a"
            f" {_JOIN.format(table='a')} GROUP BY 1 ORDER BY {order}",
            bindings,
        )

    def blocks(self) -> list[tuple[str, int]]:
        """(agent, first hour) of each block of hours: the limits of an agent count whatever it works on."""
        hours: dict[str, list[int]] = {}
        for name, hour in self._database.rows(
            "SELECT DISTINCT d.agent, a.hour FROM activity a JOIN digests d ON d.id = a.digest WHERE a.hour >= 0"
            " ORDER BY 2"
        ):
            begun = hours.setdefault(name, [])
            if not begun or hour >= begun[-1] + BLOCK_HOURS:
                begun.append(hour)
        return [(name, hour) for name, begun in hours.items() for hour in begun]

    def hours(self, span: Span) -> list[HourRow]:
        """Money by agent and hour, the oldest first."""
        where, bindings = _where(span, "a.hour", _HOUR_MS)
        return self._database.read(
            HourRow,
            "SELECT s.agent, a.hour, sum(a.usd), max(s.usd_is_estimate)"
            f" FROM activity a {_JOIN.format(table='a')}{where} AND a.hour >= 0 AND a.usd IS NOT NULL"
            " GROUP BY 1, 2 ORDER BY 2, 1",
            bindings,
        )

    def unpriced_models(self) -> list[str]:
        """The models whose price is not known, of sessions whose agent says nothing of it either."""
        used = " + ".join(f"a.{name}" for name in column.TOKENS)
        rows = self._database.rows(
            f"SELECT DISTINCT a.model FROM activity a {_JOIN.format(table='a')}"
            f" WHERE s.usd_is_estimate > 1 AND a.usd IS NULL AND {used} > 0 ORDER BY 1"
        )
        return [model for (model,) in rows]

    def first_hour(self, sessions: HeaderFilter = ANY_SESSION) -> int | None:
        """The first hour of any activity of these sessions."""
        where, bindings = _where(Span(sessions), "a.hour", _HOUR_MS)
        rows = self._database.rows(
            f"SELECT a.hour FROM activity a{where} AND a.hour >= 0 ORDER BY a.hour LIMIT 1", bindings
        )
        return rows[0][0] if rows else None

    def money_of_active(self, since_ms: int) -> dict[str, float]:
        """What sessions active since then have cost with their sub-agents, by native id of the root."""
        rows = self._database.rows(
            "SELECT r.native_session_id, sum(s.usd) FROM sessions s JOIN sessions r ON r.session_uid ="
            " s.root_session_uid WHERE s.root_session_uid IN (SELECT root_session_uid FROM sessions"
            " WHERE updated_ms >= ?) GROUP BY 1 HAVING sum(s.usd) IS NOT NULL",
            (since_ms,),
        )
        return dict(rows)

    def _uses(self, table: str, span: Span) -> list[tuple[Any, ...]]:
        where, bindings = _where(span, "u.day", _DAY_MS)
        nothing = ", ".join(["NULL"] * 7)
        return self._database.rows(
            f"SELECT u.name, count(DISTINCT iif({_IS_SUB_AGENT}, NULL, d.id)),"
            f" count(DISTINCT iif({_IS_SUB_AGENT}, d.id, NULL)), {nothing}, 0,"
            " sum(u.uses), sum(u.failures), sum(u.refusals), nullif(substr(max(iif(u.sample = '', '',"
            " printf('%012d', u.day + 1) || u.sample)), 13), '')"
            f" FROM {table} u {_JOIN.format(table='u')}{where} GROUP BY 1 ORDER BY 13 DESC, 12 DESC, 1",
            bindings,
        )

    def failures(self, span: Span) -> list[tuple[str, int, int, str]]:
        """(family of commands, uses, failures, what the last failure said), without those that never failed."""
        where, bindings = _where(span, "u.day", _DAY_MS)
        return self._database.rows(
            "SELECT u.name, sum(u.uses), sum(u.failures) AS failed, substr(max(iif(u.sample = '', '',"
            " printf('%012d', u.day + 1) || u.sample)), 13)"
            f" FROM command_use u{where} GROUP BY 1 HAVING failed > 0 ORDER BY failed DESC, 2 DESC, 1",
            bindings,
        )

    def heatmap(self, span: Span) -> list[tuple[int, int, int]]:
        """(weekday from 0 = Sunday, hour, milliseconds of work), in the user's own time zone."""
        where, bindings = _where(span, "a.hour", _HOUR_MS)
        local = "a.hour * 3600, 'unixepoch', 'localtime'"
        return self._database.rows(
            f"SELECT CAST(strftime('%w', {local}) AS INTEGER), CAST(strftime('%H', {local}) AS INTEGER),"
            " sum(a.active_ms) FROM (SELECT a.hour, sum(a.active_ms) AS active_ms"
            f" FROM activity a{where} AND a.active_ms > 0 GROUP BY 1) a GROUP BY 1, 2",
            bindings,
        )


_JOIN = (
    "JOIN digests d ON d.id = {table}.digest"
    " JOIN sessions s ON s.agent = d.agent AND s.native_session_id = d.native_session_id"
)
# The sessions' own columns are meant by `chosen`: `digests` has some of the same names.
_DIGESTS = (
    "SELECT d.id FROM (SELECT agent, native_session_id FROM sessions WHERE {chosen}) s JOIN digests d"
    " ON d.agent = s.agent AND d.native_session_id = s.native_session_id"
)


def _where(span: Span, column: str, unit_ms: int) -> tuple[str, list[Any]]:
    of_sessions, bindings = header_conditions(span.sessions)
    chosen = [of_sessions] if bindings else []
    if span.root is not None:
        chosen.append("root_session_uid = ?")
        bindings.append(span.root)
    table = column.partition(".")[0]
    tests = [f"{table}.digest IN ({_DIGESTS.format(chosen=' AND '.join(chosen))})"] if chosen else ["1"]
    for test, moment_ms in ((">= ?", span.since_ms), ("< ?", span.before_ms)):
        if moment_ms is not None:
            tests.append(f"{column} {test}")
            bindings.append(moment_ms // unit_ms if test == ">= ?" else -(-moment_ms // unit_ms))
    return f" WHERE {' AND '.join(tests)}", bindings


def put_activity(
    connection: apsw.Connection,
    rows_by_digest: Sequence[tuple[int, Sequence[ActivityRow], Sequence[UseRow], Sequence[UseRow]]],
) -> None:
    """Write the activity (by hour, tool and command) of sessions' held events, by their digests."""
    marks = ", ".join("?" * len(ActivityRow._fields))
    connection.executemany(
        f"INSERT INTO activity VALUES (?, 0, {marks})",
        [(digest, *row) for digest, activity, _, _ in rows_by_digest for row in activity],
    )
    tools = [(digest, *row) for digest, _, rows, _ in rows_by_digest for row in rows]
    commands = [(digest, *row) for digest, _, _, rows in rows_by_digest for row in rows]
    connection.executemany("INSERT INTO tool_use VALUES (?, 0, ?, ?, ?, ?, ?, ?)", tools)
    connection.executemany("INSERT INTO command_use VALUES (?, 0, ?, ?, ?, ?, ?, ?)", commands)


def drop_activity(connection: apsw.Connection, digest: int) -> None:
    """Delete what was counted of a session's held events."""
    for table in ("activity", "tool_use", "command_use"):
        connection.execute(f"DELETE FROM {table} WHERE digest = ? AND NOT is_sealed", (digest,))


def seal_activity(connection: apsw.Connection, digest: int, *, is_sealed: bool) -> None:
    """Make what was counted last beyond its events, added to what already does.

    Or have the next count replace it, when all events are held again.
    """
    for table in (ACTIVITY, TOOL_USE, COMMAND_USE):
        columns = ", ".join(column.name for column in table.columns if column.name not in ("digest", "is_sealed"))
        connection.execute(
            f"INSERT INTO {table.name} (digest, is_sealed, {columns})"
            f" SELECT digest, ?2, {columns} FROM {table.name} WHERE digest = ?1 AND is_sealed <> ?2"
            f" ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {table.adding}",
            (digest, is_sealed),
        )
        connection.execute(f"DELETE FROM {table.name} WHERE digest = ? AND is_sealed <> ?", (digest, is_sealed))
