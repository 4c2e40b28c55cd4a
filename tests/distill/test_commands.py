"""The commands as people and programs call them."""

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import recollect
from recollect import Memory, open_memory
from recollect.cli import main
from recollect.model.errors import BadConfig
from recollect.model.schema import SIGNALS, to_json
from recollect.recall import BREAKDOWNS
from tests.test_api import SCHEMAS, breaches

SAMPLES = Path(recollect.__file__).parent / "samples"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    roots = [f"{path.name}={path}" for path in SAMPLES.iterdir() if path.is_dir()]
    with open_memory(tmp_path / "store", roots) as opened:
        opened.sweep()
        yield opened


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def printed(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_what_is_printed_for_programs_keeps_to_the_schemas(memory: Memory) -> None:
    for session in memory.sessions(roots_only=True):
        assert breaches(SCHEMAS["digest"], printed("digest", session.session_uid)) == []
        assert [
            text
            for one in printed("show", "--exchanges", session.session_uid)
            for text in breaches(SCHEMAS["exchange"], one)
        ] == []
    assert [text for one in printed("signals") for text in breaches(SCHEMAS["signal"], one)] == []
    for by in BREAKDOWNS:
        assert breaches(SCHEMAS["stats"], printed("stats", "--by", by)) == []


@pytest.mark.parametrize("name", ["digest", "signal", "exchange", "stats"])
def test_a_schema_describes_every_field_and_allows_nothing_else(name: str) -> None:
    schema = SCHEMAS[name]

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["additionalProperties"] is False
    assert [field for field, rule in schema["properties"].items() if not rule.get("description")] == []


def test_a_digest_is_a_page(memory: Memory) -> None:
    session = memory.sessions(roots_only=True)[0]

    page = run("digest", session.session_uid).stdout

    assert page.startswith("# ")
    assert "## Outcome" in page


def test_a_page_has_the_users_times_and_json_has_utc(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    session = next(one for one in memory.sessions(roots_only=True) if one.started_at)
    utc = run("digest", session.session_uid).stdout.splitlines()[2]
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        page, told = run("digest", session.session_uid).stdout, printed("digest", session.session_uid)
    time.tzset()

    assert session.started_at
    local = datetime.fromisoformat(session.started_at).astimezone(timezone(timedelta(hours=9)))
    assert f"{local:%Y-%m-%d %H:%M} JST" in page
    assert page.splitlines()[2] != utc
    assert told["started_at"] == session.started_at


def test_exchanges_are_shown_with_what_was_said(memory: Memory) -> None:
    session = memory.sessions(roots_only=True)[0]

    shown = run("show", "--exchanges", session.session_uid).stdout

    assert "User: " in shown
    assert "tokens" in shown


@pytest.mark.parametrize("by", BREAKDOWNS)
def test_statistics_are_a_table(memory: Memory, by: str) -> None:
    shown = run("stats", "--by", by).stdout.splitlines()

    assert shown[0].startswith(by)
    assert len(shown) > 1


def test_the_limit_says_what_it_leaves_out(memory: Memory) -> None:
    assert "more: --limit N" in run("stats", "--by", "tool", "--limit", "1").stdout


def test_signals_can_be_chosen(memory: Memory) -> None:
    found = printed("signals")

    for name in SIGNALS:
        assert printed("signals", "--signal", name) == [one for one in found if one["signal"] == name]


def test_lists_are_cut_to_the_terminal(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = 60
    monkeypatch.setenv("COLUMNS", "500")
    calls = [["signals"], *(["stats", "--by", by] for by in BREAKDOWNS)]
    uncut = [run(*call).stdout for call in calls]
    monkeypatch.setenv("COLUMNS", str(columns))

    cut = [run(*call).stdout for call in calls]

    assert max(len(line) for shown in cut for line in shown.splitlines()) <= columns
    assert "…" in "".join(cut)
    # The last two end with what failed, as much as there is room.
    assert "…" not in "".join(uncut[: -len(("tool", "command"))])


def test_signals_name_their_session_by_an_id_that_finds_it(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = run("signals").stdout.splitlines()[1:-1]
    for line, signal in zip(lines, printed("signals"), strict=True):
        name = line[16:].split()[0]
        assert memory.session(name).session_uid == signal["session_uid"]


def test_a_session_nobody_knows_is_an_error_in_each_command(memory: Memory) -> None:
    for command in ("digest", "show --exchanges", "signals"):
        result = run(*command.split(), "no-such-session")
        assert result.exit_code == 4
        assert "no-such-session" in result.stderr


@pytest.mark.parametrize("command", ["signals", "stats"])
def test_a_time_that_is_none_is_named(memory: Memory, command: str) -> None:
    result = run(command, "--since", "soon")

    assert result.exit_code == 2
    assert "soon" in result.stderr


def test_the_status_says_what_filtering_saves(memory: Memory) -> None:
    assert "filtered" in run("status").stdout
    totals = printed("status")["distilled"]
    assert 0 < totals["kept_tokens"] < totals["raw_tokens"] < totals["log_tokens"]


def test_settings_shape_exchanges(tmp_path: Path, memory: Memory) -> None:
    (tmp_path / "store" / "config.toml").write_text("[exchanges]\nkeep_tool_calls = false\nmax_tokens = 50\n")
    session = memory.sessions(roots_only=True)[0]

    found = printed("show", "--exchanges", session.session_uid)

    assert not any("Call: " in one["body"] for one in found)


@pytest.mark.parametrize(
    "text", ["max_tokens = 'many'", "max_tokens = 0", "max_tokens = true", "keep_reasoning = 1", "colour = 1"]
)
def test_a_setting_of_the_wrong_kind_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(f"[exchanges]\n{text}\n")

    with pytest.raises(BadConfig) as error:
        open_memory(tmp_path)

    assert text.split()[0] in error.value.message


def test_the_library_returns_records(memory: Memory) -> None:
    session = memory.sessions(roots_only=True)[0]

    assert to_json(memory.digest(session))["session_uid"] == session.session_uid
    assert memory.stats("agent").total.sessions == len(memory.sessions(roots_only=True))
    assert memory.exchanges(session)[0].number == 1
