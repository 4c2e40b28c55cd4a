"""Back, forward, deep links, several tabs, a server that stops: the page is where its user expects it to be."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import swept
from tests.logs import CLAUDE, claude_answer, claude_call, claude_result, claude_user, lines, session_id
from tests.web.conftest import Served, served

LONG, LOUD = session_id(9_000), session_id(9_001)


def _long_log() -> bytes:
    records = []
    for number in range(1, 801, 4):
        records += [
            claude_user(LONG, number, f"request {number}"),
            claude_call(LONG, number + 1, f"grep -n widget module_{number}.py"),
            claude_result(LONG, number + 2, f"found widget{number}"),
            claude_answer(LONG, number + 3, f"Module {number} has a widget."),
        ]
    return lines(records)


def _loud_log() -> bytes:
    """A call with a very long output, and four files written."""
    records = [
        claude_user(LOUD, 1, "build it"),
        claude_call(LOUD, 2, "make"),
        claude_result(LOUD, 3, "compiling a module\n" * 4_000 + "the very end"),
    ]
    for number in range(4, 12, 2):
        written = {"file_path": f"/home/x/shop/part_{number}.py", "content": "x = 1\n"}
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Write", "input": written}
        asked = claude_call(LOUD, number, "")
        asked["message"]["content"] = [call]
        records += [asked, claude_result(LOUD, number + 1, "File created")]
    return lines([*records, claude_answer(LOUD, 12, "Built.")])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("navigation")
    CLAUDE.write(folder / "home", _long_log(), LONG)
    CLAUDE.write(folder / "home", _loud_log(), LOUD)
    for number in range(1, 41):
        log = lines([claude_user(session_id(number), 1, f"task {number}"), claude_answer(session_id(number), 2, "ok")])
        CLAUDE.write(folder / "home", log, session_id(number))
    swept(folder / "store", f"claude={folder / 'home'}").close()
    return folder / "store"


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[Served]:
    with served(store) as running:
        yield running


def test_back_returns_to_the_same_place_of_a_list(server: Served, page: Any) -> None:
    server.visit(page, "/sessions")
    left = page.locator(".row").nth(35).get_attribute("href")
    page.locator(".row").nth(35).click()
    page.wait_for_selector(".tabs")
    before = page.evaluate("history.length")
    page.go_back()
    page.wait_for_selector(".rows")
    page.evaluate("async () => { while (scrollY <= 300) await new Promise(requestAnimationFrame); }")

    assert page.locator(":focus").get_attribute("href") == left
    assert page.evaluate("history.length") == before


@pytest.mark.parametrize("number", [5, 797])
def test_the_address_of_a_message_opens_its_session_at_this_message(server: Served, page: Any, number: int) -> None:
    found = server.json(f"/session/{LONG}?find=request+{number}")["found"][0]
    server.visit(page, f"/session/{LONG}#e-{found['event_uid'][-12:]}")
    page.wait_for_selector(".is-asked-for")

    assert f"request {number}" in page.locator(".is-asked-for").inner_text()


def test_a_long_breakdown_is_shown_in_full_on_demand(server: Served, page: Any) -> None:
    server.visit(page, "/stats?since=1y&by=session")
    before = page.locator(".breakdown tbody a").count()
    page.get_by_text("Show all 42").click()
    page.wait_for_selector("text=Show all", state="detached")

    assert (before, page.locator(".breakdown tbody a").count()) == (25, 42)


def test_one_link_goes_to_the_end_of_a_session(server: Served, page: Any) -> None:
    server.visit(page, f"/session/{LONG}")
    page.get_by_text("Go to the end").click()
    page.wait_for_selector(".is-asked-for")

    assert "Module 797 has a widget." in page.locator(".is-asked-for").inner_text()


def test_a_long_output_is_shown_in_full_on_demand(server: Served, page: Any) -> None:
    server.visit(page, f"/session/{LOUD}")
    page.locator(".step > summary").first.click()
    page.locator("text=more characters").wait_for()
    assert "the very end" not in page.locator(".step-body").first.inner_text()
    page.get_by_role("button", name="Show all").click()
    page.locator(".step-body .output:has-text('the very end')").wait_for()

    assert page.locator("text=more characters").count() == 0


def test_all_files_of_a_diff_open_and_close_at_once(server: Served, page: Any) -> None:
    server.visit(page, f"/session/{LOUD}?view=changes")
    page.get_by_role("button", name="Open or close all").click()
    opened = page.locator("details.file[open]").count()
    page.get_by_role("button", name="Open or close all").click()

    assert (opened, page.locator("details.file[open]").count()) == (4, 0)


def test_the_palette_offers_repositories(server: Served, page: Any) -> None:
    (repo,) = server.json("/search")["facets"]["repo"]
    page.keyboard.press("Control+k")
    page.keyboard.type(repo[:4])
    page.locator("#choices a:has-text('repository')").click()
    page.wait_for_selector(f"h1:text('{repo}')")


def test_what_is_looked_for_in_a_session_is_marked_in_its_transcript(server: Served, page: Any) -> None:
    server.visit(page, f"/session/{LONG}?find=WIDGET")
    page.wait_for_selector(".found a")

    assert page.evaluate("CSS.highlights.get('found').size") > 10


def test_a_match_of_a_search_opens_with_its_words_marked(server: Served, page: Any) -> None:
    server.visit(page, "/search?q=widget797")
    page.locator(".match").first.click()
    page.locator(".is-asked-for .output:has-text('widget797')").wait_for()
    page.evaluate("async () => { while (!CSS.highlights.has('found')) await new Promise(requestAnimationFrame); }")

    assert page.evaluate("[...CSS.highlights.get('found')][0].startContainer.data.includes('widget797')")


def test_a_new_name_is_the_title_at_once(server: Served, page: Any) -> None:
    server.visit(page, f"/session/{session_id(3)}?view=summary")
    page.locator("summary:text('Rename')").click()
    page.fill("#new-name", "A better name")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text('A better name')")

    assert page.url.endswith("?view=summary")


def test_a_menu_closes_when_something_was_chosen_or_escape_pressed(server: Served, page: Any) -> None:
    server.visit(page, f"/session/{LONG}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("summary:text('Continue')").click()
    page.get_by_text("Copy resume command").click()
    page.wait_for_selector(".menu", state="hidden")
    page.locator("summary:text('Note')").click()
    page.wait_for_selector("#new-note:focus")
    page.keyboard.press("Escape")
    page.wait_for_selector("#new-note", state="hidden")

    assert page.locator(":focus").inner_text() == "Note"


def test_a_page_says_when_the_server_is_gone_and_continues_with_the_next_one(browser: Any, store: Path) -> None:
    context = browser.new_context()
    old, new = context.new_page(), context.new_page()
    with served(store) as first:
        port = first.port
        first.visit(old, "/sessions")
    old.locator(".row").first.click()
    old.wait_for_selector("text=Recollect does not answer")
    with served(store, "--port", str(port)) as second:
        old.wait_for_selector("text=This page is locked")
        new.goto(second.address)
        new.wait_for_selector(".home")
        old.wait_for_selector(".tabs")

    assert "/session/" in old.url
    context.close()
