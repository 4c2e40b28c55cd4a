"""What was found, as a person reads it. Loads nothing but what a search has loaded anyway."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from recollect.cli.words import fitted, local_time, one_line, padded, plural, width
from recollect.config import terminal_columns
from recollect.recall.snippets import folded
from recollect.text import begins_with

if TYPE_CHECKING:
    from recollect.recall.answers import Glimpse, Match, SearchAnswer, SessionHit
    from recollect.recall.related import Related, TimelineEntry
    from recollect.recall.trails import FileEdit, FileVisit

_SPEAKERS = {
    "user_msg": ("you", "green"),
    "assistant_msg": ("agent", "cyan"),
    "completion": ("agent", "cyan"),
    "thinking": ("thinks", "bright_black"),
    "tool_call": ("calls", "yellow"),
    "test_run": ("tests", "yellow"),
    "edit": ("edits", "yellow"),
    "retry": ("retries", "magenta"),
    "tool_result": ("got", "bright_black"),
    "error": ("error", "red"),
    "decision": ("decides", "green"),
    "human_intervention": ("you stop", "red"),
    "digest": ("digest", "bright_black"),
    "lifecycle": ("system", "bright_black"),
}
_UNCUT = 10_000
_MARGIN = 20
_LEAST_TITLE = 20
_NARROW = 100


def _columns() -> int:
    return terminal_columns(_UNCUT)


def _grey(text: str) -> str:
    return click.style(text, fg="bright_black")


def answer_lines(answer: "SearchAnswer", *, explain: bool = False) -> Iterator[str]:
    """Hits with their matches, then what else there is to say."""
    for number, hit in enumerate(answer.hits):
        yield from [""] if number else []
        yield from _hit_lines(hit, explain)
    if not answer.hits:
        yield "Nothing fits into the budget" if answer.is_cut else "Nothing found"
    if answer.suggestion:
        yield f"Did you mean: {one_line(answer.suggestion)}"
    for note in answer.notes:
        yield _grey(f"note: {one_line(note)}")


def _hit_lines(hit: "SessionHit", explain: bool) -> Iterator[str]:
    name = one_line(hit.session_uid).rsplit(":", 1)[-1][-8:]
    repo = one_line((hit.repo or "–").rsplit("/", 1)[-1])
    head = f"{_grey(local_time(hit.ended_at or hit.started_at))}  {hit.agent}  {click.style(name, fg='yellow')}  {repo}"
    title, shown = _title(hit), {match.event_uid for match in hit.matches}
    gone = _grey(" [digest only]") if hit.evicted else ""
    outcome = _grey(f" [{hit.outcome}]") if hit.outcome else ""
    yield f"{head}  {click.style(fitted(title, max(20, _columns() - 50)), bold=True)}{gone}{outcome}"
    if explain:
        yield _grey(f"  score {hit.score}: {one_line(hit.why)}")
    began, ending = hit.first_request, hit.ending
    if began and began.event_uid not in shown and not begins_with(one_line(began.snippet), title):
        yield _line("began", "bright_black", began.snippet)
    for match in hit.matches:
        within = "" if match.session_uid == hit.session_uid else f"in {_short(match.session_uid)}: "
        yield from _match_lines(match, within, explain)
    if ending and ending != began and ending.event_uid not in shown:
        yield _line("ended", "bright_black", ending.snippet)
    yield from (_line("open", "magenta", end) for end in hit.open_ends)


def _title(hit: "SessionHit") -> str:
    """What a session is called; if that is how its first request begins, more of the request."""
    title = one_line(hit.title or "–")
    began = one_line(hit.first_request.snippet) if hit.first_request else ""
    return began if begins_with(began, title) else title


def _short(session_uid: str) -> str:
    """The end of an id, by which commands take a session, also of a sub-agent."""
    return re.split("[:/]", one_line(session_uid))[-1][-8:]


def _match_lines(match: "Match", within: str, explain: bool) -> Iterator[str]:
    yield from (_glimpse_line(item) for item in match.before)
    label, colour = _SPEAKERS.get(match.kind, (match.kind, "bright_black"))
    yield _line(label, colour, f"{within}{match.snippet}", f"#{match.seq}" if match.seq else "", match.words)
    if explain:
        exact = "" if match.is_exact else ", only by its words"
        yield _grey(f"{'':{_MARGIN}}score {match.score}, {one_line(match.why)}{exact}, event {match.event_uid}")
    yield from (_glimpse_line(item) for item in match.after)


def _line(label: str, colour: str, text: str, place: str = "", words: "Sequence[str]" = ()) -> str:
    told = _marked(fitted(one_line(text), max(20, _columns() - _MARGIN)), words)
    return f"  {_grey(f'{place:>6}')}  {click.style(f'{label:<8}', fg=colour)}  {told}"


def _marked(text: str, words: "Sequence[str]") -> str:
    """The text with what was looked for in bold."""
    pattern = "|".join(re.escape(one_line(word)) for word in sorted(words, key=len, reverse=True))
    places = [match.span() for match in re.finditer(pattern, folded(text))] if pattern else []
    for start, end in reversed(places):
        text = f"{text[:start]}{click.style(text[start:end], bold=True)}{text[end:]}"
    return text


def _glimpse_line(item: "Glimpse") -> str:
    label, _ = _SPEAKERS.get(item.kind, (item.kind, ""))
    room = max(20, _columns() - _MARGIN)
    return _grey(f"  {'':6}  {label:<8}  {fitted(one_line(item.snippet), room)}")


def related_lines(found: "Sequence[Related]") -> Iterator[str]:
    yield from _session_lines(found, [(local_time(other.started_at), one_line(other.why)) for other in found])
    if not found:
        yield "No related sessions"


def _session_lines(
    entries: "Sequence[Related | TimelineEntry | FileVisit]", told: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """In columns, cut to the terminal; `told` is when each was, and a remark that has a line of its own if need be."""
    columns = _columns()
    cells = [(entry.agent, _short(entry.session_uid), _repo(entry.repo, columns)) for entry in entries]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    for entry, row, (when, remark) in zip(entries, cells, told, strict=True):
        agent, name, repo = map(padded, row, widths)
        room = max(_LEAST_TITLE, columns - width(when) - sum(widths) - 2 * (len(widths) + 1))
        title = fitted(one_line(entry.title or "–"), room)
        line = f"{_grey(when)}  {agent}  {click.style(name, fg='yellow')}  {repo}  {title}"
        beside = bool(remark) and width(title) + 2 + width(remark) <= room
        yield f"{line}  {_grey(remark)}" if beside else line
        if remark and not beside:
            indent = " " * (width(when) + 2)
            yield _grey(indent + fitted(remark, columns - len(indent)))


def _repo(repo: str | None, columns: int) -> str:
    return fitted(one_line((repo or "–").rsplit("/", 1)[-1]), 24 if columns >= _NARROW else 12)


def visit_lines(found: "Sequence[FileVisit]") -> Iterator[str]:
    yield from _session_lines(found, [(local_time(visit.last_at), _visited(visit)) for visit in found])
    if not found:
        yield "No session touched or discussed that path"


def _visited(visit: "FileVisit") -> str:
    counts = (("edit", visit.edits), ("call", visit.calls), ("mention", visit.mentions))
    gone = " [digest only]" if visit.evicted else ""
    return ", ".join(plural(count, word) for word, count in counts if count) + gone


def timeline_lines(found: "Sequence[TimelineEntry]") -> Iterator[str]:
    for day, some in groupby(found, key=lambda entry: local_time(entry.started_at)[:10]):
        entries = list(some)
        yield click.style(f"── {day}", bold=True)
        yield from _session_lines(entries, [(local_time(entry.started_at)[11:], "") for entry in entries])
    if not found:
        yield "No sessions in that time"


def edit_lines(found: "Sequence[FileEdit]") -> Iterator[str]:
    """Edits by session and request, newest first."""
    for (_, _), some in groupby(found, key=lambda edit: (edit.session_uid, edit.request_seq)):
        edits = list(some)
        first = edits[0]
        name = one_line(first.session_uid).rsplit(":", 1)[-1][-8:]
        request = fitted(one_line(first.request or first.title or "–"), max(20, _columns() - 50))
        yield f"{_grey(local_time(first.ts))}  {first.agent}  {click.style(name, fg='yellow')}  {request}"
        for edit in edits:
            renamed = f" (was {one_line(edit.renamed_from)})" if edit.renamed_from else ""
            yield _line("edits", "yellow", f"{edit.path}{renamed}", f"#{edit.seq}")
    if not found:
        yield "No edit of that file is stored"
