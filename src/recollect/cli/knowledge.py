"""What sessions teach: commands that answer from facts, each with its date, how sure it is, and its evidence."""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect import knowledge, recall
from recollect.api import open_memory
from recollect.cli.facts import (
    bold,
    change_lines,
    detail,
    digest_command,
    discussion_lines,
    fact_lines,
    fix_lines,
    origin_lines,
    show_command,
    source,
    without_session,
)
from recollect.cli.filters import filter_options
from recollect.cli.find import QueryCommand
from recollect.cli.fresh import open_fresh
from recollect.cli.output import emit, json_option, limit_option, print_json, reports_errors
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
    wrapped,
)
from recollect.errors import NotFound, UsageError
from recollect.recall import Filters

if TYPE_CHECKING:
    from recollect.knowledge import Audit, Fact, Fix, Rehearsal, Route, Workflows
    from recollect.recall import Discussion

_LINE = re.compile(r"(?P<path>(?!\w+://).*[^/:]):(?P<line>[1-9]\d{0,8})")
_NAMES_A_FILE = re.compile(r"/|\.[A-Za-z]")
_SHOWN_FIXES = 3
_COUNTED = (
    "duplicates", "superseded", "contradicted", "unsupported", "pasted", "unfinished", "echoes", "secrets", "unsure",
    "rejected",
)  # fmt: skip
_SHOWN_STEPS = 15
_SHOWN_FACTS, _SHOWN_DECISIONS, _SHOWN_WORKFLOWS, _SHOWN_REPEATS = 5, 30, 12, 10


@click.command(cls=QueryCommand)
@click.argument("error", nargs=-1)
@click.option("--repo", metavar="NAME", help="Prefer fixes of this repository.")
@limit_option("fixes", _SHOWN_FIXES)
@json_option
@reports_errors
def fix(error: tuple[str, ...], repo: str | None, limit: int | None, as_json: bool) -> None:
    """Show what fixed an error before, in any session.

    ERROR is any distinctive line of the error, or the whole output. `-`, or a pipe without ERROR, reads standard input.
    Paths, numbers, times and hashes in it make no difference, unless the line says nothing else (`assert -1 == 5`).

    \b
    recollect fix "ModuleNotFoundError: No module named 'redis'"
    pytest 2>&1 | recollect fix
    """
    is_piped = not error and not sys.stdin.isatty()
    text = sys.stdin.read() if error == ("-",) or is_piped else " ".join(error)
    if not text.strip():
        raise UsageError("Give the text of an error", "for example `pytest 2>&1 | recollect fix`")
    with open_fresh() as memory:
        fixes = memory.knowledge.fixes(text, limit if as_json else limit or _SHOWN_FIXES, repo=repo)
        is_known = any(fix.is_same_error for fix in fixes)
        exchanges = [] if is_known else memory.knowledge.discussions(text, limit=_SHOWN_FIXES, is_error=True)
    if not fixes and not exchanges:
        raise NotFound("No session met this error or a similar one", "`recollect search` searches for its words")
    emit([*fixes, *exchanges], as_json, lambda _: _answers_to_error(fixes, exchanges))


def _answers_to_error(fixes: "Sequence[Fix]", exchanges: "Sequence[Discussion]") -> Iterator[str]:
    yield from fix_lines(fixes)  # each says whether it is of a similar error
    if exchanges:
        yield "It, or one like it, came up in:" if fixes else "No fix of this error is on record. It came up in:"
        yield from discussion_lines(exchanges)


@click.command()
@click.argument("topic", nargs=-1)
@click.option("--diff", "is_diff", is_flag=True, help="Show the sessions behind your uncommitted change.")
@filter_options
@limit_option("answers", _SHOWN_FACTS)
@json_option
@reports_errors
def why(topic: tuple[str, ...], is_diff: bool, filters: Filters, limit: int | None, as_json: bool) -> None:
    """Explain why something is the way it is.

    Shows reasons, causes, fixes and decisions on a topic, the best first, then the exchanges that discussed it. For
    PATH:LINE, shows the session and the request behind that line; with --diff, the sessions and requests behind what
    this checkout has not committed yet.

    \b
    recollect why redis rollback
    recollect why "session store" --repo shop
    recollect why src/pool.py:12
    recollect why --diff
    """
    if is_diff == bool(topic):
        raise UsageError("Give a topic, a PATH:LINE, or `--diff`")
    if is_diff:
        with open_fresh() as memory:
            change = memory.knowledge.uncommitted()
        if not change.files:
            raise NotFound(f"Nothing is uncommitted here: {change.root}")
        if not change.sessions:
            hint = "it may have been typed by hand"
            raise NotFound(f"No session wrote this change: {change.root}", hint)
        emit(change, as_json, change_lines)
        return
    named = _LINE.fullmatch(topic[0]) if len(topic) == 1 else None
    is_file = named is not None and Path(named["path"]).is_file()
    if named and (is_file or _NAMES_A_FILE.search(named["path"])):
        if not is_file:
            raise NotFound(f"No such file: {named['path']}", f"for what is known of it: recollect why {named['path']}")
        with open_fresh() as memory:
            origin = memory.knowledge.line(named["path"], int(named["line"]))
        if origin.edit is None:
            raise NotFound(f"No session wrote this line: {topic[0]}", without_session(origin))
        emit(origin, as_json, origin_lines)
        return
    with open_fresh() as memory:
        answers = memory.knowledge.why(" ".join(topic), filters, limit=limit if as_json else limit or _SHOWN_FACTS)
    if not answers:
        raise NotFound(f"Nothing is known about: {' '.join(topic)}", "`recollect search` searches for the words")
    emit(answers, as_json, lambda answers: _reason_lines(" ".join(topic), answers))


def _reason_lines(topic: str, answers: "Sequence[Fact | Discussion]") -> Iterator[str]:
    facts = [answer for answer in answers if isinstance(answer, knowledge.Fact)]
    exchanges = [answer for answer in answers if isinstance(answer, recall.Discussion)]
    yield from fact_lines(facts)
    if exchanges:
        yield "It was also discussed in:" if facts else f"No decision on record about {topic}. It was discussed in:"
        yield from discussion_lines(exchanges)


@click.command()
@click.argument("entity", nargs=-1, required=True)
@json_option
@reports_errors
def facts(entity: tuple[str, ...], as_json: bool) -> None:
    """List everything known about a file, command or error.

    Settings and topics have facts too. Oldest first.

    \b
    recollect facts settings.py
    recollect facts "npm run build"
    """
    with open_fresh() as memory:
        known = memory.knowledge.facts(" ".join(entity))
    if not known:
        raise NotFound(f"Nothing is known about: {' '.join(entity)}", "`recollect why` searches topics")
    emit(known, as_json, fact_lines)


@click.command()
@click.argument("goal", nargs=-1, required=True)
@filter_options
@json_option
@reports_errors
def how(goal: tuple[str, ...], filters: Filters, as_json: bool) -> None:
    """Show how earlier sessions reached a similar goal.

    Shows what they edited and ran, what failed on the way, and what it cost.

    \b
    recollect how add a command line flag
    """
    with open_fresh() as memory:
        routes = memory.knowledge.how(" ".join(goal), filters)
        exchanges = [] if routes else memory.knowledge.discussions(" ".join(goal), filters)
    if not routes and not exchanges:
        raise NotFound(
            f"No session reached a goal like this: {' '.join(goal)}", "`recollect search` searches for its words"
        )
    emit(routes or exchanges, as_json, lambda _: _ways_to(" ".join(goal), routes, exchanges))


def _ways_to(goal: str, routes: "Sequence[Route]", exchanges: "Sequence[Discussion]") -> Iterator[str]:
    yield from _route_lines(routes)
    if exchanges:
        yield f"No session is known to have reached this goal: {goal}. It came up in:"
        yield from discussion_lines(exchanges)


def _route_lines(routes: "Sequence[Route]") -> Iterator[str]:
    names = short_ids({route.session_uid for route in routes})
    for route in routes:
        yield from bold(route.goal)
        for step in route.steps[:_SHOWN_STEPS]:
            yield from detail(step)
        if len(route.steps) > _SHOWN_STEPS:
            yield grey(f"  {plural(len(route.steps) - _SHOWN_STEPS, 'more step')}")
        spent = f"{duration(route.active_s)}, {number(route.tokens)} tokens"
        spent += "" if route.is_confirmed else ", not confirmed by tests or the user"
        name = names[route.session_uid]
        opens = f"evicted, {digest_command(name)}" if route.evicted else show_command(name, route.request_uid)
        yield source(route.at, route.repo, opens, spent)


class _Decisions(click.Group):
    """Names the command that takes a topic: people give one here first."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            ctx.fail(f"Takes no topic. For decisions about one: recollect why {' '.join(args)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Decisions, invoke_without_command=True)
@click.option("--as-of", metavar="WHEN", help="Show what was valid at this time: 2026-11-01, 7d, last week.")
@click.option("--history", is_flag=True, help="Add superseded decisions and what replaced them.")
@click.option("--all", "is_all", is_flag=True, help="Add commits and less certain ones.")
@filter_options
@limit_option("decisions", _SHOWN_DECISIONS)
@json_option
@click.pass_context
@reports_errors
def decisions(
    context: click.Context,
    as_of: str | None,
    history: bool,
    is_all: bool,
    filters: Filters,
    limit: int | None,
    as_json: bool,
) -> None:
    """List decisions that are still valid, newest first.

    `recollect why TOPIC` shows what was decided about a topic.

    \b
    recollect decisions --here
    recollect decisions --repo shop --since 30d
    recollect decisions --as-of 2026-10-01
    recollect decisions import DECISIONS.md
    """
    if context.invoked_subcommand is not None:
        return
    with open_fresh() as memory:
        decided = memory.knowledge.decisions(filters, as_of=as_of, history=history, everything=is_all)
        others = 0
        if not is_all and not as_json:
            everything = memory.knowledge.decisions(filters, as_of=as_of, history=history, everything=True)
            others = len(everything) - len(decided)
    shown = decided[:limit] if as_json else decided
    emit(shown, as_json, lambda decided: _decision_lines(decided, limit or _SHOWN_DECISIONS, others))


def _decision_lines(decided: "Sequence[Fact]", limit: int, others: int) -> Iterator[str]:
    yield from fact_lines(decided[:limit])
    yield from _rest(limit, len(decided), "decision")
    if not decided:
        yield "No decisions: `recollect remember` adds one"
    if others > 0:
        yield grey(f"{number(others)} more with --all: commits and less certain ones")


def _rest(shown: int, total: int, thing: str) -> Iterator[str]:
    if total > shown:
        yield grey(f"{shown:,} of {plural(total, thing)} · more: --limit {total}")


@decisions.command("import")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--repo", metavar="NAME", help="The repository that they are about.")
@json_option
@reports_errors
def import_(file: str, repo: str | None, as_json: bool) -> None:
    """Add the decisions listed in a Markdown or JSON file.

    In Markdown each list item is a decision. It may begin with its date and its topic; otherwise the heading above it
    is the topic. In JSON each has `text`, `topic` and `date`. Importing a file again adds only what is new.

    \b
    recollect decisions import docs/DECISIONS.md --repo shop
    """
    with open_memory(create=False) as memory:
        added = memory.knowledge.import_decisions(file, repo=repo)
    if as_json:
        print_json({"added": added})
    else:
        click.echo(f"{plural(added, 'decision')} added")


@click.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--topic", metavar="NAME", help="Its topic; replaces the last note on this topic.")
@click.option("--repo", metavar="NAME", help="Only for this repository.")
@json_option
@reports_errors
def remember(text: tuple[str, ...], topic: str | None, repo: str | None, as_json: bool) -> None:
    """Save a decision or a preference.

    \b
    recollect remember --topic "package manager" "We use pnpm, npm breaks the workspace links"
    """
    with open_memory(create=False) as memory:
        fact = memory.knowledge.remember(" ".join(text), topic=topic, repo=repo)
    emit(fact, as_json, lambda fact: [f"Remembered as {fact.fact_uid}"])


@click.command()
@filter_options
@limit_option("workflows", _SHOWN_WORKFLOWS)
@click.option("--format", "format_", type=click.Choice(["text", "svg", "dot"]), help="Print a picture instead of text.")
@json_option
@reports_errors
def workflows(filters: Filters, limit: int | None, format_: str | None, as_json: bool) -> None:
    """Show which sequences of steps work, and what fails.

    `!` marks a step that failed. Lift is how many times more often the steps occur together than by chance.

    \b
    recollect workflows --here
    recollect workflows --format svg > workflows.svg
    """
    with open_fresh() as memory:
        if format_ in ("svg", "dot"):
            graph = memory.knowledge.workflow_graph(filters)
            click.echo(memory.knowledge.graph_document(graph, format_), nl=False)
            return
        known = memory.knowledge.workflows(filters)
    if as_json:
        known = replace(known, workflows=known.workflows[:limit], failing=known.failing[:limit])
    emit(known, as_json, lambda known: _workflow_lines(known, limit or _SHOWN_WORKFLOWS))


def _workflow_lines(known: "Workflows", limit: int) -> Iterator[str]:
    uids = {workflow.session_uid for workflow in known.workflows}
    names = short_ids(uids | {failing.session_uid for failing in known.failing if failing.session_uid})
    yield f"{plural(len(known.workflows), 'workflow')} in {plural(known.exchanges, 'exchange')}"
    for workflow in known.workflows[:limit]:
        rate = "" if workflow.success_rate is None else f", {workflow.success_rate:.0%} succeeded"
        yield from detail(" → ".join(workflow.steps))
        times = f"{plural(workflow.support, 'time')} in {plural(workflow.sessions, 'session')}"
        shown = show_command(names[workflow.session_uid], workflow.event_uid)
        yield grey(fitted(f"    {times}{rate}, lift {workflow.lift} · {shown}", line_columns()))
    yield from _rest(limit, len(known.workflows), "workflow")
    if known.failing:
        yield "Commands that fail:"
    for failing in known.failing[:limit]:
        yield from detail(f"{failing.command}  {failing.rate:.0%} of {plural(failing.uses, 'run')}")
        if failing.session_uid and failing.event_uid:
            yield grey(f"    last: {show_command(names[failing.session_uid], failing.event_uid)}")


@click.command()
@filter_options
@limit_option("repeats", _SHOWN_REPEATS)
@json_option
@reports_errors
def rehearse(filters: Filters, limit: int | None, as_json: bool) -> None:
    """Show what the memory would have saved you.

    Errors, questions and failures that were already known when they came up again. Replays each day against what was
    known on that day; later fixes do not count.

    \b
    recollect rehearse --since 30d
    """
    with open_fresh() as memory:
        rehearsal = memory.knowledge.rehearse(filters)
    if as_json and limit:
        rehearsal = replace(rehearsal, repeats=rehearsal.repeats[-limit:])
    emit(rehearsal, as_json, lambda rehearsal: rehearsal_lines(rehearsal, limit or _SHOWN_REPEATS))


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
    yield from _rest(limit, len(repeats), "problem")


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
@reports_errors
def audit(context: click.Context, as_json: bool) -> None:
    """Measure how reliable the known facts are.

    Also lists the least reliable facts; each can be promoted, pinned or rejected.

    \b
    recollect audit
    recollect audit reject 3fa91c
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
    if audit.looked_up:
        share = f"{audit.common / audit.looked_up:.1%} of {number(audit.looked_up)} fixes whose line was searched for"
        yield f"  {'common':<14} {audit.common:>6}  {share}"
    if audit.checked:
        share = f"{audit.stale / audit.checked:.1%} of {number(audit.checked)} fixes that git could check"
        yield f"  {'stale':<14} {audit.stale:>6}  {share}"
    if audit.worst:
        yield "The worst:"
        yield from fact_lines(audit.worst)


def _verdict_command(name: str, verdict: str, help_text: str) -> click.Command:
    @click.command(name, help=help_text)
    @click.argument("fact")
    @json_option
    @reports_errors
    def judge(fact: str, as_json: bool) -> None:
        with open_memory(create=False) as memory:
            judged = memory.knowledge.judge(fact, verdict)
        emit(judged, as_json, lambda fact: [f"{verdict.capitalize()}: {one_line(fact.text)}"])

    return judge


audit.add_command(_verdict_command("promote", "promoted", "Trust a fact, by its id or the beginning of it."))
audit.add_command(_verdict_command("pin", "pinned", "Keep a fact on top, by its id or the beginning of it."))
audit.add_command(_verdict_command("reject", "rejected", "Never show a fact again, by its id or the beginning of it."))


COMMANDS = (fix, why, how, decisions, facts, workflows, rehearse, remember, audit)
