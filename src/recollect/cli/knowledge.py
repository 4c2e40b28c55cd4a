"""Commands below `knowledge`: what was learned, how reliable it is, and where else it may go."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import click

from recollect.api import open_memory
from recollect.cli.answers import detail, fact_lines, show_command
from recollect.cli.options import filter_options, open_fresh
from recollect.cli.output import command, emit, json_option, limit_option, reports_errors, rest_lines
from recollect.cli.terminal import (
    duration,
    fitted,
    grey,
    line_columns,
    local_time,
    money,
    number,
    one_line,
    plural,
    short_ids,
    shown_progress,
    wrapped,
)
from recollect.knowledge.graphiti import EPISODES, FACTS, MODES
from recollect.model.errors import NotFound, UsageError
from recollect.recall import Filters

if TYPE_CHECKING:
    from recollect.knowledge import Audit, Graph, Rehearsal, Workflows
    from recollect.knowledge.graphiti import Forecast, Pushed


_SHOWN_WORKFLOWS, _SHOWN_REPEATS, _SHOWN_NODES = 12, 10, 60
_COUNTED = (
    "duplicates", "superseded", "contradicted", "unsupported", "pasted", "unfinished", "echoes", "secrets", "unsure",
    "rejected",
)  # fmt: skip


@click.group("knowledge")
def knowledge_() -> None:
    """See all that was learned, as facts, workflows or a graph.

    \b
    recollect knowledge facts settings.py
    recollect knowledge workflows --here
    recollect knowledge rehearse --since 30d
    """


@command(below=knowledge_)
@click.argument("entity", nargs=-1, required=True)
def facts(entity: tuple[str, ...], as_json: bool) -> None:
    """List everything known about a file, command or error.

    Settings and topics have facts too. Oldest first.

    \b
    recollect knowledge facts settings.py
    recollect knowledge facts "npm run build"
    """
    with open_fresh() as memory:
        known = memory.knowledge.facts(" ".join(entity))
    if not known:
        raise NotFound(f"Nothing is known about: {' '.join(entity)}", "`recollect why` searches topics")
    emit(known, as_json, fact_lines)


@command(below=knowledge_)
@filter_options
@limit_option("workflows", _SHOWN_WORKFLOWS)
@click.option("--format", "format_", type=click.Choice(["text", "svg", "dot"]), help="Print a picture instead of text.")
def workflows(filters: Filters, limit: int | None, format_: str | None, as_json: bool) -> None:
    """Show which sequences of steps work, and what fails.

    `!` marks a step that failed. Lift is how many times more often the steps occur together than by chance.

    \b
    recollect knowledge workflows --here
    recollect knowledge workflows --format svg > workflows.svg
    """
    with open_fresh() as memory:
        if format_ in ("svg", "dot"):
            graph = memory.knowledge.workflow_graph(filters)
            click.echo(memory.knowledge.graph_document(graph, format_), nl=False)
            return
        known = memory.knowledge.workflows(filters)
    shown = replace(known, workflows=known.workflows[:limit], failing=known.failing[:limit])
    emit(shown, as_json, lambda shown: _workflow_lines(shown, len(known.workflows)))


def _workflow_lines(shown: "Workflows", total: int) -> Iterator[str]:
    uids = {workflow.session_uid for workflow in shown.workflows}
    names = short_ids(uids | {failing.session_uid for failing in shown.failing if failing.session_uid})
    yield f"{plural(total, 'workflow')} in {plural(shown.exchanges, 'exchange')}"
    for workflow in shown.workflows:
        rate = "" if workflow.success_rate is None else f", {workflow.success_rate:.0%} succeeded"
        yield from detail(" → ".join(workflow.steps))
        times = f"{plural(workflow.support, 'time')} in {plural(workflow.sessions, 'session')}"
        opened = show_command(names[workflow.session_uid], workflow.event_uid)
        yield grey(fitted(f"    {times}{rate}, lift {workflow.lift} · {opened}", line_columns()))
    yield from rest_lines(len(shown.workflows), total, "workflow")
    if shown.failing:
        yield "Commands that fail:"
    for failing in shown.failing:
        yield from detail(f"{failing.command}  {failing.rate:.0%} of {plural(failing.uses, 'run')}")
        if failing.session_uid and failing.event_uid:
            yield grey(f"    last: {show_command(names[failing.session_uid], failing.event_uid)}")


@command(below=knowledge_)
@filter_options
@limit_option("repeats", _SHOWN_REPEATS)
def rehearse(filters: Filters, limit: int | None, as_json: bool) -> None:
    """Show what the memory would have saved you.

    Errors, questions and failures that were already known when they came up again. Replays each day against what was
    known on that day; later fixes do not count.

    \b
    recollect knowledge rehearse --since 30d
    """
    with open_fresh() as memory:
        rehearsal = memory.knowledge.rehearse(filters)
    shown = replace(rehearsal, repeats=rehearsal.repeats[-limit:]) if limit else rehearsal
    emit(shown, as_json, rehearsal_lines(rehearsal, limit or _SHOWN_REPEATS))


def rehearsal_lines(rehearsal: "Rehearsal", limit: int) -> Iterator[str]:
    """What would have been saved, in sum and one by one."""
    repeats = rehearsal.repeats
    known = [repeat for repeat in repeats if repeat.kind != "command"]
    if not known:
        yield f"{plural(rehearsal.errors_met, 'error')}, none of them solved in an earlier session"
    else:
        again = sum(repeat.kind == "error" and repeat.seconds is not None for repeat in known)
        saved = [duration(rehearsal.seconds), f"{number(rehearsal.tokens)} tokens"]
        saved += [money(rehearsal.usd)] if rehearsal.usd else []
        took = f"; solving {again} of them again took {', '.join(saved)}" if again else ""
        yield from wrapped(f"{plural(len(known), 'problem')} had been solved before{took}")
    if failed := len(repeats) - len(known):
        yield f"{plural(failed, 'command')} failed again as before, without a known fix"
    names = short_ids({uid for repeat in repeats for uid in (repeat.session_uid, repeat.known_session_uid)})
    for repeat in repeats[-limit:]:
        yield ""
        yield from wrapped(f"{local_time(repeat.at)[:10]}  {one_line(repeat.text)}")
        since = f"{local_time(repeat.known_at)[:10]} (session {names[repeat.known_session_uid]})"
        yield from wrapped(f"known since {since}: {one_line(repeat.known)}", "  ", after="    ")
        seconds, tokens = repeat.seconds, repeat.tokens or 0
        took = "" if seconds is None else f", took {duration(seconds)}, {number(tokens)} tokens"
        yield grey(f"  session {names[repeat.session_uid]}{took}")
    yield from rest_lines(limit, len(repeats), "problem")


@knowledge_.group(invoke_without_command=True)
@json_option
@click.pass_context
@reports_errors
def audit(context: click.Context, as_json: bool) -> None:
    """Measure how reliable the known facts are.

    Also lists the least reliable facts; each can be promoted, pinned or rejected.

    \b
    recollect knowledge audit
    recollect knowledge audit reject 3fa91c
    """
    if context.invoked_subcommand is not None:
        return
    with open_memory(create=False) as memory:
        emit(memory.knowledge.audit(), as_json, _audit_lines)


def _audit_lines(audit: "Audit") -> Iterator[str]:
    yield f"{plural(audit.facts, 'fact')}"
    for name in _COUNTED:
        count = getattr(audit, name)
        yield f"  {name:<14} {count:>6}  {count / max(1, audit.facts):.1%}"
    searched, checked = "fixes whose line was searched for", "fixes that git could check"
    shares = (("common", audit.looked_up, searched), ("stale", audit.checked, checked))
    for name, total, of in shares:
        if total:
            count = getattr(audit, name)
            yield f"  {name:<14} {count:>6}  {count / total:.1%} of {number(total)} {of}"
    if audit.worst:
        yield "The worst:"
        yield from fact_lines(audit.worst)


def _add_verdict(name: str, verdict: str, does: str) -> None:
    @command(name, below=audit, help=f"{does}, by its id or the beginning of it.")
    @click.argument("fact")
    def judge(fact: str, as_json: bool) -> None:
        with open_memory(create=False) as memory:
            judged = memory.knowledge.judge(fact, verdict)
        emit(judged, as_json, [f"{verdict.capitalize()}: {one_line(judged.text)}"])


_add_verdict("promote", "promoted", "Trust a fact")
_add_verdict("pin", "pinned", "Keep a fact on top")
_add_verdict("reject", "rejected", "Never show a fact again")


@command(below=knowledge_)
@click.argument("entity", nargs=-1)
@click.option("--around", metavar="ENTITY", help="Only facts near this file, command, error or setting.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "dot", "json", "html", "svg"]),
    default="text",
    help="Print text (default), dot for Graphviz, json, html, or svg.",
)
@filter_options
@limit_option("nodes", _SHOWN_NODES, varies=True)
def graph(
    entity: tuple[str, ...], around: str | None, format_: str, filters: Filters, limit: int | None, as_json: bool
) -> None:
    """Show how commands, errors, files and decisions relate.

    With ENTITY, only facts near it, as with --around. The HTML is one file with a picture in it; it needs no network
    and no other file.

    \b
    recollect knowledge graph --here
    recollect knowledge graph pool.py
    recollect knowledge graph --format html > graph.html
    """
    as_json = as_json or format_ == "json"
    around = " ".join(entity) or around
    with open_fresh() as memory:
        graph = memory.knowledge.graph(filters, around=around, limit=limit if as_json else limit or _SHOWN_NODES)
        document = memory.knowledge.graph_document(graph, format_) if format_ not in ("text", "json") else None
    if document is None or as_json:
        emit(graph, as_json, _graph_lines)
    else:
        click.echo(document, nl=False)


def _graph_lines(graph: "Graph") -> Iterator[str]:
    """Each node that an edge leads from, with what it leads to."""
    nodes = {node.id: node for node in graph.nodes}
    by_source = sorted(graph.edges, key=lambda edge: (nodes[edge.source].kind, nodes[edge.source].name))
    for source, edges in groupby(by_source, key=lambda edge: nodes[edge.source]):
        yield fitted(f"{source.kind}  {one_line(source.name)}", line_columns())
        for edge in sorted(edges, key=lambda edge: (-len(edge.fact_uids), edge.predicate, nodes[edge.target].name)):
            times = f" ×{len(edge.fact_uids)}" if len(edge.fact_uids) > 1 else ""
            verb, target = edge.predicate.replace("_", " "), nodes[edge.target]
            yield fitted(f"  {verb}{times} → {target.kind}  {one_line(target.name)}", line_columns())
    if graph.hidden:
        total = len(graph.nodes) + graph.hidden
        yield grey(f"{len(graph.nodes):,} of {plural(total, 'node')} · more: --limit {total}")
    if not graph.nodes:
        yield "No facts yet: a sweep reads your sessions"


@knowledge_.group()
def graphiti() -> None:
    """Push facts or exchanges into your Graphiti graph.

    The graph and the model are yours: see `[graphiti]` in the settings, and docs/graphiti.md.
    """


@command(below=graphiti)
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
def push(mode: str, budget: int | None, dry_run: bool, filters: Filters, as_json: bool) -> None:
    """Push facts or exchanges; what was pushed before is not pushed again.

    Only what the store holds is sent, with secrets already redacted. Safe to interrupt at any time.

    \b
    recollect knowledge graphiti push
    recollect knowledge graphiti push --mode episodes --dry-run
    recollect knowledge graphiti push --mode episodes --repo shop --budget 100000
    """
    if mode == FACTS and (dry_run or budget is not None):
        raise UsageError("Facts use no tokens: `--budget` and `--dry-run` are for episodes", f"add `--mode {EPISODES}`")
    with open_memory(create=False) as memory, shown_progress() as show:
        if mode == FACTS:
            facts = memory.graphiti.push_facts(filters)
            removed, written = facts.removed, number(facts.written)
            lines = (
                f"{plural(facts.facts, 'fact')} in the graph: {written} written, no model used",
                f"Removed {plural(removed, 'fact')} that are no longer valid here" if removed else None,
            )
            emit(facts, as_json, lines)
            return
        plan = memory.graphiti.plan(filters)
        if dry_run or not as_json:
            emit(plan.forecast, as_json, _forecast_lines)
        if not dry_run:
            emit(memory.graphiti.push_episodes(plan, budget=budget, progress=show), as_json, _episodes_lines)


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


def _episodes_lines(pushed: "Pushed") -> tuple[str | None, ...]:
    of_each = f", {number(pushed.tokens // pushed.written)} an exchange" if pushed.written else ""
    sums = f"{number(pushed.tokens_today)} today, {number(pushed.tokens_this_month)} this month"
    left, failed = plural(pushed.left, "exchange"), plural(pushed.failed, "exchange")
    return (
        f"Pushed {plural(pushed.written, 'exchange')} with {plural(pushed.calls, 'model call')}",
        f"Used {number(pushed.tokens)} of {number(pushed.budget)} tokens{of_each}; {sums}",
        f"Stopped before the budget was exceeded; left for next time: {left}" if pushed.is_budget_reached else None,
        f"The model gave no usable answer for {failed}; the next push tries again" if pushed.failed else None,
        f"Removed {plural(pushed.removed, 'exchange')} of forgotten sessions" if pushed.removed else None,
    )
