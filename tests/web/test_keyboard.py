"""The page by keyboard alone, as a screen reader gives it: accessibility snapshots of what has the focus."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import swept
from tests.logs import CLAUDE, claude_answer, claude_call, claude_result, claude_user, lines, session_id
from tests.web.conftest import Served, served

LIGHTHOUSE, HARBOUR = session_id(1), session_id(2)


def _log(session: str, place: str) -> bytes:
    return lines(
        [
            claude_user(session, 1, f"repair the {place} lamp"),
            claude_call(session, 2, f"grep -n lamp {place}.py"),
            claude_result(session, 3, f"{place}.py:7: lamp = None"),
            claude_answer(session, 4, f"The {place} lamp burns again."),
        ]
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("keyboard")
    CLAUDE.write(folder / "home", _log(LIGHTHOUSE, "lighthouse"), LIGHTHOUSE)
    CLAUDE.write(folder / "home", _log(HARBOUR, "harbour"), HARBOUR)
    swept(folder / "store", f"claude={folder / 'home'}").close()
    with served(folder / "store", "--read-only") as running:
        yield running


def focused(page: Any) -> str:
    """What a screen reader says of the element that has the focus."""
    snapshot: str = page.locator(":focus").aria_snapshot()
    return snapshot


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_a_search_is_typed_read_and_opened(page: Any) -> None:
    press(page, "/")
    page.keyboard.type("harbour")
    page.wait_for_selector(".hit-card mark")
    box, hits = focused(page), page.locator(".hits").aria_snapshot()
    press(page, "Enter")
    hit = focused(page)
    press(page, "Enter")
    page.wait_for_selector(".tabs")

    assert box == '- searchbox "Search": harbour'
    assert hits.splitlines()[:3] == [
        "- article:",
        '  - heading "repair the harbour lamp" [level=2]:',
        '    - link "repair the harbour lamp":',
    ]
    assert hit.startswith('- link "repair the harbour lamp"')
    assert page.get_by_role("heading", level=1).aria_snapshot() == '- heading "repair the harbour lamp" [level=1]'


def test_the_list_of_sessions_is_walked_with_j_and_k(page: Any) -> None:
    press(page, "g", "s")
    page.wait_for_selector("h1:text('Sessions')")
    rows = []
    for key in "jjk":
        press(page, key)
        rows.append(focused(page).splitlines()[0])
    press(page, "Enter")
    page.wait_for_selector(".tabs")

    assert rows[0] == rows[2] != rows[1]
    assert all(row.startswith('- link "repair the ') and "Claude Code" in row for row in rows)
    assert page.get_by_role("heading", level=1).inner_text() in rows[0]


def test_a_step_of_a_session_is_unfolded_and_read(server: Served, page: Any) -> None:
    server.visit(page, f"/session/{LIGHTHOUSE}")
    press(page, "j")
    step = focused(page)
    press(page, "o")
    page.wait_for_selector(".step-body .output")

    assert "grep -n lamp lighthouse.py" in step
    assert page.locator(".step").evaluate("step => step.open")
    assert "lighthouse.py:7: lamp = None" in page.locator(".step").aria_snapshot()
    assert focused(page) == step


def test_the_help_names_every_key_and_gives_the_focus_back(page: Any) -> None:
    press(page, "g", "s")
    page.wait_for_selector("h1:text('Sessions')")
    press(page, "j")
    before = focused(page)
    press(page, "?")
    dialog = page.get_by_role("dialog").aria_snapshot()
    inside = focused(page)
    press(page, "Escape")

    assert dialog == HELP.strip()
    assert inside == '- button "Close"'
    assert focused(page) == before


def test_the_palette_says_which_of_its_choices_is_chosen(page: Any) -> None:
    press(page, "Control+k")
    page.keyboard.type("care")
    page.wait_for_selector("#choices [aria-selected=true]:has-text('Care')")
    box = page.locator("#go")
    chosen = page.locator(f"#{box.get_attribute('aria-activedescendant')}").aria_snapshot()
    pressed = focused(page)
    press(page, "Enter")
    page.wait_for_selector("h1:text('Care')")

    assert pressed == '- combobox "Page or session" [expanded]: care'
    assert chosen.startswith('- option "Care page" [selected]')


def test_arrows_move_the_choice_of_the_palette(page: Any) -> None:
    press(page, "Control+k")
    page.wait_for_selector("#choices [aria-selected=true]")
    press(page, "ArrowDown", "ArrowDown", "ArrowUp")
    options = [line.strip(" -:") for line in page.locator("#choices").aria_snapshot().splitlines() if "option" in line]

    assert options[:3] == ['option "Home page"', 'option "Search page" [selected]', 'option "Sessions page"']
    assert sum("[selected]" in option for option in options) == 1


HELP = """
- dialog "Keyboard":
  - heading "Keyboard" [level=2]
  - term: /
  - definition: Search
  - term: Ctrl K
  - definition: Go to a page or session
  - term: j k
  - definition: Next, previous
  - term: Enter
  - definition: Open
  - term: o
  - definition: Fold or unfold
  - term: g h
  - definition: Home
  - term: g s
  - definition: Sessions
  - term: g f
  - definition: Files
  - term: g t
  - definition: Stats
  - term: g c
  - definition: Care
  - term: Esc
  - definition: Close, leave a field
  - button "Close"
"""
