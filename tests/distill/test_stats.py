"""Statistics against sums made another way."""

import csv
import io
import re
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.api import Filters, Memory
from recollect.cli import main
from recollect.model import schema
from recollect.model.errors import UsageError
from recollect.recall import BREAKDOWNS
from tests.builders import AGENT, BEGIN_MS, KNOWN_MODEL, Home, ScriptedAdapter, event, sweep, usage
from tests.conftest import SHARED, needs_shared, swept

HOUR_MS = 3_600_000
# Of the real sessions at hand: what was refused by a rule or cut off, and what ends with a program that answers so.
NO_FAILURE = re.compile(
    r"rejected\(|rejected by|needs? approval|permissions? (?:to use|denied by)|requested permission|haven't granted"
    r"|^exit -1|^aborted",
    re.IGNORECASE,
)
ANSWERS = re.compile(r"(?:^ran |[|;&] )(?:grep|rg|diff|cmp|which|test)\b[^|;&']*$")
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    return Home(tmp_path / "home")


def _call(session: str, number: int, command: str, *, has_failed: bool = False, tool: str = "shell") -> list[object]:
    call = event(session, number, schema.TOOL_CALL, f"ran {command}", role="assistant", tool=tool, call_id=f"c{number}")
    kind = schema.ERROR if has_failed else schema.TOOL_RESULT
    told = event(session, number + 1, kind, "exit 1: no" if has_failed else "ok", role="tool", tool=tool)
    told.call_id, told.is_error = f"c{number}", has_failed
    return [call, told]


def test_failures_are_counted_by_tool_and_by_family(tmp_path: Path, home: Home) -> None:
    events = [event("s1", 0, role="user")]
    for number in range(8):
        events += _call("s1", 10 * number + 1, "npm run lint", has_failed=number < 5)
    events += _call("s1", 100, "ls", tool="other")
    home.write("a", *events)

    memory = sweep(tmp_path / "store", home)

    by_command = {line.name: line for line in memory.stats("command").lines}
    assert (by_command["npm run lint"].uses, by_command["npm run lint"].failures) == (8, 5)
    assert by_command["npm run lint"].failure_rate == pytest.approx(5 / 8)
    by_tool = {line.name: (line.uses, line.failures) for line in memory.stats("tool").lines}
    assert by_tool == {"shell": (8, 5), "other": (1, 0)}


@pytest.mark.parametrize(
    ("command", "said", "failures"),
    [
        ("grep -rn TODO src", "exit 1", 0),
        ("command -v uv", "exit 1", 0),
        ("cd src && findstr /s TODO *.py", "exit 1", 0),
        ("lsof -ti :3000", "exit 1", 0),
        ("cat x | rg needle", "exit 1", 0),
        ("diff a b", "exit 1: 3c3", 0),
        ("cmp a b", "exit 1", 0),
        ("grep x missing", "exit 2: grep: missing: No such file or directory", 1),
        ("ls", "failed: Cancelled: parallel tool call Bash errored", 0),
        ("ls", "failed: Sibling tool call errored", 0),
        ("ls", "exit 130: ^C", 0),
        ("make test", "exit 130: ^C", 0),
        ("make test", "exit 143: Command timed out after 2m 0s", 1),
        ("ls", "Permission to use Bash has been denied", 0),
        ("ls nowhere", "exit 2: ls: cannot access 'nowhere': No such file or directory", 1),
    ],
)
def test_an_answer_or_a_call_that_was_stopped_is_no_failure(
    tmp_path: Path, home: Home, command: str, said: str, failures: int
) -> None:
    call, result = _call("s1", 1, command, has_failed=True)
    result.summary = said
    home.write("a", event("s1", 0, role="user"), call, result)

    memory = sweep(tmp_path / "store", home)

    for by in ("tool", "command"):
        assert [line.failures for line in memory.stats(by).lines] == [failures]


def test_words_of_the_shell_are_no_commands(tmp_path: Path, home: Home) -> None:
    chains = ("for f in *.py; do cat $f; done", "if [ -f x ]; then make; fi", "while true; do ls; done")
    home.write("a", *(one for number, chain in enumerate(chains) for one in _call("s1", 10 * number, chain)))

    names = {line.name for line in sweep(tmp_path / "store", home).stats("command").lines}

    assert names == {"cat", "make", "ls"}


def test_what_fails_most_comes_first_with_what_it_said_last(tmp_path: Path, home: Home) -> None:
    events = [event("s1", 0, role="user")]
    for number in range(5):
        events += _call("s1", 10 * number + 1, "ls")
    events += _call("s1", 100, "make", has_failed=True)
    home.write("a", *events)

    lines = sweep(tmp_path / "store", home).stats("command").lines

    assert [(line.name, line.failures, line.sample) for line in lines] == [("make", 1, "exit 1: no"), ("ls", 0, None)]


def test_money_and_tokens_fall_on_the_days_and_models_they_were_spent(tmp_path: Path, home: Home) -> None:
    home.write(
        "a",
        event("s1", 1, role="user"),
        event("s1", 2, role="user", ts_ms=BEGIN_MS + 2 * DAY_MS),
        usage("s1", "u1", input_tokens=50_000),
        usage("s1", "u2", ts_ms=BEGIN_MS + 2 * DAY_MS, input_tokens=150_000),
    )

    memory = sweep(tmp_path / "store", home)

    lines = memory.stats("day").lines
    assert [line.name for line in lines] == [_day(BEGIN_MS), _day(BEGIN_MS + 2 * DAY_MS)]
    assert [line.input_tokens for line in lines] == [50_000, 150_000]
    assert [line.usd for line in lines] == pytest.approx([0.15, 0.45])
    assert [line.turns for line in lines] == [1, 1]
    assert memory.stats("day", Filters(since=_moment(BEGIN_MS + DAY_MS))).total.usd == pytest.approx(0.45)
    assert memory.stats("day", Filters(before=_moment(BEGIN_MS + DAY_MS))).total.usd == pytest.approx(0.15)


def test_requests_of_one_hour_are_not_priced_as_one_long_context(tmp_path: Path, home: Home) -> None:
    home.write(
        "a",
        event("s1", 1, role="user"),
        *(usage("s1", f"u{number}", cache_read_tokens=150_000) for number in range(4)),
        usage("s1", "other", model="claude-haiku-4-5", output_tokens=100_000),
    )

    lines = sweep(tmp_path / "store", home).stats("model").lines

    assert {line.name: line.usd for line in lines} == {
        KNOWN_MODEL: pytest.approx(0.18),
        "claude-haiku-4-5": pytest.approx(0.5),
    }


def test_a_model_without_a_price_takes_no_money_from_the_others(tmp_path: Path, home: Home) -> None:
    home.write(
        "a",
        event("s1", 1, role="user"),
        usage("s1", "u1", output_tokens=10_000),
        usage("s1", "u2", model="nobody-knows-it-1", output_tokens=90_000),
    )

    lines = sweep(tmp_path / "store", home).stats("model").lines

    assert {line.name: line.usd for line in lines} == {KNOWN_MODEL: pytest.approx(0.15), "nobody-knows-it-1": None}


def test_the_time_of_an_hour_is_split_over_its_models_by_what_they_wrote(tmp_path: Path, home: Home) -> None:
    minute_ms = 60_000
    home.write(
        "a",
        *(event("s1", number, role="user", ts_ms=BEGIN_MS + number * minute_ms) for number in range(5)),
        usage("s1", "u1", model="small", output_tokens=100),
        usage("s1", "u2", model="big", output_tokens=300),
        usage("s1", "u3", model="later", ts_ms=BEGIN_MS + DAY_MS, output_tokens=100),
    )

    memory = sweep(tmp_path / "store", home)

    found = memory.stats("model")
    assert {line.name: line.active_s for line in found.lines} == {"small": 60, "big": 180, "later": 0}
    assert [line.turns for line in found.lines] == [None] * 3
    assert (found.total.active_s, found.total.turns) == (240, 5)


def test_calls_and_failures_have_a_total(tmp_path: Path, home: Home) -> None:
    home.write("a", event("s1", 0, role="user"), *_call("s1", 1, "ls", has_failed=True), *_call("s1", 3, "make"))
    home.write("b", SessionInfo("s2", parent_native_id="s1", root_native_id="s1"), *_call("s2", 5, "ls"))

    found = sweep(tmp_path / "store", home).stats("tool")

    assert (found.total.uses, found.total.failures, found.total.failure_rate) == (3, 1, pytest.approx(1 / 3, abs=1e-4))
    shown = CliRunner().invoke(main, ["stats", "--by", "tool"]).output.splitlines()
    assert [line.split() for line in shown[1:3]] == [
        ["shell", "3", "1", "33%", "1", "1", "exit", "1:", "no"],
        ["total", "3", "1", "33%", "1", "1"],
    ]


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.mark.parametrize("words", [["--outcome", "fail"], ["--repo", "nope"], ["--before", "2001-01-01"]])
def test_a_choice_that_nothing_fits_is_no_empty_store(tmp_path: Path, home: Home, words: list[str]) -> None:
    home.write("a", event("s1", 0, role="user"))
    sweep(tmp_path / "store", home).close()

    shown = CliRunner().invoke(main, ["stats", *words]).output

    assert "No activity matches" in shown


def test_one_way_to_print_is_asked_for() -> None:
    assert CliRunner().invoke(main, ["stats", "--csv", "--json"]).exit_code == 2


def _day(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000).astimezone():%Y-%m-%d}"


def test_a_forks_copies_are_counted_where_they_were_made(tmp_path: Path, home: Home) -> None:
    keys = {"copy_key": "k1"}
    home.write("a", SessionInfo("s1"), event("s1", 1, role="user", **keys), usage("s1", "u1", input_tokens=100_000))
    home.write(
        "b",
        SessionInfo("s2", base_native_id="s1"),
        event("s2", 1, role="user", **keys),
        usage("s2", "u1", input_tokens=100_000),
        event("s2", 2, role="user"),
    )

    memory = sweep(tmp_path / "store", home)

    total = memory.stats("agent").total
    assert (total.sessions, total.turns, total.input_tokens) == (2, 2, 100_000)
    assert total.usd == pytest.approx(0.3)


def test_a_sub_agents_money_is_counted_once(tmp_path: Path, home: Home) -> None:
    from recollect.agentkit.protocol import CostTotal

    info = SessionInfo("root/sub", parent_native_id="root", root_native_id="root", session_class=schema.SUB_AGENT)
    home.write(
        "a",
        event("root", 1, role="user"),
        usage("root", "u1", input_tokens=100),
        CostTotal("root", ledger="ledger", usd=7.0, ts_ms=BEGIN_MS + HOUR_MS),
        info,
        event("root/sub", 1, role="user"),
        usage("root/sub", "u2", input_tokens=50),
    )

    total = sweep(tmp_path / "store", home).stats("month").total

    assert (total.sessions, total.sub_agents, total.turns) == (1, 1, 1)
    assert (total.input_tokens, total.usd) == (150, pytest.approx(7.0))


def test_a_sessions_cost_is_shown_with_and_without_its_sub_agents(tmp_path: Path, home: Home) -> None:
    info = SessionInfo("root/sub", parent_native_id="root", root_native_id="root", session_class=schema.SUB_AGENT)
    home.write("a", event("root", 1, text="Do it", role="user"), usage("root", "u1", output_tokens=100_000), info)
    home.append("a", event("root/sub", 2, role="user"), usage("root/sub", "u2", output_tokens=20_000))
    memory = sweep(tmp_path / "store", home)

    (line,) = memory.stats("session").lines

    assert (line.name, line.title, line.sessions, line.sub_agents) == (f"{AGENT}:root", "Do it", 1, 1)
    assert (line.usd, line.sub_agents_usd) == (pytest.approx(1.8), pytest.approx(0.3))
    memory.close()
    shown = CliRunner().invoke(main, ["stats", "--by", "model", "--session", "root"]).output
    assert "Cost: ~$1.50 + ~$0.30 in 1 sub-agent\n" in shown
    shown = CliRunner().invoke(main, ["show", "root"]).output
    assert "~$1.50 + ~$0.30 in 1 sub-agent" in " ".join(shown.split())


def test_sessions_are_listed_by_their_cost(tmp_path: Path, home: Home) -> None:
    for name, tokens in (("cheap", 10), ("dear", 10_000), ("middle", 500)):
        home.write(name, event(name, 1, role="user"), usage(name, "u", output_tokens=tokens))

    lines = sweep(tmp_path / "store", home).stats("session").lines

    assert [line.name for line in lines] == [f"{AGENT}:{name}" for name in ("dear", "middle", "cheap")]


def test_a_block_is_five_hours_from_the_first_activity_after_the_last(tmp_path: Path, home: Home) -> None:
    hours = (0, 4.9, 5.5, 9, 20)
    for number, hour in enumerate(hours):
        at = BEGIN_MS + round(hour * HOUR_MS)
        home.write(f"f{number}", event(f"s{number}", 1, role="user", ts_ms=at))
        home.append(f"f{number}", usage(f"s{number}", "u", ts_ms=at, output_tokens=1_000))

    memory = sweep(tmp_path / "store", home)

    blocks = memory.stats("block").lines
    begun = [datetime.fromtimestamp(BEGIN_MS / 1000 + hour * 3600).astimezone() for hour in (0, 5, 20)]
    assert [line.name for line in blocks] == [f"{start:%Y-%m-%d %H:%M} {AGENT}" for start in begun]
    assert [line.usd for line in blocks] == pytest.approx([0.03, 0.03, 0.015])
    later = memory.stats("block", Filters(since=_moment(BEGIN_MS + 9 * HOUR_MS))).lines
    assert [line.name for line in later] == [line.name for line in blocks[1:]]


def test_a_blocks_bounds_do_not_depend_on_the_repository_that_is_asked_for(tmp_path: Path, home: Home) -> None:
    for name, hour in (("shop", 0), ("blog", 3)):
        at = BEGIN_MS + hour * HOUR_MS
        home.write(name, SessionInfo(name, cwd=f"/home/x/{name}"), event(name, 1, role="user", ts_ms=at))
        home.append(name, usage(name, "u", ts_ms=at, output_tokens=1_000))

    memory = sweep(tmp_path / "store", home)

    (block,) = memory.stats("block", Filters(repo="blog")).lines
    assert block.name == memory.stats("block").lines[0].name
    assert block.usd == pytest.approx(0.015)


def test_columns_that_do_not_fit_are_left_out(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.cli.stats.line_columns", lambda: 60)
    home.write("a", event("s1", 1, role="user"), usage("s1", "u1", input_tokens=1_234_567, cache_read_tokens=10**9))
    sweep(tmp_path / "store", home).close()

    shown = CliRunner().invoke(main, ["stats", "--by", "repo"]).output.splitlines()

    assert all(len(line) <= 60 for line in shown)
    assert shown[0].split()[-1] == "cost"


def test_what_has_no_time_is_counted_apart(tmp_path: Path, home: Home) -> None:
    home.write("a", event("s1", 1, role="user", ts_ms=None), usage("s1", "u1", ts_ms=None, input_tokens=5))

    memory = sweep(tmp_path / "store", home)

    (line,) = memory.stats("week").lines
    assert (line.name, line.turns, line.input_tokens) == (None, 1, 5)


def test_minutes_of_work_are_where_they_were_worked(tmp_path: Path, home: Home) -> None:
    minutes = [event("s1", number, role="user", ts_ms=BEGIN_MS + number * 60_000) for number in range(11)]
    home.write("a", *minutes)

    heatmap = sweep(tmp_path / "store", home).stats("day").heatmap

    begun = datetime.fromtimestamp(BEGIN_MS / 1000).astimezone()
    assert sum(map(sum, heatmap)) == heatmap[begun.weekday()][begun.hour] == 10


def test_an_unknown_breakdown_is_named(tmp_path: Path, home: Home) -> None:
    memory = sweep(tmp_path / "store", home)

    with pytest.raises(UsageError) as error:
        memory.stats("colour")

    assert error.value.message.endswith("colour")


def test_an_empty_store_has_empty_statistics(tmp_path: Path, home: Home) -> None:
    memory = sweep(tmp_path / "store", home)

    for by in BREAKDOWNS:
        assert memory.stats(by).lines == []
        assert memory.stats(by).total.sessions == 0


def test_a_spreadsheet_takes_no_name_for_a_formula(tmp_path: Path, home: Home) -> None:
    home.write("a", event("s1", 1, role="user"), *_call("s1", 2, "ls", tool="=HYPERLINK(1)"))
    sweep(tmp_path / "store", home).close()

    result = CliRunner().invoke(main, ["stats", "--by", "tool", "--csv"])

    (row,) = csv.DictReader(io.StringIO(result.output))
    assert (row["name"], row["uses"]) == ("'=HYPERLINK(1)", "1")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """Genuine sessions with forks, resumes, sub-agents and compactions, and real ones."""
    homes = [
        f"{folder.name.split('-')[0]}={folder / ('.' + folder.name.split('-')[0])}"
        for folder in sorted((SHARED / "genuine").iterdir())
        if folder.name.split("-")[0] in ("claude", "codex", "grok")
    ]
    homes += [f"{agent}={home}" for agent in ("claude", "codex") for home in sorted(SHARED.glob(f"corpus/{agent}/*"))]
    return swept(tmp_path_factory.mktemp("store"), *homes)


@needs_shared
@pytest.mark.parametrize("by", ["day", "week", "month", "repo", "agent"])
def test_every_breakdown_adds_up_to_the_sessions_own_figures(real: Memory, by: str) -> None:
    sessions = real.sessions()
    lines = real.stats(by).lines

    assert sum(line.input_tokens or 0 for line in lines) == sum(session.cost.input_tokens for session in sessions)
    assert sum(line.output_tokens or 0 for line in lines) == sum(session.cost.output_tokens for session in sessions)
    assert sum(line.usd or 0 for line in lines) == pytest.approx(sum(session.cost.usd or 0 for session in sessions))
    assert sum(line.turns or 0 for line in lines) == sum(
        session.cost.turns for session in sessions if session.parent_session_uid is None
    )


@needs_shared
def test_tools_are_counted_as_their_events_are(real: Memory) -> None:
    calls: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for session in real.sessions():
        own = [one for one in real.events(session) if one.copy_of is None and one.lane != schema.FILES_LANE]
        called = {one.call_id: one for one in own if one.kind in schema.KIND_FAMILY[schema.TOOL_CALL]}
        for one in own:
            if one.kind in schema.KIND_FAMILY[schema.TOOL_CALL] and one.role == "assistant":
                calls[one.tool or "unknown"] += 1
            elif one.kind == schema.ERROR and one.call_id in called and one.role != "user":
                call = called[one.call_id]
                is_answer = re.match(r"exit 1\b", one.summary) and ANSWERS.search(call.summary)
                failures[call.tool or "unknown"] += not (is_answer or NO_FAILURE.search(one.summary))

    lines = real.stats("tool").lines

    assert {line.name: line.uses for line in lines} == calls
    assert {line.name: line.failures for line in lines if line.failures} == +failures


ZONES = ("Asia/Shanghai", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Adelaide", "America/St_Johns")
SUMMER_TIME_BEGINS = datetime(2026, 10, 3, tzinfo=UTC)  # in Adelaide; in St. John's it ends a month later


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZoneInfo]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield ZoneInfo(request.param)
    time.tzset()


def _long_session(home: Home) -> dict[int, int]:
    """A session of 40 days with a call every now and then: the minutes, each with what it wrote."""
    begin_ms = round(SUMMER_TIME_BEGINS.timestamp() * 1000)
    times = [begin_ms + number * 3_467_000 for number in range(1000)]
    records: list[object] = [event("s1", 0, ts_ms=begin_ms)]
    for number, ts_ms in enumerate(times):
        call, told = _call("s1", 10 * number + 1, "ls", has_failed=number % 3 == 0)
        call.ts_ms = told.ts_ms = ts_ms
        records += [call, told, usage("s1", f"u{number}", ts_ms=ts_ms, output_tokens=number + 1)]
    home.write("a", *records)
    return {ts_ms: number + 1 for number, ts_ms in enumerate(times)}


def test_days_and_weeks_are_those_of_the_users_zone(tmp_path: Path, home: Home, zone: ZoneInfo) -> None:
    written = _long_session(home)

    memory = sweep(tmp_path / "store", home)

    for by, form in (("day", "%Y-%m-%d"), ("week", "%G-W%V"), ("month", "%Y-%m")):
        expected: Counter[str] = Counter()
        for ts_ms, tokens in written.items():
            expected[datetime.fromtimestamp(ts_ms / 1000, zone).strftime(form)] += tokens
        assert {line.name: line.output_tokens for line in memory.stats(by).lines} == expected


def test_any_minute_may_begin_and_end_a_period(tmp_path: Path, home: Home, zone: ZoneInfo) -> None:
    written = _long_session(home)
    memory = sweep(tmp_path / "store", home)

    for since, before in (("2026-10-03T07:13", "2026-10-05T19:58"), ("2026-10-04", "2026-10-05"), ("2026-11-01", None)):
        moments = [
            text and datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000 for text in (since, before)
        ]
        chosen = [ts_ms for ts_ms in written if moments[0] <= ts_ms < (moments[1] or float("inf"))]
        filters = Filters(since=since, before=before)
        assert memory.stats("day", filters).total.output_tokens == sum(map(written.__getitem__, chosen))
        failed = sum((written[ts_ms] - 1) % 3 == 0 for ts_ms in chosen)
        for by in ("tool", "command"):
            assert [(line.uses, line.failures) for line in memory.stats(by, filters).lines] == [(len(chosen), failed)]


def test_warm_ups_count_in_no_failure_rate_and_workflow(tmp_path: Path, home: Home) -> None:
    warm_up = SessionInfo("w1", session_class=schema.WARM_UP)
    home.write("w", warm_up, event("w1", 0, text="Warmup"), *_call("w1", 1, "ls", has_failed=True))
    home.write("a", event("s1", 0), *_call("s1", 1, "ls"))

    memory = sweep(tmp_path / "store", home)

    for by in ("tool", "command"):
        assert [(line.uses, line.failures, line.sessions) for line in memory.stats(by).lines] == [(1, 0, 1)]
    assert memory.knowledge.workflows().exchanges == 1
    assert memory.signals(memory.session("w1")) == []
    assert CliRunner().invoke(main, ["status"]).output.splitlines()[0].startswith(f"{AGENT} 1 session, 1 warm-up,")


def test_a_rate_names_the_event_that_says_what_failed_last(tmp_path: Path, home: Home) -> None:
    home.write("a", event("s1", 0), *_call("s1", 1, "ls", has_failed=True), *_call("s1", 3, "ls"))
    memory = sweep(tmp_path / "store", home)

    for by in ("tool", "command"):
        (line,) = memory.stats(by).lines
        session = memory.session(line.sample_session_uid)
        (item,) = memory.window(session, line.sample_event_uid, 0)
        assert item.event.summary == line.sample == "exit 1: no"
