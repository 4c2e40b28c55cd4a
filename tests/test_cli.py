"""The command line: what it prints for people and for programs, and how it ends."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import click
import pytest
from click.testing import CliRunner, Result
from msgspec import structs

import recollect
from recollect.agentkit.protocol import BadLine, EventRecord, SessionInfo
from recollect.agents import adapters
from recollect.api import open_memory
from recollect.cli import main
from recollect.cli.entry import RENAMED
from recollect.cli.terminal import fitted, printable, short_ids
from recollect.cli.transcript import MESSAGE_CHARS, MESSAGE_LINES
from recollect.model.schema import ASSISTANT_MSG, AUTOMATION, ERROR, TOOL_CALL, TOOL_RESULT, USER_MSG
from recollect.recall import BREAKDOWNS
from tests.builders import AGENT, KNOWN_MODEL, Home, ScriptedAdapter, at_ms, event, sweep, usage
from tests.conftest import REPOSITORY
from tests.faults.rig import command, run

SAMPLES = Path(recollect.__file__).parent / "samples"
ESCAPE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
FIRST = "11111111-aaaa-4000-8000-0000000000f1"
SECOND = "22222222-bbbb-4000-8000-0000000000f2"


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def store(tmp_path: Path, home: Home) -> Path:
    """A store with two sessions, one of which has a sub-agent, and one bad line; RECOLLECT_HOME names it."""
    home.write(
        "first",
        event(FIRST, 1, text="Fix the login"),
        event(FIRST, 2, TOOL_CALL, "asked a sub-agent", role="assistant", tool="Task", call_id="call-1"),
        event(FIRST, 5, TOOL_RESULT, "it is done", role="tool", call_id="call-1"),
        event(FIRST, 6, ASSISTANT_MSG, "All fixed", model=KNOWN_MODEL),
        usage(FIRST, "u1", output_tokens=2_000),
        SessionInfo(FIRST, cwd="/home/x/shop", git_branch="main", git_remote="git@github.com:acme/shop-api.git"),
    )
    home.write(
        "sub",
        event("sub-agent-7", 3, text="Look at the login"),
        event("sub-agent-7", 4, ASSISTANT_MSG, "I looked"),
        SessionInfo("sub-agent-7", parent_native_id=FIRST, root_native_id=FIRST, spawn_call_id="call-1"),
    )
    home.write(
        "second",
        event(SECOND, 90_000, text="Write the docs"),
        event(SECOND, 90_001, ERROR, "no such file", role="tool", is_error=True),
        SessionInfo(SECOND, session_class=AUTOMATION, cwd="/home/x/docs", git_branch="docs"),
        BadLine(7, 70, "not JSON", b"{oops"),
    )
    sweep(tmp_path / "store", home).close()
    return tmp_path / "store"


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert "Traceback" not in result.output
    return result


def in_json(*arguments: str) -> Any:
    return json.loads(invoke(*arguments, "--json").stdout)


def ids(*arguments: str) -> set[str]:
    return {session["native_session_id"] for session in in_json("sessions", *arguments)}


# Every command, in every way that prints something else.
CALLS = [
    *(["sweep"], ["sweep", "--verify"], ["status"], ["sessions"], ["show", FIRST], ["show", FIRST, "--at", "1"]),
    *(
        ["watch", "--once"],
        ["status", "--problems"],
        ["demo"],
        ["search", "login"],
        ["search", "login", "--explain"],
        ["history", "login"],
        ["search"],
    ),
    *(
        ["recent"],
        ["sessions", "--related", FIRST],
        ["blame", "--all", "login.py"],
        ["blame", "login.py"],
        ["sessions", "--timeline"],
    ),
    *(["diff", FIRST], ["resume", FIRST], ["open"], ["statusline"]),
    *(["digest", FIRST], ["show", "--exchanges", FIRST], ["signals"], *(["stats", "--by", by] for by in BREAKDOWNS)),
    *(
        ["forget", FIRST, "--dry-run"],
        ["forget", "--pending"],
        ["forget", "--pending", "--dismiss"],
        ["forget", FIRST, "--yes"],
        ["redact", "--rescan"],
        ["redact", "--check", "x"],
    ),
    *(
        ["mark", "star", FIRST],
        ["mark", "tag", FIRST, "later"],
        ["mark", "note", FIRST, "look again"],
        ["mark", "rename", FIRST, "Login"],
    ),
    *(["retention"], ["retention", "--dry-run"], ["retention", "rehydrate", FIRST]),
    *(["schedule", "--dry-run"], ["doctor"], ["doctor", "--deep"], ["doctor", "--repair", "--yes"]),
    *(["config"], ["config", "retention.cadence"], ["config", "retention.cadence", "weekly"], ["exclude"]),
    *(["handoff", FIRST, "--to", "claude"],),
    *(
        ["archive", FIRST],
        ["fix", "AssertionError"],
        ["why", "login"],
        ["how", "login"],
        ["knowledge", "facts", "login.py"],
    ),
    *(
        ["decisions"],
        ["knowledge", "workflows"],
        ["knowledge", "graph"],
        ["knowledge", "rehearse"],
        ["remember", "We use pnpm"],
        ["knowledge", "audit"],
    ),
    *(
        ["group", "bookmarks"],
        ["group", "clear", "later"],
        ["resume", "--fork", FIRST],
        ["group", "run", "hello", "--agent", "nobody"],
    ),
    *(["track"], ["track", "allow", "shop-api"], ["track", "deny", "shop-api"]),
    *(
        ["exclude", "shop-api"],
        ["backup", "saved.bundle"],
        ["restore", "nowhere.bundle"],
        ["export", "saved.zip"],
        ["import", "nowhere.zip"],
        ["install"],
        ["uninstall"],
    ),
]


@pytest.mark.usefixtures("store")
def test_options_that_contradict_each_other_are_refused() -> None:
    assert invoke("show", FIRST, "--at", "1", "--kind", "edit").exit_code == 2


def test_the_calls_above_cover_every_command_with_json() -> None:
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in main.list_commands(context)}
    takes = {name for name, item in commands.items() if item and any("--json" in option.opts for option in item.params)}

    assert {name for name, *_ in CALLS} == takes | {"mark", "group", "knowledge"}


_LISTS = {"archive", "fix", "sessions", "blame", "open", "signals", "doctor", "why", "how", "decisions"}
_LISTS |= {"group bookmarks", "knowledge facts", "show --exchanges", "status --problems"}


def test_times_and_numbers_have_the_same_option_names_in_all_commands() -> None:
    context = click.Context(main)
    commands = [main.get_command(context, name) for name in main.list_commands(context)]
    options = [option for item in commands if item for option in item.params if isinstance(option, click.Option)]
    named = {(option.metavar, option.opts[0]) for option in options}

    assert {name for metavar, name in named if metavar == "WHEN"} == {"--since", "--before", "--as-of"}
    assert {name for metavar, name in named if metavar == "N"} == {
        "--limit",
        "--offset",
        "--context",
        "--tail",
        "--matches",
        "--max-seconds",
    }


@pytest.mark.usefixtures("store")
def test_json_lists_are_complete_and_lists_for_people_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.cli.sessions._SHOWN_SESSIONS", 1)
    monkeypatch.setattr("recollect.cli.sessions._SHOWN_TIMELINE", 1)

    for words in (["sessions", "--all"], ["sessions", "--timeline", "--since", "2026-11-01"]):
        assert len(in_json(*words)) > 1
        assert len(in_json(*words, "--limit", "1")) == 1
        assert "more: --offset 1" in invoke(*words).output


@pytest.mark.parametrize("arguments", CALLS, ids=" ".join)
def test_every_command_prints_json(
    arguments: list[str], store: Path, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    roots = ["--root", home.flag] if {"sweep", "rehydrate", "doctor"} & {*arguments[:2]} else []

    result = invoke(*arguments, *roots, "--json")

    assert result.exit_code in (0, 1, 4)
    is_array = (
        not _LISTS.isdisjoint({arguments[0], " ".join(arguments[:2])})
        and "--repair" not in arguments
        and result.exit_code == 0
    )
    assert isinstance(json.loads(result.stdout), list if is_array else dict)


def test_a_sweep_prints_json(store: Path, home: Home) -> None:
    report = in_json("sweep", "--root", home.flag)

    assert (report["sources"], report["sessions"], report["events_new"]) == (3, 3, 0)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "arguments",
    [["status"], ["sessions"], ["sessions", "--all"], ["show", FIRST], ["status", "--problems"], ["doctor"], ["demo"]],
    ids=" ".join,
)
def test_output_in_a_pipe_has_no_escape_codes(arguments: list[str]) -> None:
    output = invoke(*arguments).output

    assert output
    assert ESCAPE.search(output) is None


HOSTILE = (
    "\x1b[2Jcleared \x1b]0;new title\x07 \x1b]52;c;aGVsbG8=\x07clip \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"
    f" \x9b31m \x90dcs\x9c \r over \x08\x08 {BIDI}turned"
)


HOSTILE_ID = f"hostile-{HOSTILE}"


@pytest.fixture
def hostile_store(tmp_path: Path, home: Home) -> Path:
    """A session whose every text, ids included, is hostile to a terminal."""
    name = HOSTILE_ID
    home.write(
        "h",
        event(name, 1, text=HOSTILE),
        event(name, 2, TOOL_CALL, HOSTILE, tool=HOSTILE, call_id="c"),
        event(name, 3, TOOL_RESULT, HOSTILE, call_id="c"),
        event(name, 4, ERROR, HOSTILE, role="tool"),
        SessionInfo(name, title=HOSTILE, title_rank=3, cwd=f"/home/{HOSTILE}", git_branch=HOSTILE, model=HOSTILE),
        BadLine(1, 10, HOSTILE, HOSTILE.encode()),
    )
    home.write("i", event(f"hostile-twin{HOSTILE}", 1), SessionInfo(f"hostile-twin{HOSTILE}", title="twin"))
    sweep(tmp_path / "store", home).close()
    return tmp_path / "store"


def _raw(*arguments: str) -> str:
    """What a terminal would get: colours kept, nothing stripped by click."""
    result = CliRunner().invoke(main, list(arguments), color=True)
    return re.sub(r"\x1b\[[0-9;]*m", "", result.output)


@pytest.mark.usefixtures("hostile_store")
@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions"],
        ["sessions", "--all"],
        ["show", HOSTILE_ID],
        ["show", HOSTILE_ID, "--kind", "error"],
        ["show", HOSTILE],
        ["show", "hostile-"],
        ["status", "--problems"],
        ["status"],
    ],
    ids=["sessions", "sessions --all", "show", "show --kind", "no such id", "an ambiguous id", "problems", "status"],
)
def test_nothing_from_a_log_reaches_the_terminal_raw(arguments: list[str]) -> None:
    output = _raw(*arguments)

    assert output
    assert ESCAPE.search(output) is None
    assert not set(output) & set(BIDI)


@pytest.mark.usefixtures("hostile_store")
def test_raw_and_json_output_escape_what_is_hostile() -> None:
    raw = invoke("show", HOSTILE_ID, "--raw").stdout
    whole = invoke("show", HOSTILE_ID, "--json").stdout

    assert json.loads(raw.splitlines()[0])["payload"]["text"] == HOSTILE
    assert json.loads(whole)["session"]["native_session_id"] == HOSTILE_ID
    assert ESCAPE.search(raw + whole) is None
    assert not set(raw + whole) & set(BIDI)


def test_a_title_of_two_lines_is_one_line_of_the_list(tmp_path: Path, home: Home) -> None:
    home.write("s", event("s", 1), SessionInfo("s", title="first\n2026-11-15 18:00  forged", title_rank=3))
    sweep(tmp_path / "store", home).close()

    _heading, line, _total = invoke("sessions").output.splitlines()

    assert line.endswith("first 2026-11-15 18:00 forged")


@pytest.mark.usefixtures("store")
def test_no_color_turns_colours_off(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = CliRunner().invoke(main, ["sessions"], color=True).output
    monkeypatch.setenv("NO_COLOR", "1")

    plain = CliRunner().invoke(main, ["sessions"], color=True).output

    assert "\x1b[" in coloured
    assert "\x1b[" not in plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nline", "plain\ttext\nline"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]52;c;Zm9v\x07b", "ab"),
        ("a\x1b]52;c;Zm9v\x1b\\b", "ab"),
        ("a\x1bPq#0\x1b\\b", "ab"),
        ("a\x1b", "a"),
        ("a\x1b]0;never ended\nb", "a0;never ended\nb"),
        ("a\rb\x00c\x7f\x9bd", "abcd"),
        ("ev\u202eil\u2066!", "evil!"),
        ("a\u061cb", "ab"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("tagged\U000e0041 varied\U000e0100", "tagged varied"),
        ("grüße 漢字 😀", "grüße 漢字 😀"),
    ],
)
def test_printable_text_keeps_words_and_loses_what_a_terminal_acts_on(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [("plain", 5, "plain"), ("plain text", 6, "plain…"), ("漢字漢字", 8, "漢字漢字"), ("漢字漢字", 7, "漢字漢…")],
)
def test_text_is_cut_by_the_columns_it_takes(text: str, columns: int, shown: str) -> None:
    assert fitted(text, columns) == shown


def test_done_is_0(store: Path) -> None:
    assert invoke("status").exit_code == 0


def test_settings_that_cannot_be_read_are_1(store: Path) -> None:
    (store / "config.toml").write_text("[nonsense]\n")

    assert invoke("status").exit_code == 1


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["retention", "rehydrate"],
        ["show", FIRST, "--kind", "nonsense"],
        ["show", FIRST, "--tail", "0"],
        ["sessions", "--limit", "0"],
        ["sessions", "--since", "someday"],
        ["sessions", "--since", "999999999999d"],
        ["sessions", "--before", "0001-01-01"],
        ["sessions", "--class", "nonsense"],
        ["sweep", "--root", "nonsense"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    assert invoke(*arguments).exit_code == 2


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nonsense", "--json"], "nonsense"),
        (["--json"], "--json"),
        (["retention", "rehydrate", "--json"], "SESSION"),
        (["--json", "show", FIRST], "--json"),
        (["status", "--json", "--nonsense"], "--nonsense"),
        (["sessions", "--json", "--class", "nonsense"], "human"),
        (["sessions", "--limit", "0", "--json"], "--limit"),
        (["sessions", "--json", "--since", "someday"], "someday"),
        (["show", "--json", FIRST, "--kind", "nonsense"], "nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_reported_to_programs_in_json(arguments: list[str], expected: str) -> None:
    result = invoke(*arguments)

    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["code"], result.stderr) == (2, "usage", "")
    assert expected in error["message"] and not error["message"].endswith(".")
    assert error["hint"]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "arguments", [["retention", "rehydrate"], ["nonsense"], ["show", "--", "--json", "x"]], ids=" ".join
)
def test_wrong_usage_is_reported_to_people_in_words(arguments: list[str]) -> None:
    result = invoke(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


NOT_UTF8 = os.fsdecode(b"\xffabcdef")


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["show"],
            ["search"],
            ["sessions"],
            ["digest"],
            ["blame", "--all"],
            ["sessions", "--related"],
            ["retention", "rehydrate"],
            ["blame"],
        ),
        *(["sessions", "--repo"], ["sessions", "--timeline", "--repo"], ["stats", "--repo"], ["forget", "--repo"]),
        ["forget", "--dry-run", "--match"],
    ],
    ids=" ".join,
)
def test_text_that_is_not_utf8_is_2_and_quoted(arguments: list[str]) -> None:
    result = invoke(*arguments, NOT_UTF8)
    in_json = invoke(*arguments, NOT_UTF8, "--json")

    assert (result.exit_code, in_json.exit_code) == (2, 2)
    assert result.stderr.splitlines()[0] == r"Error: Not valid UTF-8: \xffabcdef"
    assert json.loads(in_json.stdout)["error"]["code"] == "usage"


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("name", ["x" * 300, "y" * 250], ids=len)
@pytest.mark.parametrize("word", ["backup", "export", "import", "restore"])
def test_a_file_name_that_is_too_long_gets_one_sentence(tmp_path: Path, word: str, name: str) -> None:
    result = invoke(word, str(tmp_path / name), *(["--yes"] if word == "restore" else []))

    assert result.exit_code in (1, 2, 4)
    assert len(result.stderr.splitlines()) == 2


@pytest.mark.usefixtures("store")
def test_a_file_name_may_be_any_bytes(tmp_path: Path) -> None:
    folder = str(tmp_path / NOT_UTF8)

    written = invoke("export", folder, "--json")
    taken = invoke("import", folder, "--json")
    refused = invoke("backup", folder + ".tar.zst", "--json")

    assert (written.exit_code, taken.exit_code) == (0, 0)
    assert json.loads(taken.stdout)["events_new"] == 0
    assert (refused.exit_code, json.loads(refused.stdout)["error"]["code"]) == (2, "usage")
    assert [copy["path"] for copy in in_json("forget", FIRST, "--dry-run")["copies"]] == [f"{tmp_path}/\\xffabcdef"]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "arguments", [["sweep", "--root", "claude=~nosuchuser/x"], ["doctor", "--root", "grok=~nosuch"]]
)
def test_the_home_of_an_unknown_user_gets_one_sentence(arguments: list[str]) -> None:
    result = invoke(*arguments)

    assert result.exit_code == 1
    assert "Unknown home folder ~nosuch" in result.output


@pytest.mark.parametrize("word", ["status", "search", "recent"])
@pytest.mark.parametrize("home", ["~nosuchuser/x", "loop", NOT_UTF8])
def test_a_path_that_cannot_hold_a_store_gets_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, home: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECOLLECT_HOME", home)

    result = invoke(word, *(["x"] if word == "search" else []))

    assert result.exit_code in (1, 2, 4)
    assert len(result.stderr.splitlines()) == 2


@pytest.mark.parametrize("inside", ["", "deeper/still"])
@pytest.mark.parametrize("arguments", [["status"], ["search", "x"], ["recent"]], ids=" ".join)
def test_a_home_that_is_a_file_is_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, arguments: list[str]
) -> None:
    (tmp_path / "a-file").write_text("")
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "a-file" / inside))

    result = invoke(*arguments)

    assert result.exit_code == 1
    assert result.stderr.splitlines()[0].endswith(f"Not a folder: {tmp_path / 'a-file'}")
    assert "RECOLLECT_HOME" in result.stderr


def test_done_with_skipped_sources_is_3(tmp_path: Path, home: Home) -> None:
    home.write("bad", "the disk says no")

    result = invoke("sweep", "--root", home.flag)

    assert result.exit_code == 3
    assert "the disk says no" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["status"], ["sessions"], ["show", "x"], ["status", "--problems"]], ids=lambda a: a[0]
)
def test_no_store_is_4_and_creates_none(tmp_path: Path, arguments: list[str]) -> None:
    result = invoke(*arguments)

    assert result.exit_code == 4
    assert "hint: `recollect sweep`" in result.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("root", ["nobody=/tmp", f"{AGENT}=/no/such/folder", f"{AGENT}=/dev/null"])
def test_a_missing_root_is_4_and_creates_no_store(tmp_path: Path, root: str) -> None:
    result = invoke("sweep", "--root", root)

    assert result.exit_code == 4
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["Error", "hint"]
    assert not (tmp_path / "store").exists()


@pytest.mark.usefixtures("store")
def test_no_such_session_is_4() -> None:
    result = invoke("show", "nothing-like-it")

    assert result.exit_code == 4
    assert "No session has this id or title: nothing-like-it" in result.stderr


@pytest.mark.usefixtures("hostile_store")
def test_several_sessions_are_5_and_named() -> None:
    result = invoke("show", "hostile-", "--json")

    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["code"]) == (5, "ambiguous")
    assert "hostile-" in error["message"]
    assert all("hostile-" in choice["session_uid"] for choice in error["choices"])


@pytest.fixture
def held_lock(store: Path) -> Iterator[None]:
    fd = os.open(store / "sweep.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield
    os.close(fd)


def test_a_command_that_only_reads_finishes_an_interrupted_restore(store: Path) -> None:
    (store / "replacement").mkdir()  # its last step is to remove this

    assert invoke("sessions").exit_code == 0
    assert not (store / "replacement").exists()


@pytest.mark.usefixtures("held_lock")
def test_a_second_sweep_is_6(home: Home) -> None:
    assert invoke("sweep", "--root", home.flag).exit_code == 6


@pytest.mark.usefixtures("held_lock")
def test_reading_works_while_a_sweep_runs() -> None:
    assert invoke("sessions").exit_code == 0


def test_a_store_of_a_newer_version_is_7(store: Path) -> None:
    connection = apsw.Connection(str(store / "memory.db"))
    connection.pragma("user_version", 99)
    connection.close()

    result = invoke("status", "--json")

    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (7, "store_too_new")


def test_a_damaged_store_is_7(store: Path) -> None:
    (store / "memory.db").write_bytes(b"\xa5" * 8192)

    assert invoke("status").exit_code == 7


def test_an_error_is_one_line_and_a_hint(store: Path) -> None:
    lines = invoke("show", "nothing-like-it").stderr.splitlines()

    assert [line.split(":")[0] for line in lines] == ["Error", "hint"]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    "name",
    [
        FIRST,
        f"{AGENT}:{FIRST}",
        FIRST[:6],
        FIRST[-6:],
        FIRST[-12:].upper(),
        f"{AGENT}:{FIRST[:8]}",
        "Fix the login",
        "fix the LOGIN",
        "the LOG",
    ],
)
def test_a_session_is_found_by_id_prefix_suffix_and_title(name: str) -> None:
    assert in_json("show", name)["session"]["native_session_id"] == FIRST


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("name", [FIRST[:5], FIRST[-5:], FIRST[5:20], "Fi", "%", "______"])
def test_a_short_part_a_middle_or_a_wildcard_names_no_session(name: str) -> None:
    assert invoke("show", name).exit_code == 4


@pytest.mark.usefixtures("store")
def test_a_sub_agent_is_found_by_its_own_id_and_by_its_full_one() -> None:
    assert in_json("show", "sub-agent-7")["session"]["class"] == "sub-agent"
    assert in_json("show", f"{AGENT}:{FIRST}/sub-agent-7")["session"]["class"] == "sub-agent"


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], {FIRST, SECOND, "sub-agent-7"}),
        (["--agent", AGENT], {FIRST, SECOND, "sub-agent-7"}),
        (["--repo", "shop-api"], {FIRST, "sub-agent-7"}),
        (["--repo", "acme/shop-api"], {FIRST, "sub-agent-7"}),
        (["--repo", "api"], {FIRST, "sub-agent-7"}),
        (["--repo", "SHOP"], {FIRST, "sub-agent-7"}),
        (["--repo", "/home/x/shop"], {FIRST, "sub-agent-7"}),
        (["--kind", "error"], {SECOND}),
        (["--kind", "tool_call"], {FIRST, "sub-agent-7"}),
        (["--since", "16 nov 2026", "--before", "17 nov 2026"], {SECOND}),
        (["--branch", "docs"], {SECOND}),
        (["--model", "sonnet-4"], {FIRST}),
        (["--class", "automation"], {SECOND}),
        (["--class", "sub-agent"], {"sub-agent-7"}),
        (["--outcome", "success"], {FIRST, "sub-agent-7"}),
        (["--outcome", "abandoned"], {SECOND}),
        (["--outcome", "fail"], set()),
        (["--since", "2026-11-16T12:00Z"], {SECOND}),
        (["--before", "2026-11-16T12:00Z"], {FIRST, "sub-agent-7"}),
        (["--since", "2027-01-01"], set()),
        (["--limit", "1"], {SECOND}),
        (["the docs"], {SECOND}),
        (["THE DOCS"], {SECOND}),
        (["%"], set()),
        (["--repo", "shop-api", "--class", "sub-agent"], {"sub-agent-7"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_filter_of_sessions_finds_what_it_should(arguments: list[str], found: set[str]) -> None:
    assert ids(*arguments) == found


@pytest.mark.usefixtures("store")
def test_people_see_sub_agents_only_when_they_ask_for_them() -> None:
    assert "Look at the login" not in invoke("sessions").output
    assert "Look at the login" in invoke("sessions", "--all").output
    assert "Look at the login" in invoke("sessions", "--class", "sub-agent").output


@pytest.mark.usefixtures("store")
def test_sessions_are_listed_newest_first_and_a_cut_list_says_so() -> None:
    lines = invoke("sessions").output.splitlines()[1:-1]
    assert [line.rsplit("  ", 1)[-1] for line in lines] == ["Write the docs", "Fix the login"]

    assert invoke("sessions", "--limit", "1").output.endswith("1 of 2 sessions · more: --offset 1\n")
    assert invoke("sessions", "--limit", "1", "--offset", "1").output.endswith("2–2 of 2 sessions\n")
    assert invoke("sessions", "--limit", "2").output.endswith("\n2 sessions\n")


@pytest.mark.usefixtures("store")
def test_no_match_is_reported_in_words_and_is_not_an_error() -> None:
    result = invoke("sessions", "--outcome", "fail")

    assert (result.exit_code, result.output) == (0, "No sessions match\n")


def test_an_empty_store_points_to_doctor() -> None:
    invoke("sweep")

    assert "recollect doctor" in invoke("sessions").output


@pytest.mark.usefixtures("store")
def test_a_kind_without_events_is_reported_in_words_and_is_not_an_error() -> None:
    result = invoke("show", FIRST, "--kind", "edit")

    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "No events of this kind")
    assert in_json("show", FIRST, "--kind", "edit")["events"] == []


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        (["11112222-0000", "33334444-0000"], ["11112222", "33334444"]),
        (["11112222-aa", "11112222-ba", "33334444-0000"], ["11112222-a", "11112222-b", "33334444"]),
        (["11112222-x", "11112222"], ["11112222-", "11112222"]),
        (["same", "same"], ["same", "same"]),
        (["11112222-0000/agent7", "11112222-0000"], ["agent7", "11112222"]),
        (["11112222-0000/55556666-7777", "11112222-0000"], ["666-7777", "11112222"]),
    ],
    ids=["8 suffice", "more until they differ", "one begins with the other", "the same", "sub-agent", "long sub-agent"],
)
def test_ids_in_a_list_are_as_long_as_needed_to_differ(ids: list[str], shown: list[str]) -> None:
    uids = [f"{AGENT}:{name}" for name in ids]

    found = short_ids(uids)

    assert [found[uid] for uid in uids] == shown


def test_ids_that_begin_with_a_clock_are_named_by_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = ScriptedAdapter()
    adapter.profile = adapter.profile._replace(ids_begin_with_time=True)
    monkeypatch.setitem(adapters(), AGENT, adapter)
    uids = [f"{AGENT}:01a1e08f-{end}" for end in ("aaaa-11112222", "aaaa-33334444")]

    assert list(short_ids(uids).values()) == ["11112222", "33334444"]


def test_sessions_with_the_same_beginning_are_listed_with_longer_ids(tmp_path: Path, home: Home) -> None:
    for name in ("11112222-one", "11112222-two"):
        home.write(name, event(name, 1))
    sweep(tmp_path / "store", home).close()

    listed = invoke("sessions").output

    assert "  11112222-o  " in listed and "  11112222-t  " in listed


def _shown(tmp_path: Path, home: Home, *events: EventRecord) -> list[str]:
    """The lines of a session of these events, without its header and the note on what is left out."""
    home.write("a-session", *events)
    sweep(tmp_path / "store", home).close()
    lines = invoke("show", "a-session").output.splitlines()[5:]
    return lines[:-2] if "--full shows all" in lines[-1] else lines


@pytest.mark.parametrize("kind", [USER_MSG, TOOL_RESULT], ids=str)
@pytest.mark.parametrize("char", ["x", "漢", "\t", "-", "\n"], ids=ascii)
def test_a_very_large_message_is_shown_in_part_and_fast(tmp_path: Path, home: Home, kind: str, char: str) -> None:
    # 5 MB in the log: larger files are read by processes of their own, which do not know the scripted agent.
    text = "begin" + char * (5_000_000 // len(json.dumps(char, ensure_ascii=False).encode()[1:-1])) + "end"
    home.write("a-session", event("a-session", 1, kind, text))
    sweep(tmp_path / "store", home).close()

    began = time.process_time()
    shown = invoke("show", "a-session").output

    assert time.process_time() - began < 20  # with time growing with the square it would be hours
    assert len(shown) < 2 * MESSAGE_CHARS
    assert "… " in shown or shown.rstrip().endswith("…")
    assert json.loads(invoke("show", "a-session", "--raw").stdout)["payload"]["text"] == text


@pytest.mark.parametrize(("columns", "shown"), [("80", 52 * MESSAGE_LINES), ("140", MESSAGE_CHARS)])
def test_what_is_left_out_of_a_message_is_counted(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, columns: str, shown: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)

    *lines, last = _shown(tmp_path, home, event("a-session", 1, text="x" * (shown + 1_234)))

    assert sum(line.count("x") for line in lines) == shown
    assert last.strip() == "… 1,234 more characters"


def test_a_message_of_very_many_lines_is_cut_by_lines(tmp_path: Path, home: Home) -> None:
    lines = _shown(tmp_path, home, event("a-session", 1, text="ab\n" * 1_000))

    assert len(lines) == MESSAGE_LINES + 1
    assert lines[-1].strip() == f"… {3 * (1_000 - MESSAGE_LINES) - 1:,} more characters"


def test_a_message_keeps_its_words_lines_and_indentation(tmp_path: Path, home: Home) -> None:
    words = " ".join(f"word{number}" for number in range(40))
    lines = _shown(tmp_path, home, event("a-session", 1, text=f"{words}\n\n\tset in\nlast"))
    bodies = [line[28:] for line in lines]

    assert " ".join(bodies[:-3]) == words
    assert max(map(len, bodies)) <= 79
    assert bodies[-3:] == ["", "        set in", "last"]


@pytest.mark.parametrize(
    ("tool", "summary", "shown"),
    [
        ("exec", "exec_command was asked for", "exec: exec_command was asked for"),
        ("exec", "called exec", "called exec"),
        ("a.b-c", "called a.b-c(1)", "called a.b-c(1)"),
        ("Read", "Readme was opened", "Read: Readme was opened"),
    ],
)
def test_a_tool_is_named_unless_the_summary_contains_its_name_as_a_word(
    tmp_path: Path, home: Home, tool: str, summary: str, shown: str
) -> None:
    (line,) = _shown(tmp_path, home, event("a-session", 1, TOOL_CALL, summary, tool=tool, call_id="c"))

    assert line.split("tool ")[1].strip() == shown


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ([{"type": "input_text", "text": "one\n"}, {"type": "input_text", "text": "two"}], ["one", "two"]),
        (
            [{"type": "input_text", "text": "one"}, {"type": "input_image", "image_url": "data:"}],
            ["one", "[input_image]"],
        ),
        ([{"type": "input_image"}], ['[{"type": "input_image"}]']),
        ([{"text": "one"}], ['[{"text": "one"}]']),
        (["one", 2], ['["one", 2]']),
        ({"type": "x"}, ['{"type": "x"}']),
    ],
    ids=ascii,
)
def test_a_result_in_parts_is_shown_as_its_text(tmp_path: Path, home: Home, output: Any, shown: list[str]) -> None:
    result = event("a-session", 1, TOOL_RESULT, "summary", call_id="c")
    lines = _shown(tmp_path, home, structs.replace(result, payload={"output": output}))

    assert [line[28:] for line in lines] == shown


@pytest.mark.usefixtures("store")
def test_a_sub_agent_is_shown_in_its_place_before_the_result_of_the_call() -> None:
    shown = in_json("show", FIRST)["events"]

    assert [(item["depth"], item["summary"]) for item in shown] == [
        (0, "Fix the login"),
        (0, "asked a sub-agent"),
        (1, "Look at the login"),
        (1, "I looked"),
        (0, "it is done"),
        (0, "All fixed"),
    ]
    texts = [line for line in invoke("show", FIRST).output.splitlines() if "looked" in line]
    assert texts and all(line.startswith("│ ") for line in texts)


@pytest.mark.usefixtures("store")
def test_a_request_to_a_sub_agent_is_a_task_and_not_yours() -> None:
    shown = invoke("show", FIRST).output

    assert re.search(r"you +Fix the login", shown)
    assert re.search(r"task +Look at the login", shown)
    assert re.search(r"task +Look at the login", invoke("show", "sub-agent-7").output)


def test_sessions_that_name_each_other_as_parent_are_shown_once_each(tmp_path: Path, home: Home) -> None:
    for name, parent in (("one-of-two", "two-of-two"), ("two-of-two", "one-of-two")):
        home.write(name, event(name, 1), SessionInfo(name, parent_native_id=parent, root_native_id="one-of-two"))
    sweep(tmp_path / "store", home).close()

    for name in ("one-of-two", "two-of-two"):
        shown = [item["native_id"] for item in in_json("show", name)["events"]]
        assert len(shown) == len(set(shown))


def test_a_line_marks_each_new_day(tmp_path: Path, home: Home) -> None:
    home.write("long-one", event("long-one", 1), event("long-one", 200_000, ASSISTANT_MSG))
    sweep(tmp_path / "store", home).close()

    assert "── 2026-11-1" in invoke("show", "long-one").output


@pytest.mark.usefixtures("store")
def test_a_kind_includes_its_more_specific_kinds_in_the_whole_tree() -> None:
    shown = in_json("show", FIRST, "--kind", "assistant_msg")["events"]

    assert [item["summary"] for item in shown] == ["I looked", "All fixed"]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("count", range(1, 9))
def test_the_tail_is_the_end_of_the_whole_with_its_sub_agents(count: int) -> None:
    whole, tail = (in_json("show", FIRST, *words)["events"] for words in ([], ["--tail", str(count)]))

    assert [item["event_uid"] for item in tail] == [item["event_uid"] for item in whole][-count:]


@pytest.mark.usefixtures("store")
def test_tail_shows_the_last_events_only() -> None:
    shown = in_json("show", FIRST, "--tail", "2")["events"]

    assert [item["summary"] for item in shown] == ["it is done", "All fixed"]


@pytest.mark.usefixtures("store")
def test_raw_is_one_json_object_per_event_with_its_whole_payload() -> None:
    lines = invoke("show", FIRST, "--raw").stdout.splitlines()

    assert json.loads(lines[0])["payload"]["text"] == "Fix the login"
    assert len(lines) == 6


@pytest.mark.usefixtures("store")
def test_a_wrong_kind_prints_nothing_of_the_session() -> None:
    result = invoke("show", FIRST, "--kind", "nonsense")

    assert result.stdout == ""
    assert "kinds: user_msg" in result.stderr


@pytest.mark.usefixtures("store")
def test_problems_name_file_line_and_reason() -> None:
    assert "second.jsonl:7  not JSON" in invoke("status", "--problems").output


@pytest.mark.usefixtures("store")
def test_status_counts_sub_agents_separately() -> None:
    (agent,) = in_json("status")["agents"]

    assert (agent["sessions"], agent["sub_agents"]) == (3, 1)
    assert "2 sessions, 1 sub-agent" in invoke("status").output


@pytest.mark.parametrize(("amount", "shown"), [({"usd": 1.5}, " $1.50"), ({"output_tokens": 100_000}, "~$1.50")])
def test_status_marks_money_only_where_some_is_estimated(
    tmp_path: Path, home: Home, amount: dict[str, Any], shown: str
) -> None:
    home.write("s", event("s", 1), usage("s", "u", **amount))
    sweep(tmp_path / "store", home).close()

    assert shown in invoke("status").output


def test_a_sweep_that_finds_nothing_points_to_doctor() -> None:
    assert "recollect doctor" in invoke("sweep").output


def test_a_second_sweep_reports_nothing_new(store: Path, home: Home) -> None:
    assert invoke("sweep", "--root", home.flag).output.startswith("Nothing new in 3 files")


def test_help_lists_every_command_once_in_the_sections_of_the_readme_on_one_screen() -> None:
    shown = CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"}).output
    listed = shown.partition("\nCommands:\n")[2]
    sections = re.findall(r"^\| \*\*(.+?)\*\* \|", (REPOSITORY / "README.md").read_text(), re.MULTILINE)

    assert sorted(re.findall(r"\w+(?=,|$)", listed, re.MULTILINE)) == sorted(main.list_commands(click.Context(main)))
    assert re.findall(r"^  (\w.*?)  ", listed, re.MULTILINE) == sections
    assert len(shown.splitlines()) <= 30
    assert "..." not in listed


_OLD_CALLS = {
    "star": [FIRST],
    "tag": [FIRST, "later"],
    "note": [FIRST, "look again"],
    "rename": [FIRST, "Login"],
    "run": ["--help"],
    "clear": ["--help"],
    "ipc": ["serve", "--once"],
    "fork": [FIRST],
    "files": ["login.py"],
    "related": [FIRST],
    "timeline": ["last", "week"],
    "exchanges": [FIRST],
    "facts": ["login.py"],
    "graphiti": ["push", "--help"],
    "rehydrate": ["--help"],
}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_does_what_the_new_one_does_and_names_it(old: str) -> None:
    new, arguments = RENAMED[old], _OLD_CALLS.get(old, [])
    under_old, under_new = invoke(old, *arguments), invoke(*new.split(), *arguments)

    assert under_old.exit_code == under_new.exit_code != 2
    assert re.sub(r"\d\d:\d\d", "", under_old.stdout) == re.sub(r"\d\d:\d\d", "", under_new.stdout)
    assert under_old.stderr == f"note: `recollect {old}` is `recollect {new}` now\n{under_new.stderr}"


def test_demo_reads_only_its_samples_and_leaves_nothing(tmp_path: Path) -> None:
    result = invoke("demo")

    assert result.exit_code == 0
    assert "recollect show" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def samples_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled samples, for tests that need the command as a process of its own."""
    folder = tmp_path_factory.mktemp("samples")
    homes = shutil.copytree(SAMPLES, folder / "homes")
    roots = [f"{path.name}={path}" for path in homes.iterdir() if path.is_dir()]
    with open_memory(folder / "store", roots) as memory:
        memory.sweep()
    return folder / "store"


@pytest.mark.parametrize(("zone", "shown"), [("UTC", "2026-11-15 18:22"), ("Asia/Tokyo", "2026-11-16 03:22")])
def test_people_see_times_in_their_zone(
    samples_store: Path, monkeypatch: pytest.MonkeyPatch, zone: str, shown: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    monkeypatch.setenv("COLUMNS", "120")

    output = run(command("sessions"), samples_store).stdout

    assert shown in output


def test_programs_see_times_in_utc_whatever_the_zone(samples_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")

    found = json.loads(run(command("sessions", "--json"), samples_store).stdout)

    assert {session["started_at"][:13] for session in found} == {"2026-11-15T18", "2026-11-19T04"}


@pytest.mark.parametrize("arguments", [["sessions", "--json"], ["sessions"], ["show", "ee64c483"]], ids=" ".join)
def test_a_closed_pipe_causes_no_complaint(samples_store: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command(*arguments),
            env=os.environ | {"RECOLLECT_HOME": str(samples_store)},
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)

    assert done.stderr == ""


def test_a_terminal_limited_to_ascii_still_gets_an_answer(samples_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii:replace")

    assert run(command("show", "ee64c483"), samples_store).returncode == 0


def test_the_version_is_that_of_the_package(samples_store: Path) -> None:
    assert recollect.__version__ in run(command("--version"), samples_store).stdout


def test_times_of_the_first_and_last_event_are_shown(store: Path) -> None:
    session = in_json("show", SECOND)["session"]

    assert session["started_at"] == "2026-11-16T19:00:00.000Z"
    assert at_ms(90_001) - at_ms(90_000) == session["cost"]["wall_clock_s"] * 1000


@pytest.mark.parametrize("after_ms", range(0, 200, 20))
def test_an_interrupt_while_modules_load_ends_without_a_traceback(tmp_path: Path, after_ms: int) -> None:
    # The first thing that the program does says that it has begun; before that, Python itself answers.
    program = (
        "import os; umask = os.umask; os.umask = lambda mode: (umask(mode), os.write(1, b'.'))\n"
        "from recollect.__main__ import run; run()"
    )
    command = [sys.executable, "-P", "-c", program, "search", "words"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        time.sleep(after_ms / 1000)
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()

    assert b"Traceback" not in errors


def test_a_graph_for_programs_has_all_nodes_whichever_option_asks_for_it(
    samples_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.cli.knowledge._SHOWN_NODES", 1)
    monkeypatch.setenv("RECOLLECT_HOME", str(samples_store))

    by_format = json.loads(invoke("knowledge", "graph", "--format", "json").stdout)

    assert by_format == in_json("knowledge", "graph")
    assert len(by_format["nodes"]) > 1
