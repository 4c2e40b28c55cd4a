"""A session as one HTML file: whole, and dead."""

import builtins
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect import RecollectError
from recollect.api import Memory
from recollect.archive.html import render_session_html
from tests.conftest import swept
from tests.web.conftest import Watched
from tests.web.hostile import PAYLOADS, hostile_home

SAMPLES = Path(__file__).parents[2] / "src/recollect/samples"


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    roots = [f"{folder.name}={folder}" for folder in SAMPLES.iterdir() if folder.is_dir()]
    with swept(tmp_path_factory.mktemp("samples"), *roots) as memory:
        yield memory


def rendered(memory: Memory, session: Any) -> str:
    return render_session_html(
        session, memory.transcript(session), digest=memory.digest(session), diff=memory.diff(session)
    )


def test_every_message_call_and_sub_agent_of_a_session_is_in_its_file(samples: Memory) -> None:
    for session in samples.sessions(roots_only=True):
        page = rendered(samples, session)

        anchors = set(re.findall(r'id="e-([0-9a-f]{12})"', page))
        shown = {item.event.event_uid[-12:] for item in samples.transcript(session) if item.event.role != "tool"}
        assert shown <= anchors
        assert page.count('class="sub-agent ') == len(samples.sub_agents(session))


def test_a_file_names_nothing_that_a_browser_would_load(samples: Memory) -> None:
    for session in samples.sessions(roots_only=True):
        page = rendered(samples, session)

        assert not re.search(r"<(script|link|img|iframe|object|embed|base|form)\b|url\(|@import|\ssrc=", page)


def test_fifty_hostile_transcripts_neither_act_nor_ask_for_anything(browser: Any, tmp_path: Path) -> None:
    with swept(tmp_path / "store", f"claude={hostile_home(tmp_path / 'home')}") as memory:
        sessions = memory.sessions()
        assert len(sessions) == len(PAYLOADS) == 50
        paths = [tmp_path / f"{number}.html" for number in range(len(sessions))]
        for path, session in zip(paths, sessions, strict=True):
            path.write_text(rendered(memory, session), encoding="utf-8")
    page = browser.new_page()
    watched = Watched(page, tmp_path.as_uri())
    for path in paths:
        page.goto(path.as_uri())
        page.evaluate("document.querySelectorAll('summary').forEach(summary => summary.click())")
        page.mouse.move(400, 300)

        watched.check()
        assert page.locator("script, img, iframe, [style], [onerror], [onfocus], form").count() == 0
    page.close()


def test_a_file_opens_folds_and_changes_its_theme_without_a_script(
    browser: Any, samples: Memory, tmp_path: Path
) -> None:
    session = max(samples.sessions(roots_only=True), key=lambda session: len(samples.sub_agents(session)))
    path = tmp_path / "session.html"
    path.write_text(rendered(samples, session), encoding="utf-8")
    page = browser.new_page(color_scheme="light")
    page.goto(path.as_uri())

    page.locator(".sub-agent > summary").first.click()
    is_open = page.locator(".sub-agent .message-user").first.is_visible()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_text("dark", exact=True).click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")

    assert is_open
    assert light != dark
    page.close()


def test_without_the_extra_the_error_says_what_to_install(samples: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("recollect.archive.html.find_spec", lambda name: None if name == "nh3" else find(name))
    (session, *_) = samples.sessions(roots_only=True)

    with pytest.raises(RecollectError, match="nh3") as caught:
        render_session_html(session, [])

    assert caught.value.hint == 'pip install "recollect[web]"'


def test_the_door_to_archives_needs_no_extra_package(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    original = builtins.__import__

    def watch(name: str, *rest: Any) -> Any:
        loaded.append(name)
        return original(name, *rest)

    monkeypatch.setattr(builtins, "__import__", watch)
    importlib.reload(importlib.import_module("recollect.archive.html"))

    assert not {"jinja2", "nh3", "markdown_it", "pygments"} & set(loaded)
