"""What sessions teach: commands that answer from facts, each with its date, how sure it is, and its evidence."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect import knowledge, recall
from recollect.api import open_memory
from recollect.cli.find import QueryCommand
from recollect.cli.options import filter_options, open_fresh
from recollect.cli.output import command, emit, json_option, limit_option, reports_errors, rest_lines
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
from recollect.model.errors import NotFound, UsageError
from recollect.recall import Filters

if TYPE_CHECKING:
    from recollect.knowledge import Fact, Fix, Route
    from recollect.recall import Discussion, LineOrigin, Uncommitted

_UID_CHARS = 10  # of an event's or a commit's
_FACT_CHARS = 8  # of a fact's id, which is enough to name it
_SHOWN_TRIED = 2
_ABOUT_COLUMNS = 100


def answer(head: str, details: "Iterable[str | None]", at: str | None, repo: str | None, *parts: str) -> Iterator[str]:
    """What was learned, what is known about it, and when and where that was, in one line."""
    yield from (click.style(line, bold=True) for line in wrapped(one_line(head)))
    for text in filter(None, details):
        yield from detail(text)
    shown = [local_time(at)[:10], repo_name(repo), *parts]
    yield grey(fitted(f"  {' · '.join(one_line(part) for part in shown if part)}", line_columns()))


def detail(text: str) -> Iterator[str]:
    return wrapped(one_line(text), "  ", after="    ")


def fix_lines(fixes: "Sequence[Fix]") -> Iterator[str]:
    names = short_ids({session for fix in fixes for session in fix.sessions})
    for index, fix in enumerate(fixes):
        yield from [""] if index else []
        edited = len({step.name for step in fix.steps if step.kind == "edit"})
        changed = fix.changed_files or ()
        details = (
            "" if fix.is_same_error else "(a similar error, not the same)",
            fix.why and f"why: {fix.why}",
            fix.quote and f"you asked for it: “{fix.quote}”",
            _met(fix, names),
            *(f"did not help before: {tried}" for tried in fix.tried[:_SHOWN_TRIED]),
            f"{len(changed)} of the {plural(edited, 'file')} changed since: {', '.join(changed[:4])}"
            if changed
            else "",
        )
        opened = show_command(names[fix.session_uid], fix.evidence[0].event_uid)
        about = (opened, fix.fact_uid[:_FACT_CHARS], _doubt(fix.confidence))
        yield from answer(fix.text, details, fix.fixed_at, fix.repo, *about)


def _met(fix: "Fix", names: dict[str, str]) -> str:
    """How often the fix helped, where else the error was seen, and whether it came back."""
    others = [names[session] for session in fix.sessions if session != fix.session_uid]
    parts = (
        f"helped {plural(fix.fixed_count, 'time')}" if fix.fixed_count > 1 else "",
        f"also seen in {plural(len(others), 'session')} ({', '.join(others[:4])})" if others else "",
        f"came back {plural(fix.returns, 'time')} afterwards" if fix.returns else "",
    )
    return "; ".join(filter(None, parts))


def show_command(session: str, event: str | int) -> str:
    """The command that opens an event: by its number, or by its uid."""
    return f"recollect show {session} --at {event[-_UID_CHARS:] if isinstance(event, str) else event}"


def _opens(session: str, event: str | int, is_evicted: bool) -> str:
    """The command that opens an event, or what is left of its session."""
    return f"evicted, recollect digest {session}" if is_evicted else show_command(session, event)


def _doubt(confidence: float) -> str:
    return "" if confidence >= knowledge.LEAST_CONFIDENCE else f"uncertain ({confidence:.2f})"


def discussion_lines(exchanges: "Sequence[Discussion]") -> Iterator[str]:
    """Exchanges with what was said in them, and the command that opens each."""
    names = short_ids({exchange.session_uid for exchange in exchanges})
    for exchange in exchanges:
        head = f"“{exchange.request}”" if exchange.request else exchange.title or "(no title)"
        details = (
            exchange.answer and f"agent: {exchange.answer}",
            f"next: {'; '.join(exchange.next_steps)}" if exchange.next_steps else "",
            exchange.reply and f"then you: {exchange.reply}",
        )
        opened = _opens(names[exchange.session_uid], exchange.seq, exchange.evicted)
        yield from answer(head, details, exchange.at, exchange.repo, opened)


def origin_lines(origin: "LineOrigin") -> Iterator[str]:
    edit = origin.edit
    assert edit is not None
    commit = f"{origin.commit[:_UID_CHARS]} {origin.commit_subject}" if origin.commit else "not committed yet"
    asked = f"“{edit.request or edit.title}”" if edit.request or edit.title else "no user request"
    details = (
        f"written for: {asked}",
        origin.cause and f"it fixed: {origin.cause}",
        f"found in another repository: {edit.repo or edit.path}" if origin.is_elsewhere else "",
        f"commit: {commit}",
    )
    opened = show_command(short_ids({edit.session_uid})[edit.session_uid], edit.event_uid)
    yield from answer(origin.text, details, edit.ts, None, edit.agent, opened, f"confidence {origin.confidence:.2f}")


def change_lines(change: "Uncommitted") -> Iterator[str]:
    """The sessions behind an uncommitted change, each with its requests and files."""
    names = short_ids({origin.session_uid for origin in change.sessions})
    for origin in change.sessions:
        latest = max(origin.edits, key=lambda edit: edit.ts or "")
        requests = dict.fromkeys(edit.request for edit in origin.edits if edit.request)
        files = dict.fromkeys(edit.path.removeprefix(f"{change.root}/") for edit in origin.edits)
        details = (
            *(f"for: “{request}”" for request in requests),
            f"{plural(origin.lines, 'line')} in {', '.join(files)}",
        )
        opened = show_command(names[origin.session_uid], latest.event_uid)
        head = latest.title or latest.request or origin.session_uid
        yield from answer(head, details, latest.ts, None, latest.agent, opened)
    known = sum(origin.lines for origin in change.sessions)
    if known < change.lines:
        yield grey(f"{plural(change.lines - known, 'changed line')} of {change.lines} are in no session's edits")


_DECIDERS = {"user": "you", "agent": "the agent", "commit": "a commit", "file": "a file"}


def fact_lines(facts: "Sequence[Fact]") -> Iterator[str]:
    """Facts in sentences, each with when, by whom and where it was learned, and whether it still holds."""
    names = short_ids({fact.session_uid for fact in facts if fact.session_uid})
    for fact in facts:
        newer, others = fact.superseded_by or "", [option for option in fact.alternatives if option not in fact.text]
        details = (
            fact.invalid_at and f"until {local_time(fact.invalid_at)[:10]}, replaced by {newer[:_FACT_CHARS]}",
            fact.until_then and f"until then: {fact.until_then}",
            fact.about and fitted(f"in: {one_line(fact.about)}", min(line_columns(), _ABOUT_COLUMNS) - 2),
            f"because: {fact.reason}" if fact.reason and fact.reason not in fact.text else "",
            f"not: {', '.join(others)}" if others else "",
        )
        opened = "remembered"
        if fact.session_uid:
            opened = show_command(names[fact.session_uid], fact.evidence[0].event_uid if fact.evidence else 1)
        about = (_DECIDERS[fact.by], opened, fact.fact_uid[:_FACT_CHARS], _doubt(fact.confidence))
        yield from answer(fact.text, details, fact.valid_at, fact.repo, *about)


def _with_discussions(lines: Iterator[str], heading: str, exchanges: "Sequence[Discussion]") -> Iterator[str]:
    """What is known, then the exchanges it came up in, below a heading."""
    yield from lines
    if exchanges:
        yield heading
        yield from discussion_lines(exchanges)


_LINE = re.compile(r"(?P<path>(?!\w+://).*[^/:]):(?P<line>[1-9]\d{0,8})")
_NAMES_A_FILE = re.compile(r"/|\.[A-Za-z]")
_SHOWN_FIXES, _SHOWN_STEPS, _SHOWN_FACTS, _SHOWN_DECISIONS = 3, 15, 5, 30


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
        fixes = memory.knowledge.fixes(text, limit, repo=repo)
        is_known = any(fix.is_same_error for fix in fixes)
        exchanges = [] if is_known else memory.knowledge.discussions(text, limit=_SHOWN_FIXES, is_error=True)
    if not fixes and not exchanges:
        raise NotFound("No session met this error or a similar one", "`recollect search` searches for its words")
    # Each fix says whether it is of a similar error.
    heading = "It, or one like it, came up in:" if fixes else "No fix of this error is on record. It came up in:"
    emit([*fixes, *exchanges], as_json, _with_discussions(fix_lines(fixes), heading, exchanges))


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
            raise NotFound(f"No session wrote this change: {change.root}", "it may have been typed by hand")
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
            commit = origin.commit and f"it came with {origin.commit[:_UID_CHARS]}, {origin.commit_subject}"
            count = plural(origin.evicted_edits, "evicted session")
            evicted = f"; {count} edited the file" if origin.evicted_edits else ""
            hint = one_line(f"{commit or 'not committed yet'}{evicted}")
            raise NotFound(f"No session wrote this line: {topic[0]}", hint)
        emit(origin, as_json, origin_lines)
        return
    with open_fresh() as memory:
        answers = memory.knowledge.why(" ".join(topic), filters, limit=limit)
    if not answers:
        raise NotFound(f"Nothing is known about: {' '.join(topic)}", "`recollect search` searches for the words")
    facts = [answer for answer in answers if isinstance(answer, knowledge.Fact)]
    exchanges = [answer for answer in answers if isinstance(answer, recall.Discussion)]
    unknown = f"No decision on record about {' '.join(topic)}. It was discussed in:"
    heading = "It was also discussed in:" if facts else unknown
    emit(answers, as_json, _with_discussions(fact_lines(facts), heading, exchanges))


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
        words = " ".join(goal)
        routes = memory.knowledge.how(words, filters)
        exchanges = [] if routes else memory.knowledge.discussions(words, filters)
    if not routes and not exchanges:
        raise NotFound(f"No session reached a goal like this: {words}", "`recollect search` searches for its words")
    heading = f"No session is known to have reached this goal: {words}. It came up in:"
    emit(routes or exchanges, as_json, _with_discussions(_route_lines(routes), heading, exchanges))


def _route_lines(routes: "Sequence[Route]") -> Iterator[str]:
    names = short_ids({route.session_uid for route in routes})
    for route in routes:
        rest = len(route.steps) - _SHOWN_STEPS
        steps = (*route.steps[:_SHOWN_STEPS], plural(rest, "more step") if rest > 0 else "")
        spent = f"{duration(route.active_s)}, {number(route.tokens)} tokens"
        spent += "" if route.is_confirmed else ", not confirmed by tests or the user"
        opened = _opens(names[route.session_uid], route.request_uid, route.evicted)
        yield from answer(route.goal, steps, route.at, route.repo, opened, spent)


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
    emit(decided[:limit], as_json, lambda shown: _decision_lines(shown, len(decided), others))


def _decision_lines(shown: "Sequence[Fact]", total: int, others: int) -> Iterator[str]:
    yield from fact_lines(shown)
    yield from rest_lines(len(shown), total, "decision")
    if not shown:
        yield "No decisions: `recollect remember` adds one"
    if others > 0:
        yield grey(f"{number(others)} more with --all: commits and less certain ones")


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
    emit({"added": added}, as_json, [f"{plural(added, 'decision')} added"])


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
    emit(fact, as_json, [f"Remembered as {fact.fact_uid}"])
