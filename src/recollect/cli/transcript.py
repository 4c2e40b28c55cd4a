"""A session as a person reads it."""

import json
import shutil
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import click

from recollect import schema
from recollect.cli.words import duration, fitted, local_time, money, one_line, plural, printable
from recollect.memory import TranscriptItem
from recollect.schema import Event, Session

RESULT_LINES = 8
_MARGIN = 21

_SPEAKERS = {
    schema.USER_MSG: ("you", "green"),
    schema.ASSISTANT_MSG: ("agent", "cyan"),
    schema.COMPLETION: ("agent", "cyan"),
    schema.THINKING: ("thinks", "bright_black"),
    schema.TOOL_CALL: ("calls", "yellow"),
    schema.TEST_RUN: ("tests", "yellow"),
    schema.EDIT: ("edits", "yellow"),
    schema.RETRY: ("retries", "magenta"),
    schema.TOOL_RESULT: ("  ↳ ok", "bright_black"),
    schema.ERROR: ("  ↳ error", "red"),
    schema.DECISION: ("decides", "green"),
    schema.HUMAN_INTERVENTION: ("you stop", "red"),
    schema.LIFECYCLE: ("·", "bright_black"),
    schema.OTHER: ("other", "bright_black"),
}
_SAID = (schema.USER_MSG, schema.ASSISTANT_MSG, schema.COMPLETION, schema.THINKING)
_RESULTS = (schema.TOOL_RESULT, schema.ERROR)


def header(session: Session) -> Iterator[str]:
    """What the session is, before its events."""
    yield click.style(one_line(session.title or session.session_uid), bold=True)
    place = [session.agent, session.repo or session.cwd, session.git_branch, session.model]
    yield " · ".join(one_line(part) for part in place if part)
    cost = session.cost
    spent = [
        f"{local_time(session.started_at)} ({duration(cost.wall_clock_s)})",
        plural(cost.turns, "turn"),
        plural(session.event_count, "event"),
        f"{plural(cost.output_tokens, 'token')} written",
        money(cost.usd, cost.usd_is_estimate),
    ]
    yield " · ".join(spent)
    yield click.style(one_line(session.session_uid), fg="bright_black")
    yield ""


def transcript_lines(session: Session, items: Iterable[TranscriptItem]) -> Iterator[str]:
    """All lines of a session; where a new day begins a line says so, since events show the time only."""
    yield from header(session)
    day = local_time(session.started_at)[:10]
    for item in items:
        if item.event.ts and (today := local_time(item.event.ts)[:10]) != day:
            day = today
            yield click.style(f"── {day}", fg="bright_black")
        yield from _item_lines(item)


def _item_lines(item: TranscriptItem) -> Iterator[str]:
    """The lines one event takes; a sub-agent's are set in."""
    label, colour = _speaker(item)
    bar = click.style("│ ", fg="blue") * item.depth
    when = local_time(item.event.ts, seconds=True) if item.event.ts else ""
    lines = list(_body(item.event, item.payload, _width(item.depth))) or [""]
    first = f"{click.style(f'{when:>8}', fg='bright_black')}  {click.style(f'{label:<9}', fg=colour)}  "
    yield f"{bar}{first}{lines[0]}{_marks(item.event)}"
    for line in lines[1:]:
        yield f"{bar}{' ' * _MARGIN}{line}".rstrip()


def _speaker(item: TranscriptItem) -> tuple[str, str]:
    label, colour = _SPEAKERS[item.event.kind]
    if item.event.kind == schema.USER_MSG and item.session.parent_session_uid:
        return "task", colour  # the agent above asks, not the user
    if item.event.kind == schema.ERROR and item.event.call_id is None:
        return "error", colour  # of the model's service, not of a call
    return label, colour


def _width(depth: int) -> int:
    return max(40, min(shutil.get_terminal_size((100, 24)).columns, 140) - _MARGIN - 2 * depth)


def _marks(event: Event) -> str:
    marks = [name for name, is_set in (("rewound", event.is_abandoned), ("retry", event.is_retry)) if is_set]
    return click.style(f"  [{', '.join(marks)}]", fg="magenta") if marks else ""


def _body(event: Event, payload: dict[str, Any], width: int) -> Iterator[str]:
    if event.kind in _SAID:
        yield from _wrapped(_payload_text(payload) or event.summary, width)
    elif event.kind in _RESULTS:
        yield from _cut(_payload_text(payload) or event.summary, width)
    else:
        tool = f"{event.tool}: " if event.tool and event.tool not in event.summary else ""
        yield from _wrapped(tool + event.summary, width)


def _payload_text(payload: dict[str, Any]) -> str:
    """What a payload says, as text."""
    for key in ("text", "output", "input"):
        value = payload.get(key)
        if value:
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ""


def _wrapped(text: str, width: int) -> Iterator[str]:
    for line in printable(text).strip("\n").split("\n"):
        yield from textwrap.wrap(line, width, replace_whitespace=False) or [""]


def _cut(text: str, width: int) -> Iterator[str]:
    lines = printable(text).strip("\n").split("\n")
    for line in lines[:RESULT_LINES]:
        yield click.style(fitted(line.expandtabs().rstrip(), width), fg="bright_black")
    if len(lines) > RESULT_LINES:
        yield click.style(f"… {plural(len(lines) - RESULT_LINES, 'more line')}", fg="bright_black")
