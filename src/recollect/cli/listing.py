"""Lists of sessions for people: a line each, in columns, cut to the terminal."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import click

from recollect.cli.terminal import (
    fitted,
    grey,
    line_columns,
    local_time,
    money,
    one_line,
    padded,
    plural,
    repo_name,
    short_ids,
    width,
)

if TYPE_CHECKING:
    from recollect.recall import FileVisit, Related, TimelineEntry
    from recollect.schema import Session

_NARROW = 100
_LEAST_TITLE = 20


class _Row(NamedTuple):
    """A session's line. A `remark` gets a line of its own if it does not fit."""

    when: str
    session: "Session | Related | TimelineEntry | FileVisit"
    title: str
    cost: str = ""
    remark: str = ""


def session_lines(sessions: "Sequence[Session]") -> Iterator[str]:
    """A line for each session; a sub-agent's title is marked."""
    return _lines(
        [
            _Row(
                local_time(session.ended_at),
                session,
                f"{'↳ ' if session.parent_session_uid else ''}{one_line(session.title or '–')}",
                cost=money(session.cost.usd, session.cost.usd_is_estimate),
            )
            for session in sessions
        ]
    )


def related_lines(sessions: "Sequence[Related]") -> Iterator[str]:
    yield from _lines([_row(local_time(other.started_at), other, one_line(other.why)) for other in sessions])
    if not sessions:
        yield "No related sessions"


def visit_lines(visits: "Sequence[FileVisit]") -> Iterator[str]:
    yield from _lines([_row(local_time(visit.last_at), visit, _visit_counts(visit)) for visit in visits])
    if not visits:
        yield "No session touched or discussed this path"


def _visit_counts(visit: "FileVisit") -> str:
    counts = (("edit", visit.edits), ("call", visit.calls), ("mention", visit.mentions))
    lines = f" +{visit.added} -{visit.removed}" if visit.added or visit.removed else ""
    evicted = " [digest only]" if visit.evicted else ""
    return ", ".join(plural(count, word) + lines * (word == "edit") for word, count in counts if count) + evicted


def timeline_lines(timeline: "Sequence[TimelineEntry]") -> Iterator[str]:
    for day, entries in groupby(timeline, key=lambda entry: local_time(entry.started_at)[:10]):
        yield click.style(f"── {day}", bold=True)
        yield from _lines([_row(local_time(entry.started_at)[11:], entry) for entry in entries])
    if not timeline:
        yield "No sessions in this period"


def _row(when: str, session: "Related | TimelineEntry | FileVisit", remark: str = "") -> _Row:
    return _Row(when, session, one_line(session.title or "–"), remark=remark)


def _lines(rows: Sequence[_Row]) -> Iterator[str]:
    columns = line_columns()
    repo_columns = 24 if columns >= _NARROW else 12
    names = short_ids(row.session.session_uid for row in rows)
    cells = [
        (
            row.when,
            row.session.agent,
            names[row.session.session_uid],
            fitted(repo_name(row.session.repo), repo_columns),
            row.cost,
        )
        for row in rows
    ]
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
