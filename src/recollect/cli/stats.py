"""The commands `stats` and `statusline`: tables of tokens, cost, time and failures; a line for an agent's prompt."""

import csv
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime, timedelta

import click

from recollect.cli.options import filter_options, open_fresh
from recollect.cli.output import command, json_option, limit_option, print_json
from recollect.cli.statusline import clock, print_status_line
from recollect.cli.terminal import (
    duration,
    fitted,
    grey,
    line_columns,
    line_count,
    local_time,
    money,
    no_sessions,
    number,
    one_line,
    padded,
    short_ids,
    width,
)
from recollect.model.errors import UsageError
from recollect.model.schema import to_json
from recollect.recall import BREAKDOWNS, WEEKDAYS, Filters, Spending, StatLine, Stats

_SHADES = " ░▒▓█"
_LEAST_COLUMNS = 12  # of a name that is cut, however narrow the terminal is
_NAME_COLUMNS = 24  # of a name, for which others are left out
_SHOWN_LINES = 30
_LINES_AROUND = 5  # heading, total, how many more, the prompt
_USES = ("tool", "command")
_HEADS = ("sessions", "turns", "time", "input", "output", "cache read", "cache write", "sub-agents", "cost")
# What a narrow terminal does without, the first first; a column without any content is left out anywhere.
_DISPENSABLE = ("cache write", "turns", "sessions", "sub-agents", "time", "cache read", "input")
_USE_HEADS = ("uses", "failed", "rate", "sessions", "sub-agents")


@command()
@click.option("--by", type=click.Choice(BREAKDOWNS), default="month", show_default=True, help="Group by this.")
@filter_options
@click.option("--session", metavar="SESSION", help="Only this session, with its sub-agents.")
@limit_option("lines", _SHOWN_LINES, varies=True)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: all lines unless --limit is given.")
def stats(by: str, filters: Filters, session: str | None, limit: int | None, as_csv: bool, as_json: bool) -> None:
    """Total tokens, cost, time and failures by day, repo, model …

    Copies, forks and sub-agents are counted once. Prices with ~ are estimates, and + says that more was
    spent at a price that is not known. A block is a five-hour window, as agents' limits count. Without
    dates, compares this month with the last and adds a forecast.

    \b
    recollect stats --by repo --since 30d
    recollect stats --by session            the most expensive first
    recollect stats --by model --session 3f2a91
    recollect stats --by command            how often each command fails
    """
    if as_csv and as_json:
        raise UsageError("Cannot use `--csv` and `--json` together", "choose one")
    with open_fresh() as memory:
        chosen = None if session is None else memory.session(session)
        totals = memory.stats(by, filters, session=chosen)
        has_dates = filters.since or filters.before
        spending = None if has_dates or session or as_csv else memory.spending(filters)
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        names = [field.name for field in fields(StatLine)]
        writer.writerow(names)
        for line in _top(totals, limit):
            values = asdict(line) | {"name": _no_formula(line.name or ""), "sample": _no_formula(line.sample or "")}
            writer.writerow(["" if values[name] is None else values[name] for name in names])
    elif as_json:
        document = to_json(replace(totals, lines=_top(totals, limit)))
        print_json(document | {"spending": None if spending is None else to_json(spending)})
    else:
        shown = min(_SHOWN_LINES, max(1, line_count() - _LINES_AROUND)) if by in _USES else _SHOWN_LINES
        shown_lines = [*_lines(totals, limit or shown, is_filtered=any((session, *filters))), *map(grey, totals.notes)]
        if session is not None and totals.total.usd is not None:
            shown_lines += ["", f"Cost: {totals.total.cost_in_words}"]
        if spending is not None and spending.forecast_usd and by in ("day", "month", "block"):
            shown_lines += _spending_lines(spending)
        if by in ("day", "week", "month") and session is None:
            shown_lines += _heatmap_lines(totals.heatmap)
        click.echo("\n".join(shown_lines))


def _top(totals: Stats, limit: int | None) -> list[StatLine]:
    """The last periods, or the biggest of anything else."""
    is_period = totals.by in ("day", "week", "month", "block")
    return totals.lines[-limit:] if limit and is_period else totals.lines[:limit]


def _no_formula(text: str) -> str:
    """A text that a spreadsheet would take for a formula gets an apostrophe before it."""
    line = one_line(text)
    return f"'{line}" if line[:1] in ("=", "+", "-", "@") else line


def _lines(totals: Stats, limit: int, is_filtered: bool) -> Iterator[str]:
    if not totals.lines:
        yield "No activity matches" if is_filtered else no_sessions()
        return
    is_use = totals.by in _USES
    lines = _top(totals, limit)
    names = [*_names(totals.by, lines), "total"]
    heads: tuple[str, ...] = _USE_HEADS
    cells = [_cells(line, is_use) for line in (*lines, totals.total)]
    if is_use and not any(line.sub_agents for line in lines):
        heads, cells = heads[:-1], [row[:-1] for row in cells]
    if not is_use:
        heads, cells = _narrowed(cells, totals.by, min(_NAME_COLUMNS, max(map(width, names))))
    samples = [*(line.sample or "" for line in lines), ""]
    yield from _table_lines(totals.by, heads, names, cells, samples)
    if len(totals.lines) > len(lines):
        yield grey(f"{len(totals.lines) - len(lines)} more: --limit N")


def _names(by: str, lines: list[StatLine]) -> list[str]:
    """What lines are about; a session by its id and title."""
    if by != "session":
        return [one_line(line.name or "–") for line in lines]
    ids = short_ids(line.name or "" for line in lines)
    return [f"{ids[line.name or '']}  {one_line(line.title or '–')}" for line in lines]


def _cells(line: StatLine, is_use: bool) -> tuple[str, ...]:
    if is_use:
        rate = "–" if line.failure_rate is None else f"{line.failure_rate:.0%}"
        return number(line.uses or 0), number(line.failures or 0), rate, number(line.sessions), number(line.sub_agents)
    is_estimate = line.usd_is_estimate
    return (
        number(line.sessions) if line.sessions else "",
        "" if line.turns is None else number(line.turns),
        duration(line.active_s or 0),
        _short(line.input_tokens),
        _short(line.output_tokens),
        _short(line.cache_read_tokens),
        _short(line.cache_write_tokens),
        f"{money(line.sub_agents_usd, is_estimate)} in {line.sub_agents}" if line.sub_agents_usd else "",
        money(line.usd, is_estimate, line.usd_is_incomplete),
    )


def _short(count: int | None) -> str:
    """A number of tokens in at most five characters."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count and count >= size:
            return f"{count / size:.1f}{unit}" if count < 100 * size else f"{count / size:.0f}{unit}"
    return str(count or 0)


def _narrowed(
    cells: list[tuple[str, ...]], by: str, name_columns: int
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and cells of the columns that say something and fit the terminal."""
    columns = dict(zip(_HEADS, zip(*cells, strict=True), strict=True))
    if len(cells) > 1:  # beside the total
        columns = {head: column for head, column in columns.items() if any(column[:-1])}
    if by == "session":
        columns.pop("sessions", None)  # one on each line
    for head in _DISPENSABLE:
        widths = [max(map(len, (name, *column))) + 2 for name, column in columns.items()]
        if sum(widths) + name_columns <= line_columns():
            break
        columns.pop(head, None)
    return tuple(columns), list(zip(*columns.values(), strict=True))


def _spending_lines(spending: Spending) -> Iterator[str]:
    """This month against the last, where it leads, and the blocks that run now."""
    month = datetime.strptime(spending.month, "%Y-%m")
    last = f"{month - timedelta(days=1):%B}"
    so_far, by_now, is_estimate = spending.month_usd, spending.last_month_by_now_usd, spending.usd_is_estimate
    change = f", {abs(so_far / by_now - 1):.0%} {'more' if so_far >= by_now else 'less'}" if by_now else ""
    yield f"\n{month:%B} so far: {money(so_far, is_estimate, spending.usd_is_incomplete)}{change}"
    yield f"{last}: {money(by_now, is_estimate)} by this day, {money(spending.last_month_usd, is_estimate)} in total"
    forecast = money(spending.forecast_usd, True, spending.forecast_usd_is_incomplete)
    yield f"{month:%B} at the pace of the last 30 days: {forecast}"
    for block in spending.blocks:
        left = datetime.fromisoformat(block.ends_at) - datetime.now(UTC)
        rate = "" if block.forecast_usd is None else f", {money(block.forecast_usd, True)} at this rate"
        since = local_time(block.started_at)[-5:]
        yield f"{block.agent} since {since}: {money(block.usd, is_estimate)}, {clock(left.seconds)} left{rate}"


def _table_lines(
    by: str, heads: tuple[str, ...], names: list[str], cells: list[tuple[str, ...]], samples: list[str]
) -> Iterator[str]:
    """A line for each name, the names cut to the terminal; what it said when it failed fills the rest of the line."""
    widths = [max(len(head), *(len(row[index]) for row in cells)) for index, head in enumerate(heads)]
    room = max(_LEAST_COLUMNS, line_columns() - sum(widths) - 2 * len(widths))
    names = [fitted(name, room) for name in names]
    first = max(map(width, [by, *names]))
    head = "  ".join(map(str.rjust, heads, widths))
    room -= first + 2
    has_samples = any(samples) and room >= _LEAST_COLUMNS
    yield grey(f"{padded(by, first)}  {head}" + ("  last failure" if has_samples else ""))
    for name, row, sample in zip(names, cells, samples, strict=True):
        line = f"{padded(name, first)}  " + "  ".join(map(str.rjust, row, widths))
        yield f"{line}  {grey(fitted(one_line(sample), room))}" if sample and has_samples else line


def _heatmap_lines(grid: list[list[int]]) -> Iterator[str]:
    """A shade for each hour of the week, darkest for the busiest; nothing if there was no activity."""
    most = max(map(max, grid))
    if not most:
        return
    yield grey("\nActivity by weekday and hour\n     0     6     12    18")
    for weekday, row in zip(WEEKDAYS, grid, strict=True):
        shades = "".join(_SHADES[-(-minutes * (len(_SHADES) - 1) // most)] for minutes in row)
        yield f"{weekday}  {shades}"


@click.command()
@json_option
def statusline(as_json: bool) -> None:
    """Print costs for the status bar of an agent.

    An agent runs it as its status line command and writes JSON to its standard input; docs/stats.md has the setting.
    Shows what the last sweep knew, with the agent's own figure for the running session. Never fails.
    """
    print_status_line(as_json=as_json)
