"""Commands that show and mark sessions: sessions, show, digest, signals, mark."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from recollect import api, archive
from recollect import digest as digests
from recollect.api import open_memory
from recollect.cli.listing import (
    emit_page,
    footer_lines,
    page_lines,
    related_lines,
    session_lines,
    signal_lines,
    timeline_lines,
)
from recollect.cli.options import SESSION, filter_options, open_fresh, session_argument
from recollect.cli.output import (
    command,
    emit,
    limit_option,
    no_pager_option,
    offset_option,
    print_json,
    print_lines,
)
from recollect.cli.terminal import (
    fitted,
    grey,
    line_columns,
    local_time,
    no_sessions,
    number,
    one_line,
    printable,
    repo_name,
    short_ids,
)
from recollect.model.clock import period
from recollect.model.errors import NotFound, UsageError
from recollect.model.kinds import SESSION_CLASSES, SIGNALS
from recollect.model.schema import to_json
from recollect.recall import Filters

if TYPE_CHECKING:
    from recollect.api import Memory, SessionAnnotations
    from recollect.digest import Exchange
    from recollect.model.schema import Digest, Session
    from recollect.sessions import TranscriptItem

_SHOWN_SESSIONS, _SHOWN_TIMELINE, _SHOWN_RELATED = 20, 200, 10
_SHOWN_SIGNALS = 20
_BRIEF_TOKENS = 1500
_SORTS = ("recent", "cost", "duration", "tokens")


@command()
@filter_options
@click.option("--model", metavar="TEXT", help="Only models whose name contains TEXT.")
@click.option("--class", "session_class", type=click.Choice(SESSION_CLASSES), help="Only sessions of this class.")
@click.option("--all", "is_all", is_flag=True, help="Include sub-agents and sessions without work; --json always does.")
@click.option("--sort", type=click.Choice(_SORTS), default="recent", help="Sort by this, highest first.")
@click.option("--active", "is_active", is_flag=True, help="Only running sessions, and whether they wait for you.")
@click.option(
    "--timeline", "is_timeline", is_flag=True, help="Only a day, a week or a year, oldest first: TEXT is a date."
)
@click.option(
    "--related", "is_related", is_flag=True, help="Only sessions before and after one, or on its topic: TEXT is it."
)
@limit_option("sessions", _SHOWN_SESSIONS, varies=True)
@offset_option
@click.argument("text", nargs=-1)
def sessions(text: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """List sessions, newest first; TEXT filters by title.

    Below 100 columns outcomes are signs: ✓ success, ✗ fail, ○ abandoned, · unknown.

    With --timeline, TEXT is a day, a week, a month or a year: 2026-11-01, yesterday, monday, last week, november,
    2026-11. The default is the last 7 days.

    \b
    recollect sessions --since "last week" --repo shop-api
    recollect sessions --here --sort cost
    recollect sessions --active
    recollect sessions --timeline last week
    recollect sessions --related 3f2a91
    recollect sessions "failing test" --before yesterday
    """
    modes = [name for name in ("active", "timeline", "related") if options.pop(f"is_{name}")]
    if len(modes) > 1:
        raise UsageError(f"Cannot use `--{modes[0]}` and `--{modes[1]}` together", "choose one")
    named = " ".join(text)
    match modes:
        case ["active"]:
            with open_fresh() as memory:
                running = memory.groups.active()
            names = short_ids(active.session.session_uid for active in running)
            lines = (
                f"{active.state}  {session.agent}  {names[session.session_uid]}  {repo_name(session.repo)}  "
                + one_line(session.title or "–")
                for active in running
                for session in (active.session,)
            )
            empty = "No session has been active in the last two minutes"
            emit(running, as_json, (fitted(line, line_columns()) for line in lines), empty)
        case ["timeline"]:
            _print_timeline(named, options["filters"], options["limit"], options["offset"], as_json)
        case ["related"]:
            with open_fresh() as memory:
                others = memory.related(memory.session(named or "last"), options["limit"] or _SHOWN_RELATED)
            emit(others, as_json, related_lines, "No related sessions")
        case _:
            _print_sessions(named or None, as_json, **options)


def _print_sessions(
    text: str | None, as_json: bool, *, filters: Filters, is_all: bool, sort: str, limit: int | None, offset: int
) -> None:
    is_all = is_all or as_json
    limit = limit if as_json else limit or _SHOWN_SESSIONS
    roots_only = not is_all and not filters.session_class
    is_idle = None if is_all or filters.session_class else False
    with open_fresh() as memory:
        count = partial(memory.count_sessions, filters, text=text, roots_only=roots_only)
        matches = memory.sessions(
            filters, text=text, roots_only=roots_only, is_idle=is_idle, sort=sort, limit=limit, offset=offset
        )
        total, idle = (0, 0) if as_json else (count(is_idle=is_idle), count(is_idle=True) if is_idle is False else 0)
        is_filtered = any((*filters, text))
    emit(matches, as_json, _list_lines(matches, sort, offset, total, idle, is_filtered))


def _print_timeline(date: str, filters: Filters, limit: int | None, offset: int, as_json: bool) -> None:
    """Print the sessions of a period, oldest first; a part of them is counted from the newest."""
    if date:
        since, before = period("DATE", date)
        filters = filters._replace(since=since, before=before)
    elif filters.since is None and filters.before is None and filters.repo is None:
        filters = filters._replace(since="7d")
    with open_fresh() as memory:
        entries = memory.timeline(filters)
        last = [] if entries else memory.sessions(filters._replace(since=None, before=None), roots_only=True, limit=1)
    if last and not as_json:
        click.echo(f"No sessions in this period; the last one ended {local_time(last[0].ended_at)}")
        return
    shown = limit or (len(entries) if as_json else _SHOWN_TIMELINE)
    listed = entries[::-1][offset : offset + shown][::-1]
    empty = "No sessions in this period"
    emit_page(listed, as_json, timeline_lines, empty, part=(offset, len(entries), "session"))


def _list_lines(
    matches: "list[Session]", sort: str, offset: int, total: int, idle: int, is_filtered: bool
) -> Iterator[str]:
    yield from session_lines(matches, sort)
    hidden = f"{number(idle)} without work hidden: --all" if idle else ""
    if total:
        yield from page_lines(len(matches), offset, total, "session", hidden)
    elif is_filtered or idle:
        yield from footer_lines("No sessions match", hidden)
    else:
        yield no_sessions()


@command()
@session_argument
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
@click.option("--full", "is_full", is_flag=True, help="Show messages, commands and outputs in full.")
@click.option("--diff", "with_diffs", is_flag=True, help="Show what each edit changed.")
@click.option("--raw", is_flag=True, help="Print the full content of every event, one JSON object per line.")
@click.option("--exchanges", "by_request", is_flag=True, help="Show it by request, with one line of each output.")
@no_pager_option
def show(session: str, at: str | None, kind: str | None, by_request: bool, as_json: bool, **how: Any) -> None:
    """Show a session event by event, with its sub-agents.

    SESSION is an id, the start or end of one (6 characters or more), a title or part of one, or `last` (the default).

    \b
    recollect show last
    recollect show "Fix the failing test" --kind error
    recollect show 3f2a91c4 --at 120 --context 5
    recollect show 3f2a91c4 --diff
    recollect show 3f2a91c4 --exchanges
    """
    from recollect.cli.transcript import MARK, transcript_lines  # nothing else here needs it

    if at is not None and kind is not None:
        raise UsageError("Cannot use `--at` and `--kind` together", "`--at` shows events of every kind")
    if by_request:
        if kind or at or any(how[name] for name in ("tail", "is_full", "with_diffs", "raw")):
            raise UsageError("`--exchanges` takes no other options", "only `--json`")
        _print_exchanges(session, as_json)
        return
    with open_fresh() as memory:
        chosen = memory.session(session)
        items: Iterable[TranscriptItem]
        if at is None:
            items = memory.transcript(chosen, kind, last=how["tail"])
        else:
            items = deque(_window(memory, chosen, at, how["context"]), maxlen=how["tail"])
        digest = archive.digest_if_evicted(chosen, memory.digest)
        if as_json:
            shown = {"session": to_json(chosen), "events": [item.to_json() for item in items]}
            print_json(shown | ({"digest": to_json(digest)} if digest else {}))
        elif how["raw"]:
            for item in items:
                print_json(item.to_json(), is_line=True)
            _note_evicted(chosen)
        else:
            empty = "No events of this kind" if kind else "No events are stored" if digest else "No events"
            diffs = archive.patches(memory.diff(chosen)) if how["with_diffs"] else None
            documents = [document.path for document in memory.archives.of(chosen)]
            total = None if chosen.parent_session_uid else memory.stats("session", session=chosen).total
            total = total if total and total.sub_agents_usd else None
            shown = {"is_full": how["is_full"], "diffs": diffs, "documents": documents, "total": total}
            lines = chain(transcript_lines(chosen, items, empty, **shown), _evicted_lines(chosen, digest))
            print_lines(lines, no_pager=how["no_pager"], mark=None if at is None else MARK)


def _window(memory: "Memory", session: "Session", at: str, context: int) -> "list[TranscriptItem]":
    """The events around one; none if the session was evicted: what it taught still names its events."""
    try:
        return memory.window(session, at, context)
    except NotFound:
        if session.evicted_at is None:
            raise
        return []


def _note_evicted(session: "Session") -> None:
    """Mention on standard error that raw detail is gone, where standard output is data."""
    if session.evicted_at is not None:
        hint = "`recollect digest` shows what is left, `recollect retention rehydrate` reads it again"
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


@command()
@session_argument
@click.option("--for-agent", is_flag=True, help="Print a brief to paste into a new session.")
@click.option(
    "--budget",
    metavar="TOKENS",
    type=click.IntRange(200),
    help="Print a brief of at most about this many tokens (1500).",
)
@no_pager_option
def digest(session: str, for_agent: bool, budget: int | None, no_pager: bool, as_json: bool) -> None:
    """Summarise a session: what was asked, done, decided, left open.

    SESSION is an id, the start or end of one (6 characters or more), a title or part of one, or `last` (the
    default). In a pipe it prints Markdown.

    \b
    recollect digest 3f2a91c4
    recollect digest last --for-agent | pbcopy
    """
    with open_fresh() as memory:
        chosen = memory.session(session)
        of_session = memory.digest(chosen)
    if as_json:
        print_json(to_json(of_session) | {"cwd": chosen.cwd, "resume_command": chosen.resume_command})
    elif for_agent or budget:
        click.echo(printable(digests.brief_digest(of_session, chosen, budget or _BRIEF_TOKENS)), nl=False)
    else:
        print_lines(_digest_lines(of_session, chosen), no_pager=no_pager)


def _digest_lines(digest: "Digest", session: "Session") -> Iterator[str]:
    """A digest as Markdown, or in colour and wrapped on a terminal."""
    page = printable(digests.render_digest(digest, None, session)).removesuffix("\n").split("\n")
    if not sys.stdout.isatty():
        return iter(page)
    from recollect.cli.transcript import markdown_lines  # only a terminal needs it

    return markdown_lines(page)


def _print_exchanges(session: str, as_json: bool) -> None:
    """Print messages in full, tool calls as their name and arguments with one line of output."""
    with open_fresh() as memory:
        chosen = memory.session(session)
        of_session = memory.exchanges(chosen)
        digest = archive.digest_if_evicted(chosen, memory.digest)
    if as_json:
        _note_evicted(chosen)
    else:
        print_lines(_evicted_lines(chosen, digest), no_pager=True)
    empty = None if chosen.evicted_at else "No exchanges: the session has no messages"
    emit(of_session, as_json, _exchange_lines, empty)


def _exchange_lines(of_session: "list[Exchange]") -> Iterator[str]:
    for exchange in of_session:
        part = f" part {exchange.part} of {exchange.parts}" if exchange.parts > 1 else ""
        marks = " copy" * exchange.is_copy + " rewound" * exchange.is_abandoned
        of_raw = f" of {number(exchange.raw_tokens)}" if exchange.tokens < exchange.raw_tokens else ""
        yield grey(f"── {exchange.number}{part}{marks} · {number(exchange.tokens)}{of_raw} tokens")
        yield printable(exchange.body)


class _SignalName(click.Choice[str]):
    """The name of a signal, with a space or a `-` for each `_` if the user likes."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(value.replace("-", "_").replace(" ", "_"), param, ctx)


@command()
@click.argument("session", required=False, type=SESSION)
@click.option(
    "--signal",
    metavar="NAME",
    type=_SignalName(SIGNALS),
    help="Only this type of signal; a wrong name lists all types.",
)
@filter_options
@limit_option("signals", _SHOWN_SIGNALS)
@offset_option
def signals(
    session: str | None, signal: str | None, filters: Filters, limit: int | None, offset: int, as_json: bool
) -> None:
    """List what stands out: loops, errors, corrections.

    \b
    recollect signals --here --since "last week"
    recollect signals --signal human_correction
    """
    with open_fresh() as memory:
        chosen = memory.session(session) if session else None
        listed = memory.signals(chosen, filters, signal=signal, limit=limit, offset=offset)
        total = 0 if as_json else memory.count_signals(chosen, filters, signal=signal)
    lines = partial(signal_lines, with_session=chosen is None)
    emit_page(listed, as_json, lines, "No signals", part=(offset, total, "signal"))


@click.group()
def mark() -> None:
    """Star, tag, rename a session, or add a note to it.

    \b
    recollect mark star 3f2a91c4
    recollect mark tag 3f2a91c4 release
    recollect mark note 3f2a91c4 "the migration that worked"
    recollect mark rename 3f2a91c4 "Pool timeouts"
    """


@command(below=mark)
@click.argument("session", type=SESSION)
@click.option("--remove", is_flag=True, help="Remove the star.")
def star(session: str, remove: bool, as_json: bool) -> None:
    """Star a session. `is:starred` finds it.

    \b
    recollect mark star 3f2a91c4
    recollect search is:starred
    """
    _mark(session, api.Annotations.star, not remove, as_json)


@command(below=mark)
@click.argument("session", type=SESSION)
@click.argument("tag")
@click.option("--remove", is_flag=True, help="Remove the tag.")
def tag(session: str, tag: str, remove: bool, as_json: bool) -> None:
    """Tag a session. `tag:NAME` finds it.

    \b
    recollect mark tag 3f2a91c4 release
    recollect search tag:release
    """
    _mark(session, api.Annotations.untag if remove else api.Annotations.tag, tag, as_json)


@command(below=mark)
@click.argument("session", type=SESSION)
@click.argument("text", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove the note with this text.")
def note(session: str, text: tuple[str, ...], remove: bool, as_json: bool) -> None:
    """Add a note to a session.

    \b
    recollect mark note 3f2a91c4 "the migration that worked"
    """
    _mark(session, api.Annotations.drop_note if remove else api.Annotations.note, " ".join(text), as_json)


@command(below=mark)
@click.argument("session", type=SESSION)
@click.argument("name", nargs=-1, required=True)
def rename(session: str, name: tuple[str, ...], as_json: bool) -> None:
    """Rename a session in Recollect; its agent keeps the old title.

    \b
    recollect mark rename 3f2a91c4 "Pool timeouts"
    recollect search "pool timeouts"
    """
    _mark(session, api.Annotations.rename, " ".join(name), as_json)


def _mark(
    name: str, change: "Callable[[api.Annotations, Session, Any], SessionAnnotations]", to: Any, as_json: bool
) -> None:
    with open_memory(create=False) as memory:
        session = memory.session(name)
        changed = change(memory.annotations, session, to)
    emit(changed, as_json, lambda changed: _marked_lines(changed, session))


def _marked_lines(changed: "SessionAnnotations", session: "Session") -> Iterator[str]:
    star, name = "★ " if changed.is_starred else "", changed.name or session.title or session.session_uid
    yield f"{star}{one_line(name)}" + "".join(f"  #{one_line(tag)}" for tag in changed.tags)
    for written in changed.notes:
        yield f"  {local_time(written.made_at)}  {one_line(written.text)}"
