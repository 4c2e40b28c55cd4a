"""The figures of the statistics, as the page has them."""

from datetime import datetime
from pathlib import Path

import pytest

from recollect.agents import adapters
from recollect.web.pages import Params, stats
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
