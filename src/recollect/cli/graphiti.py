"""The command `graphiti`: what leaves the store for a graph database and a model of the user's."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from recollect.api import open_memory
from recollect.cli.filters import filter_options
from recollect.cli.output import emit, json_option, reports_errors
from recollect.cli.terminal import number, plural, shown_progress
from recollect.errors import UsageError
from recollect.knowledge.graphiti import EPISODES, FACTS, MODES
from recollect.recall import Filters
from recollect.text import money

if TYPE_CHECKING:
    from recollect.knowledge.graphiti import EpisodesPushed, FactsPushed, Forecast


@click.group()
def graphiti() -> None:
    """Push facts or exchanges into your Graphiti graph.

    The graph and the model are yours: see `[graphiti]` in the settings, and docs/graphiti.md.
    """


@graphiti.command()
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default=FACTS,
    show_default=True,
    help="Facts as they are, without a model; or exchanges as episodes, which your model reads.",
)
@click.option("--budget", metavar="TOKENS", type=click.IntRange(0), help="Let the model use at most this many tokens.")
@click.option("--dry-run", is_flag=True, help="Only show how many tokens episodes would take.")
@filter_options
@json_option
@reports_errors
def push(mode: str, budget: int | None, dry_run: bool, filters: Filters, as_json: bool) -> None:
    """Push facts or exchanges; what was pushed before is not pushed again.

    Only what the store holds is sent, with secrets already redacted. Safe to interrupt at any time.

    \b
    recollect graphiti push
    recollect graphiti push --mode episodes --dry-run
    recollect graphiti push --mode episodes --repo shop --budget 100000
    """
    if mode == FACTS and (dry_run or budget is not None):
        raise UsageError("Facts use no tokens: `--budget` and `--dry-run` are for episodes", f"add `--mode {EPISODES}`")
    with open_memory(create=False) as memory, shown_progress() as show:
        if mode == FACTS:
            emit(memory.graphiti.push_facts(filters), as_json, _facts_lines)
            return
        plan = memory.graphiti.plan(filters)
        if dry_run or not as_json:
            emit(plan.forecast, as_json, _forecast_lines)
        if not dry_run:
            emit(memory.graphiti.push_episodes(plan, budget=budget, progress=show), as_json, _episodes_lines)


def _facts_lines(pushed: "FactsPushed") -> Iterator[str]:
    yield f"{plural(pushed.facts, 'fact')} in the graph: {number(pushed.edges_written)} written, no model used"
    if pushed.edges_removed:
        yield f"Removed {plural(pushed.edges_removed, 'fact')} that are no longer valid here"


def _forecast_lines(forecast: "Forecast") -> Iterator[str]:
    waiting = f"{plural(forecast.exchanges, 'exchange')} of {plural(forecast.sessions, 'session')}"
    spent = "" if forecast.usd is None else f", {money(forecast.usd)} at list prices"
    yield f"Forecast: {waiting} to push, about {number(forecast.tokens)} tokens{spent}"
    if forecast.exchanges:
        yield f"  {number(forecast.tokens_per_exchange)} an exchange, {number(forecast.tokens_per_session)} a session"
    if forecast.tokens_per_month:
        rate = f"{number(forecast.tokens_per_day)} a day, {number(forecast.tokens_per_month)} a month"
        rate += "" if forecast.usd_per_month is None else f" ({money(forecast.usd_per_month)})"
        yield f"  at the pace of the last 30 days: {rate}"


def _episodes_lines(pushed: "EpisodesPushed") -> Iterator[str]:
    yield f"Pushed {plural(pushed.exchanges, 'exchange')} with {plural(pushed.calls, 'model call')}"
    of_each = f", {number(pushed.tokens_per_exchange)} an exchange" if pushed.exchanges else ""
    sums = f"{number(pushed.tokens_today)} today, {number(pushed.tokens_this_month)} this month"
    yield f"Used {number(pushed.tokens)} of {number(pushed.budget)} tokens{of_each}; {sums}"
    if pushed.is_budget_reached:
        yield f"Stopped before the budget was exceeded; left for next time: {plural(pushed.left, 'exchange')}"
    if pushed.failed:
        yield f"The model gave no usable answer for {plural(pushed.failed, 'exchange')}; the next push tries again"
    if pushed.removed:
        yield f"Removed {plural(pushed.removed, 'exchange')} of forgotten sessions"


COMMANDS = (graphiti,)
