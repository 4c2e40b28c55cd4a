"""Text for a terminal: stripped of control codes, cut to its width; times, sizes and money; a progress line."""

import json
import re
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from itertools import accumulate
from unicodedata import east_asian_width

import click

from recollect.agents import profile_of
from recollect.config import terminal_columns, terminal_rows
from recollect.model.home import is_in_group
from recollect.model.text import TERMINAL_CONTROL, Progress
from recollect.model.text import duration as duration
from recollect.model.text import money as money
from recollect.model.text import number as number
from recollect.model.text import plural as plural
from recollect.model.text import session_counts as session_counts
from recollect.model.text import size as size

READING_IS_OFF = "Nothing is read: `recollect config capture.enabled true` switches reading on"
_UNCUT = 10_000  # columns of a pipe: its reader decides what to leave out
_PROGRESS_SECONDS = 0.1  # between two updates of the progress line
_ID_CHARS = 8
_LEAST_ID_CHARS = 6  # that commands accept
_WIDE, _NARROW = 100, 70  # columns of a terminal
# Patterns that are compiled at their first use: `re` keeps them, and most commands need few of them.
_GAP = r" *\n?"
# Characters that hide text, end a line or change its direction.
_INVISIBLE = "\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff"
_FIRST_TAG = "\U000e0000"  # of the invisible characters that Python takes for printable, the first
_UNSEEN = f"[{_INVISIBLE}]"
_UNSEEN_IN_JSON = f"[\x7f-\x9f{_INVISIBLE}]"


def no_sessions() -> str:
    """What to do about an empty store; a group's process cannot read sessions itself."""
    if is_in_group():
        return "No sessions in this group yet: a sweep outside the group reads them"
    return "No sessions yet: `recollect sweep` reads them, `recollect doctor` shows where it looks"


def grey(text: str) -> str:
    return click.style(text, fg="bright_black")


def line_columns() -> int:
    """The width of a line in a list; unlimited in a pipe."""
    return terminal_columns(_UNCUT)


def line_count() -> int:
    """The lines of the terminal; unlimited in a pipe."""
    return terminal_rows(_UNCUT)


def is_wide() -> bool:
    return line_columns() >= _WIDE


def is_narrow() -> bool:
    return line_columns() < _NARROW


def printable(text: str) -> str:
    """Text without anything a terminal would act on."""
    if text.isprintable() and max(text, default="") < _FIRST_TAG:
        return text  # as most are; to look with `re` takes longer
    return re.sub(_UNSEEN, "", re.sub(TERMINAL_CONTROL, "", text))


def one_line(text: str) -> str:
    """Printable text on one line: a title with a line break must not look like two entries."""
    return " ".join(printable(text).split())


def as_utf8(text: str) -> str:
    """An argument or file name of any bytes, with `\\xff` for those that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def harmless_json(text: str) -> str:
    """The same JSON, with escapes for characters that JSON allows but a terminal would act on."""
    return re.sub(_UNSEEN_IN_JSON, lambda match: json.dumps(match[0])[1:-1], text)


def width(text: str) -> int:
    """Columns the text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_columns, text))


@lru_cache(maxsize=4096)
def _columns(char: str) -> int:
    return 2 if east_asian_width(char) in "WF" else 1


def fitted(text: str, columns: int) -> str:
    """The text, cut with `…` if it is too wide."""
    # No character takes less than a column, so the rest never counts: a text may have millions of characters.
    head = text[: columns + 1]
    if width(head) <= columns:
        return text
    room = columns - 1 if head.isascii() else bisect_left(list(accumulate(map(_columns, head))), columns)
    return head[:room] + "…"


def wrapped_rows(text: str, columns: int) -> Iterator[tuple[int, int, int]]:
    """Where each line of a text wrapped to so many columns starts and ends, and where the next one starts.

    The standard library's textwrap takes time quadratic in the length of a word, and no column is wider than another.
    """
    start = 0
    while start < len(text):
        furthest = _furthest(text, start, columns)
        end = text.find("\n", start, furthest + 1)
        if end < 0:
            # The last space, or inside a word or an indentation as far as there is room.
            space = text.rfind(" ", start, furthest + 1) if furthest < len(text) else -1
            end = space if space > start and not text[start:space].isspace() else furthest
        gap = re.compile(_GAP).match(text, end)
        after = gap.end() if gap else end
        yield start, end, after
        start = after


def _furthest(text: str, start: int, columns: int) -> int:
    """How far a line of so many columns reaches, at least one character."""
    head = text[start : start + columns]
    if head.isascii():
        return start + len(head)
    sums = list(accumulate(map(_columns, head)))
    return start + max(1, bisect_right(sums, columns))


def wrapped(text: str, indent: str = "", *, after: str = "  ", rows: int = 3) -> Iterator[str]:
    """A text in as many lines as it needs, at most `rows`, then cut. `after` begins all lines but the first."""
    columns = line_columns() - max(width(indent), width(after))
    places = list(wrapped_rows(text, columns))
    for row, (start, end, _) in enumerate(places[:rows], 1):
        is_cut = row == rows < len(places)
        yield (after if row > 1 else indent) + (fitted(text[start:], columns) if is_cut else text[start:end])


def padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def short_ids(session_uids: Iterable[str]) -> dict[str, str]:
    """A part of each session's id, which commands accept, as long as needed to tell it from the others.

    Its beginning, as the agent's own files and commands show it; the end of an id that begins with a clock, and of a
    sub-agent's, which begins with its parent's.
    """
    short: dict[str, str] = {}
    waiting, chars = {uid: one_line(uid).partition(":")[2] for uid in session_uids}, _ID_CHARS
    while waiting:
        parts = {uid: _part_of_id(uid, name, chars) for uid, name in waiting.items()}
        counts = Counter(parts[uid] for uid in waiting)
        done = {uid: part for uid, part in parts.items() if counts[part] == 1 or chars >= len(waiting[uid])}
        short |= done
        waiting = {uid: name for uid, name in waiting.items() if uid not in done}
        chars += 1
    return short


def _part_of_id(uid: str, name: str, chars: int) -> str:
    _, slash, own = name.rpartition("/")
    if not slash and not profile_of(uid.partition(":")[0]).ids_begin_with_time:
        return uid if name.startswith("-") else name[:chars]
    part = own if slash and _LEAST_ID_CHARS <= len(own) <= chars else name[-chars:]
    return part.lstrip("-")  # or a command would take it for an option


def repo_name(repo: str | None) -> str:
    """The last part of a repository's name."""
    return one_line((repo or "–").rsplit("/", 1)[-1])


def local_time(moment: str | None, *, seconds: bool = False) -> str:
    """An RFC 3339 time in the user's zone."""
    if moment is None:
        return "–"
    local = datetime.fromisoformat(moment).astimezone()
    return f"{local:%H:%M:%S}" if seconds else f"{local:%Y-%m-%d %H:%M}"


def fitted_time(moment: str | None, columns: int | None = None) -> str:
    """A time in the user's zone, as exact as the terminal is wide: of this year without the year."""
    columns = columns or line_columns()
    if moment is None or columns >= _WIDE:
        return local_time(moment)
    local = datetime.fromisoformat(moment).astimezone()
    if local.year != datetime.now().astimezone().year:
        return f"{local:%Y-%m-%d}"
    return f"{local:%b %d %H:%M}" if columns >= _NARROW else f"{local:%b %d}"


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """A progress line on a terminal while the block runs; nothing elsewhere."""
    line = _ProgressLine()
    try:
        yield line.show
    finally:
        line.clear()


class _ProgressLine:
    """One line of standard error, overwritten in place."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown_at = 0.0
        self._width = 0

    def show(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._is_terminal or not total or now - self._shown_at < _PROGRESS_SECONDS:
            return
        self._shown_at = now
        filled = round(30 * done / total)
        amount = f"{size(done)} of {size(total)}" if stage.startswith("reading") else f"{done} of {total}"
        self._write(f"{stage:<9} {'━' * filled}{'╌' * (30 - filled)}  {amount}")

    def clear(self) -> None:
        if self._width:
            self._write("")
            sys.stderr.write("\r")

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)
