"""What was spent by the calendar, and the status line that shows it."""

import io
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recollect.__main__ import run
from recollect.agents import adapters
from recollect.cli.statusline import print_status_line
from recollect.recall import make_spending
from recollect.store import Store, open_store
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep, usage

NOW = datetime(2026, 11, 16, 12, 30).astimezone()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))
    return Home(tmp_path / "home")


def _spend(home: Home, dollars_at: dict[datetime, float]) -> None:
    for number, (at, usd) in enumerate(dollars_at.items()):
        ts_ms = round(at.timestamp() * 1000)
        home.write(f"f{number}", event(f"s{number}", 1, ts_ms=ts_ms), usage(f"s{number}", "u", ts_ms=ts_ms, usd=usd))


@pytest.fixture
def store(tmp_path: Path, home: Home) -> Iterator[Store]:
    days_ago = {0.01: 2.0, 1: 8.0, 20: 16.0, 35: 4.0, 45: 32.0, 70: 64.0}
    _spend(home, {NOW - timedelta(days=days): usd for days, usd in days_ago.items()})
    sweep(tmp_path / "store", home).close()
    with open_store(tmp_path / "store") as opened:
        yield opened


def test_this_month_is_compared_with_the_last_up_to_the_same_day(store: Store) -> None:
    spending = make_spending(store, NOW)

    assert (spending.today_usd, spending.month_usd) == (2.0, 10.0)
    assert (spending.last_month_by_now_usd, spending.last_month_usd) == (36.0, 52.0)


def test_a_model_without_a_known_price_marks_its_month_as_incomplete(tmp_path: Path, home: Home) -> None:
    ts_ms = round((NOW - timedelta(days=1)).timestamp() * 1000)
    unpriced = usage("s", "u", ts_ms=ts_ms, model="claude-zeta-9", output_tokens=9_000)
    home.write("f", event("s", 1, ts_ms=ts_ms), unpriced)
    sweep(tmp_path / "store", home).close()
    with open_store(tmp_path / "store") as store:
        marks = [
            (made.today_usd_is_incomplete, made.usd_is_incomplete, made.forecast_usd_is_incomplete)
            for days in (-1, 0, 20, 70)
            for made in [make_spending(store, NOW + timedelta(days=days))]
        ]
    assert marks[0] == (True, True, True)
    assert marks[1] == (False, True, True)
    assert marks[2][::2] == (False, True)
    assert marks[3] == (False, False, False)


def test_the_status_line_marks_a_day_with_a_model_without_a_known_price(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any
) -> None:
    ts_ms = round(datetime.now().timestamp() * 1000)
    unpriced = usage("s0", "u", ts_ms=ts_ms, model="claude-zeta-9", output_tokens=9_000)
    home.write("f", event("s0", 1, ts_ms=ts_ms), unpriced)
    sweep(tmp_path / "store", home).close()

    line = _line(monkeypatch, capsysbinary, PAYLOAD)

    assert re.search(r"today ~?\$2\.50\+", line)


def test_the_forecast_goes_on_like_the_last_thirty_days(store: Store) -> None:
    spending = make_spending(store, NOW)

    rest = (datetime(2026, 12, 1).astimezone() - NOW) / timedelta(days=1)
    assert spending.forecast_usd == pytest.approx(10.0 + rest * 26.0 / 30, rel=0.01)


def test_the_forecast_of_a_young_store_goes_on_as_since_its_first_day(tmp_path: Path, home: Home) -> None:
    _spend(home, {NOW - timedelta(days=days): 5.0 for days in (1, 10)})
    sweep(tmp_path / "store", home).close()
    with open_store(tmp_path / "store") as store:
        spending = make_spending(store, NOW)

    rest = (datetime(2026, 12, 1).astimezone() - NOW) / timedelta(days=1)
    assert spending.forecast_usd == pytest.approx(10.0 + rest * 10.0 / 10, rel=0.01)


def test_the_running_block_has_its_end_and_its_forecast(store: Store) -> None:
    (block,) = make_spending(store, NOW).blocks

    assert (block.agent, block.usd, block.forecast_usd) == (AGENT, 2.0, pytest.approx(20.0))
    assert datetime.fromisoformat(block.ends_at) == NOW.replace(hour=17, minute=0)


def test_an_empty_store_has_spent_nothing(tmp_path: Path, home: Home) -> None:
    sweep(tmp_path / "store", home).close()
    with open_store(tmp_path / "store") as store:
        spending = make_spending(store, NOW)

    assert (spending.month_usd, spending.forecast_usd, spending.blocks) == (0, 0, [])


def test_what_a_sweep_leaves_for_the_status_line_is_private_and_names_no_session(tmp_path: Path, home: Home) -> None:
    home.write("f", event("secret-name", 1), usage("secret-name", "u", ts_ms=round(NOW.timestamp() * 1000), usd=1.0))

    sweep(tmp_path / "store", home).close()

    snapshot = tmp_path / "store" / "spending.json"
    assert snapshot.stat().st_mode & 0o777 == 0o600
    assert "secret-name" not in snapshot.read_text()


def _line(monkeypatch: pytest.MonkeyPatch, capsysbinary: Any, payload: Any, *, as_json: bool = False) -> str:
    text = payload if isinstance(payload, str) else json.dumps(payload)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    print_status_line(as_json=as_json)
    return str(capsysbinary.readouterr().out.decode())


PAYLOAD = {
    "session_id": "s0",
    "model": {"id": "claude-opus-5-5", "display_name": "Opus 5.5"},
    "cost": {"total_cost_usd": 2.5},
    "context_window": {"used_percentage": 34.2},
}


def test_the_status_line_adds_what_the_session_spent_since_the_sweep(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any
) -> None:
    _spend(home, {datetime.now().astimezone(): 2.0})
    sweep(tmp_path / "store", home).close()
    payload = {**PAYLOAD, "transcript_path": f"{home.folder}/s0.jsonl"}

    facts = json.loads(_line(monkeypatch, capsysbinary, payload, as_json=True))

    assert [facts[name] for name in ("session_usd", "today_usd", "month_usd", "block_usd")] == [2.5] * 4
    assert 0 < facts["block_left_s"] <= 5 * 3600
    line = _line(monkeypatch, capsysbinary, payload)
    assert line.startswith("Opus 5.5 · $2.50 · today $2.50 · block $2.50, ")
    assert line.endswith(" left · context 34%\n")


def test_the_status_line_works_without_a_store(home: Home, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any) -> None:
    assert _line(monkeypatch, capsysbinary, PAYLOAD) == "Opus 5.5 · $2.50 · context 34%\n"


@pytest.mark.parametrize(
    "payload", ["", "nonsense", "[]", '{"cost": 3, "model": [], "context_window": {"used_percentage": "x"}}']
)
@pytest.mark.parametrize("snapshot", ["", "[1]", '{"blocks": 3, "roots": {"a": 4}, "sessions": [], "today_usd": "x"}'])
def test_the_status_line_never_fails(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any, payload: str, snapshot: str
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "spending.json").write_text(snapshot)

    line = _line(monkeypatch, capsysbinary, payload)

    assert line.count("\n") == 1


def test_the_status_line_is_printed_without_the_parser_of_commands(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any
) -> None:
    monkeypatch.setattr("sys.argv", ["recollect", "statusline"])
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(PAYLOAD)))

    run()

    assert capsysbinary.readouterr().out.decode() == "Opus 5.5 · $2.50 · context 34%\n"
