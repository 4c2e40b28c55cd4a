"""Lists for people: headings, a line for each thing in columns, cut to the terminal; what is left out is counted."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from recollect.cli.output import emit
from recollect.cli.terminal import (
    duration,
    fitted,
    fitted_time,
    grey,
    is_narrow,
    is_wide,
    line_columns,
    local_time,
    money,
    number,
    one_line,
    padded,
    plural,
    repo_name,
    short_ids,
    width,
)
from recollect.model.kinds import ABANDONED, FAIL, SUCCESS, signal_words
from recollect.recall import folded

if TYPE_CHECKING:
    from recollect.model.schema import Session, Signal
    from recollect.recall import FileEdit, FileVisit, Related, SessionHit, TimelineEntry

_LEAST_TITLE = 12
_TITLE_COLUMNS = 100  # of a hit, even in a pipe: its matches matter more
_OUTCOMES = {SUCCESS: ("✓", "green"), FAIL: ("✗", "red"), ABANDONED: ("○", "yellow")}
_OTHER_OUTCOME = ("·", "bright_black")


class Column(NamedTuple):
    """A column of a list. Without any text in its cells it is left out."""

    head: str
    cells: Sequence[str]
    colours: Sequence[str] | None = None
    is_number: bool = False


def make_table(columns: Iterable[Column], head: str, texts: Sequence[str], marks: Sequence[str] = ()) -> list[str]:
    """A heading, and columns side by side with the texts in the rest of each line, cut to the terminal.

    Marks stay whole. Nothing without texts.
    """
    shown = [column for column in columns if any(column.cells)]
    widths = [max(map(width, (column.head, *column.cells))) for column in shown]
    room = max(_LEAST_TITLE, line_columns() - sum(widths) - 2 * len(widths))
    lines = []
    for row, text in enumerate(texts):
        cells = [
            click.style(_aligned(column.cells[row], room, column), fg=column.colours[row] if column.colours else None)
            for column, room in zip(shown, widths, strict=True)
        ]
        mark = fitted(marks[row], room - _LEAST_TITLE) if marks and room > _LEAST_TITLE else ""
        lines.append("  ".join([*cells, fitted(text, room - width(mark)) + grey(mark)]))
    heads = [_aligned(column.head, columns_wide, column) for column, columns_wide in zip(shown, widths, strict=True)]
    return [grey("  ".join([*heads, head])), *lines] if lines else []


def _aligned(text: str, columns_wide: int, column: Column) -> str:
    return " " * (columns_wide - width(text)) + text if column.is_number else padded(text, columns_wide)


def _session_columns(
    when: Column,
    sessions: "Sequence[Session | Related | TimelineEntry | FileVisit | SessionHit]",
    names: Mapping[str, str] | None = None,
) -> list[Column]:
    """What identifies sessions: when, agent, id, repository; a narrow terminal has no room for the agent."""
    names = names or short_ids(session.session_uid for session in sessions)
    agents = ["" if is_narrow() else session.agent for session in sessions]
    repos = [fitted(repo_name(session.repo), 24 if is_wide() else 10) for session in sessions]
    return [
        when._replace(colours=["bright_black"] * len(sessions)),
        Column("agent", agents),
        Column("id", [names[session.session_uid] for session in sessions], ["yellow"] * len(sessions)),
        Column("repo", repos),
    ]


def _when(moments: Iterable[str | None], head: str = "active") -> Column:
    return Column(head, [fitted_time(moment) for moment in moments])


def outcome_sign(outcome: str | None) -> tuple[str, str]:
    """How a session ended, as a sign and its colour."""
    return _OUTCOMES.get(outcome or "", _OTHER_OUTCOME)


def outcome_column(outcomes: "Sequence[str | None]") -> Column:
    """How sessions ended: in a word, or in a sign where words take too much room."""
    marks = list(map(outcome_sign, outcomes))
    cells = [outcome or "" for outcome in outcomes] if is_wide() else [mark for mark, _ in marks]
    return Column("outcome" if is_wide() else "", cells, [colour for _, colour in marks])


def session_lines(sessions: "Sequence[Session]", sort: str = "recent") -> list[str]:
    """A line for each session; a sub-agent's title is marked."""
    costs = [session.cost for session in sessions]
    tokens = [cost.input_tokens + cost.output_tokens + cost.cache_write_tokens for cost in costs]
    cells = {
        "duration": ("time", [duration(cost.wall_clock_s) for cost in costs]),
        "cost": ("cost", [money(cost.usd, cost.usd_is_estimate, cost.usd_is_incomplete) for cost in costs]),
        "tokens": ("tokens", list(map(number, tokens))),
    }
    measures = {name: Column(head, texts, is_number=True) for name, (head, texts) in cells.items()}
    chosen = ["duration", "cost"] if is_wide() else [] if is_narrow() else ["duration"]
    if sort in measures:
        chosen = [*chosen, sort] if is_wide() and sort not in chosen else chosen if is_wide() else [sort]
    columns = _session_columns(_when(session.ended_at for session in sessions), sessions)
    columns += [outcome_column([session.outcome for session in sessions]), *(measures[name] for name in chosen)]
    marks = ["↳ " if session.parent_session_uid else "" for session in sessions]
    titles = [f"{mark}{one_line(session.title or '–')}" for mark, session in zip(marks, sessions, strict=True)]
    return make_table(columns, "title", titles)


def hit_table(
    hits: "Sequence[SessionHit]", titles: Sequence[str], marks: Sequence[str], names: Mapping[str, str]
) -> list[str]:
    """The first line of each hit of a search."""
    # A session that a sweep has not finished has no times of its own yet.
    when = _when(hit.ended_at or hit.started_at or (hit.matches[0].ts if hit.matches else None) for hit in hits)
    columns = _session_columns(when, hits, names)
    if any(hit.is_recent for hit in hits):
        columns.append(outcome_column([hit.outcome for hit in hits]))
    return make_table(columns, "title", [fitted(title, _TITLE_COLUMNS) for title in titles], marks)


def request_table(edits: "Sequence[FileEdit]") -> list[str]:
    """The first line of each request that edits were made for."""
    names = short_ids(edit.session_uid for edit in edits)
    columns = [
        _when((edit.ts for edit in edits), "edited")._replace(colours=["bright_black"] * len(edits)),
        Column("agent", ["" if is_narrow() else edit.agent for edit in edits]),
        Column("id", [names[edit.session_uid] for edit in edits], ["yellow"] * len(edits)),
    ]
    return make_table(columns, "request", [one_line(edit.request or edit.title or "–") for edit in edits])


def related_lines(sessions: "Sequence[Related]") -> Iterator[str]:
    when = _when((other.started_at for other in sessions), "began")
    return _remarked(when, sessions, [one_line(other.why) for other in sessions])


def visit_lines(visits: "Sequence[FileVisit]") -> Iterator[str]:
    remarks = []
    for visit in visits:
        counts = (("edit", visit.edits), ("call", visit.calls), ("mention", visit.mentions))
        lines = f" +{visit.added} -{visit.removed}" if visit.added or visit.removed else ""
        text = ", ".join(plural(count, word) + lines * (word == "edit") for word, count in counts if count)
        remarks.append(text + " [digest only]" * visit.evicted)
    return _remarked(_when(visit.last_at for visit in visits), visits, remarks)


def _remarked(when: Column, sessions: "Sequence[Related | FileVisit]", remarks: Sequence[str]) -> Iterator[str]:
    """A line for each session, its remark behind the title, or on a line of its own if it does not fit."""
    titles = [one_line(session.title or "–") for session in sessions]
    heading, *lines = make_table(_session_columns(when, sessions), "title", titles)
    yield heading
    for line, remark in zip(lines, remarks, strict=True):
        is_beside = width(click.unstyle(line)) + 2 + width(remark) <= line_columns()
        yield f"{line}  {grey(remark)}" if is_beside else line
        if not is_beside:
            yield grey(fitted(f"    {remark}", line_columns()))


def timeline_lines(timeline: "Sequence[TimelineEntry]") -> Iterator[str]:
    starts = [local_time(entry.started_at) for entry in timeline]
    columns = _session_columns(Column("began", [start[11:] for start in starts]), timeline)
    columns.append(outcome_column([entry.outcome for entry in timeline]))
    if not is_narrow():
        spans = [entry.ended - entry.started if entry.ended and entry.started else None for entry in timeline]
        times = [duration(None if span is None else span.total_seconds()) for span in spans]
        columns.append(Column("time", times, is_number=True))
    heading, *lines = make_table(columns, "title", [one_line(entry.title or "–") for entry in timeline])
    yield heading
    for day, of_day in groupby(zip(starts, lines, strict=True), key=lambda item: item[0][:10]):
        yield click.style(f"── {day}", bold=True)
        yield from (line for _, line in of_day)


def signal_lines(signals: "Sequence[Signal]", *, with_session: bool) -> list[str]:
    """A line for each signal, with its session unless all are of one."""
    names = short_ids(signal.session_uid for signal in signals)
    columns = [Column("when", [fitted_time(signal.ts) for signal in signals], ["bright_black"] * len(signals))]
    if with_session:
        columns.append(Column("id", [names[signal.session_uid] for signal in signals], ["yellow"] * len(signals)))
    columns.append(Column("signal", [signal_words(signal.signal) for signal in signals]))
    columns.append(Column("times", [number(signal.count) for signal in signals], is_number=True))
    return make_table(columns, "what", [one_line(signal.detail) for signal in signals])


def emit_page(
    listed: Sequence[Any],
    as_json: bool,
    lines: Callable[[Any], Iterable[str]],
    empty: str,
    *more: str,
    part: tuple[int, int, str],
) -> None:
    """Print a `part` of a list, given its offset, the list's length and what it is of; then what to type next."""
    emit(listed, as_json, lines, empty)
    if listed and not as_json:
        click.echo("\n".join(page_lines(len(listed), *part, *more)))


def page_lines(
    shown: int, offset: int, total: int | None, thing: str, *more: str, is_least: bool = False
) -> Iterator[str]:
    """Below a part of a list: how much it is, the option that shows the next part, and what else there is to say."""
    is_more = total is not None and shown and offset + shown < total
    further = f"more: --offset {offset + shown}" if is_more else ""
    return footer_lines(total_line(shown, offset, total, thing, is_least=is_least), further, *more)


def total_line(shown: int, offset: int, total: int | None, thing: str, *, is_least: bool = False) -> str:
    """How much of a list is shown: `20 of 43 sessions`, `20 of at least 43 sessions`."""
    least = "at least " * is_least
    if total is None or (shown == total and not offset):
        return least + plural(shown, thing)
    first = f"{number(offset + 1)}–{number(offset + shown)}" if offset and shown else number(shown)
    return f"{first} of {least}{plural(total, thing)}"


def footer_lines(*parts: str) -> Iterator[str]:
    """What there is to say below a list, as much on a line as fits."""
    line = ""
    for part in filter(None, parts):
        if line and width(line) + 3 + width(part) > line_columns():
            yield grey(line)
            line = ""
        line = f"{line} · {part}" if line else part
    if line:
        yield grey(line)


Span = tuple[int, int]  # where in a text a word begins and ends


def matched_part(text: str, words: Sequence[str], columns: int) -> str:
    """The text on one line, cut to the part that has most of the words."""
    text = one_line(text)
    spans = _spans(text, words)
    if width(text) <= columns or not spans:
        return fitted(text, columns)
    starts = [0, *(_start(text, span, columns) for span in spans), *(begin for begin, _ in spans)]
    parts = [fitted(f"…{text[start:].lstrip('…')}" if start else text, columns) for start in starts]
    return max(parts, key=lambda part: len("".join({folded(part)[begin:end] for begin, end in _spans(part, words)})))


def _start(text: str, span: Span, columns: int) -> int:
    """Where a line begins that shows what is before a word too: at a word's edge, if there is one."""
    begin, end = span
    start = max(0, min(begin, max(begin - columns // 3, end - columns + 2)))
    edge = text.find(" ", start, begin)
    return edge + 1 if start and edge >= 0 else start


def highlighted(text: str, words: Sequence[str]) -> str:
    """The text with the words of the query in bold."""
    for begin, end in reversed(_spans(text, words)):
        text = f"{text[:begin]}{click.style(text[begin:end], bold=True)}{text[end:]}"
    return text


def _spans(text: str, words: Sequence[str]) -> list[Span]:
    pattern = "|".join(re.escape(one_line(word)) for word in sorted(words, key=len, reverse=True))
    return [match.span() for match in re.finditer(pattern, folded(text))] if pattern else []
