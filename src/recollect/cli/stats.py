"""The command `stats`: tables of tokens, cost, time and failures."""

import csv
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields, replace

import click

from recollect.cli.filters import filter_options
from recollect.cli.fresh import open_fresh
from recollect.cli.output import json_option, limit_option, print_json, reports_errors
from recollect.cli.terminal import (
    duration,
    fitted,
    grey,
    line_columns,
    money,
    number,
    one_line,
    padded,
    width,
)
from recollect.errors import UsageError
from recollect.recall import BREAKDOWNS, WEEKDAYS, Filters, StatLine, Stats
from recollect.schema import to_json

_SHADES = " ░▒▓█"
_LEAST_COLUMNS = 12  # of a name that is cut, however narrow the terminal is
_SHOWN_LINES = 30
_HEADS = ("sessions", "turns", "time", "tokens", "cached", "cost")
_MODEL_HEADS = ("sessions", "time", "tokens", "cached", "cost")
_USE_HEADS = ("uses", "failed", "rate", "sessions")


@click.command()
@click.option("--by", type=click.Choice(BREAKDOWNS), default="month", show_default=True, help="Group by this.")
@filter_options
@limit_option("lines", _SHOWN_LINES)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: all lines unless --limit is given.")
@json_option
@reports_errors
def stats(by: str, filters: Filters, limit: int | None, as_csv: bool, as_json: bool) -> None:
    """Total tokens, cost, time and failures by day, repo, model …

    Copies, forks and sub-agents are counted once. Prices with ~ are estimates.

    \b
    recollect stats --by repo --since 30d
    recollect stats --by command            how often each command fails
    """
    if as_csv and as_json:
        raise UsageError("Cannot use `--csv` and `--json` together", "choose one")
    with open_fresh() as memory:
        totals = memory.stats(by, filters)
    if as_csv:
        _print_csv(_top(totals, limit))
    elif as_json:
        print_json(to_json(replace(totals, lines=_top(totals, limit))))
    else:
        click.echo("\n".join(_lines(totals, limit or _SHOWN_LINES, is_filtered=any(filters))))


def _top(totals: Stats, limit: int | None) -> list[StatLine]:
    """The last periods, or the biggest of anything else."""
    is_period = totals.by in ("day", "week", "month")
    return totals.lines[-limit:] if limit and is_period else totals.lines[:limit]


def _print_csv(lines: list[StatLine]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    names = [field.name for field in fields(StatLine)]
    writer.writerow(names)
    for line in lines:
        values = asdict(line) | {"name": _no_formula(line.name or ""), "sample": _no_formula(line.sample or "")}
        writer.writerow(["" if values[name] is None else values[name] for name in names])


def _no_formula(text: str) -> str:
    """A text that a spreadsheet would take for a formula gets an apostrophe before it."""
    line = one_line(text)
    return f"'{line}" if line[:1] in ("=", "+", "-", "@") else line


def _lines(totals: Stats, limit: int, is_filtered: bool) -> Iterator[str]:
    """The table and the hours of the week."""
    is_use = totals.by in ("tool", "command")
    heads: tuple[str, ...] = _USE_HEADS if is_use else _HEADS
    lines = _top(totals, limit)
    cells = [_use_cells(line) if is_use else _cells(line) for line in (*lines, totals.total)]
    if totals.by == "model":  # a turn may use several models
        heads, cells = _MODEL_HEADS, [row[:1] + row[2:] for row in cells]
    names = [*(one_line(line.name or "–") for line in lines), "total"]
    samples = [*(line.sample or "" for line in lines), ""]
    yield from _table_lines(totals.by, heads, names, cells, samples)
    if not totals.lines:
        yield "No activity matches" if is_filtered else "Nothing yet: run `recollect sweep`"
    elif len(totals.lines) > len(lines):
        yield grey(f"{len(totals.lines) - len(lines)} more: --limit N")
    if not is_use and any(map(any, totals.heatmap)):
        yield from _heatmap_lines(totals.heatmap)


def _cells(line: StatLine) -> tuple[str, ...]:
    used = (line.input_tokens or 0) + (line.output_tokens or 0) + (line.cache_write_tokens or 0)
    return (
        number(line.sessions),
        number(line.turns or 0),
        duration(line.active_s or 0),
        number(used),
        number(line.cache_read_tokens or 0),
        money(line.usd, line.usd_is_estimate),
    )


def _use_cells(line: StatLine) -> tuple[str, ...]:
    rate = "–" if line.failure_rate is None else f"{line.failure_rate:.0%}"
    return number(line.uses or 0), number(line.failures or 0), rate, number(line.sessions)


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
    """A shade for each hour of the week, darkest for the busiest."""
    most = max(map(max, grid)) or 1
    yield grey("\n     0     6     12    18")
    for weekday, row in zip(WEEKDAYS, grid, strict=True):
        shades = "".join(_SHADES[-(-minutes * (len(_SHADES) - 1) // most)] for minutes in row)
        yield f"{weekday}  {shades}"


COMMANDS = (stats,)
