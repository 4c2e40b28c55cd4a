"""The figures of the statistics, as the page has them."""

import re
from collections.abc import Iterator
from datetime import datetime
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.api import Memory
from recollect.web import charts
from recollect.web.pages import Params, sessions, stats
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep, usage


def test_the_money_of_this_month_is_the_same_whatever_the_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home, month = Home(tmp_path / "home"), datetime.now().astimezone().replace(day=1, hour=12)
    ts_ms = round(month.timestamp() * 1000) - 2 * 86_400_000
    home.write("old", event("old", 1, ts_ms=ts_ms), usage("old", "u", ts_ms=ts_ms, usd=2.0))

    with sweep(tmp_path / "store", home) as memory:
        spent = [stats(memory, Params(query={"since": since}))["spending"].last_month_usd for since in ("today", "1y")]

    assert spent == [2.0, 2.0]


DAY_MS = 86_400_000


@pytest.fixture
def spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """A session of each of two repositories: three dollars yesterday, one the day before."""
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home, noon = Home(tmp_path / "home"), datetime.now().astimezone().replace(hour=12)
    for name, days, usd in (("shop", 1, 3.0), ("blog", 2, 1.0)):
        ts_ms = round(noon.timestamp() * 1000) - days * DAY_MS
        info = SessionInfo(name, git_remote=f"git@github.com:acme/{name}.git")
        home.write(name, info, event(name, 1, ts_ms=ts_ms), usage(name, "u", ts_ms=ts_ms, usd=usd))
    with sweep(tmp_path / "store", home) as memory:
        yield memory


def test_a_repository_is_compared_with_the_time_before_or_with_another_one(spent: Memory) -> None:
    before = stats(spent, Params(query={"repo": "shop"}))["beside"]
    other = stats(spent, Params(query={"repo": "shop", "other": "blog"}))

    assert (other["agents"].total.usd, other["beside"].usd) == (3.0, 1.0)
    assert before.sessions == 0


def test_a_bar_opens_the_sessions_of_its_day(spent: Memory) -> None:
    records = stats(spent, Params(query={"since": "7d", "repo": "shop"}))
    (link,) = re.findall(r'href="/sessions\?([^"]*)"', charts.daily(records["days"], "usd", 7, {"repo": "shop"}))
    query = dict(parse_qsl(unescape(link)))

    assert query["repo"] == "shop"
    assert [session.native_session_id for session in sessions(spent, Params(query=query))["sessions"]] == ["shop"]


def test_the_curve_of_a_session_shows_when_it_worked_and_when_not() -> None:
    curve = charts.curve([(f"2026-11-15T{at}:00Z", 0, 10) for at in ("10:00", "10:02", "11:00", "11:01")], 40)

    assert re.findall(r"<title>.*?: (.*?)</title>", curve) == ["2 min of work", "58 min idle", "1 min of work"]
