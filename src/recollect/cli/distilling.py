"""The commands that show what outlives raw: digest, exchanges, signals, stats."""

import sys
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.output import (
    Renamed,
    agent_option,
    json_option,
    limit_option,
    line_columns,
    print_json,
    repo_option,
    reports_errors,
)
from recollect.cli.retaining import note_evicted, print_evicted
from recollect.cli.words import (
    duration,
    fitted,
    local_time,
    moment_ms,
    money,
    number,
    one_line,
    padded,
    printable,
    short_ids,
)
from recollect.cli.words import width as columns_of
from recollect.errors import UsageError
from recollect.kinds import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recollect.schema import Signal
    from recollect.stats import StatLine, Stats

_SHADES = " ░▒▓█"
_TIME_COLUMNS = 16
_SIGNAL_COLUMNS = max(map(len, SIGNALS))
_LEAST_COLUMNS = 12  # of a text that is cut, however narrow the terminal is
_SHOWN_LINES = 30
_HEADS = ("sessions", "turns", "time", "tokens", "cached", "cost")
_MODEL_HEADS = ("sessions", "time", "tokens", "cached", "cost")
_USE_HEADS = ("uses", "failed", "rate", "sessions")
_BREAKDOWNS = ("day", "week", "month", "repo", "model", "agent", "tool", "command")


@click.command()
@click.argument("session")
@json_option
@reports_errors
def digest(session: str, as_json: bool) -> None:
    """Show what a session was about: asked, done, decided, left open.

    SESSION is an id, the beginning or end of one (6 characters or more), or a title. The output is Markdown.

    \b
    recollect digest 3f2a91c4
    """
    from recollect.memory import open_memory
    from recollect.schema import as_json as to_json

    with open_memory(create=False) as memory:
        found = memory.digest(memory.session(session))
        if as_json:
            print_json(to_json(found))
            return
    from recollect.distill.markdown import render

    click.echo(printable(render(found, None)), nl=False)


@click.command()
@click.argument("session")
@json_option
@reports_errors
def exchanges(session: str, as_json: bool) -> None:
    """Print a session request by request, without the bulk.

    What was said is there in full; a call is its name and arguments with one line of what came back.
    """
    from recollect.memory import open_memory

    with open_memory(create=False) as memory:
        chosen = memory.session(session)
        found = memory.exchanges(chosen)
        if not as_json:
            print_evicted(memory, chosen)
    if as_json:
        note_evicted(chosen)
        print_json([asdict(exchange) for exchange in found])
        return
    for exchange in found:
        part = f" part {exchange.part} of {exchange.parts}" if exchange.parts > 1 else ""
        marks = " copy" * exchange.is_copy + " rewound" * exchange.is_abandoned
        of_raw = f" of {number(exchange.raw_tokens)}" if exchange.tokens < exchange.raw_tokens else ""
        head = f"── {exchange.number}{part}{marks} · {number(exchange.tokens)}{of_raw} tokens"
        click.echo(click.style(head, fg="bright_black"))
        click.echo(printable(exchange.body))
    if not found and chosen.evicted_at is None:
        click.echo("No exchanges: nothing was asked or said")


@click.command()
@click.argument("session", required=False)
@click.option("--signal", type=click.Choice(SIGNALS), help="Only signals of this sort.")
@click.option("--since", metavar="WHEN", help="Since: 2026-11-01, 7d, 2h, today, yesterday.")
@json_option
@reports_errors
def signals(session: str | None, signal: str | None, since: str | None, as_json: bool) -> None:
    """List what is worth noticing: loops, repeated errors, corrections."""
    from recollect.memory import open_memory
    from recollect.schema import as_json as to_json

    with open_memory(create=False) as memory:
        chosen = memory.session(session) if session else None
        found = memory.signals(chosen, signal=signal, since_ms=moment_ms("--since", since))
    if as_json:
        print_json([to_json(one) for one in found])
        return
    for line in _signal_lines(found, with_session=chosen is None):
        click.echo(line)
    if not found:
        click.echo("No signals")


def _signal_lines(found: "Sequence[Signal]", *, with_session: bool) -> "Iterator[str]":
    """A line for each signal, cut to the terminal; its session by the end of the id."""
    columns = line_columns()
    names = short_ids(one.session_uid for one in found) if with_session else {}
    id_columns = max(map(columns_of, names.values()), default=0)
    for one in found:
        when, count = f"{local_time(one.ts):<{_TIME_COLUMNS}}", f" ({number(one.count)})"
        place = f"{padded(names[one.session_uid], id_columns)}  " if with_session else ""
        room = columns - _TIME_COLUMNS - 2 - _SIGNAL_COLUMNS - 1 - columns_of(place) - len(count)
        name = click.style(f"{one.signal:<{_SIGNAL_COLUMNS}}", fg="yellow")
        yield f"{when}  {name} {place}{fitted(one_line(one.detail), max(_LEAST_COLUMNS, room))}{count}"


@click.command()
@click.option("--by", type=click.Choice(_BREAKDOWNS), default="month", show_default=True, help="Break down by this.")
@click.option("--since", metavar="WHEN", help="Only what happened since: 2026-11-01, 7d, 2h, today, yesterday.")
@click.option("--before", "--until", "before", cls=Renamed, metavar="WHEN", help="Only what happened before.")
@agent_option
@repo_option
@limit_option("lines", _SHOWN_LINES)
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, all lines unless --limit is given.")
@json_option
@reports_errors
def stats(
    by: str, since: str | None, before: str | None, limit: int | None, as_csv: bool, as_json: bool, **wanted: Any
) -> None:
    """Tokens, money, time and failures, by day, repo, model or tool.

    Copies, forks and sub-agents are counted once. Prices with ~ are estimates.

    \b
    recollect stats --by repo --since 30d
    recollect stats --by command            how often each command fails
    """
    from recollect.memory import open_memory

    if as_csv and as_json:
        raise UsageError("`--csv` and `--json` are two ways to print", "give one of them")
    since_ms, before_ms = moment_ms("--since", since), moment_ms("--before", before)
    with open_memory(create=False) as memory:
        found = memory.stats(by, since_ms=since_ms, before_ms=before_ms, **wanted)
    if as_json:
        print_json(asdict(replace(found, lines=_most(found, limit))))
    elif as_csv:
        _print_csv(_most(found, limit))
    else:
        is_chosen = any((since, before, *wanted.values()))
        _print_stats(found, limit or _SHOWN_LINES, is_chosen)


def _most(found: "Stats", limit: int | None) -> "list[StatLine]":
    """The last periods, or the biggest others."""
    is_period = found.by in ("day", "week", "month")
    return found.lines[-limit:] if limit and is_period else found.lines[:limit]


def _print_csv(lines: "list[StatLine]") -> None:
    """Names that a spreadsheet would take for a formula begin with an apostrophe."""
    import csv

    from recollect.stats import StatLine

    writer = csv.writer(sys.stdout, lineterminator="\n")
    names = [field.name for field in fields(StatLine)]
    writer.writerow(names)
    for line in lines:
        values = asdict(line)
        name = one_line(line.name or "")
        values["name"] = f"'{name}" if name[:1] in ("=", "+", "-", "@") else name
        writer.writerow(["" if values[name] is None else values[name] for name in names])


def _print_stats(found: "Stats", limit: int, is_chosen: bool) -> None:
    """The table and the hours of the week; `is_chosen` if only a part of all was asked for."""
    is_use = found.by in ("tool", "command")
    heads: tuple[str, ...] = _USE_HEADS if is_use else _HEADS
    lines = _most(found, limit)
    cells = [_use_cells(line) if is_use else _cells(line) for line in (*lines, found.total)]
    if found.by == "model":  # turns are not a model's
        heads, cells = _MODEL_HEADS, [row[:1] + row[2:] for row in cells]
    _print_table(found.by, heads, [*(one_line(line.name or "–") for line in lines), "total"], cells)
    if not found.lines:
        click.echo("Nothing fits" if is_chosen else "Nothing yet: `recollect sweep` counts")
    elif len(found.lines) > len(lines):
        click.echo(click.style(f"{len(found.lines) - len(lines)} more: --limit N", fg="bright_black"))
    if not is_use and any(map(any, found.heatmap)):
        _print_heatmap(found.heatmap)


def _cells(line: "StatLine") -> tuple[str, ...]:
    used = (line.input_tokens or 0) + (line.output_tokens or 0) + (line.cache_write_tokens or 0)
    return (
        number(line.sessions),
        number(line.turns or 0),
        duration(line.active_s or 0),
        number(used),
        number(line.cache_read_tokens or 0),
        money(line.usd, line.usd_is_estimate),
    )


def _use_cells(line: "StatLine") -> tuple[str, ...]:
    rate = "–" if line.failure_rate is None else f"{line.failure_rate:.0%}"
    return number(line.uses or 0), number(line.failures or 0), rate, number(line.sessions)


def _print_table(by: str, heads: tuple[str, ...], names: list[str], cells: list[tuple[str, ...]]) -> None:
    """A line for each name, the names cut to the terminal."""
    widths = [max(len(head), *(len(row[index]) for row in cells)) for index, head in enumerate(heads)]
    room = max(_LEAST_COLUMNS, line_columns() - sum(widths) - 2 * len(widths))
    names = [fitted(name, room) for name in names]
    first = max(map(columns_of, [by, *names]))
    head = "  ".join(head.rjust(size) for head, size in zip(heads, widths, strict=True))
    click.echo(click.style(f"{padded(by, first)}  {head}", fg="bright_black"))
    for name, row in zip(names, cells, strict=True):
        click.echo(
            f"{padded(name, first)}  " + "  ".join(cell.rjust(size) for cell, size in zip(row, widths, strict=True))
        )


def _print_heatmap(grid: list[list[int]]) -> None:
    """A shade for each hour of the week, the darkest for the busiest."""
    from recollect.stats import WEEKDAYS

    most = max(map(max, grid)) or 1
    click.echo(click.style("\n     0     6     12    18", fg="bright_black"))
    for weekday, row in zip(WEEKDAYS, grid, strict=True):
        shades = "".join(_SHADES[-(-minutes * (len(_SHADES) - 1) // most)] for minutes in row)
        click.echo(f"{weekday}  {shades}")


COMMANDS = (digest, exchanges, signals, stats)
