"""How records are worded on a page: times, amounts, names; text as HTML that cannot act (no markup, image, script)."""

import html
import json
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from itertools import dropwhile
from typing import Any
from zlib import crc32

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

from recollect.agents import profile_of
from recollect.model.schema import KIND_FAMILY, TOOL_CALL, Event, Session
from recollect.model.text import TERMINAL_CONTROL, duration, money, number, payload_text, plural, size
from recollect.sessions import TranscriptItem

_HARMFUL = re.compile(rf"{TERMINAL_CONTROL}|[\u202a-\u202e\u2066-\u2069\ufeff]")
_PLAIN = re.compile(r"[\w ,.;:?!'()/-]*")  # nothing that Markdown gives a meaning in a line
_LISTED = re.compile(r"\s*(?:[-+]\s|\d+[.)]\s)")
_HIGHLIGHTED_CHARS = 20_000  # of one block: highlighting takes about a second for a megabyte
_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre"),
    *("s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_FORMATTER = HtmlFormatter(nowrap=True)


def clean(text: str) -> str:
    """Text without terminal codes and characters that turn its direction."""
    return _HARMFUL.sub("", text)


@lru_cache(maxsize=2_000)
def markdown(text: str) -> Markup:
    """A message as its author meant it to look."""
    text = clean(text)
    if _PLAIN.fullmatch(text) and not _LISTED.match(text):
        return Markup(f"<p>{html.escape(text.strip())}</p>")
    safe = nh3.clean(
        _parser().render(text),
        tags=_TAGS,
        attributes={"a": {"href"}, "span": {"class"}, "ol": {"start"}},
        url_schemes={"http", "https"},
        link_rel="noopener noreferrer",
    )
    return Markup(safe)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    def fenced(text: str, language: str, _attributes: str) -> str:
        return str(_coloured(text, _lexer(language))) if language else html.escape(text)

    parser = MarkdownIt("commonmark", {"html": False, "highlight": fenced}).enable(["table", "strikethrough"])
    return parser.disable("image")


@lru_cache(maxsize=400)
def _lexer(language: str, find: Callable[[str], Lexer] = get_lexer_by_name) -> Lexer | None:
    """The lexer of a language, or of what `find` takes."""
    try:
        return find(language)
    except ClassNotFound:
        return None


def code(text: str, path: str) -> Markup:
    """A piece of a file, highlighted by the file's name."""
    return _coloured(clean(text), _lexer(f"file.{path.rpartition('.')[2].lower()}", get_lexer_for_filename))


def shell(command: str) -> Markup:
    return _coloured(clean(command), _lexer("bash"))


def json_text(text: str) -> Markup:
    return _coloured(clean(text), _lexer("json"))


def _coloured(text: str, lexer: Lexer | None) -> Markup:
    if lexer is None or len(text) > _HIGHLIGHTED_CHARS:
        return Markup(html.escape(text))
    return Markup(highlight(text, lexer, _FORMATTER).rstrip("\n"))


TONES = 8
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_LINE_CLASSES = {"+": "add", "-": "del", "@": "hunk"}
_PLAN = re.compile(
    r"(?:Implement the following plan:\s*)?#+\s+(?:Plan:\s+)?(?P<heading>.+?)(?:\s+#.*)?$", re.IGNORECASE
)
_COMMAND_KEYS = ("command", "cmd", "script")
_CALLS = KIND_FAMILY[TOOL_CALL]
_WORDS = {
    "success": "done",
    "fail": "failed",
    "user_msg": "you",
    "assistant_msg": "agent",
    "completion": "agent",
    "tool_call": "tool",
    "tool_result": "output",
    "test_run": "test",
}
_SPEAKERS = {
    "user_msg": "You",
    "thinking": "Thinking",
    "decision": "You decided",
    "human_intervention": "You stopped it",
    "lifecycle": "System",
    "error": "Error",
    "other": "Other",
}


def local(moment: str | None) -> datetime | None:
    return datetime.fromisoformat(moment).astimezone() if moment else None


def exact(moment: str | None) -> str:
    """A time in the user's zone, to the second, with its zone."""
    time = local(moment)
    return f"{time:%a %d %b %Y, %H:%M:%S %Z}" if time else ""


def day(moment: str | None) -> str:
    """`15 Nov`, and the year if it is another one."""
    time = local(moment)
    if time is None:
        return "–"
    return f"{time.day} {time:%b}" if time.year == datetime.now().year else f"{time.day} {time:%b %Y}"


def full_day(moment: str | None) -> str:
    time = local(moment)
    return f"{time:%A}, {time.day} {time:%B %Y}" if time else ""


def clock(moment: str | None) -> str:
    time = local(moment)
    return f"{time:%H:%M}" if time else ""


def ago(moment: str | None) -> str:
    """`3 min ago` for today, the day and time for the last week, the day for all before."""
    time = local(moment)
    if time is None:
        return "–"
    seconds = (datetime.now().astimezone() - time).total_seconds()
    if seconds < _MINUTE:
        return "now" if seconds > -_MINUTE else day(moment)
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min ago"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f} h ago"
    return f"{time:%a %H:%M}" if seconds < 6 * _DAY else day(moment)


def compact(count: int | None) -> str:
    """`1.2M`, `34k`, `870`."""
    if count is None:
        return "–"
    for least, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= least * 0.9995:
            scaled = count / least
            return f"{scaled:.0f}{unit}" if scaled >= 99.5 else f"{scaled:.1f}{unit}"
    return str(count)


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{share:.0%}" if share == 0 or share >= 0.01 else "<1%"


def agent_name(agent: str) -> str:
    return profile_of(agent).display_name


def tone(agent: str) -> int:
    """Which of the colours for agents is this one's."""
    chosen = profile_of(agent).tone
    return crc32(agent.encode()) % TONES if chosen is None else chosen


def repo_name(repo: str | None) -> str:
    """The last part of a repository's name."""
    return clean((repo or "–").rstrip("/").rsplit("/", 1)[-1])


def title(session: Any) -> str:
    """The title of a session or hit on one line, or what stands in for it."""
    return headline(session.title) or "Untitled session"


def headline(text: str | None) -> str:
    """A request on one line; of a plan in Markdown, its heading."""
    line = " ".join(clean(text or "").split())
    plan = _PLAN.match(line)
    return plan["heading"] if plan else line


def short_id(session: Session) -> str:
    """Enough of a session's id for a command."""
    own = session.native_session_id.rpartition("/")[2]
    return own[-8:] if profile_of(session.agent).ids_begin_with_time else own[:8]


def speaker(item: TranscriptItem) -> str:
    event = item.event
    if event.kind == "user_msg" and item.session.parent_session_uid:
        return "Task"
    return _SPEAKERS.get(event.kind) or agent_name(item.session.agent)


def content(item: TranscriptItem) -> str:
    """All that an event says, or what it is in a line."""
    return payload_text(item.event.kind, item.payload).strip("\n") or item.event.summary


def is_call(event: Event) -> bool:
    return event.kind in _CALLS


def worded(name: str) -> str:
    """A kind of event or an outcome in a word that people use."""
    return _WORDS.get(name) or name.replace("_", " ")


def label(event: Event) -> str:
    """What kind of step it is, in a word."""
    if event.kind in _CALLS:
        return {"edit": "edit", "test_run": "test", "retry": "retry"}.get(event.kind, "tool")
    return {"thinking": "thinking", "error": "error", "lifecycle": "note"}.get(event.kind, "note")


def tool_name(event: Event) -> str:
    """The tool as people call it: without the prefixes of a protocol."""
    name = (event.tool or event.kind).removeprefix("mcp__")
    return name.replace("__", " · ")


def command_of(item: TranscriptItem) -> str | None:
    """The shell command of a call, if that is all there is to it."""
    given = item.payload.get("input")
    value = next((given[key] for key in _COMMAND_KEYS if given.get(key)), None) if isinstance(given, dict) else None
    if isinstance(value, list) and value:
        return str(value[-1])
    return value if isinstance(value, str) else None


def arguments(item: TranscriptItem) -> Iterator[tuple[str, str]]:
    """The arguments of a call, the command left out."""
    given = item.payload.get("input")
    if isinstance(given, dict):
        shown = given.items() if command_of(item) is None else ()
        yield from ((name, _text(value)) for name, value in shown if value not in (None, ""))
    elif given:
        yield "", _text(given)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def diff_lines(diff: str) -> Markup:
    """The lines of a patch below its header, each in a span of its class; nothing if there are none."""
    lines = str(escape(clean(diff))).splitlines()  # at once: a line at a time takes twenty times as long
    body = dropwhile(lambda line: not line.startswith("@@"), lines)
    spans = (f'<span class="{_LINE_CLASSES.get(line[:1], "same")}">{line}</span>\n' for line in body)
    return Markup("".join(spans))


def took(seconds: float | None) -> str:
    """How long a call took; nothing if that is hardly anything."""
    return duration(seconds) if seconds is not None and seconds >= 1 else ""


_NAMED = (
    *(ago, agent_name, arguments, clock, command_of, compact, content, day, diff_lines, duration, exact, full_day),
    *(headline, is_call, label, money, number, percent, plural, repo_name, short_id, size, speaker, tone, took),
    *(worded, tool_name, markdown, clean, shell),
)
FILTERS = {function.__name__: function for function in _NAMED} | {
    "json": json_text,
    "shell_word": shlex.quote,
    "session_title": title,
}
