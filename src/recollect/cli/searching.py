"""The commands that find things again. They load as little as can be: a search is to feel instant."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.output import (
    agent_option,
    grey,
    json_option,
    limit_option,
    print_json,
    repo_option,
    reports_errors,
)
from recollect.cli.words import moment_ms
from recollect.errors import NotFound, UsageError

if TYPE_CHECKING:
    from recollect.memory import Memory
    from recollect.recall.answers import SearchAnswer
    from recollect.store import Store

_DAY_MS = 86_400_000
_SHOWN_VISITS, _SHOWN_EDITS, _SHOWN_SESSIONS = 20, 50, 200
_QUERY = {"ignore_unknown_options": True}  # `--no-verify` is something to look for


def _open() -> "Store":
    from recollect.config import load_settings, store_folder
    from recollect.store import open_for_reading

    try:
        return open_for_reading(store_folder())
    except NotFound:
        load_settings()  # says if there is nothing because the place cannot be a store
        raise


def _memory() -> "Memory":
    from recollect.memory import open_memory

    return open_memory(create=False)


def _search_options(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.argument("query", nargs=-1),
        click.option("--limit", metavar="N", type=click.IntRange(1, 100), default=10, help="At most N sessions (10)."),
        click.option(
            "--context", metavar="N", type=click.IntRange(0, 20), default=2, help="Events shown round a match (2)."
        ),
        click.option(
            "--budget",
            "budget_tokens",
            metavar="TOKENS",
            type=click.IntRange(1),
            help="The best that fits.",
        ),
        click.option(
            "--exclude", metavar="SESSION", multiple=True, help="Leave this session out (default: the one run from)."
        ),
        click.option("--substring", is_flag=True, help="Look for the text as it is, also inside words."),
        click.option("--regex", is_flag=True, help="Look for a regular expression."),
        click.option("--explain", is_flag=True, help="Say why each match was found."),
        json_option,
        reports_errors,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(context_settings=_QUERY)
@_search_options
def search(query: tuple[str, ...], as_json: bool, explain: bool, **wanted: Any) -> None:
    """Find sessions by anything said, done or printed in them.

    \b
    recollect search jwt expiry
    recollect search '"connection refused" repo:shop-api since:7d'
    recollect search src/auth/login.ts is:error
    recollect search --no-verify

    Filters: agent: repo: branch: file: tool: kind: model: outcome: role: session: group: channel: user: domain:
    task: since: before: is:error is:decision is:open has:edit. Without a query: recent sessions.
    """
    _print(_answer(" ".join(query), **wanted), as_json, explain, is_line=wanted["budget_tokens"] is not None)


@click.command(context_settings=_QUERY)
@_search_options
def history(query: tuple[str, ...], as_json: bool, explain: bool, **wanted: Any) -> None:
    """The same as `search`, by the name chat agents use."""
    _print(_answer(" ".join(query), **wanted), as_json, explain, is_line=wanted["budget_tokens"] is not None)


def _answer(query: str, *, exclude: tuple[str, ...], substring: bool, regex: bool, **wanted: Any) -> "SearchAnswer":
    from recollect.config import current_sessions
    from recollect.recall.search import Options, search

    if substring and regex:
        raise UsageError("`--substring` and `--regex` are two ways to look", "give one of them")
    mode = "regex" if regex else "substring" if substring else "words"
    options = Options(exclude=exclude or current_sessions(), mode=mode, **wanted)
    with _open() as store:
        if options.mode == "words":
            return search(store, query, options)
        from recollect.cli.progress import shown_progress

        with shown_progress() as show:
            return search(store, query, options, progress=partial(show, "searching"))


def _print(answer: "SearchAnswer", as_json: bool, explain: bool, *, is_line: bool = False) -> None:
    if as_json:
        from recollect.recall.answers import as_json as to_json

        print_json(to_json(answer, explain=explain), is_line=is_line)
        return
    from recollect.cli.found import answer_lines

    click.echo("\n".join(answer_lines(answer, explain=explain)))


@click.command()
@click.option("--limit", metavar="N", type=click.IntRange(1, 100), default=10, help="At most N sessions (10).")
@repo_option
@agent_option
@json_option
@reports_errors
def recent(limit: int, repo: str | None, agent: str | None, as_json: bool) -> None:
    """The sessions that were active last, each with its last request."""
    from recollect.config import current_sessions
    from recollect.recall.search import recent_sessions

    with _open() as store:
        answer = recent_sessions(store, limit, repo=repo, agent=agent, exclude=current_sessions())
    _print(answer, as_json, explain=False)


@click.command()
@click.argument("session")
@click.option("--limit", metavar="N", type=click.IntRange(1, 100), default=10, help="At most N sessions (10).")
@json_option
@reports_errors
def related(session: str, limit: int, as_json: bool) -> None:
    """Sessions before and after one, and those about the same things."""
    from recollect.cli.listing import related_lines

    with _memory() as memory:
        _print_rows(memory.related(memory.session(session), limit), related_lines, as_json)


@click.command()
@click.argument("path")
@repo_option
@limit_option("sessions", _SHOWN_VISITS)
@json_option
@reports_errors
def files(path: str, repo: str | None, limit: int | None, as_json: bool) -> None:
    """Sessions that touched or discussed a file, newest first.

    \b
    recollect files src/auth/login.ts
    """
    from recollect.cli.listing import visit_lines

    shown = limit or _SHOWN_VISITS
    with _memory() as memory:
        found = memory.files(_whole(path), limit if as_json else shown + 1, repo)
    _print_rows(found, visit_lines, as_json, shown)


@click.command()
@click.argument("path")
@repo_option
@limit_option("edits", _SHOWN_EDITS)
@json_option
@reports_errors
def blame(path: str, repo: str | None, limit: int | None, as_json: bool) -> None:
    """Whose edits wrote a file, newest first, renames followed.

    \b
    recollect blame src/auth/login.ts --repo shop-api
    """
    from recollect.cli.found import edit_lines

    shown = limit or _SHOWN_EDITS
    with _memory() as memory:
        found = memory.blame(_whole(path), limit if as_json else shown + 1, repo)
        _print_rows(found, edit_lines, as_json, shown)
        if gone := memory.evicted_edits(_whole(path)):
            told = "1 session that edited it is" if gone == 1 else f"{gone} sessions that edited it are"
            click.echo(f"note: {told} left as digests only: `recollect files` names them", err=True)


@click.command()
@click.option("--since", metavar="WHEN", help="Active since: 2026-11-01, 7d, today (default: 7d).")
@click.option("--before", metavar="WHEN", help="Begun before.")
@click.option("--day", metavar="DATE", help="Only this day: 2026-11-01, today, yesterday.")
@repo_option
@agent_option
@limit_option("sessions", _SHOWN_SESSIONS)
@json_option
@reports_errors
def timeline(
    since: str | None, before: str | None, day: str | None, limit: int | None, as_json: bool, **wanted: Any
) -> None:
    """The sessions of a day, a week or a repository, oldest first."""
    from recollect.cli.listing import timeline_lines

    since_ms, before_ms = moment_ms("--since", since), moment_ms("--before", before)
    if day is not None:
        since_ms = moment_ms("--day", day) or 0
        before_ms = since_ms + _DAY_MS
    elif since is None and before is None and not wanted["repo"]:
        since_ms = moment_ms("--since", "7d")
    shown = limit or _SHOWN_SESSIONS
    with _memory() as memory:
        wanted["limit"] = limit if as_json else shown + 1
        found = memory.timeline(since_ms=since_ms, before_ms=before_ms, **wanted)
    _print_rows(found, timeline_lines, as_json, shown, is_newest_last=True)


def _whole(path: str) -> str:
    """A path as it was told, but for one that leads upwards: that is seen from here."""
    from pathlib import Path

    from recollect.recall.edits import absolute

    return absolute(path, str(Path.cwd())) if ".." in path.split("/") else path


def _print_rows(
    rows: list[Any],
    lines: Callable[[list[Any]], Any],
    as_json: bool,
    shown: int | None = None,
    *,
    is_newest_last: bool = False,
) -> None:
    """Print all rows for programs, and for people the newest `shown`; one more tells that there are more."""
    if as_json:
        from dataclasses import asdict

        print_json([asdict(row) for row in rows])
        return
    is_cut = shown is not None and len(rows) > shown
    for line in lines(rows[-shown:] if shown and is_newest_last else rows[:shown]):
        click.echo(line)
    if is_cut:
        click.echo(grey("there are more: --limit N, --repo"))


COMMANDS = (search, history, recent, related, files, blame, timeline)
