"""A session as people read it, line by line: its events, what it changed (the command `diff`), its digest in colour."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.find import SPEAKERS
from recollect.cli.options import open_fresh, session_argument
from recollect.cli.output import command, no_pager_option, print_json, print_lines
from recollect.cli.terminal import (
    duration,
    fitted,
    grey,
    line_columns,
    local_time,
    money,
    one_line,
    plural,
    printable,
    short_ids,
    width,
    wrapped_rows,
)
from recollect.config import terminal_columns
from recollect.model import schema
from recollect.model.errors import NotFound
from recollect.model.schema import OUTPUT, UNRECORDED, Event, Session
from recollect.model.text import ELLIPSIS
from recollect.recall import StatLine
from recollect.sessions import TranscriptItem

if TYPE_CHECKING:
    from recollect.recall import EditDiff, SessionDiff

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@command()
@session_argument
@click.argument("file", required=False)
@no_pager_option
def diff(session: str, file: str | None, no_pager: bool, as_json: bool) -> None:
    """Show what a session changed, edit by edit, as a patch.

    SESSION is an id or title; the default is `last`. FILE shows only the edits of one file or folder; a part of its
    name is enough. Sub-agents are included; failed edits are not. Paths are relative to the session's folder, where
    you can use `git apply`.

    \b
    recollect diff last
    recollect diff 3f2a91c4 src/auth/login.ts
    recollect diff 3f2a91c4 | git apply
    """
    with open_fresh() as memory:
        chosen = memory.session(session)
        changed = memory.diff(chosen, file)
    if not changed.edits and chosen.evicted_at is not None:
        raise NotFound(
            f"The edits were evicted to stay within the budget: {chosen.session_uid}",
            "`recollect digest` names the files, `recollect retention rehydrate` reads the session again",
        )
    if as_json:
        print_json(changed.to_json())
        return
    print_lines(_session_lines(changed, chosen.title), no_pager=no_pager)
    for note in _notes(changed, chosen):
        click.echo(f"note: {note}", err=True)


def _session_lines(changed: "SessionDiff", title: str | None) -> Iterator[str]:
    """Each edit below a comment, which `git apply` passes over."""
    names = short_ids({edit.session_uid for edit in changed.edits} | {changed.session_uid})
    files = {edit.path for edit in changed.edits}
    about = f"{names[changed.session_uid]} {one_line(title or '–')}"
    if not changed.edits:
        yield f"No edits: {about}"
        return
    yield grey(fitted(f"# {about}", line_columns()))
    yield grey(f"# {plural(len(changed.edits), 'edit')} of {plural(len(files), 'file')} {counted(changed.edits)}")
    for edit in changed.edits:
        where = "" if edit.session_uid == changed.session_uid else f" in sub-agent {names[edit.session_uid]}"
        rewound = " [rewound]" if edit.is_abandoned else ""
        yield ""
        yield grey(f"# #{edit.seq}{where} {local_time(edit.ts)} {counted([edit])} {printable(edit.path)}{rewound}")
        yield from diff_lines(edit.diff)


def counted(edits: "Sequence[EditDiff]") -> str:
    """How many lines edits added and removed."""
    return f"+{sum(edit.added for edit in edits)} -{sum(edit.removed for edit in edits)}"


def diff_lines(diff: str) -> Iterator[str]:
    """The diff of a file in colour. Of control characters only tabs stay, and carriage returns that end lines."""
    is_head = True
    for line in diff.split("\n")[:-1]:
        text = printable(line) + ("\r" if line.endswith("\r") else "")
        is_head = is_head and not line.startswith("@@ ")
        colour = None if is_head else _COLOURS.get(line[:1])
        yield click.style(text, bold=is_head, fg=colour) if is_head or colour else text


def _notes(changed: "SessionDiff", session: Session) -> Iterator[str]:
    if changed.failed:
        yield f"{plural(changed.failed, 'edit')} left out: failed or refused"
    if changed.copied:
        yield f"{plural(changed.copied, 'edit')} left out: made in the session this one continues"
    inexact = sum(not edit.is_exact for edit in changed.edits)
    if inexact:
        yield f"{plural(inexact, 'edit')} without line numbers or old text in the log: `git apply` may refuse them"
    if session.evicted_at is not None:
        yield f"edits up to {local_time(session.evicted_at)} were evicted to stay within the budget"


RESULT_LINES = 8
MESSAGE_LINES = 400
MESSAGE_CHARS = 40_000
MARK = "▶"  # before the event that was asked for
_MARGIN = 28
_LEAST_COLUMNS, _PIPE_COLUMNS, _MOST_COLUMNS = 24, 100, 140
_DIFF_INDENT = 4
_HOW_TO_SEE_ALL = "--full shows all"

_SPEAKERS = SPEAKERS | {
    schema.TOOL_RESULT: ("  ↳ ok", "bright_black"),
    schema.ERROR: ("  ↳ error", "red"),
    schema.LIFECYCLE: ("·", "bright_black"),
}
_SAID = (schema.USER_MSG, schema.ASSISTANT_MSG, schema.COMPLETION, schema.THINKING)
_RESULTS = (schema.TOOL_RESULT, schema.ERROR)


def header(session: Session, documents: Iterable[str] = (), total: StatLine | None = None) -> Iterator[str]:
    """The session itself, before its events; `total` has its sub-agents too."""
    yield click.style(one_line(session.title or session.session_uid), bold=True)
    facts = [session.agent, session.repo or session.cwd, session.git_branch, session.model]
    yield from _rows(" · ".join(one_line(fact) for fact in facts if fact))
    cost = session.cost
    spent = [
        f"{local_time(session.started_at)} ({duration(cost.wall_clock_s)})",
        plural(cost.turns, "turn"),
        plural(session.event_count, "event"),
        f"output {UNRECORDED}" if OUTPUT in session.metadata else plural(cost.output_tokens, "output token"),
        total.cost_in_words if total else money(cost.usd, cost.usd_is_estimate, cost.usd_is_incomplete),
    ]
    yield from _rows(" · ".join(spent))
    yield grey(one_line(session.session_uid))
    yield from (grey(f"archived: {one_line(path)}") for path in documents)
    yield ""


def _rows(line: str) -> Iterator[str]:
    return (line[start:end] for start, end, _ in wrapped_rows(line, line_columns()))


def transcript_lines(
    session: Session,
    items: Iterable[TranscriptItem],
    empty: str = "No events",
    *,
    is_full: bool = False,
    diffs: Mapping[str, str] | None = None,
    documents: Iterable[str] = (),
    total: StatLine | None = None,
) -> Iterator[str]:
    """All lines of a session, or `empty`. A line marks each new day, because events show only the time.

    `diffs` has what edits did, by the uid of their event; `documents` are the paths of its archives.
    """
    yield from header(session, documents, total)
    day, within = local_time(session.started_at)[:10], session.session_uid
    item, is_cut = None, False
    for item in items:
        if item.event.ts and (today := local_time(item.event.ts)[:10]) != day:
            day = today
            yield grey(f"── {day}")
        if item.session.session_uid != within:
            within = item.session.session_uid
            # A line where a sub-agent begins says whose the event numbers are from here on.
            if item.depth:
                name = short_ids([item.session.session_uid])[item.session.session_uid]
                yield f"{_bars(item.depth)}{grey(f'sub-agent {name}')}"
        for line in _item_lines(item, is_full=is_full):
            is_cut = is_cut or ELLIPSIS in line
            yield line
        for line in diff_lines((diffs or {}).get(item.event.event_uid, "")):
            yield f"{_bars(item.depth)}{' ' * _DIFF_INDENT}{line}"
    if item is None:
        yield empty
    elif is_cut and not is_full:
        yield ""
        yield grey(f"… marks a cut: {_HOW_TO_SEE_ALL}, --at N --context 0 --full one whole event")


def _bars(depth: int) -> str:
    return click.style("│ ", fg="blue") * depth


def _item_lines(item: TranscriptItem, *, is_full: bool) -> Iterator[str]:
    """The lines of one event; a sub-agent's are indented."""
    label, colour = _speaker(item)
    bar = _bars(item.depth)
    when = local_time(item.event.ts, seconds=True) if item.event.ts else ""
    marks = _marks(item.event)
    columns = min(terminal_columns(_PIPE_COLUMNS), _MOST_COLUMNS) - _MARGIN - 2 * item.depth
    room = max(_LEAST_COLUMNS, columns - len(click.unstyle(marks)))
    lines = list(_body(item.event, item.payload, room, is_full=is_full)) or [""]
    number = f"{MARK if item.is_asked_for else ''}#{item.event.seq}"
    shown = click.style(f"{number:>6}", fg="yellow", bold=True) if item.is_asked_for else grey(f"{number:>6}")
    first = f"{shown} {grey(f'{when:>8}')}  {click.style(f'{label:<9}', fg=colour)}  "
    yield f"{bar}{first}{lines[0]}{marks}"
    for line in lines[1:]:
        yield f"{bar}{' ' * _MARGIN}{line}".rstrip()


def _speaker(item: TranscriptItem) -> tuple[str, str]:
    label, colour = _SPEAKERS[item.event.kind]
    if item.event.kind == schema.USER_MSG and item.session.parent_session_uid:
        return "task", colour  # the parent agent asks, not the user
    if item.event.kind == schema.ERROR and item.event.call_id is None:
        return "error", colour  # from the model's service, not from a call
    return label, colour


def _marks(event: Event) -> str:
    marks = [name for name, is_set in (("rewound", event.is_abandoned), ("retry", event.is_retry)) if is_set]
    return click.style(f"  [{', '.join(marks)}]", fg="magenta") if marks else ""


def _body(event: Event, payload: dict[str, Any], width: int, *, is_full: bool) -> Iterator[str]:
    if event.kind in _SAID or (is_full and event.kind in _RESULTS):
        yield from _wrapped(_payload_text(payload) or event.summary, width, is_full=is_full)
    elif event.kind in _RESULTS:
        yield from _cut(_payload_text(payload) or event.summary, width)
    elif is_full:
        yield from _wrapped(_call_text(event, payload), width, is_full=True)
    else:
        yield from _wrapped(_with_tool(event), width)


def _call_text(event: Event, payload: dict[str, Any]) -> str:
    """A call as it was made: its command, or its tool and each of its arguments."""
    arguments = payload.get("input")
    if not arguments:
        return _payload_text(payload) or event.summary
    if isinstance(arguments, dict):
        return "\n".join([event.tool or event.summary, *(_argument(name, arguments[name]) for name in arguments)])
    return f"{event.tool}: {arguments}" if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _argument(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name}: {text}" if "\n" not in text else f"{name}:\n{text}"


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


def _wrapped(text: str, width: int, *, is_full: bool = False) -> Iterator[str]:
    """The text wrapped to that width; of a very long one the beginning and how much is left out, unless `is_full`."""
    text = printable(text).strip("\n").expandtabs()
    rows = wrapped_rows(text if is_full else text[:MESSAGE_CHARS], width)
    shown = 0
    for start, end, shown in rows if is_full else islice(rows, MESSAGE_LINES):  # noqa: B007 - the last one counts
        yield text[start:end].rstrip()
    if left_out := len(text) - shown:
        yield grey(f"… {plural(left_out, 'more character')}")


def _cut(text: str, width: int) -> Iterator[str]:
    """The first lines of an output, each cut to the width, and how much is left out."""
    lines = printable(text).strip("\n").split("\n")
    for line in lines[:RESULT_LINES]:
        yield grey(fitted(line.expandtabs().rstrip(), width))
    if len(lines) > RESULT_LINES:
        yield grey(f"… {plural(len(lines) - RESULT_LINES, 'more line')}")


Style = Callable[[str], str] | None
_MOST_PAGE_COLUMNS = 100
_LEAST_PAGE_COLUMNS = 20
_MARK = re.compile(r"(?<![\w`])`([0-9a-f]{12})`(?!`)")
_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_BOLD = re.compile(r"\*\*(\S.*?)\*\*")
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_QUOTE = "> "
_FENCE = ("```", "~~~")
_code, _bold = partial(click.style, fg="cyan"), partial(click.style, bold=True)


def markdown_lines(page: Iterable[str]) -> Iterator[str]:
    """Lines for a terminal; event marks are dimmed."""
    columns = max(_LEAST_PAGE_COLUMNS, min(terminal_columns(80), _MOST_PAGE_COLUMNS))
    is_code = False
    for line in page:
        bar = click.style("│ ", fg="blue") if line.startswith(">") else ""
        text = line.removeprefix(">").removeprefix(" ") if bar else line
        is_fence = text.lstrip().startswith(_FENCE)
        if is_code or is_fence:
            yield bar + (grey(text) if is_fence else click.style(text, fg="cyan"))
            is_code = is_code != is_fence
        elif text.startswith("#"):
            yield bar + click.style(text.lstrip("#").strip(), bold=True, fg=None if bar else "green")
        else:
            yield from (bar + row for row in _page_rows(text, columns - 2 * bool(bar)))


def plain_rows(page: Iterable[str], columns: int) -> Iterator[tuple[str, bool]]:
    """Rows without marks and colours, each with whether it is a heading."""
    for line in page:
        text = _BOLD.sub(r"\1", _CODE.sub(r"\2", _MARK.sub("", line))).rstrip()
        is_heading = text.startswith("#")
        for row in _page_rows(text.lstrip("#").strip() if is_heading else text, columns):
            yield row, is_heading


def _page_rows(line: str, columns: int) -> Iterator[str]:
    """A line in styled rows; those after the first begin below the text of its bullet."""
    text, styles = _styled(line)
    bullet = _BULLET.match(text)
    indent = width(bullet[0]) if bullet else len(text) - len(text.lstrip())
    first = True
    for start, end, _ in wrapped_rows(text[indent:], max(_LEAST_PAGE_COLUMNS, columns - indent)):
        yield (text[:indent] if first else " " * indent) + _row(text, styles, indent + start, indent + end)
        first = False
    if first:
        yield ""


def _styled(line: str) -> tuple[str, list[Style]]:
    """A line without the marks of code and bold, and the style of each of its characters: a row may end amid them."""
    text, styles, end = "", list[Style](), 0
    for code in _CODE.finditer(line):
        style = grey if _MARK.match(line, code.start()) else _code
        content = code[2]
        if content.startswith(" ") and content.endswith(" ") and content.strip():
            content = content[1:-1]  # they keep backticks apart
        text += line[end : code.start()] + content
        styles += [None] * (code.start() - end) + [style] * len(content)
        end = code.end()
    text, styles = text + line[end:], styles + [None] * (len(line) - end)
    for bold in reversed(list(_BOLD.finditer(text))):
        start, stop = bold.span()
        if styles[start] is None and styles[stop - 1] is None:
            inner = [style or _bold for style in styles[start + 2 : stop - 2]]
            text, styles[start:stop] = text[:start] + bold[1] + text[stop:], inner
    return text, styles


def _row(text: str, styles: Sequence[Style], start: int, end: int) -> str:
    runs = groupby(range(start, end), key=styles.__getitem__)
    pieces = ((style, "".join(text[place] for place in places)) for style, places in runs)
    return "".join(piece if style is None else style(piece) for style, piece in pieces)
