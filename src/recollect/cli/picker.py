"""The picker: type to search everything, look at a session, carry on with it.

`Picker` holds what is typed, listed and selected, and says what the screen shows; it knows no terminal. `pick` draws it
with curses, which every Python on Unix has and which starts at once, over ssh too.
`pick_session` is what `recollect` alone does on a terminal.
"""

import base64
import curses
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import click

from recollect import digest
from recollect.api import Memory
from recollect.cli.listing import matched_part, outcome_sign, total_line
from recollect.cli.options import open_fresh
from recollect.cli.output import reports_errors
from recollect.cli.resume import obstacles
from recollect.cli.terminal import fitted, fitted_time, one_line, padded, printable, repo_name, short_ids, width
from recollect.cli.transcript import plain_rows
from recollect.config import has_colour
from recollect.model.errors import NotFound, RecollectError
from recollect.recall import Filters, SearchAnswer, SessionHit

RESUME, SHOW, DIFF, COPY, QUIT = "resume", "show", "diff", "copy", "quit"
ACTIONS = {"enter": RESUME, "^o": SHOW, "^d": DIFF, "^y": COPY, "escape": QUIT, "^c": QUIT}
HELP = "Enter resume  ^O show  ^D diff  ^Y copy id  ^R here  ^A agent  ^T time  Esc quit"
SHORT_HELP = "Enter resume ^O show ^D diff ^Y id ^R/^A/^T filter Esc quit"
PLAIN, BOLD, GREY, SELECTED = "plain", "bold", "grey", "selected"
PERIODS = ("", "1d", "7d", "30d")
_PERIOD_NAMES = {"": "any time", "1d": "last day", "7d": "last 7 days", "30d": "last 30 days"}
_SESSIONS = 50
_MOST_CHANGED = 5  # files of an uncommitted change that are looked up before the first screen
_NARROW = 70  # columns
_LIST_ROWS = 0.45  # of the screen; the rest is the preview
_SEARCH_DELAY_MS = 60  # after the last key
_ESCAPE_DELAY_MS = 25


class Line(NamedTuple):
    text: str
    style: str = PLAIN


class Picker:
    """What is typed, listed and selected. `here` is the repository that a key narrows the list to."""

    def __init__(self, memory: Memory, here: str = ".") -> None:
        self._memory = memory
        self._here = here
        self._agents = ["", *sorted(memory.names("agent"))]
        self.query = ""
        self.agent = self.period = ""
        self.is_here = False
        self.note = ""
        self._changing: set[str] | None = None  # sessions behind the uncommitted change here
        self.answer = SearchAnswer("", 0.0, [])
        self._selected = 0
        self._listed: tuple[str, str, str, bool, int] | None = None  # what the list answers
        self._limit = _SESSIONS
        self._previews: dict[str, list[Line]] = {}

    @property
    def selected(self) -> SessionHit | None:
        return self.answer.hits[self._selected] if self.answer.hits else None

    @property
    def is_due(self) -> bool:
        """Whether the list is older than what was typed."""
        return self._listed != self._asked

    @property
    def _asked(self) -> tuple[str, str, str, bool, int]:
        return self.query, self.agent, self.period, self.is_here, self._limit

    def search(self) -> None:
        """List what the query and the filters match; a query that cannot be read yet keeps the list."""
        filters = Filters(
            agent=self.agent or None, repo=self._here if self.is_here else None, since=self.period or None
        )
        try:
            self.answer = self._memory.answer(self.query, filters=filters, limit=self._limit, matches=2, context=0)
            self.note = one_line("; ".join(self.answer.notes))
            if not self.query:
                self._put_changing_first()
        except RecollectError as error:
            self.note = one_line(error.message)
        is_longer = self._listed is not None and self._listed[:-1] == self._asked[:-1]
        self._selected = min(self._selected, max(len(self.answer.hits) - 1, 0)) if is_longer else 0
        self._listed = self._asked

    def _put_changing_first(self) -> None:
        """Begin the list with the sessions behind the change that is not committed here yet."""
        if self._changing is None:
            try:
                change = self._memory.knowledge.uncommitted(self._here, most_files=_MOST_CHANGED)
                self._changing = {origin.session_uid for origin in change.sessions}
            except NotFound:
                self._changing = set()
        behind = self._changing
        if any(hit.session_uid in behind for hit in self.answer.hits):
            hits = sorted(self.answer.hits, key=lambda hit: hit.session_uid not in behind)
            self.answer, self.note = self.answer._replace(hits=hits), "First: behind your uncommitted change"

    def press(self, key: str) -> str | None:
        """Take a key; returns what is to be done with the selected session, if anything.

        While the list is older than what was typed, a key that would act on it brings it up to date instead: nobody
        resumes a session that was not on the screen.
        """
        action = ACTIONS.get(key)
        if action == QUIT or (action and self.selected and not self.is_due):
            return action
        if action:
            self.search()
        elif key in _MOVES:
            self._move(_MOVES[key])
        elif edit := _EDITS.get(key):
            edit(self)
            self._limit = _SESSIONS
        elif len(key) == 1 and key.isprintable():
            self.query += key
            self._limit = _SESSIONS
        return None

    def _move(self, rows: int) -> None:
        last = max(len(self.answer.hits) - 1, 0)
        self._selected = min(max(self._selected + rows, 0), last)
        if self._selected == last and len(self.answer.hits) < (self.answer.total or 0):
            self._limit = len(self.answer.hits) + _SESSIONS

    def cycle_agent(self) -> None:
        self.agent = self._agents[(self._agents.index(self.agent) + 1) % len(self._agents)]

    def cycle_period(self) -> None:
        self.period = PERIODS[(PERIODS.index(self.period) + 1) % len(PERIODS)]

    def toggle_here(self) -> None:
        self.is_here = not self.is_here

    def lines(self, columns: int, rows: int) -> list[Line]:
        """The screen, one line after another: query, filters, list, preview, help."""
        room = max(rows - 4, 2)
        listed = max(round(room * _LIST_ROWS), 1)
        screen = [Line(fitted(f"> {self.query}▏", columns), BOLD), Line(fitted(self._filters(), columns), GREY)]
        screen += self._list(columns, listed)
        note = fitted(f"── {self.note} ", columns) if self.note else ""
        screen.append(Line(note + "─" * (columns - width(note)), GREY))
        screen += self._preview(columns, room - listed)
        return [*screen, Line(fitted(HELP if columns >= len(HELP) else SHORT_HELP, columns), GREY)]

    def _filters(self) -> str:
        repo = "this repository" if self.is_here else "all repositories"
        count = total_line(len(self.answer.hits), 0, self.answer.total, "session", is_least=self.answer.is_least)
        return " · ".join((self.agent or "all agents", repo, _PERIOD_NAMES[self.period], count))

    def _list(self, columns: int, rows: int) -> list[Line]:
        first = max(0, self._selected - rows + 1)
        rows_of_hits = _rows(self.answer.hits, columns)[first : first + rows]
        lines = [
            Line(row, SELECTED if first + number == self._selected else PLAIN)
            for number, row in enumerate(rows_of_hits)
        ]
        return lines + [Line("")] * (rows - len(lines))

    def _preview(self, columns: int, rows: int) -> list[Line]:
        hit = self.selected
        if hit is None:
            return [Line("No matches", GREY)] + [Line("")] * (rows - 1)
        numbers = [f"#{match.seq}  " for match in hit.matches]
        matches = [
            Line(number + matched_part(match.snippet, match.words, columns - len(number)), BOLD)
            for number, match in zip(numbers, hit.matches, strict=True)
        ]
        if hit.session_uid not in self._previews:
            self._previews[hit.session_uid] = self._read_digest(hit.session_uid, columns)
        lines = matches + self._previews[hit.session_uid]
        return (lines + [Line("")] * rows)[:rows]

    def _read_digest(self, session_uid: str, columns: int) -> list[Line]:
        try:
            text = digest.render_digest(self._memory.digest(self._memory.session(session_uid)), None)
        except NotFound:
            return [Line("No digest yet", GREY)]
        page = [line for line in printable(text).splitlines()[1:] if line]  # the list has its title
        return [Line(row, BOLD if is_heading else PLAIN) for row, is_heading in plain_rows(page, columns)]

    def forget_previews(self) -> None:
        """After the screen changed its width."""
        self._previews.clear()


_MOVES = {"up": -1, "^p": -1, "down": 1, "^n": 1, "page_up": -10, "page_down": 10}
_EDITS: dict[str, Callable[[Picker], None]] = {
    "backspace": lambda picker: setattr(picker, "query", picker.query[:-1]),
    "^u": lambda picker: setattr(picker, "query", ""),
    "^w": lambda picker: setattr(picker, "query", picker.query.rstrip().rpartition(" ")[0]),
    "^a": Picker.cycle_agent,
    "^t": Picker.cycle_period,
    "^r": Picker.toggle_here,
}


def _rows(hits: Sequence[SessionHit], columns: int) -> list[str]:
    """A line for each session; a narrow terminal has no room for the time of day, the agent and long names."""
    is_narrow, names = columns < _NARROW, short_ids(hit.session_uid for hit in hits)
    cells = [
        [
            fitted_time(hit.ended_at or hit.started_at, columns),
            "" if is_narrow else hit.agent,
            names[hit.session_uid],
            fitted(repo_name(hit.repo), 10 if is_narrow else 16),
            outcome_sign(hit.outcome)[0],
        ]
        for hit in hits
    ]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            [*(padded(cell, room) for cell, room in zip(row, widths, strict=True) if room), one_line(hit.title or "–")]
        )
        for row, hit in zip(cells, hits, strict=True)
    ]
    return [padded(fitted(line, columns), columns) for line in lines]


_KEYS = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_PPAGE: "page_up",
    curses.KEY_NPAGE: "page_down",
    curses.KEY_BACKSPACE: "backspace",
    curses.KEY_ENTER: "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\n": "enter",
    "\r": "enter",
    "\x1b": "escape",
}


def key_name(key: int | str) -> str:
    """A key as `Picker.press` knows it: a character, `^x`, or a name."""
    if key in _KEYS:
        return _KEYS[key]
    if isinstance(key, str) and key < " ":
        return f"^{chr(ord(key) + 96)}"
    return key if isinstance(key, str) else ""


def pick(picker: Picker) -> str:
    """Show the picker until something is to be done with the selected session, or it is left; returns what."""
    curses.set_escdelay(_ESCAPE_DELAY_MS)
    return curses.wrapper(_loop, picker)


def _loop(window: curses.window, picker: Picker) -> str:
    curses.raw()  # ^C, ^O and ^Y are keys here
    with suppress(curses.error):
        curses.curs_set(0)
    styles = _styles()
    while True:
        _draw(window, picker, styles)
        key = _read_key(window, _SEARCH_DELAY_MS if picker.is_due else -1)
        if key is None:
            picker.search()
        elif key == curses.KEY_RESIZE:
            picker.forget_previews()
        elif action := picker.press(" " if key == "\n" and _is_pasting(window) else key_name(key)):
            return action


def _read_key(window: curses.window, wait_ms: int) -> int | str | None:
    window.timeout(wait_ms)
    try:
        return window.get_wch()
    except curses.error:  # no key for so long
        return None


def _is_pasting(window: curses.window) -> bool:
    """Whether more keys wait: nobody types that fast, so a line's end among them is no Enter."""
    key = _read_key(window, 0)
    if isinstance(key, str):
        curses.unget_wch(key)
    elif key is not None:
        curses.ungetch(key)
    return key is not None


def _styles() -> dict[str, int]:
    styles = {PLAIN: curses.A_NORMAL, BOLD: curses.A_BOLD, GREY: curses.A_DIM, SELECTED: curses.A_REVERSE}
    if has_colour() and curses.has_colors():
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_CYAN, -1)
        styles[BOLD] |= curses.color_pair(1)
    return styles


def _draw(window: curses.window, picker: Picker, styles: dict[str, int]) -> None:
    rows, columns = window.getmaxyx()
    window.erase()
    for number, line in enumerate(picker.lines(columns, rows)[:rows]):
        with suppress(curses.error):  # writing the last column of the last row moves the cursor out of the window
            window.addstr(number, 0, line.text, styles[line.style])
    window.refresh()


def copy_to_clipboard(text: str) -> None:
    """Have the terminal put a text into the clipboard, over ssh too (OSC 52)."""
    sys.stdout.write(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\a")
    sys.stdout.flush()


@reports_errors
def pick_session(run: Callable[..., object]) -> None:
    """Let the user pick sessions and `run` commands with them, until one is resumed or the picker is left."""
    with open_fresh() as memory:
        picker = Picker(memory)
        picker.search()
        while (action := pick(picker)) != QUIT and (hit := picker.selected):
            if action == COPY:
                copy_to_clipboard(hit.session_uid)
                picker.note = f"Copied: {hit.session_uid}"
            elif action == RESUME and (obstacle := _obstacle(hit)):
                picker.note = f"Cannot resume: {obstacle}"
            elif action == RESUME:
                run(action, hit.session_uid, "--run")
                return
            else:
                with suppress(SystemExit):  # the error is on the screen
                    run(action, hit.session_uid)
                click.pause(err=True)


def _obstacle(hit: SessionHit) -> str | None:
    """Why a session cannot be resumed here, if it cannot."""
    if hit.resume_command is None:
        return f"sessions of this agent: {hit.agent}"
    return next(obstacles(shlex.split(hit.resume_command), hit.cwd or ""), None)
