"""Commands that search: search, history, recent, related, files, blame, timeline. They load little and start fast."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Unpack

import click

from recollect import kinds
from recollect.api import SearchOptions, open_memory
from recollect.cli.listing import related_lines, timeline_lines, visit_lines
from recollect.cli.output import agent_option, emit, json_option, limit_option, print_json, repo_option, reports_errors
from recollect.cli.terminal import (
    fitted,
    grey,
    line_columns,
    local_time,
    moment_ms,
    one_line,
    repo_name,
    short_ids,
    shown_progress,
)
from recollect.errors import UsageError
from recollect.recall import folded
from recollect.text import begins_with

if TYPE_CHECKING:
    from recollect.recall import FileEdit, Glimpse, Match, SearchAnswer, SessionHit

_DAY_MS = 86_400_000
_SHOWN_VISITS, _SHOWN_EDITS, _SHOWN_SESSIONS = 20, 50, 200
_MARGIN = 20
_LEAST_COLUMNS = 20  # of a text that is cut, however narrow the terminal is
_HEAD_COLUMNS = 50
_QUERY = {"ignore_unknown_options": True}  # `--no-verify` may be what somebody looks for
SPEAKERS = {
    kinds.USER_MSG: ("you", "green"),
    kinds.ASSISTANT_MSG: ("agent", "cyan"),
    kinds.COMPLETION: ("agent", "cyan"),
    kinds.THINKING: ("thinking", "bright_black"),
    kinds.TOOL_CALL: ("tool", "yellow"),
    kinds.TEST_RUN: ("test", "yellow"),
    kinds.EDIT: ("edit", "yellow"),
    kinds.RETRY: ("retry", "magenta"),
    kinds.TOOL_RESULT: ("output", "bright_black"),
    kinds.ERROR: ("error", "red"),
    kinds.DECISION: ("decision", "green"),
    kinds.HUMAN_INTERVENTION: ("stopped", "red"),
    kinds.LIFECYCLE: ("system", "bright_black"),
    kinds.OTHER: ("other", "bright_black"),
    "digest": ("digest", "bright_black"),
}

_ranked_limit = click.option(
    "--limit", metavar="N", type=click.IntRange(1, 100), default=10, help="List at most N sessions (10)."
)


@click.command(context_settings=_QUERY)
@click.argument("query", nargs=-1)
@_ranked_limit
@click.option("--context", metavar="N", type=click.IntRange(0, 20), default=2, help="Show N events around a match (2).")
@click.option(
    "--budget",
    "budget_tokens",
    metavar="TOKENS",
    type=click.IntRange(1),
    help="Show only the best matches that fit into so many tokens.",
)
@click.option("--exclude", metavar="SESSION", multiple=True, help="Leave out this session (default: the current one).")
@click.option("--substring", is_flag=True, help="Search for the exact text, even inside words.")
@click.option("--regex", is_flag=True, help="Search for a regular expression.")
@click.option("--explain", is_flag=True, help="Explain why each match was found.")
@json_option
@reports_errors
def search(
    query: tuple[str, ...],
    substring: bool,
    regex: bool,
    explain: bool,
    as_json: bool,
    **options: Unpack[SearchOptions],
) -> None:
    """Search everything said, done or printed in your sessions.

    \b
    recollect search jwt expiry
    recollect search '"connection refused" repo:shop-api since:7d'
    recollect search src/auth/login.ts is:error
    recollect search --no-verify

    Filters: agent: repo: branch: file: tool: kind: model: outcome: role: session: group: channel: user: domain:
    task: since: before: is:error is:decision is:open has:edit. Without a query, lists recent sessions.
    """
    if substring and regex:
        raise UsageError("Cannot use `--substring` and `--regex` together", "choose one")
    options["mode"] = "regex" if regex else "substring" if substring else "words"
    if not options["exclude"]:
        del options["exclude"]  # the default, which is the current session
    with open_memory(read_only=True) as memory, shown_progress() as show:
        answer = memory.answer(" ".join(query), show, **options)
    if as_json:
        print_json(answer.to_json(explain=explain), is_line=options["budget_tokens"] is not None)
    else:
        click.echo("\n".join(answer_lines(answer, explain=explain)))


history = click.Command(
    "history", _QUERY, search.callback, search.params, help="Same as `search`, by the name that chat agents use."
)


@click.command()
@_ranked_limit
@repo_option
@agent_option
@json_option
@reports_errors
def recent(limit: int, repo: str | None, agent: str | None, as_json: bool) -> None:
    """List the sessions active last, each with its last request."""
    with open_memory(read_only=True) as memory:
        answer = memory.recent(limit, repo=repo, agent=agent)
    emit(answer, as_json, answer_lines)


@click.command()
@click.argument("session")
@_ranked_limit
@json_option
@reports_errors
def related(session: str, limit: int, as_json: bool) -> None:
    """List sessions before and after one, or on the same topic."""
    with open_memory(read_only=True) as memory:
        sessions = memory.related(memory.session(session), limit)
    emit(sessions, as_json, related_lines)


@click.command()
@click.argument("path")
@repo_option
@limit_option("sessions", _SHOWN_VISITS)
@json_option
@reports_errors
def files(path: str, repo: str | None, limit: int | None, as_json: bool) -> None:
    """List sessions that edited a file, then those that mention it.

    \b
    recollect files src/auth/login.ts
    """
    shown = limit or _SHOWN_VISITS
    with open_memory(read_only=True) as memory:
        visits = memory.files(path, limit if as_json else shown + 1, repo)
    emit(visits, as_json, lambda visits: _cut(visits, visit_lines, shown))


@click.command()
@click.argument("path")
@repo_option
@limit_option("edits", _SHOWN_EDITS)
@json_option
@reports_errors
def blame(path: str, repo: str | None, limit: int | None, as_json: bool) -> None:
    """List the edits that wrote a file, newest first, across renames.

    \b
    recollect blame src/auth/login.ts --repo shop-api
    """
    shown = limit or _SHOWN_EDITS
    with open_memory(read_only=True) as memory:
        edits = memory.blame(path, limit if as_json else shown + 1, repo)
        evicted = memory.evicted_edits(path)
    emit(edits, as_json, lambda edits: _cut(edits, _edit_lines, shown))
    if evicted:
        sessions = "1 more session" if evicted == 1 else f"{evicted} more sessions"
        click.echo(f"note: {sessions} edited it, kept only as digests: `recollect files` lists them", err=True)


@click.command()
@click.option("--since", metavar="WHEN", help="Active since: 2026-11-01, 7d, today (default: 7d).")
@click.option("--before", metavar="WHEN", help="Started before this time.")
@click.option("--day", metavar="DATE", help="Only this day: 2026-11-01, today, yesterday.")
@repo_option
@agent_option
@limit_option("sessions", _SHOWN_SESSIONS)
@json_option
@reports_errors
def timeline(
    since: str | None,
    before: str | None,
    day: str | None,
    repo: str | None,
    agent: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """List sessions of a day, a week or a repository, oldest first."""
    if day is None and since is None and before is None and not repo:
        since = "7d"
    since_ms, before_ms = moment_ms("--since", since), moment_ms("--before", before)
    if day is not None:
        since_ms = moment_ms("--day", day) or 0
        before_ms = since_ms + _DAY_MS
    shown = limit or _SHOWN_SESSIONS
    with open_memory(read_only=True) as memory:
        entries = memory.timeline(
            since_ms=since_ms, before_ms=before_ms, repo=repo, agent=agent, limit=limit if as_json else shown + 1
        )
    emit(entries, as_json, lambda entries: _cut(entries, timeline_lines, shown, is_newest_last=True))


def _cut(
    rows: list[Any], lines: Callable[[list[Any]], Iterable[str]], shown: int, *, is_newest_last: bool = False
) -> Iterator[str]:
    """Lines of the newest `shown` rows; one row more means that the list goes on."""
    yield from lines(rows[-shown:] if is_newest_last else rows[:shown])
    if len(rows) > shown:
        yield grey("more: --limit N, --repo")


def answer_lines(answer: "SearchAnswer", *, explain: bool = False) -> Iterator[str]:
    """What was dropped or corrected, hits with their matches, then suggestions."""
    of_matches = [match.session_uid for hit in answer.hits for match in hit.matches]
    names = short_ids([*(hit.session_uid for hit in answer.hits), *of_matches])
    yield from (grey(f"note: {one_line(note)}") for note in answer.notes)
    for number, hit in enumerate(answer.hits):
        yield from [""] if number else []
        yield from _hit_lines(hit, names, explain)
    if not answer.hits:
        yield "Nothing fits into the budget" if answer.is_cut else "No matches"
    if answer.suggestion:
        yield f"Did you mean: {one_line(answer.suggestion)}"


def _hit_lines(hit: "SessionHit", names: Mapping[str, str], explain: bool) -> Iterator[str]:
    head = f"{_head(hit.ended_at or hit.started_at, hit.agent, names[hit.session_uid])}  {repo_name(hit.repo)}"
    title, shown = _title(hit), {match.event_uid for match in hit.matches}
    evicted = grey(" [digest only]") if hit.evicted else ""
    evicted += grey(f" [without {', '.join(map(one_line, hit.missing))}]") if hit.missing else ""
    outcome = grey(f" [{hit.outcome}]") if hit.outcome else ""
    yield f"{head}  {click.style(_fitted(title, _HEAD_COLUMNS), bold=True)}{evicted}{outcome}"
    if explain:
        yield grey(f"  score {hit.score}: {one_line(hit.why)}")
    start, end = hit.first_request, hit.ending
    if start and start.event_uid not in shown and not begins_with(one_line(start.snippet), title):
        yield _line("start", "bright_black", start.snippet)
    for match in hit.matches:
        within = "" if match.session_uid == hit.session_uid else f"in {names[match.session_uid]}: "
        yield from _match_lines(match, within, explain)
    if end and end != start and end.event_uid not in shown:
        yield _line("end", "bright_black", end.snippet)
    yield from (_line("open", "magenta", text) for text in hit.open_ends)


def _fitted(text: str, beside: int) -> str:
    """The text, cut to the rest of a line beside so many columns."""
    return fitted(text, max(_LEAST_COLUMNS, line_columns() - beside))


def _head(when: str | None, agent: str, name: str) -> str:
    return f"{grey(local_time(when))}  {agent}  {click.style(name, fg='yellow')}"


def _title(hit: "SessionHit") -> str:
    """A session's title; if that is the beginning of its first request, more of the request."""
    title = one_line(hit.title or "–")
    request = one_line(hit.first_request.snippet) if hit.first_request else ""
    return request if begins_with(request, title) else title


def _match_lines(match: "Match", within: str, explain: bool) -> Iterator[str]:
    yield from map(_glimpse_line, match.before)
    label, colour = SPEAKERS.get(match.kind, (match.kind, "bright_black"))
    yield _line(label, colour, f"{within}{match.snippet}", f"#{match.seq}" if match.seq else "", match.words)
    if explain:
        exact = "" if match.is_exact else ", words only"
        yield grey(f"{'':{_MARGIN}}score {match.score}, {one_line(match.why)}{exact}, event {match.event_uid}")
    yield from map(_glimpse_line, match.after)


def _line(label: str, colour: str, text: str, seq: str = "", words: "Sequence[str]" = ()) -> str:
    body = _highlighted(_fitted(one_line(text), _MARGIN), words)
    return f"  {grey(f'{seq:>6}')}  {click.style(f'{label:<8}', fg=colour)}  {body}"


def _highlighted(text: str, words: "Sequence[str]") -> str:
    """The text with the words of the query in bold."""
    pattern = "|".join(re.escape(one_line(word)) for word in sorted(words, key=len, reverse=True))
    spans = [match.span() for match in re.finditer(pattern, folded(text))] if pattern else []
    for start, end in reversed(spans):
        text = f"{text[:start]}{click.style(text[start:end], bold=True)}{text[end:]}"
    return text


def _glimpse_line(item: "Glimpse") -> str:
    label, _ = SPEAKERS.get(item.kind, (item.kind, ""))
    return grey(f"  {'':6}  {label:<8}  {_fitted(one_line(item.snippet), _MARGIN)}")


def _edit_lines(edits: "Sequence[FileEdit]") -> Iterator[str]:
    """Edits by session and request, newest first."""
    names = short_ids(edit.session_uid for edit in edits)
    for _, group in groupby(edits, key=lambda edit: (edit.session_uid, edit.request_seq)):
        of_request = list(group)
        first = of_request[0]
        request = _fitted(one_line(first.request or first.title or "–"), _HEAD_COLUMNS)
        yield f"{_head(first.ts, first.agent, names[first.session_uid])}  {request}"
        for edit in of_request:
            renamed = f" (was {one_line(edit.renamed_from)})" if edit.renamed_from else ""
            counts = f"+{edit.added} -{edit.removed}  " if edit.added or edit.removed else ""
            yield _line("edit", "yellow", f"{counts}{edit.path}{renamed}", f"#{edit.seq}")
    if not edits:
        yield "No edits of this file"


COMMANDS = (search, history, recent, related, files, blame, timeline)
