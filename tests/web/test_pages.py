"""Every page in a real browser: it shows what it should, and does nothing else."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from recollect.web import session
from recollect.web.pages import Params
from tests.conftest import SHARED, swept
from tests.faults.rig import IS_SOAK
from tests.logs import CLAUDE, claude_answer, claude_call, claude_result, claude_user, lines, session_id
from tests.web.conftest import Served, Watched, served
from tests.web.hostile import PAYLOADS, hostile_home

SAMPLES = Path(__file__).parents[2] / "src/recollect/samples"
VIEWS = ("transcript", "summary", "changes", "cost", "related")
PLAIN_PAGES = (
    "/",
    "/fixes",
    "/fixes?error=AssertionError",
    "/decisions",
    "/decisions?history=1",
    "/decisions?as_of=2026-11-16",
    "/workflows",
    "/graph",
    "/told",
    "/search?q=test",
    "/sessions",
    "/sessions?all=1&sort=cost",
    "/stats",
    "/stats?by=command",
    "/stats?since=1y&agent=claude",
    "/care",
    "/file",
)
LONG = session_id(777)


def go(page: Any, path: str) -> None:
    """Follow a link to a page, as a click would."""
    page.evaluate(
        """path => { const link = document.createElement('a'); link.href = path; document.body.append(link);
                     link.click(); link.remove(); }""",
        path,
    )
    page.wait_for_selector("#page:not([aria-busy])")


def _long_session(events: int) -> bytes:
    records, number = [], 1
    while number < events:
        records += [
            claude_user(LONG, number, f"request {number}: please look at module {number}"),
            claude_call(LONG, number + 1, f"grep -n widget module_{number}.py"),
            claude_result(LONG, number + 2, f"needle{number} " + "found a widget\n" * 20),
            claude_answer(LONG, number + 3, f"Module {number} has **twenty** widgets."),
        ]
        number += 4
    return lines(records)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The bundled samples, genuine sessions where there are any, and one of 10,000 events."""
    folder = tmp_path_factory.mktemp("pages")
    CLAUDE.write(folder / "long", _long_session(10_000), LONG)
    roots = [f"{agent.name}={agent}" for agent in SAMPLES.iterdir() if agent.is_dir()]
    roots += [f"claude={folder / 'long'}"]
    roots += [f"claude={home}" for home in sorted((SHARED / "corpus/claude").glob("entire*"))]
    swept(folder / "store", *roots).close()
    with served(folder / "store", "--read-only") as running:
        yield running


def test_every_page_of_real_sessions_shows_without_an_error(server: Served, page: Any) -> None:
    listed = server.json("/sessions?all=1&sort=cost")["sessions"]
    chosen = [session["session_uid"] for session in listed[:6] + listed[-3:]]
    repos = sorted({session["repo"] for session in listed if session["repo"]})
    paths = [
        *PLAIN_PAGES,
        "/stats?since=1y&agent=claude&other=codex",
        "/file?path=calc.py",
        "/settings",
        f"/repository/{quote(repos[0])}",
    ]
    paths += [f"/session/{quote(uid)}?view={view}" for uid in chosen for view in VIEWS]
    for path in paths:
        go(page, path)

        assert page.locator("#page .sheet h1, #page .sheet .masthead").count() >= 1, path
        assert page.locator("#page [role=alert].empty").count() == 0, path


def test_fifty_hostile_sessions_do_nothing_on_any_page(browser: Any, tmp_path: Path) -> None:
    swept(tmp_path / "store", f"claude={hostile_home(tmp_path / 'home')}").close()
    with served(tmp_path / "store", "--read-only") as running:
        page = browser.new_page()
        watched = Watched(page, running.base)
        running.visit(page, "/sessions?all=1")
        listed = [session["session_uid"] for session in running.json("/sessions?all=1")["sessions"]]
        assert len(listed) == len(PAYLOADS)
        everywhere = ["/search?q=alert", "/file?path=x.py", "/stats?by=repo", "/stats?by=tool", "/stats?by=session"]
        for path in (*PLAIN_PAGES, *everywhere):
            go(page, path)
        for number, uid in enumerate(listed):
            for view in VIEWS if IS_SOAK else (VIEWS[0], VIEWS[1 + number % 4]):
                go(page, f"/session/{quote(uid)}?view={view}")
                page.evaluate("document.querySelectorAll('#page summary').forEach(summary => summary.click())")
        page.wait_for_timeout(200)

        watched.check()
        assert page.evaluate("document.scripts.length") == 2
        page.close()


def test_a_session_of_ten_thousand_events_opens_small_and_grows_as_one_scrolls(server: Served, page: Any) -> None:
    go(page, f"/session/{LONG}")
    nodes = page.evaluate("document.querySelectorAll('*').length")
    first = page.locator(".exchange").count()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.locator(".exchange").nth(first).wait_for()

    assert nodes <= 3000
    assert 20 <= first <= 50


def test_the_first_page_of_a_long_session_is_painted_soon_after_its_answer(server: Served, page: Any) -> None:
    server.json(f"/session/{LONG}")  # so that the server has its outline

    assert min(_paint_ms(page) for _ in range(3)) <= 300


def _paint_ms(page: Any) -> float:
    """The processor time that the page takes from the click on a long session until it is painted."""
    go(page, "/settings")
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable", {"timeDomain": "threadTicks"})
    before_s = _busy_s(browser)
    page.evaluate(
        """uid => new Promise(resolve => {
             new MutationObserver((_, watch) => {
               if (!document.querySelector('#page .exchange')) return;
               watch.disconnect();
               requestAnimationFrame(() => setTimeout(resolve));
             }).observe(document.getElementById('page'), { childList: true, subtree: true });
             const link = Object.assign(document.createElement('a'), { href: `/session/${uid}` });
             document.getElementById('page').append(link);
             link.click();
           })""",
        LONG,
    )
    return (_busy_s(browser) - before_s) * 1000


def _busy_s(browser: Any) -> float:
    metrics = browser.send("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def test_a_link_to_an_event_opens_the_page_it_is_on(server: Served, page: Any) -> None:
    found = server.json(f"/session/{LONG}?find=needle6001")["found"]
    assert len(found) == 1

    go(page, f"/session/{LONG}?at={found[0]['event_uid'][-12:]}")
    page.wait_for_selector(".is-asked-for")

    assert "module_6001" in page.locator(".is-asked-for summary").first.inner_text()
    assert page.locator(".is-asked-for").first.evaluate(
        "element => element.getBoundingClientRect().top > 0 && element.getBoundingClientRect().top < innerHeight"
    )


def test_opening_a_step_reads_its_output(server: Served, page: Any) -> None:
    go(page, f"/session/{LONG}")

    page.locator(".step > summary").first.click()
    page.wait_for_selector(".step-body .output")

    assert "needle1 found a widget" in page.locator(".step-body .output").first.inner_text()


def test_find_in_a_session_looks_into_its_sub_agents(server: Served) -> None:
    listed = [session["session_uid"] for session in server.json("/sessions?all=1")["sessions"]]
    related = {uid: server.json(f"/session/{quote(uid)}?view=related")["sub_agents"] for uid in listed}
    parent, child = next((uid, children[0]["session_uid"]) for uid, children in related.items() if children)
    asked = server.json(f"/session/{quote(child)}")["requests"][0]["text"]

    found = server.json(f"/session/{quote(parent)}?find={quote(asked[:30])}")["found"]

    assert child in {match["session_uid"] for match in found}


def test_search_answers_as_one_types_and_the_address_follows(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("AssertionErr", delay=15)
    page.wait_for_selector(".hit-card mark")

    assert page.url.endswith("/search?q=AssertionErr")
    assert page.evaluate("document.activeElement.id") == "q"
    page.go_back()
    page.wait_for_selector(".home")


def test_the_graph_is_explored_by_clicking_what_it_shows(server: Served, page: Any) -> None:
    go(page, "/graph")
    first = page.locator("svg.graph a").first
    name = first.locator("title").text_content().partition(": ")[2].rpartition(" (")[0]
    first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Around')")

    assert name in page.locator("h1").inner_text()
    assert page.locator("svg.graph .root").count() == 1


def test_a_known_error_opens_what_fixed_it(page: Any) -> None:
    go(page, "/fixes")
    error = page.locator(".row").first.locator("code").inner_text()
    page.locator(".row").first.click()
    page.wait_for_selector(".fix-steps")

    assert page.locator("#error").input_value() == error


def test_a_command_of_the_statistics_opens_the_sessions_that_ran_it(page: Any) -> None:
    go(page, "/stats?since=1y&by=command")
    command = page.locator(".breakdown tbody a").first
    name = command.inner_text()
    command.click()
    page.wait_for_selector(".hit-card")

    assert page.locator("#q").input_value() == f'"{name}"'


def test_on_a_phone_filters_are_folded_and_the_current_page_is_in_sight(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    go(page, "/stats")
    current = page.locator(".side [aria-current]").bounding_box()
    go(page, "/sessions")

    assert 0 <= current["x"] < 390
    assert page.locator(".facet").first.is_visible() is False
    page.get_by_text("Filters", exact=True).click()
    assert page.locator(".facet").first.is_visible()


def test_a_screen_reader_finds_landmarks_names_and_the_current_page(page: Any) -> None:
    go(page, "/sessions")
    snapshot = page.locator("body").aria_snapshot()

    for line in (
        "banner",
        "search",
        'navigation "Pages"',
        "main",
        'heading "Sessions" [level=1]',
        'searchbox "Search"',
    ):
        assert line in snapshot, line
    assert page.locator("nav [aria-current=page]").inner_text() == "Sessions"
    assert page.evaluate(
        "[...document.querySelectorAll('button, input, a')].every(e => e.checkVisibility() === false || "
        "(e.innerText || e.ariaLabel || e.labels?.length || e.textContent).length !== 0)"
    )


@pytest.mark.parametrize("width", [390, 900, 1440])
def test_no_page_is_wider_than_the_screen(server: Served, page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    uid = server.json("/sessions")["sessions"][0]["session_uid"]
    for path in (*PLAIN_PAGES, f"/session/{quote(uid)}", f"/session/{quote(uid)}?view=cost"):
        go(page, path)

        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path


def test_a_tab_without_the_token_gets_it_from_another_tab_and_a_stranger_gets_nothing(
    browser: Any, server: Served
) -> None:
    own, stranger = browser.new_context(), browser.new_context()
    first = own.new_page()
    first.goto(server.base)
    first.wait_for_selector("text=This page is locked")  # which takes the token away
    first.evaluate("token => sessionStorage.setItem('recollect.token', token)", server.token)
    first.reload()
    first.wait_for_selector(".home")

    second = own.new_page()
    second.goto(f"{server.base}/sessions")
    second.wait_for_selector(".rows")
    third = stranger.new_page()
    third.goto(f"{server.base}/sessions")
    third.wait_for_selector("text=This page is locked")

    assert third.locator(".row").count() == 0
    own.close()
    stranger.close()


def test_what_an_agent_writes_appears_while_one_reads_and_the_place_is_kept(browser: Any, tmp_path: Path) -> None:
    session, home = session_id(9), tmp_path / "home"
    records = [claude_user(session, 1, "watch me"), *(claude_answer(session, n, f"line {n}") for n in range(2, 60))]
    log = CLAUDE.write(home, lines(records), session)
    swept(tmp_path / "store", f"claude={home}").close()
    with served(tmp_path / "store", home=home) as running:
        page = browser.new_page(viewport={"width": 1000, "height": 700})
        watched = Watched(page, running.base)
        running.visit(page, f"/session/{session}")
        page.wait_for_timeout(1200)  # one look, so that what follows is news
        page.evaluate("scrollTo(0, 400)")
        before = page.evaluate("scrollY")
        with log.open("ab") as file:
            file.write(lines([claude_user(session, 60, "and now a new request"), claude_answer(session, 61, "grown!")]))
        page.wait_for_selector("text=grown!", state="attached", timeout=15_000)

        assert page.evaluate("scrollY") == before
        watched.check()
        page.close()


def test_a_page_of_a_very_long_session_holds_only_what_it_shows(tmp_path: Path) -> None:
    long = session_id(77)
    records = [claude_answer(long, number, f"answer {number}") for number in range(1, 20_001)]
    CLAUDE.write(tmp_path / "home", lines(records), long)
    with swept(tmp_path / "store", f"claude={tmp_path / 'home'}") as memory:
        memory.sessions()  # opens what every page needs
        tracemalloc.start()
        for query in ({}, {"at": "19990"}, {"page": "5"}, {"view": "cost"}, {"find": "answer 17"}):
            shown = session.session(memory, Params({"uid": long}, query))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert len(shown["found"]) == 100
    assert peak < 8_000_000
