"""Commands that show sessions: sessions, show, digest, exchanges, signals."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from recollect.api import open_memory
from recollect.cli.listing import session_lines
from recollect.cli.markdown import markdown_lines
from recollect.cli.output import agent_option, emit, json_option, limit_option, print_json, repo_option, reports_errors
from recollect.cli.pager import no_pager_option, print_lines
from recollect.cli.terminal import (
    fitted,
    grey,
    line_columns,
    local_time,
    moment_ms,
    number,
    one_line,
    padded,
    printable,
    short_ids,
    width,
)
from recollect.errors import NotFound, UsageError
from recollect.kinds import OUTCOMES, SESSION_CLASSES, SIGNALS
from recollect.schema import to_json

if TYPE_CHECKING:
    from recollect.api import Memory
    from recollect.distill.exchanges import Exchange
    from recollect.schema import Digest, Session, Signal
    from recollect.sessions.transcript import TranscriptItem

_SHOWN_SESSIONS = 20
_TIME_COLUMNS = 16
_SIGNAL_COLUMNS = max(map(len, SIGNALS))
_LEAST_COLUMNS = 12  # of a text that is cut, however narrow the terminal is


@click.command()
@agent_option
@repo_option
@click.option("--branch", metavar="NAME", help="Only this git branch.")
@click.option("--model", metavar="TEXT", help="Only models whose name contains TEXT.")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="Only sessions with this outcome.")
@click.option("--class", "session_class", type=click.Choice(SESSION_CLASSES), help="Only sessions of this class.")
@click.option("--since", metavar="WHEN", help="Active since: 2026-11-01, 7d, 2h, today, yesterday.")
@click.option("--before", metavar="WHEN", help="Started before this time.")
@click.option("--all", "with_sub_agents", is_flag=True, help="Include sub-agents; --json always does.")
@limit_option("sessions", _SHOWN_SESSIONS)
@click.argument("text", required=False)
@json_option
@reports_errors
def sessions(as_json: bool, since: str | None, before: str | None, with_sub_agents: bool, **filters: Any) -> None:
    """List sessions, newest first; TEXT filters by title.

    \b
    recollect sessions --since 7d --repo shop-api
    recollect sessions "failing test" --before yesterday
    """
    filters |= {"since_ms": moment_ms("--since", since), "before_ms": moment_ms("--before", before)}
    filters["roots_only"] = not as_json and not with_sub_agents and not filters["session_class"]
    shown = filters["limit"] or _SHOWN_SESSIONS
    if not as_json:
        filters["limit"] = shown + 1  # one more shows whether the list is cut
    with open_memory(read_only=True) as memory:
        matches = memory.sessions(**filters)
        agents = [agent.agent for agent in memory.status().agents] if not matches and not as_json else []
    emit(matches, as_json, lambda matches: _list_lines(matches, shown, agents))


def _list_lines(matches: "list[Session]", shown: int, agents: list[str]) -> Iterator[str]:
    yield from session_lines(matches[:shown])
    if len(matches) > shown:
        yield grey("more: --limit N, --since, --repo")
    elif not matches and agents:
        yield f"No sessions match; agents with sessions: {', '.join(agents)}"
    elif not matches:
        yield "No sessions yet: `recollect doctor` shows where Recollect looks for them"


@click.command()
@click.argument("session")
@click.option("--kind", metavar="KIND", help="Only events of this kind: user_msg, edit, error …")
@click.option("--tail", metavar="N", type=click.IntRange(1), help="Only the last N events.")
@click.option("--at", metavar="SEQ", help="Only events around this one: its number, or part of its uid.")
@click.option(
    "--context",
    metavar="N",
    type=click.IntRange(0),
    default=10,
    help="With --at: show N events on each side (10).",
)
@click.option("--full", is_flag=True, help="Cut nothing: whole messages, commands and outputs.")
@click.option("--diff", "with_diffs", is_flag=True, help="Show what each edit changed.")
@click.option("--raw", is_flag=True, help="Print the full content of every event, one JSON object per line.")
@no_pager_option
@json_option
@reports_errors
def show(
    session: str,
    kind: str | None,
    tail: int | None,
    at: str | None,
    context: int,
    full: bool,
    with_diffs: bool,
    raw: bool,
    no_pager: bool,
    as_json: bool,
) -> None:
    """Show a session event by event, with its sub-agents.

    SESSION is an id, the start or end of one (6 characters or more), a title or part of one, or `last`.

    \b
    recollect show last
    recollect show "Fix the failing test" --kind error
    recollect show 3f2a91c4 --at 120 --context 5
    recollect show 3f2a91c4 --diff
    """
    from recollect.cli.transcript import transcript_lines  # nothing else here needs it

    if at is not None and kind is not None:
        raise UsageError("Cannot use `--at` and `--kind` together", "`--at` shows events of every kind")
    with open_memory(read_only=True) as memory:
        chosen = memory.session(session)
        items: Iterable[TranscriptItem]
        items = memory.transcript(chosen, kind, last=tail) if at is None else memory.window(chosen, at, context)
        items = deque(items, maxlen=tail) if tail else items
        digest = _digest_if_evicted(memory, chosen)
        if as_json:
            shown = {"session": to_json(chosen), "events": [item.to_json() for item in items]}
            print_json(shown | ({"digest": to_json(digest)} if digest else {}))
        elif raw:
            for item in items:
                print_json(item.to_json(), is_line=True)
            _note_evicted(chosen)
        else:
            empty = "No events of this kind" if kind else "No events are stored" if digest else "No events"
            diffs = _diffs(memory, chosen) if with_diffs else None
            lines = transcript_lines(chosen, items, empty, is_full=full, diffs=diffs)
            print_lines(chain(lines, _evicted_lines(chosen, digest)), no_pager=no_pager)


def _diffs(memory: "Memory", session: "Session") -> dict[str, str]:
    """What edits did, by the uid of their event."""
    diffs: dict[str, str] = {}
    for edit in memory.diff(session).edits:
        diffs[edit.event_uid] = diffs.get(edit.event_uid, "") + edit.diff
    return diffs


def _digest_if_evicted(memory: "Memory", session: "Session") -> "Digest | None":
    if session.evicted_at is None:
        return None
    try:
        return memory.digest(session)
    except NotFound:
        return None  # a tiny sub-agent: a line in its root's digest is all there is


def _note_evicted(session: "Session") -> None:
    """Mention on standard error that raw detail is gone, where standard output is data."""
    if session.evicted_at is not None:
        hint = "`recollect digest` shows what is left, `recollect rehydrate` reads it again"
        click.echo(f"note: raw detail up to {local_time(session.evicted_at)} was evicted: {hint}", err=True)


def _evicted_lines(session: "Session", digest: "Digest | None") -> Iterator[str]:
    """Mention that raw detail is gone, and show the digest that is left."""
    if session.evicted_at is None:
        return
    when = local_time(session.evicted_at)
    if digest is None:
        yield f"Raw detail up to {when} was evicted to stay within the budget; its root's digest mentions it"
        return
    yield f"Raw detail up to {when} was evicted to stay within the budget. Its digest:"
    yield ""
    yield from _digest_lines(digest, session)


@click.command()
@click.argument("session")
@click.option("--for-agent", is_flag=True, help="Print a brief to paste into a new session.")
@click.option(
    "--budget",
    metavar="TOKENS",
    type=click.IntRange(200),
    default=1500,
    help="With --for-agent: print at most about this many tokens (1500).",
)
@no_pager_option
@json_option
@reports_errors
def digest(session: str, for_agent: bool, budget: int, no_pager: bool, as_json: bool) -> None:
    """Summarise a session: what was asked, done, decided, left open.

    SESSION is an id, the start or end of one (6 characters or more), a title or part of one, or `last`. In a pipe it
    prints Markdown.

    \b
    recollect digest 3f2a91c4
    recollect digest last --for-agent | pbcopy
    """
    with open_memory(read_only=True) as memory:
        chosen = memory.session(session)
        of_session = memory.digest(chosen)
    if as_json:
        print_json(to_json(of_session))
    elif for_agent:
        from recollect.distill.markdown import brief  # only where it is printed

        click.echo(printable(brief(of_session, chosen, budget)), nl=False)
    else:
        print_lines(_digest_lines(of_session, chosen), no_pager=no_pager)


def _digest_lines(digest: "Digest", session: "Session") -> Iterator[str]:
    """A digest as Markdown, or in colour and wrapped on a terminal."""
    from recollect.distill.markdown import render  # only where a digest is printed for people

    page = printable(render(digest, None, session)).removesuffix("\n").split("\n")
    return markdown_lines(page) if sys.stdout.isatty() else iter(page)


@click.command()
@click.argument("session")
@json_option
@reports_errors
def exchanges(session: str, as_json: bool) -> None:
    """Print a session request by request, without the bulk.

    Messages are printed in full, tool calls as their name and arguments with one line of output.
    """
    with open_memory(read_only=True) as memory:
        chosen = memory.session(session)
        of_session = memory.exchanges(chosen)
        digest = _digest_if_evicted(memory, chosen)
    if as_json:
        _note_evicted(chosen)
    else:
        print_lines(_evicted_lines(chosen, digest), no_pager=True)
    emit(of_session, as_json, lambda found: _exchange_lines(found, is_evicted=chosen.evicted_at is not None))


def _exchange_lines(of_session: "list[Exchange]", *, is_evicted: bool) -> Iterator[str]:
    for exchange in of_session:
        part = f" part {exchange.part} of {exchange.parts}" if exchange.parts > 1 else ""
        marks = " copy" * exchange.is_copy + " rewound" * exchange.is_abandoned
        of_raw = f" of {number(exchange.raw_tokens)}" if exchange.tokens < exchange.raw_tokens else ""
        yield grey(f"── {exchange.number}{part}{marks} · {number(exchange.tokens)}{of_raw} tokens")
        yield printable(exchange.body)
    if not of_session and not is_evicted:
        yield "No exchanges: the session has no messages"


@click.command()
@click.argument("session", required=False)
@click.option("--signal", type=click.Choice(SIGNALS), help="Only signals of this type.")
@click.option("--since", metavar="WHEN", help="Since: 2026-11-01, 7d, 2h, today, yesterday.")
@json_option
@reports_errors
def signals(session: str | None, signal: str | None, since: str | None, as_json: bool) -> None:
    """List what stands out: loops, repeated errors, corrections."""
    since_ms = moment_ms("--since", since)
    with open_memory(read_only=True) as memory:
        chosen = memory.session(session) if session else None
        found = memory.signals(chosen, signal=signal, since_ms=since_ms)
    emit(found, as_json, lambda found: _signal_lines(found, with_session=chosen is None))


def _signal_lines(found: "Sequence[Signal]", *, with_session: bool) -> Iterator[str]:
    """A line for each signal, cut to the terminal, with the end of its session's id."""
    columns = line_columns()
    names = short_ids(signal.session_uid for signal in found) if with_session else {}
    id_columns = max(map(width, names.values()), default=0)
    for signal in found:
        when, count = f"{local_time(signal.ts):<{_TIME_COLUMNS}}", f" ({number(signal.count)})"
        name = f"{padded(names[signal.session_uid], id_columns)}  " if with_session else ""
        room = columns - _TIME_COLUMNS - 2 - _SIGNAL_COLUMNS - 1 - width(name) - len(count)
        label = click.style(f"{signal.signal:<{_SIGNAL_COLUMNS}}", fg="yellow")
        yield f"{when}  {label} {name}{fitted(one_line(signal.detail), max(_LEAST_COLUMNS, room))}{count}"
    if not found:
        yield "No signals"


COMMANDS = (sessions, show, digest, exchanges, signals)
