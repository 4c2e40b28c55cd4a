"""What sessions teach: commands that answer from facts, each with its date, how sure it is, and its evidence."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect import knowledge, recall
from recollect.api import open_memory
from recollect.cli.find import QueryCommand
from recollect.cli.options import filter_options, open_fresh
from recollect.cli.output import command, emit, json_option, limit_option, reports_errors
from recollect.cli.terminal import (
    duration,
    fitted,
    grey,
    line_columns,
    local_time,
    number,
    one_line,
    plural,
    repo_name,
    short_ids,
    wrapped,
)
from recollect.errors import NotFound, UsageError
from recollect.recall import Filters

if TYPE_CHECKING:
    from recollect.knowledge import Fact, Fix, Route
    from recollect.recall import Discussion, LineOrigin, Uncommitted

_UID_CHARS = 10  # of an event's or a commit's
_FACT_CHARS = 8  # of a fact's id, which is enough to name it
_SHOWN_TRIED = 2
_ABOUT_COLUMNS = 100


def fix_lines(fixes: "Sequence[Fix]") -> Iterator[str]:
    names = short_ids({session for fix in fixes for session in fix.sessions})
    for index, fix in enumerate(fixes):
        if index:
            yield ""
        yield from bold(fix.text)
        if not fix.is_same_error:
            yield "  (a similar error, not the same)"
        if fix.why:
            yield from detail(f"why: {fix.why}")
        if fix.quote:
            yield from detail(f"you asked for it: “{fix.quote}”")
        if met := _met(fix, names):
            yield from detail(met)
        for tried in fix.tried[:_SHOWN_TRIED]:
            yield from detail(f"did not help before: {tried}")
        if fix.changed_files:
            edited = len({step.name for step in fix.steps if step.kind == "edit"})
            changed = f"{len(fix.changed_files)} of the {plural(edited, 'file')}"
            yield from detail(f"{changed} changed since: {', '.join(fix.changed_files[:4])}")
        opened = show_command(names[fix.session_uid], fix.evidence[0].event_uid)
        yield source(fix.fixed_at, fix.repo, opened, fix.fact_uid[:_FACT_CHARS], _doubt(fix.confidence))


def _met(fix: "Fix", names: dict[str, str]) -> str:
    """How often the fix helped, where else the error was seen, and whether it came back."""
    others = [names[session] for session in fix.sessions if session != fix.session_uid]
    return "; ".join(
        text
        for text, is_shown in (
            (f"helped {plural(fix.fixed_count, 'time')}", fix.fixed_count > 1),
            (f"also seen in {plural(len(others), 'session')} ({', '.join(others[:4])})", others),
            (f"came back {plural(fix.returns, 'time')} afterwards", fix.returns),
        )
        if is_shown
    )


def bold(text: str) -> Iterator[str]:
    return (click.style(line, bold=True) for line in wrapped(one_line(text)))


def detail(text: str) -> Iterator[str]:
    return wrapped(one_line(text), "  ", after="    ")


def source(at: str | None, repo: str | None, *parts: str) -> str:
    """When and where something was learned, in one line."""
    shown = [local_time(at)[:10], repo_name(repo), *parts]
    return grey(fitted(f"  {' · '.join(one_line(part) for part in shown if part)}", line_columns()))


def show_command(session: str, event: str | int) -> str:
    """The command that opens an event: by its number, or by its uid."""
    return f"recollect show {session} --at {event[-_UID_CHARS:] if isinstance(event, str) else event}"


def digest_command(session: str) -> str:
    """The command that opens what is left of an evicted session."""
    return f"recollect digest {session}"


def _doubt(confidence: float) -> str:
    return "" if confidence >= knowledge.LEAST_CONFIDENCE else f"uncertain ({confidence:.2f})"


def discussion_lines(exchanges: "Sequence[Discussion]") -> Iterator[str]:
    """Exchanges with what was said in them, and the command that opens each."""
    names = short_ids({exchange.session_uid for exchange in exchanges})
    for exchange in exchanges:
        yield from bold(f"“{exchange.request}”" if exchange.request else exchange.title or "(no title)")
        if exchange.answer:
            yield from detail(f"agent: {exchange.answer}")
        if exchange.next_steps:
            yield from detail(f"next: {'; '.join(exchange.next_steps)}")
        if exchange.reply:
            yield from detail(f"then you: {exchange.reply}")
        name = names[exchange.session_uid]
        opens = f"evicted, {digest_command(name)}" if exchange.evicted else show_command(name, exchange.seq)
        yield source(exchange.at, exchange.repo, opens)


def without_session(origin: "LineOrigin") -> str:
    commit = (
        f"it came with {origin.commit[:_UID_CHARS]}, {origin.commit_subject}" if origin.commit else "not committed yet"
    )
    evicted = f"; {plural(origin.evicted_edits, 'evicted session')} edited the file" if origin.evicted_edits else ""
    return one_line(f"{commit}{evicted}")


def origin_lines(origin: "LineOrigin") -> Iterator[str]:
    edit = origin.edit
    assert edit is not None
    yield from bold(origin.text)
    asked = f"“{edit.request or edit.title}”" if edit.request or edit.title else "no user request"
    yield from detail(f"written for: {asked}")
    if origin.cause:
        yield from detail(f"it fixed: {origin.cause}")
    if origin.is_elsewhere:
        yield from detail(f"found in another repository: {edit.repo or edit.path}")
    commit = f"{origin.commit[:_UID_CHARS]} {origin.commit_subject}" if origin.commit else "not committed yet"
    yield from detail(f"commit: {commit}")
    opened = show_command(short_ids({edit.session_uid})[edit.session_uid], edit.event_uid)
    yield source(edit.ts, None, edit.agent, opened, f"confidence {origin.confidence:.2f}")


def change_lines(change: "Uncommitted") -> Iterator[str]:
    """The sessions behind an uncommitted change, each with its requests and files."""
    names = short_ids({origin.session_uid for origin in change.sessions})
    for origin in change.sessions:
        latest = max(origin.edits, key=lambda edit: edit.ts or "")
        yield from bold(latest.title or latest.request or origin.session_uid)
        for request in dict.fromkeys(edit.request for edit in origin.edits if edit.request):
            yield from detail(f"for: “{request}”")
        files = dict.fromkeys(edit.path.removeprefix(f"{change.root}/") for edit in origin.edits)
        yield from detail(f"{plural(origin.lines, 'line')} in {', '.join(files)}")
        yield source(latest.ts, None, latest.agent, show_command(names[origin.session_uid], latest.event_uid))
    known = sum(origin.lines for origin in change.sessions)
    if known < change.lines:
        yield grey(f"{plural(change.lines - known, 'changed line')} of {change.lines} are in no session's edits")


_DECIDERS = {"user": "you", "agent": "the agent", "commit": "a commit", "file": "a file"}


def fact_lines(facts: "Sequence[Fact]") -> Iterator[str]:
    """Facts in sentences, each with when, by whom and where it was learned, and whether it still holds."""
    names = short_ids({fact.session_uid for fact in facts if fact.session_uid})
    for fact in facts:
        yield from bold(fact.text)
        if fact.invalid_at:
            yield f"  until {local_time(fact.invalid_at)[:10]}, replaced by {(fact.superseded_by or '')[:_FACT_CHARS]}"
        if fact.until_then:
            yield from detail(f"until then: {fact.until_then}")
        if fact.about:
            yield fitted(f"  in: {one_line(fact.about)}", min(line_columns(), _ABOUT_COLUMNS))
        if fact.reason and fact.reason not in fact.text:
            yield from detail(f"because: {fact.reason}")
        if others := [option for option in fact.alternatives if option not in fact.text]:
            yield from detail(f"not: {', '.join(others)}")
        opened = "remembered"
        if fact.session_uid:
            opened = show_command(names[fact.session_uid], fact.evidence[0].event_uid if fact.evidence else 1)
        uid = fact.fact_uid[:_FACT_CHARS]
        yield source(fact.valid_at, fact.repo, _DECIDERS[fact.by], opened, uid, _doubt(fact.confidence))


_LINE = re.compile(r"(?P<path>(?!\w+://).*[^/:]):(?P<line>[1-9]\d{0,8})")


_NAMES_A_FILE = re.compile(r"/|\.[A-Za-z]")


_SHOWN_FIXES = 3


_SHOWN_STEPS = 15


_SHOWN_FACTS, _SHOWN_DECISIONS = 5, 30


@command(cls=QueryCommand)
@click.argument("error", nargs=-1)
@click.option("--repo", metavar="NAME", help="Prefer fixes of this repository.")
@limit_option("fixes", _SHOWN_FIXES)
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


@command()
@click.argument("topic", nargs=-1)
@click.option("--diff", "is_diff", is_flag=True, help="Show the sessions behind your uncommitted change.")
@filter_options
@limit_option("answers", _SHOWN_FACTS)
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


@command()
@click.argument("goal", nargs=-1, required=True)
@filter_options
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
    yield from rest_lines(limit, len(decided), "decision")
    if not decided:
        yield "No decisions: `recollect remember` adds one"
    if others > 0:
        yield grey(f"{number(others)} more with --all: commits and less certain ones")


def rest_lines(shown: int, total: int, thing: str) -> Iterator[str]:
    if total > shown:
        yield grey(f"{shown:,} of {plural(total, thing)} · more: --limit {total}")


@command("import", below=decisions)
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--repo", metavar="NAME", help="The repository that they are about.")
def import_(file: str, repo: str | None, as_json: bool) -> None:
    """Add the decisions listed in a Markdown or JSON file.

    In Markdown each list item is a decision. It may begin with its date and its topic; otherwise the heading above it
    is the topic. In JSON each has `text`, `topic` and `date`. Importing a file again adds only what is new.

    \b
    recollect decisions import docs/DECISIONS.md --repo shop
    """
    with open_memory(create=False) as memory:
        added = memory.knowledge.import_decisions(file, repo=repo)
    emit({"added": added}, as_json, lambda _: [f"{plural(added, 'decision')} added"])


@command()
@click.argument("text", nargs=-1, required=True)
@click.option("--topic", metavar="NAME", help="Its topic; replaces the last note on this topic.")
@click.option("--repo", metavar="NAME", help="Only for this repository.")
def remember(text: tuple[str, ...], topic: str | None, repo: str | None, as_json: bool) -> None:
    """Save a decision or a preference.

    \b
    recollect remember --topic "package manager" "We use pnpm, npm breaks the workspace links"
    """
    with open_memory(create=False) as memory:
        fact = memory.knowledge.remember(" ".join(text), topic=topic, repo=repo)
    emit(fact, as_json, lambda fact: [f"Remembered as {fact.fact_uid}"])
