"""Tier 2: what sessions add up to by minute, model, tool and command. Statistics read only this, never events.

By minute, so that days can be summed up in any time zone, and from any moment to any other. A row of `span` minutes
was counted by an older version, by hours or days, and its events are gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.store.sqlite.database import Database
from recollect.store.tables.sessions import ANY_SESSION, OF_DIGESTS, SessionFilter, session_conditions
from recollect.store.tables.table import BY_DIGEST, MEMORY, TOKENS, Table, column

ACTIVITY = Table(
    "activity",
    MEMORY,
    (
        *column.numbers("digest", "is_sealed", "minute"),
        *column.names("model"),
        *column.numbers(*TOKENS),
        *column.reals("usd?"),
        *column.numbers("active_ms", "turns"),
        column.count("span", 1),
    ),
    owner=BY_DIGEST,
    key=("digest", "is_sealed", "minute", "model"),
    is_exported=True,
    sums=(*TOKENS, "usd", "active_ms", "turns"),
    extras=("CREATE INDEX activity_by_minute ON activity (minute)",),
)


def _use(table: str) -> Table:
    """How often tools, or commands, were used in a minute, and which event says what the last failure of a day was."""
    counts = ("uses", "failures", "refusals")
    return Table(
        table,
        MEMORY,
        (
            *column.numbers("digest", "is_sealed", "minute"),
            *column.names("name"),
            *column.texts("sample"),
            *column.numbers(*counts),
            *column.plain("event?"),
            column.count("span", 1),
        ),
        owner=BY_DIGEST,
        key=("digest", "is_sealed", "minute", "name"),
        is_exported=True,
        sums=counts,
    )


TOOL_USE = _use("tool_use")
COMMAND_USE = _use("command_use")


class ActivityRow(NamedTuple):
    """A minute of a session and a model: `model` is empty where none answered."""

    minute: int
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
    """A minute of a tool or of a family of commands in a session."""

    minute: int
    name: str
    sample: str  # of what it says when it fails
    uses: int
    failures: int
    refusals: int
    event: str | None = None  # that says it


class StatRow(NamedTuple):
    """A line of the statistics; what a breakdown does not know is None."""

    name: str | None
    sessions: int = 0
    sub_agents: int = 0
    turns: int | None = None
    active_ms: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    usd: float | None = None
    usd_is_estimate: int = 0
    uses: int | None = None
    failures: int | None = None
    refusals: int | None = None
    sample: str | None = None  # what the last failure said
    sample_session_uid: str | None = None
    sample_event_uid: str | None = None
    sub_agents_usd: float | None = None
    title: str | None = None


class SpentRow(NamedTuple):
    """What an agent's sessions cost in a quarter of an hour."""

    agent: str
    minute: int  # with which it begins
    usd: float
    is_estimate: int


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of the activity: of which sessions, and of which time in milliseconds."""

    sessions: SessionFilter = ANY_SESSION
    since_ms: int | None = None
    before_ms: int | None = None


_LOCAL = "iif(a.minute < 0, NULL, strftime('{format}', a.minute * 60, 'unixepoch', 'localtime'))"
_PERIODS = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}
# What a line is named by: something of the session, or of its minutes.
_OF_SESSION = {"repo": "s.repo", "agent": "s.agent", "session": "s.root_session_uid", "total": "'total'"}
_PARTS = {
    **{name: _LOCAL.format(format=form) for name, form in _PERIODS.items()},
    "model": "nullif(a.model, '')",
    "block": "strftime('%Y-%m-%d %H:%M', b.hour * 3600, 'unixepoch', 'localtime') || ' ' || b.agent",
}
_SUMMED = ("active_ms", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "usd")
_UNPRICED = f"max(a.usd IS NULL AND {' + '.join(f'a.{name}' for name in TOKENS)} > 0)"
# An hour's work, split over the models that answered in it by how much they wrote.
_HOURS = (
    "WITH hours AS MATERIALIZED (SELECT a.digest, a.minute / 60 AS hour, sum(a.active_ms) AS active_ms,"
    " sum(iif(a.model = '', 0, a.output_tokens)) AS output_tokens FROM activity a{where} GROUP BY 1, 2) ",
    " JOIN hours h ON h.digest = a.digest AND h.hour = a.minute / 60",
)
_WORK_OF_MODEL = "h.active_ms * a.output_tokens / nullif(h.output_tokens, 0)"
_TITLE = "(SELECT r.title FROM sessions r WHERE r.session_uid = s.root_session_uid)"
BLOCK_HOURS = 5
_BLOCKS = (
    "WITH blocks (agent, hour) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(?)) ",
    " JOIN digests d ON d.id = a.digest"
    f" JOIN blocks b ON b.agent = d.agent AND a.minute / 60 BETWEEN b.hour AND b.hour + {BLOCK_HOURS - 1}",
)
_USES = {"tool": "tool_use", "command": "command_use"}
_IS_SUB_AGENT = "s.session_class = 'sub-agent'"
_IS_NOBODYS = "s.session_class IN ('sub-agent', 'warm-up')"  # no session that somebody began
_MINUTE_MS = 60_000
_DAY_MINUTES = 24 * 60  # the longest span of a row
_QUARTER = 15  # minutes, by which all time zones differ


class Activity:
    """The aggregates of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def stats(self, by: str, span: Span) -> list[StatRow]:
        """Sums by period, block, session, repo, model, agent, tool or command; times are in the user's own zone."""
        return self._uses(_USES[by], span) if by in _USES else self._activity(by, span)

    def _activity(self, by: str, span: Span) -> list[StatRow]:
        where, bindings = _where(span)
        turns, work = f"sum(iif({_IS_NOBODYS}, 0, a.turns))", "a.active_ms"
        begin, join = ("", "")
        if by == "model":  # a request is not made to one of them
            begin, join = _HOURS[0].format(where=where), _HOURS[1]
            where, turns, work = f"{where} AND a.model <> ''", "NULL", _WORK_OF_MODEL
            bindings = bindings * 2
        if by == "block":
            (begin, join), bindings = _BLOCKS, [orjson.dumps(self.blocks()).decode(), *bindings]
        columns = {
            "name": _OF_SESSION.get(by, "a.part"),
            "sessions": f"count(iif({_IS_NOBODYS}, NULL, 1))",
            "sub_agents": f"count(iif({_IS_SUB_AGENT}, 1, NULL))",
            "turns": turns,
            **{name: f"sum(a.{name})" for name in _SUMMED},
            "usd_is_estimate": "max(iif(a.unpriced, s.usd_is_estimate, a.usd IS NOT NULL AND s.usd_is_estimate))",
            "sub_agents_usd": f"sum(iif({_IS_SUB_AGENT}, a.usd, NULL))",
            "title": _TITLE if by == "session" else "NULL",
        }
        # Summed up by session first: what is said of a session is then looked up once, not for each of its minutes. The
        # rows are kept in the order of sessions, so that nothing is sorted unless there are parts.
        sums = ", ".join(f"sum({work if name == 'active_ms' else f'a.{name}'}) AS {name}" for name in _SUMMED)
        rows = self._database.rows(
            f"{begin}SELECT {_listed(columns)}"
            f" FROM (SELECT a.digest, {_PARTS.get(by, 'NULL')} AS part, sum(a.turns) AS turns, {sums},"
            f" {_UNPRICED} AS unpriced FROM activity a{join}{where} GROUP BY {'1, 2' if by in _PARTS else '1'}) a"
            f" {_JOIN.format(table='a')} GROUP BY 1"
            f" ORDER BY {'1' if by in _PERIODS or by == 'block' else 'sum(a.usd) DESC, 1'}",
            bindings,
        )
        return [StatRow(**dict(zip(columns, row, strict=True))) for row in rows]

    def blocks(self) -> list[tuple[str, int]]:
        """(agent, first hour) of each block of hours: the limits of an agent count whatever it works on."""
        hours: dict[str, list[int]] = {}
        for name, hour in self._database.rows(
            "SELECT DISTINCT d.agent, a.minute / 60 FROM activity a JOIN digests d ON d.id = a.digest"
            " WHERE a.minute >= 0"
            " ORDER BY 2"
        ):
            begun = hours.setdefault(name, [])
            if not begun or hour >= begun[-1] + BLOCK_HOURS:
                begun.append(hour)
        return [(name, hour) for name, begun in hours.items() for hour in begun]

    def spent(self, span: Span) -> list[SpentRow]:
        """Money by agent and quarter of an hour, the oldest first."""
        where, bindings = _where(span)
        return self._database.read(
            SpentRow,
            f"SELECT s.agent, a.minute - a.minute % {_QUARTER}, total(a.usd), max(s.usd_is_estimate)"
            f" FROM activity a {_JOIN.format(table='a')}{where} AND a.minute >= 0"
            " AND (a.usd IS NOT NULL OR s.usd_is_estimate > 1) GROUP BY 1, 2 ORDER BY 2, 1",
            bindings,
        )

    def unpriced_models(self) -> list[str]:
        """Return the models whose price is not known, of sessions whose agent says nothing of it either."""
        used = " + ".join(f"a.{name}" for name in TOKENS)
        rows = self._database.rows(
            f"SELECT DISTINCT a.model FROM activity a {_JOIN.format(table='a')}"
            f" WHERE s.usd_is_estimate > 1 AND a.usd IS NULL AND {used} > 0 ORDER BY 1"
        )
        return [model for (model,) in rows]

    def first_minute(self, sessions: SessionFilter = ANY_SESSION) -> int | None:
        """Return the first minute of any activity of these sessions."""
        where, bindings = _where(Span(sessions))
        rows = self._database.rows(
            f"SELECT a.minute FROM activity a{where} AND a.minute >= 0 ORDER BY a.minute LIMIT 1", bindings
        )
        return rows[0][0] if rows else None

    def money_of_active(self, since_ms: int) -> dict[str, float]:
        """Return what sessions active since then have cost with their sub-agents, by native id of the root."""
        rows = self._database.rows(
            "SELECT r.native_session_id, sum(s.usd) FROM sessions s JOIN sessions r ON r.session_uid ="
            " s.root_session_uid WHERE s.root_session_uid IN (SELECT root_session_uid FROM sessions"
            " WHERE updated_ms >= ?) GROUP BY 1 HAVING sum(s.usd) IS NOT NULL",
            (since_ms,),
        )
        return dict(rows)

    def _uses(self, table: str, span: Span) -> list[StatRow]:
        where, bindings = _where(span)
        last = "printf('%012d%-32s', a.minute + 1, coalesce(a.event, '')) || s.session_uid || char(10) || a.sample"
        columns = {
            "name": "a.name",
            "sessions": f"count(DISTINCT iif({_IS_NOBODYS}, NULL, d.id))",
            "sub_agents": f"count(DISTINCT iif({_IS_SUB_AGENT}, d.id, NULL))",
            **{name: f"sum(a.{name})" for name in ("uses", "failures", "refusals")},
        }
        rows = self._database.rows(
            f"SELECT {_listed(columns)}, max(iif(a.sample = '', '', {last}))"
            f" FROM {table} a {_JOIN.format(table='a')}{where} GROUP BY 1 ORDER BY 5 DESC, 4 DESC, 1",
            bindings,
        )
        return [StatRow(**dict(zip(columns, row, strict=True)), **_last_failure(last)) for *row, last in rows]

    def blurred(self, by: str, span: Span) -> int:
        """Of how many sessions it is not known which side of a limit a part of these figures is on."""
        table = _USES.get(by, "activity")
        where, bindings = _where(span)
        tests = []
        for moment_ms in (span.since_ms, span.before_ms):
            if moment_ms is not None:
                tests.append(f"(a.minute * {_MINUTE_MS} < ? AND (a.minute + a.span) * {_MINUTE_MS} > ?)")
                bindings += [moment_ms, moment_ms]
        if by in _PERIODS:  # in a zone whose days do not begin with an hour
            tests.append("strftime('%M', a.minute * 60, 'unixepoch', 'localtime') <> '00'")
        sql = f"SELECT count(DISTINCT a.digest) FROM {table} a{where} AND a.span > 1 AND ({' OR '.join(tests)})"
        return int(self._database.value(sql, bindings)) if tests else 0

    def heatmap(self, span: Span) -> list[tuple[int, int, int]]:
        """(weekday from 0 = Sunday, hour, milliseconds of work), in the user's own time zone."""
        where, bindings = _where(span)
        local = "a.quarter * 900, 'unixepoch', 'localtime'"
        return self._database.rows(
            f"SELECT CAST(strftime('%w', {local}) AS INTEGER), CAST(strftime('%H', {local}) AS INTEGER),"
            f" sum(a.active_ms) FROM (SELECT a.minute / {_QUARTER} AS quarter, sum(a.active_ms) AS active_ms"
            f" FROM activity a{where} AND a.active_ms > 0 GROUP BY 1) a GROUP BY 1, 2",
            bindings,
        )


_JOIN = (
    "JOIN digests d ON d.id = {table}.digest"
    " JOIN sessions s ON s.agent = d.agent AND s.native_session_id = d.native_session_id"
)


def _where(span: Span) -> tuple[str, list[Any]]:
    of_sessions, bindings = session_conditions(span.sessions)
    tests = [f"a.{OF_DIGESTS.format(of_sessions)}" if bindings else "1"]
    if span.since_ms is not None:
        minute = span.since_ms // _MINUTE_MS
        tests.append("a.minute > ? AND a.minute + a.span > ?")
        bindings += [max(-1, minute - _DAY_MINUTES), minute]
    if span.before_ms is not None:
        tests.append("a.minute < ?")
        bindings.append(-(-span.before_ms // _MINUTE_MS))
    return f" WHERE {' AND '.join(tests)}", bindings


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{expression} AS {name}" for name, expression in columns.items())


def _last_failure(packed: str) -> dict[str, Any]:
    """Return what the latest of several failures said, in which session and event."""
    session_uid, _, sample = packed[44:].partition("\n")
    return {
        "sample": sample or None,
        "sample_session_uid": session_uid or None,
        "sample_event_uid": packed[12:44].strip() or None,
    }


_PARTS_OF_DIGEST = ((ACTIVITY, ActivityRow._fields), (TOOL_USE, UseRow._fields), (COMMAND_USE, UseRow._fields))


def put_activity(connection: apsw.Connection, digest: int, *parts: Sequence[ActivityRow] | Sequence[UseRow]) -> None:
    """Write the activity of a session's held events by minute, by tool and by command."""
    for (table, names), rows in zip(_PARTS_OF_DIGEST, parts, strict=True):
        marks = ", ".join("?" * len(names))
        connection.executemany(
            f"INSERT INTO {table.name} (digest, is_sealed, {', '.join(names)}) VALUES (?, 0, {marks})",
            [(digest, *row) for row in rows],
        )


def drop_activity(connection: apsw.Connection, digest: int) -> None:
    """Delete what was counted of a session's held events."""
    for table, _ in _PARTS_OF_DIGEST:
        connection.execute(f"DELETE FROM {table.name} WHERE digest = ? AND NOT is_sealed", (digest,))


def seal_activity(connection: apsw.Connection, digest: int, *, is_sealed: bool) -> None:
    """Make what was counted last beyond its events, added to what already does.

    Or have the next count replace it, when all events are held again.
    """
    for table, _ in _PARTS_OF_DIGEST:
        columns = ", ".join(column.name for column in table.columns if column.name not in ("digest", "is_sealed"))
        connection.execute(
            f"INSERT INTO {table.name} (digest, is_sealed, {columns})"
            f" SELECT digest, ?2, {columns} FROM {table.name} WHERE digest = ?1 AND is_sealed <> ?2"
            f" ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {table.adding}",
            (digest, is_sealed),
        )
        connection.execute(f"DELETE FROM {table.name} WHERE digest = ? AND is_sealed <> ?", (digest, is_sealed))


# What a row was counted by in older versions, and how many minutes that is.
OLD_SPANS = {"hour": 60, "day": _DAY_MINUTES}


def renewed(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row of any of these tables as it is kept now, although an older version exported it."""
    for old, span in OLD_SPANS.items():
        if old in values:
            return values | {"minute": max(-1, values[old] * span), "span": span}
    return values
