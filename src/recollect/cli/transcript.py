"""A session as people read it: who said and did what, line by line."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import click

from recollect import schema
from recollect.cli.find import SPEAKERS
from recollect.cli.terminal import duration, fitted, grey, local_time, money, one_line, plural, printable
from recollect.config import terminal_columns
from recollect.schema import Event, Session
from recollect.sessions.transcript import TranscriptItem

RESULT_LINES = 8
MESSAGE_LINES = 400
MESSAGE_CHARS = 40_000
_MARGIN = 21
_GAP = re.compile(r" *\n?")

_SPEAKERS = SPEAKERS | {
    schema.TOOL_RESULT: ("  ↳ ok", "bright_black"),
    schema.ERROR: ("  ↳ error", "red"),
    schema.LIFECYCLE: ("·", "bright_black"),
}
_SAID = (schema.USER_MSG, schema.ASSISTANT_MSG, schema.COMPLETION, schema.THINKING)
_RESULTS = (schema.TOOL_RESULT, schema.ERROR)


def header(session: Session) -> Iterator[str]:
    """The session itself, before its events."""
    yield click.style(one_line(session.title or session.session_uid), bold=True)
    facts = [session.agent, session.repo or session.cwd, session.git_branch, session.model]
    yield " · ".join(one_line(fact) for fact in facts if fact)
    cost = session.cost
    spent = [
        f"{local_time(session.started_at)} ({duration(cost.wall_clock_s)})",
        plural(cost.turns, "turn"),
        plural(session.event_count, "event"),
        plural(cost.output_tokens, "output token"),
        money(cost.usd, cost.usd_is_estimate),
    ]
    yield " · ".join(spent)
    yield grey(one_line(session.session_uid))
    yield ""


def transcript_lines(session: Session, items: Iterable[TranscriptItem], empty: str = "No events") -> Iterator[str]:
    """All lines of a session, or `empty`. A line marks each new day, because events show only the time."""
    yield from header(session)
    day = local_time(session.started_at)[:10]
    item = None
    for item in items:
        if item.event.ts and (today := local_time(item.event.ts)[:10]) != day:
            day = today
            yield grey(f"── {day}")
        yield from _item_lines(item)
    if item is None:
        yield empty


def _item_lines(item: TranscriptItem) -> Iterator[str]:
    """The lines of one event; a sub-agent's are indented."""
    label, colour = _speaker(item)
    bar = click.style("│ ", fg="blue") * item.depth
    when = local_time(item.event.ts, seconds=True) if item.event.ts else ""
    lines = list(_body(item.event, item.payload, _width(item.depth))) or [""]
    first = f"{grey(f'{when:>8}')}  {click.style(f'{label:<9}', fg=colour)}  "
    yield f"{bar}{first}{lines[0]}{_marks(item.event)}"
    for line in lines[1:]:
        yield f"{bar}{' ' * _MARGIN}{line}".rstrip()


def _speaker(item: TranscriptItem) -> tuple[str, str]:
    label, colour = _SPEAKERS[item.event.kind]
    if item.event.kind == schema.USER_MSG and item.session.parent_session_uid:
        return "task", colour  # the parent agent asks, not the user
    if item.event.kind == schema.ERROR and item.event.call_id is None:
        return "error", colour  # from the model's service, not from a call
    return label, colour


def _width(depth: int) -> int:
    return max(40, min(terminal_columns(100), 140) - _MARGIN - 2 * depth)


def _marks(event: Event) -> str:
    marks = [name for name, is_set in (("rewound", event.is_abandoned), ("retry", event.is_retry)) if is_set]
    return click.style(f"  [{', '.join(marks)}]", fg="magenta") if marks else ""


def _body(event: Event, payload: dict[str, Any], width: int) -> Iterator[str]:
    if event.kind in _SAID:
        yield from _wrapped(_payload_text(payload) or event.summary, width)
    elif event.kind in _RESULTS:
        yield from _cut(_payload_text(payload) or event.summary, width)
    else:
        yield from _wrapped(_with_tool(event), width)


def _with_tool(event: Event) -> str:
    """The summary, prefixed with the tool's name unless it contains that as a word."""
    if not event.tool or re.search(rf"(?<!\w){re.escape(event.tool)}(?!\w)", event.summary):
        return event.summary
    return f"{event.tool}: {event.summary}"


def _payload_text(payload: dict[str, Any]) -> str:
    """The text of a payload."""
    for key in ("text", "output", "input"):
        value = payload.get(key)
        if value:
            return value if isinstance(value, str) else _parts_text(value) or json.dumps(value, ensure_ascii=False)
    return ""


def _parts_text(value: Any) -> str:
    """The text of a message in parts, with `[type]` for a part without text (an image); empty for anything else."""
    parts = value if isinstance(value, list) else []
    if not parts or not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts):
        return ""
    if not any(isinstance(part.get("text"), str) for part in parts):
        return ""
    texts = (part["text"] if isinstance(part.get("text"), str) else f"[{part['type']}]" for part in parts)
    return "\n".join(text.removesuffix("\n") for text in texts)


def _wrapped(text: str, width: int) -> Iterator[str]:
    """The text wrapped to that width; of a very long one the beginning, and how much is left out."""
    text = printable(text).strip("\n").expandtabs()
    rows = list(islice(_rows(text[:MESSAGE_CHARS], width), MESSAGE_LINES))
    for start, end, _ in rows:
        yield text[start:end].rstrip()
    if rows and (left_out := len(text) - rows[-1][2]):
        yield grey(f"… {plural(left_out, 'more character')} (--raw shows all)")


def _rows(text: str, width: int) -> Iterator[tuple[int, int, int]]:
    """Where each line starts and ends, and where the next one starts.

    The standard library's textwrap takes time quadratic in the length of a word.
    """
    start = 0
    while start < len(text):
        end = text.find("\n", start, start + width + 1)
        if end < 0:
            end = len(text) if len(text) - start <= width else _break(text, start, start + width)
        gap = _GAP.match(text, end)
        after = gap.end() if gap else end
        yield start, end, after
        start = after


def _break(text: str, start: int, furthest: int) -> int:
    """The last space up to `furthest`, or `furthest` itself inside a word or an indentation."""
    space = text.rfind(" ", start, furthest + 1)
    return space if space > start and not text[start:space].isspace() else furthest


def _cut(text: str, width: int) -> Iterator[str]:
    lines = printable(text).strip("\n").split("\n")
    for line in lines[:RESULT_LINES]:
        yield grey(fitted(line.expandtabs().rstrip(), width))
    if len(lines) > RESULT_LINES:
        yield grey(f"… {plural(len(lines) - RESULT_LINES, 'more line')}")
