"""The picker: what keys do, what the screen shows, and the real program on a real terminal."""

import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.api import Memory, open_memory
from recollect.cli.picker import DIFF, QUIT, RESUME, SHOW, Picker, key_name
from recollect.cli.terminal import short_ids, width
from tests.builders import AGENT, Home, ScriptedAdapter, event
from tests.logs import CLAUDE


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    home = Home(tmp_path / "home")
    home.write("a", SessionInfo("aaaa1111", cwd="/proj/shop"), event("aaaa1111", 1, text="repair the zebra crossing"))
    home.write("b", SessionInfo("bbbb2222", cwd="/proj/site"), event("bbbb2222", 1, text="paint the 斑馬線 blue"))
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    with open_memory(tmp_path / "store", [home.flag]) as opened:
        opened.sweep()
        yield opened


@pytest.fixture
def picker(memory: Memory) -> Picker:
    picker = Picker(memory, "shop")
    picker.search()
    return picker


def type_in(picker: Picker, text: str) -> None:
    for char in text:
        assert picker.press(char) is None
    picker.search()


def titles(picker: Picker) -> list[str]:
    return [hit.title or "" for hit in picker.answer.hits]


def test_it_begins_with_the_sessions_active_last(picker: Picker) -> None:
    assert sorted(titles(picker)) == ["paint the 斑馬線 blue", "repair the zebra crossing"]


def test_typing_searches_everything_and_backspace_takes_it_back(picker: Picker) -> None:
    type_in(picker, "zebra")
    assert titles(picker) == ["repair the zebra crossing"]

    for _ in "zebra":
        picker.press("backspace")
    picker.search()

    assert len(titles(picker)) == 2


def test_a_filter_key_keeps_only_the_current_repository(picker: Picker) -> None:
    picker.press("^r")
    picker.search()

    assert titles(picker) == ["repair the zebra crossing"]
    assert "this repository" in picker.lines(80, 24)[1].text


def test_a_long_list_says_how_many_sessions_there_are(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.cli.picker._SESSIONS", 1)
    picker = Picker(memory)

    picker.search()

    assert "1 of 2 sessions" in picker.lines(80, 24)[1].text


def test_notes_of_a_search_leave_the_keys_on_the_screen(picker: Picker) -> None:
    type_in(picker, "zebra qqqqqqqq")

    screen = [line.text for line in picker.lines(80, 24)]
    assert any("qqqqqqqq" in line for line in screen[2:-1])
    assert "Enter resume" in screen[-1]


def test_enter_acts_on_no_session_that_was_not_on_the_screen(picker: Picker) -> None:
    for char in "zebra":
        picker.press(char)

    assert picker.press("enter") is None
    assert titles(picker) == ["repair the zebra crossing"]
    assert picker.press("enter") == RESUME


def test_the_selection_stays_where_it_was_after_a_look_at_a_session(picker: Picker) -> None:
    picker.press("down")
    selected = picker.selected

    assert picker.press("^o") == SHOW
    assert not picker.is_due
    assert picker.selected == selected


def test_moving_past_the_end_of_the_list_brings_more(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.cli.picker._SESSIONS", 1)
    picker = Picker(memory)
    picker.search()

    picker.press("down")
    assert picker.is_due
    picker.search()
    picker.press("down")

    assert picker.selected == picker.answer.hits[1]


def test_the_selection_stays_within_the_list(picker: Picker) -> None:
    picker.press("up")
    first = picker.selected
    for _ in range(9):
        picker.press("down")

    assert picker.selected is not None
    assert picker.selected != first
    assert picker.selected == picker.answer.hits[-1]


@pytest.mark.parametrize(("key", "action"), [("enter", RESUME), ("^o", SHOW), ("^d", DIFF), ("escape", QUIT)])
def test_keys_say_what_to_do_with_the_selected_session(picker: Picker, key: str, action: str) -> None:
    assert picker.press(key) == action


def test_nothing_can_be_done_with_no_session(picker: Picker) -> None:
    type_in(picker, "qqqqqqqq")

    assert picker.press("enter") is None
    assert picker.press("escape") == QUIT


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (60, 15), (200, 50), (20, 6)])
def test_the_screen_fits_any_terminal(picker: Picker, columns: int, rows: int) -> None:
    lines = picker.lines(columns, rows)

    assert len(lines) == rows
    assert all(width(line.text) <= columns for line in lines)


def test_a_narrow_terminal_leaves_room_for_titles(picker: Picker) -> None:
    wide, narrow = (
        next(line.text for line in picker.lines(columns, 15) if "repair" in line.text) for columns in (80, 60)
    )

    assert AGENT in wide
    assert AGENT not in narrow
    assert "shop" in narrow


def test_all_keys_are_named_on_any_usual_terminal(picker: Picker) -> None:
    for columns in (60, 80):
        assert picker.lines(columns, 24)[-1].text.endswith("Esc quit")


def test_a_session_is_listed_with_its_id(picker: Picker) -> None:
    hit = picker.selected

    assert hit is not None
    assert any(short_ids([hit.session_uid])[hit.session_uid] in line.text for line in picker.lines(80, 24))


def test_the_preview_shows_the_digest_of_the_selected_session(picker: Picker) -> None:
    type_in(picker, "zebra")

    screen = "\n".join(line.text for line in picker.lines(80, 24))

    assert "Asked" in screen
    assert "##" not in screen


def test_control_keys_have_names() -> None:
    assert [key_name(key) for key in ("\x12", "\x1b", "\n", "x", "é")] == ["^r", "escape", "enter", "x", "é"]


class Terminal:
    """The real program on a pseudo-terminal of 80 by 24."""

    def __init__(self) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "LINES": "24", "COLUMNS": "80"}
            os.execv(sys.executable, [sys.executable, "-m", "recollect"])

    def read_until(self, text: str, seconds: float = 30) -> str:
        screen, end = "", time.monotonic() + seconds
        while time.monotonic() < end and text not in screen:
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    screen += re.sub(r"\x1b[\[(][0-9;?]*[A-Za-z]", "", os.read(self.fd, 65536).decode(errors="replace"))
                except OSError:  # the program has ended
                    break
        return screen

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        os.close(self.fd)


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    root = tmp_path / "claude-home"
    CLAUDE.write(root, CLAUDE.content(1, words="repair the zebra crossing"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(root))
    with open_memory() as memory:
        memory.sweep()
    opened = Terminal()
    yield opened
    opened.close()


def test_the_program_alone_on_a_terminal_searches_as_one_types(terminal: Terminal) -> None:
    assert "repair the zebra crossing" in terminal.read_until("Esc quit")

    terminal.type("qqqqqq")
    assert "No matches" in terminal.read_until("No matches")
    terminal.type("\x1b")

    assert terminal.wait() == 0


def test_it_ends_with_the_terminal(terminal: Terminal) -> None:
    terminal.read_until("Esc quit")

    os.kill(terminal.pid, signal.SIGTERM)

    assert terminal.wait() != 0


def test_a_pasted_text_of_several_lines_is_a_query_and_resumes_nothing(terminal: Terminal) -> None:
    terminal.read_until("Esc quit")

    terminal.type("repair\n\nthe\nzebra\n")
    screen = terminal.read_until("zebra▏")
    terminal.type("\x1b")

    assert "Cannot resume" not in screen
    assert terminal.wait() == 0


def test_a_session_that_cannot_be_resumed_here_keeps_the_picker_open(terminal: Terminal) -> None:
    terminal.read_until("Esc quit")

    terminal.type("\r")
    screen = terminal.read_until("Cannot resume")
    terminal.type("\x1b")

    assert "Cannot resume: no" in screen
    assert terminal.wait() == 0
