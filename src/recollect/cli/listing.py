"""Sessions and what they add up to, as a person reads them: a line each."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import click

from recollect.cli.output import grey, line_columns
from recollect.cli.words import fitted, local_time, money, one_line, padded, plural, repo_name, short_ids, width

if TYPE_CHECKING:
    from recollect.recall.related import Related, TimelineEntry
    from recollect.recall.trails import FileVisit
    from recollect.schema import Session
    from recollect.status import AgentTotals

_NARROW = 100
_LEAST_TITLE = 20


class _Row(NamedTuple):
    """A session's line. A `remark` has a line of its own if need be."""

    when: str
    of: "Session | Related | TimelineEntry | FileVisit"
    title: str
    cost: str = ""
    remark: str = ""


def session_lines(found: "Sequence[Session]") -> Iterator[str]:
    """A line for each session; a sub-agent's title is marked."""
    return _lines(
        [
            _Row(
                local_time(session.ended_at),
                session,
                f"{'↳ ' if session.parent_session_uid else ''}{one_line(session.title or '–')}",
                cost=money(session.cost.usd, session.cost.usd_is_estimate),
            )
            for session in found
        ]
    )


def related_lines(found: "Sequence[Related]") -> Iterator[str]:
    yield from _lines([_row(local_time(other.started_at), other, one_line(other.why)) for other in found])
    if not found:
        yield "No related sessions"


def visit_lines(found: "Sequence[FileVisit]") -> Iterator[str]:
    yield from _lines([_row(local_time(visit.last_at), visit, _visited(visit)) for visit in found])
    if not found:
        yield "No session touched or discussed that path"


def _visited(visit: "FileVisit") -> str:
    counts = (("edit", visit.edits), ("call", visit.calls), ("mention", visit.mentions))
    gone = " [digest only]" if visit.evicted else ""
    return ", ".join(plural(count, word) for word, count in counts if count) + gone


def timeline_lines(found: "Sequence[TimelineEntry]") -> Iterator[str]:
    for day, entries in groupby(found, key=lambda entry: local_time(entry.started_at)[:10]):
        yield click.style(f"── {day}", bold=True)
        yield from _lines([_row(local_time(entry.started_at)[11:], entry) for entry in entries])
    if not found:
        yield "No sessions in that time"


def _row(when: str, of: "Related | TimelineEntry | FileVisit", remark: str = "") -> _Row:
    return _Row(when, of, one_line(of.title or "–"), remark=remark)


def _lines(rows: Sequence[_Row]) -> Iterator[str]:
    """In columns, cut to the terminal."""
    columns = line_columns()
    names = short_ids(row.of.session_uid for row in rows)
    cells = [(row.when, row.of.agent, names[row.of.session_uid], _repo(row.of.repo, columns), row.cost) for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    room = max(_LEAST_TITLE, columns - sum(size + 2 for size in widths if size))
    for row, cell in zip(rows, cells, strict=True):
        when, agent, name, repo = map(padded, cell[:-1], widths[:-1])
        cost = f"  {grey(row.cost.rjust(widths[-1]))}" if row.cost else ""
        title = fitted(row.title, room)
        line = f"{grey(when)}  {agent}  {click.style(name, fg='yellow')}  {repo}{cost}  {title}"
        is_beside = bool(row.remark) and width(title) + 2 + width(row.remark) <= room
        yield f"{line}  {grey(row.remark)}" if is_beside else line
        if row.remark and not is_beside:
            indent = " " * (width(when) + 2)
            yield grey(indent + fitted(row.remark, columns - len(indent)))


def _repo(repo: str | None, columns: int) -> str:
    return fitted(repo_name(repo), 24 if columns >= _NARROW else 12)


def total_line(agent: "AgentTotals") -> str:
    """What the store holds of one agent."""
    sub_agents = f" and {plural(agent.sub_agents, 'sub-agent')}" if agent.sub_agents else ""
    since = f", since {local_time(agent.started_at)[:10]}" if agent.started_at else ""
    return (
        f"{agent.agent:<8} {plural(agent.sessions - agent.sub_agents, 'session')}{sub_agents},"
        f" {plural(agent.events, 'event')}, {money(agent.usd, agent.usd_is_estimate)}{since}"
    )
