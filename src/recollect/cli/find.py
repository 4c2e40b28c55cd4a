"""Commands that search: search, history, recent, blame. They load little and start fast."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.listing import (
    emit_page,
    highlighted,
    hit_table,
    matched_part,
    page_lines,
    request_table,
    visit_lines,
)
from recollect.cli.options import filter_options, open_fresh
from recollect.cli.output import command, emit, limit_option, offset_option, print_json, print_lines
from recollect.cli.terminal import (
    fitted,
    grey,
    line_columns,
    line_count,
    one_line,
    short_ids,
    shown_progress,
    width,
    wrapped,
)
from recollect.model import kinds
from recollect.model.errors import UsageError
from recollect.model.text import begins_with
from recollect.recall import Filters

if TYPE_CHECKING:
    from recollect.recall import FileEdit, FileVisit, Glimpse, Match, SearchAnswer, SessionHit

_NEAR_MISS = 0.75  # how alike an option and a text must be to ask which was meant
_LINES_AROUND = 4  # of an answer: heading, footer, the prompt
_SHOWN_VISITS, _SHOWN_EDITS = 20, 50
_RANKED, _MOST_RANKED = 10, 100  # sessions
_MATCHES, _MOST_MATCHES = 3, 100  # of a session
_MARGIN = 20
_NO_EDITS = "No edits of this file: `recollect blame --all` lists the sessions that mention it"
_LEAST_COLUMNS = 20  # of a text that is cut, however narrow the terminal is
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
    "--limit",
    "-n",
    metavar="N",
    type=click.IntRange(1, _MOST_RANKED),
    help=f"List at most N sessions ({_RANKED}).",
)


class QueryCommand(click.Command):
    """Tells options from what to search for: `--limit` is an option wherever it is, `--no-verify` is a text."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options, words = _split_query(
            ctx, {name: option for option in self.get_params(ctx) for name in option.opts}, args
        )
        return super().parse_args(ctx, [*options, "--", *words])


def _split_query(
    ctx: click.Context, known: "Mapping[str, click.Parameter]", args: list[str]
) -> tuple[list[str], list[str]]:
    """The options among the arguments, each with its value, and the rest. A misspelt option is asked about."""
    options: list[str] = []
    words: list[str] = []
    waiting = deque(args)
    while waiting:
        argument = waiting.popleft()
        name, equals, _ = argument.partition("=")
        if argument == "--":
            words += waiting
            break
        is_pasted = name == "-n" and not (waiting and waiting[0].isdigit())
        if name not in known or not name.startswith("-") or is_pasted:
            _refuse_near_miss(ctx, name, known)
            if name.startswith("--") and name.isascii() and " " not in name:
                click.echo(f"note: Searching for the text {name}: `{ctx.info_name}` has no such option", err=True)
            words.append(argument)
            continue
        options.append(argument)
        takes_value = not getattr(known[name], "is_flag", False)
        if takes_value and not equals and waiting:
            options.append(waiting.popleft())
    return options, words


def _refuse_near_miss(ctx: click.Context, name: str, known: "Iterable[str]") -> None:
    if not name.startswith("--") or len(name.split()) > 1:
        return
    from difflib import get_close_matches  # few queries have a dash in them

    near = get_close_matches(name[2:], [other[2:] for other in known if other.startswith("--")], 1, _NEAR_MISS)
    if near:
        raise click.UsageError(
            f"No such option: {name}. Did you mean --{near[0]}? To search for it: {ctx.command_path} -- {name}",
            ctx,
        )


@command(cls=QueryCommand)
@click.argument("query", nargs=-1)
@filter_options
@_ranked_limit
@offset_option
@click.option("--context", metavar="N", type=click.IntRange(0, 20), default=0, help="Show N events around a match (0).")
@click.option("--matches", metavar="N", type=click.IntRange(1), help="Show at most N matches of a session (3).")
@click.option(
    "--budget",
    "budget_tokens",
    metavar="TOKENS",
    type=click.IntRange(1),
    help="Show only the best matches that fit into this many tokens.",
)
@click.option("--exclude", metavar="SESSION", multiple=True, help="Leave out this session (default: the current one).")
@click.option("--substring", is_flag=True, help="Search for the exact text, even inside words.")
@click.option("--regex", is_flag=True, help="Search for a regular expression.")
@click.option("--explain", is_flag=True, help="Explain why each match was found.")
def search(
    query: tuple[str, ...],
    exclude: tuple[str, ...],
    limit: int | None,
    matches: int | None,
    substring: bool,
    regex: bool,
    explain: bool,
    as_json: bool,
    **options: Any,  # which go to the library as they are
) -> None:
    """Search everything said, done or printed in your sessions.

    \b
    recollect search jwt expiry --repo shop-api --since "last week"
    recollect search '"connection refused" is:error'
    recollect search src/auth/login.ts --here
    recollect search --kind user_msg --since yesterday     what you asked
    recollect search -- --limit                            an option as text

    Filters: agent: repo: branch: file: tool: kind: model: outcome: class: role: session: group: channel: user:
    domain: task: tag: since: before: is:error is:decision is:open is:starred has:edit. Without a query, lists recent
    sessions; with only --kind, every event of that kind in 100 sessions.
    """
    if substring and regex:
        raise UsageError("Cannot use `--substring` and `--regex` together", "choose one")
    is_whole = not query and options["filters"].kind is not None
    limit = limit or (_MOST_RANKED if is_whole else _RANKED)
    of_session = matches or (_MOST_MATCHES if is_whole else _MATCHES)
    mode = "regex" if regex else "substring" if substring else "words"
    with open_fresh() as memory, shown_progress() as progress:
        answer = memory.answer(
            " ".join(query),
            mode=mode,
            limit=limit,
            matches=of_session,
            exclude=exclude or None,
            progress=progress,
            **options,
        )
    if as_json:
        print_json(answer.to_json(explain=explain), is_line=options["budget_tokens"] is not None)
        return
    is_detailed = explain or matches is not None or options["context"] > 0
    most = of_session if is_whole else None
    lines = answer_lines(answer, options["offset"], most, is_detailed=is_detailed, explain=explain)
    print_lines(lines, no_pager=not is_whole)


history = QueryCommand(
    "history", None, search.callback, search.params, help="Same as `search`, under the name that chat agents use."
)


@command()
@filter_options
@_ranked_limit
@offset_option
def recent(filters: Filters, limit: int | None, offset: int, as_json: bool) -> None:
    """List recently active sessions, each with its last request.

    \b
    recollect recent --here
    """
    with open_fresh() as memory:
        answer = memory.recent(filters, limit=limit or _RANKED, offset=offset)
    emit(answer, as_json, answer_lines(answer, offset))


@command()
@click.argument("path")
@click.option("--all", "is_all", is_flag=True, help="List the sessions that edited or mention it, not the edits.")
@filter_options
@limit_option("edits", _SHOWN_EDITS, varies=True)
@offset_option
def blame(path: str, is_all: bool, filters: Filters, limit: int | None, offset: int, as_json: bool) -> None:
    """List the edits that wrote a file, across renames.

    With --all, lists the sessions that edited the file, then those that mention it.

    \b
    recollect blame src/auth/login.ts --repo shop-api
    recollect blame src/auth/login.ts --all
    """
    with open_fresh() as memory:
        edits = [] if is_all else memory.blame(path, filters)
        rows: Sequence[FileVisit | FileEdit] = memory.files(path, filters) if is_all else edits
        evicted = 0 if is_all else memory.evicted_edits(path)
    # A person gets as many things of two lines as the terminal shows at once.
    on_screen = max(1, min(_SHOWN_VISITS if is_all else _SHOWN_EDITS, (line_count() - _LINES_AROUND) // 2))
    listed = rows[offset : offset + (limit or (len(rows) if as_json else on_screen))]
    if is_all:
        following, empty = f"next: recollect blame {_quoted(path)}", "No session touched or discussed this path"
        emit_page(listed, as_json, visit_lines, empty, following, part=(offset, len(rows), "session"))
    else:
        first, empty = edits[offset : offset + 1], _NO_EDITS
        name = "".join(short_ids(edit.session_uid for edit in first).values())
        following = "".join(f"next: recollect diff {name} {_quoted(edit.path.rpartition('/')[2])}" for edit in first)
        emit_page(listed, as_json, _edit_lines, empty, following, part=(offset, len(rows), "edit"))
    if evicted:
        sessions = "1 more session" if evicted == 1 else f"{evicted} more sessions"
        hint = "`recollect blame --all` lists them"
        click.echo(f"note: {sessions} edited it but are kept as digests only: {hint}", err=True)


def _quoted(path: str) -> str:
    from shlex import quote  # a search starts sooner without it

    return quote(path)


def answer_lines(
    answer: "SearchAnswer",
    offset: int = 0,
    most: int | None = None,
    *,
    is_detailed: bool = False,
    explain: bool = False,
) -> Iterator[str]:
    """What was dropped or corrected, hits with their matches, how many there are, and what to type next.

    On a terminal all of it fits on one screen, unless details are asked for, or `most` matches of each session.
    """
    notes = [line for note in answer.notes for line in wrapped(one_line(note), "note: ", after=" " * len("note: "))]
    yield from map(grey, notes)
    if not answer.hits:
        yield "Nothing fits into the budget" if answer.is_cut else "No matches"
    of_matches = [match.session_uid for hit in answer.hits for match in hit.matches]
    names = short_ids([*(hit.session_uid for hit in answer.hits), *of_matches])
    table = hit_table(answer.hits, list(map(_title, answer.hits)), list(map(_mark, answer.hits)), names)
    on_screen = (line_count() - _LINES_AROUND - len(notes)) // max(1, len(answer.hits)) - 1
    yield from table[:1]
    for place, (hit, head) in enumerate(zip(answer.hits, table[1:], strict=True)):
        yield from [""] if place and is_detailed else []
        yield head
        if hit.decided:
            yield from wrapped(one_line(hit.decided), "      decided, ", after=" " * 6)
        if hit.superseded_by:
            yield grey(f"      its decision was amended in {short_ids([hit.superseded_by])[hit.superseded_by]}")
        if is_detailed:
            yield from _detail_lines(hit, names, explain)
        else:
            yield from _match_lines(hit, names, most or max(1, on_screen))
    if answer.hits:
        following = _next(answer.hits[0], names)
        yield from page_lines(len(answer.hits), offset, answer.total, "session", following, is_least=answer.is_least)


def _next(best: "SessionHit", names: Mapping[str, str]) -> str:
    """The command that opens the best match."""
    match = next((match for match in best.matches if match.seq), None)
    if match is None or best.is_recent:
        return f"next: recollect digest {names[best.session_uid]}"
    return f"next: recollect show {names[match.session_uid]} --at {match.seq}"


def _mark(hit: "SessionHit") -> str:
    evicted = " [digest only]" if hit.evicted else ""
    return evicted + (f" [without {', '.join(map(one_line, hit.missing))}]" if hit.missing else "")


def _match_lines(hit: "SessionHit", names: Mapping[str, str], most: int) -> Iterator[str]:
    """The best matches, in the order they happened; of a recent session also how it ended and what it left to do."""
    best = sorted(hit.matches[:most], key=lambda match: (match.session_uid != hit.session_uid, match.seq))
    lines = [_match_line(match, hit, names) for match in best]
    if hit.is_recent:
        lines += [_line("end", "bright_black", hit.ending.snippet)] if hit.ending else []
        lines += [_line("open", "magenta", text) for text in hit.open_ends]
    yield from lines[:most]


def _detail_lines(hit: "SessionHit", names: Mapping[str, str], explain: bool) -> Iterator[str]:
    """How a session began, its matches with the events around them, each once and in order, and how it ended."""
    if explain:
        yield grey(f"  score {hit.score}: {one_line(hit.why)}")
    matches = {match.event_uid: match for match in hit.matches}
    events: dict[str, tuple[bool, str, int, Glimpse | Match]] = {}  # each with its place
    for match in hit.matches:
        around: list[Glimpse | Match] = [*match.before, match, *match.after]
        for item in around:
            place = (match.session_uid != hit.session_uid, match.session_uid, item.seq)
            events[item.event_uid] = (*place, item)
    start, end = hit.first_request, hit.ending
    if start and start.event_uid not in events and not begins_with(one_line(start.snippet), _title(hit)):
        yield _line("start", "bright_black", start.snippet)
    for *_, item in sorted(events.values(), key=lambda event: event[:3]):
        found = matches.get(item.event_uid)
        if found is None:
            label, _ = SPEAKERS.get(item.kind, (item.kind, ""))
            text = fitted(one_line(item.snippet), max(_LEAST_COLUMNS, line_columns() - _MARGIN))
            yield grey(f"  {'':6}  {label:<8}  {text}")
            continue
        yield _match_line(found, hit, names)
        if explain:
            exact = "" if found.is_exact else ", words only"
            yield grey(f"{'':{_MARGIN}}score {found.score}, {one_line(found.why)}{exact}, event {found.event_uid}")
    if end and end != start and end.event_uid not in events:
        yield _line("end", "bright_black", end.snippet)
    yield from (_line("open", "magenta", text) for text in hit.open_ends)


def _title(hit: "SessionHit") -> str:
    """A session's title; if that is the beginning of its first request, or missing, the request."""
    request = one_line(hit.first_request.snippet) if hit.first_request else ""
    title = one_line(hit.title or request or "–")
    return request if begins_with(request, title) else title


def _match_line(match: "Match", hit: "SessionHit", names: Mapping[str, str]) -> str:
    label, colour = SPEAKERS.get(match.kind, (match.kind, "bright_black"))
    within = "" if match.session_uid == hit.session_uid else f"in {names[match.session_uid]}: "
    seq = f"#{match.seq}" if match.seq else ""
    return _line(label, colour, match.snippet, seq, match.words, within)


def _line(label: str, colour: str, text: str, seq: str = "", words: "Sequence[str]" = (), within: str = "") -> str:
    room = max(_LEAST_COLUMNS, line_columns() - _MARGIN - len(within))
    body = highlighted(matched_part(text, words, room), words)
    return f"  {grey(f'{seq:>6}')}  {click.style(f'{label:<8}', fg=colour)}  {within}{body}"


def _edit_lines(edits: "Sequence[FileEdit]") -> Iterator[str]:
    """Edits by session and request, newest first."""
    groups = [list(group) for _, group in groupby(edits, key=lambda edit: (edit.session_uid, edit.request_seq))]
    heading, *heads = request_table([group[0] for group in groups])
    yield heading
    for head, group in zip(heads, groups, strict=True):
        yield head
        for edit in group:
            renamed = f" (was {one_line(edit.renamed_from)})" if edit.renamed_from else ""
            counts = f"+{edit.added} -{edit.removed}  " if edit.added or edit.removed else ""
            room = line_columns() - _MARGIN - len(counts) - width(renamed)
            # A path is cut at its beginning: its end says which file it is.
            path = edit.path if width(edit.path) <= room else f"…{edit.path[-max(1, room - 1) :]}"
            yield _line("edit", "yellow", f"{counts}{path}{renamed}", f"#{edit.seq}")
