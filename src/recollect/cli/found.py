"""What was found, as a person reads it. Loads nothing but what a search has loaded anyway."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from recollect import kinds
from recollect.cli.output import grey, line_columns
from recollect.cli.words import fitted, local_time, one_line, repo_name, short_ids
from recollect.recall.snippets import folded
from recollect.text import begins_with

if TYPE_CHECKING:
    from recollect.recall.answers import Glimpse, Match, SearchAnswer, SessionHit
    from recollect.recall.trails import FileEdit

SPEAKERS = {
    kinds.USER_MSG: ("you", "green"),
    kinds.ASSISTANT_MSG: ("agent", "cyan"),
    kinds.COMPLETION: ("agent", "cyan"),
    kinds.THINKING: ("thinks", "bright_black"),
    kinds.TOOL_CALL: ("calls", "yellow"),
    kinds.TEST_RUN: ("tests", "yellow"),
    kinds.EDIT: ("edits", "yellow"),
    kinds.RETRY: ("retries", "magenta"),
    kinds.TOOL_RESULT: ("got", "bright_black"),
    kinds.ERROR: ("error", "red"),
    kinds.DECISION: ("decides", "green"),
    kinds.HUMAN_INTERVENTION: ("you stop", "red"),
    kinds.LIFECYCLE: ("system", "bright_black"),
    kinds.OTHER: ("other", "bright_black"),
    "digest": ("digest", "bright_black"),
}
_MARGIN = 20
_LEAST_COLUMNS = 20  # of a text that is cut, however narrow the terminal is
_HEAD_COLUMNS = 50


def answer_lines(answer: "SearchAnswer", *, explain: bool = False) -> Iterator[str]:
    """Hits with their matches, then what else there is to say."""
    places = [match.session_uid for hit in answer.hits for match in hit.matches]
    names = short_ids([*(hit.session_uid for hit in answer.hits), *places])
    for number, hit in enumerate(answer.hits):
        yield from [""] if number else []
        yield from _hit_lines(hit, names, explain)
    if not answer.hits:
        yield "Nothing fits into the budget" if answer.is_cut else "Nothing found"
    if answer.suggestion:
        yield f"Did you mean: {one_line(answer.suggestion)}"
    for note in answer.notes:
        yield grey(f"note: {one_line(note)}")


def _hit_lines(hit: "SessionHit", names: Mapping[str, str], explain: bool) -> Iterator[str]:
    head = f"{_head(hit.ended_at or hit.started_at, hit.agent, names[hit.session_uid])}  {repo_name(hit.repo)}"
    title, shown = _title(hit), {match.event_uid for match in hit.matches}
    gone = grey(" [digest only]") if hit.evicted else ""
    outcome = grey(f" [{hit.outcome}]") if hit.outcome else ""
    yield f"{head}  {click.style(_fitted(title, _HEAD_COLUMNS), bold=True)}{gone}{outcome}"
    if explain:
        yield grey(f"  score {hit.score}: {one_line(hit.why)}")
    began, ending = hit.first_request, hit.ending
    if began and began.event_uid not in shown and not begins_with(one_line(began.snippet), title):
        yield _line("began", "bright_black", began.snippet)
    for match in hit.matches:
        within = "" if match.session_uid == hit.session_uid else f"in {names[match.session_uid]}: "
        yield from _match_lines(match, within, explain)
    if ending and ending != began and ending.event_uid not in shown:
        yield _line("ended", "bright_black", ending.snippet)
    yield from (_line("open", "magenta", end) for end in hit.open_ends)


def _fitted(text: str, beside: int) -> str:
    """The text, cut to what is left of a line beside so many columns."""
    return fitted(text, max(_LEAST_COLUMNS, line_columns() - beside))


def _head(when: str | None, agent: str, name: str) -> str:
    return f"{grey(local_time(when))}  {agent}  {click.style(name, fg='yellow')}"


def _title(hit: "SessionHit") -> str:
    """What a session is called; if that is how its first request begins, more of the request."""
    title = one_line(hit.title or "–")
    began = one_line(hit.first_request.snippet) if hit.first_request else ""
    return began if begins_with(began, title) else title


def _match_lines(match: "Match", within: str, explain: bool) -> Iterator[str]:
    yield from (_glimpse_line(item) for item in match.before)
    label, colour = SPEAKERS.get(match.kind, (match.kind, "bright_black"))
    yield _line(label, colour, f"{within}{match.snippet}", f"#{match.seq}" if match.seq else "", match.words)
    if explain:
        exact = "" if match.is_exact else ", only by its words"
        yield grey(f"{'':{_MARGIN}}score {match.score}, {one_line(match.why)}{exact}, event {match.event_uid}")
    yield from (_glimpse_line(item) for item in match.after)


def _line(label: str, colour: str, text: str, place: str = "", words: "Sequence[str]" = ()) -> str:
    told = _marked(_fitted(one_line(text), _MARGIN), words)
    return f"  {grey(f'{place:>6}')}  {click.style(f'{label:<8}', fg=colour)}  {told}"


def _marked(text: str, words: "Sequence[str]") -> str:
    """The text with what was looked for in bold."""
    pattern = "|".join(re.escape(one_line(word)) for word in sorted(words, key=len, reverse=True))
    places = [match.span() for match in re.finditer(pattern, folded(text))] if pattern else []
    for start, end in reversed(places):
        text = f"{text[:start]}{click.style(text[start:end], bold=True)}{text[end:]}"
    return text


def _glimpse_line(item: "Glimpse") -> str:
    label, _ = SPEAKERS.get(item.kind, (item.kind, ""))
    return grey(f"  {'':6}  {label:<8}  {_fitted(one_line(item.snippet), _MARGIN)}")


def edit_lines(found: "Sequence[FileEdit]") -> Iterator[str]:
    """Edits by session and request, newest first."""
    names = short_ids(edit.session_uid for edit in found)
    for _, some in groupby(found, key=lambda edit: (edit.session_uid, edit.request_seq)):
        edits = list(some)
        first = edits[0]
        request = _fitted(one_line(first.request or first.title or "–"), _HEAD_COLUMNS)
        yield f"{_head(first.ts, first.agent, names[first.session_uid])}  {request}"
        for edit in edits:
            renamed = f" (was {one_line(edit.renamed_from)})" if edit.renamed_from else ""
            yield _line("edits", "yellow", f"{edit.path}{renamed}", f"#{edit.seq}")
    if not found:
        yield "No edit of that file is stored"
