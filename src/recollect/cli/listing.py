"""Sessions and what they add up to, as a person reads them: a line each."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import click

from recollect.cli.words import fitted, local_time, money, one_line, padded, plural, width
from recollect.config import terminal_columns
from recollect.schema import Session
from recollect.status import AgentTotals

_UNCUT = 10_000  # columns of a pipe: its reader decides what to leave out
_NARROW = 100
_ID_CHARS = 8


def line_columns() -> int:
    """The columns that a line of a list may take."""
    return terminal_columns(_UNCUT)


def session_lines(found: Sequence[Session]) -> Iterator[str]:
    """A line for each session, cut to the terminal; a sub-agent's title is marked."""
    columns = line_columns()
    names = short_ids(one_line(session.native_session_id) for session in found)
    repo_columns = 24 if columns >= _NARROW else 12
    cells = [_cells(session, names[one_line(session.native_session_id)], repo_columns) for session in found]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    room = max(20, columns - sum(widths) - 2 * len(widths))
    for session, row in zip(found, cells, strict=True):
        when, agent, name, repo = map(padded, row[:-1], widths[:-1])
        cost = row[-1].rjust(widths[-1])
        title = f"{'↳ ' if session.parent_session_uid else ''}{one_line(session.title or '–')}"
        yield "  ".join((_grey(when), agent, click.style(name, fg="yellow"), repo, _grey(cost), fitted(title, room)))


def _grey(text: str) -> str:
    return click.style(text, fg="bright_black")


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """The end of each id, as long as it must be to differ from the others'."""
    waiting, chars = set(ids), _ID_CHARS
    found: dict[str, str] = {}
    while waiting:
        having = Counter(name[-chars:] for name in waiting)
        found |= {name: name[-chars:] for name in waiting if having[name[-chars:]] == 1 or chars >= len(name)}
        waiting -= found.keys()
        chars += 1
    return found


def _cells(session: Session, name: str, repo_columns: int) -> tuple[str, str, str, str, str]:
    return (
        local_time(session.ended_at),
        session.agent,
        name,
        fitted(one_line((session.repo or "–").rsplit("/", 1)[-1]), repo_columns),
        money(session.cost.usd, session.cost.usd_is_estimate),
    )


def total_line(agent: AgentTotals) -> str:
    """What the store holds of one agent."""
    sub_agents = f" and {plural(agent.sub_agents, 'sub-agent')}" if agent.sub_agents else ""
    since = f", since {local_time(agent.started_at)[:10]}" if agent.started_at else ""
    return (
        f"{agent.agent:<8} {plural(agent.sessions - agent.sub_agents, 'session')}{sub_agents},"
        f" {plural(agent.events, 'event')}, {money(agent.usd, agent.usd_is_estimate)}{since}"
    )
