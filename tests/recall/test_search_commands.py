"""The commands that find things again, as people and programs meet them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from recollect.agentkit.protocol import SessionInfo
from recollect.cli import main
from recollect.model.schema import ASSISTANT_MSG, EDIT, TOOL_CALL
from tests.builders import Home, event, sweep
from tests.retention.rig import evict_all, opened
from tests.test_api import SCHEMAS, breaches

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, home: Home) -> Run:
    """Runs a command on a store with two sessions."""
    edit = event("edits-1", 3, EDIT, "edited")
    edit.payload = {"input": {"file_path": "src/a.py", "new_string": "walrus"}}
    flag = event("edits-1", 2, TOOL_CALL, "git commit")
    flag.payload = {"input": {"command": "git commit --no-verify"}}
    home.write("a", SessionInfo("edits-1", cwd="/x/shop"), event("edits-1", 1, text="use a walrus"), flag, edit)
    home.write("b", event("talks-1", 1, text="no walrus"), event("talks-1", 2, ASSISTANT_MSG, "as you like"))
    sweep(tmp_path / "store", home).close()
    return lambda *words: CliRunner().invoke(main, list(words), catch_exceptions=False)


def printed(run: Run, *words: str) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0
    return json.loads(result.stdout)


@pytest.mark.parametrize("command", ["search", "history"])
@pytest.mark.parametrize("query", ["walrus", "", "is:error", "wallrus", '"', "nothing-like-it"])
def test_the_answer_keeps_to_its_schema(run: Run, command: str, query: str) -> None:
    answer = printed(run, command, query)

    assert breaches(SCHEMAS["search"], answer) == []
    assert list(answer) == ["query", "took_ms", "total", "total_is_least", "hits", "suggestion"]


def test_an_explained_answer_says_why(run: Run) -> None:
    answer = printed(run, "search", "walrus", "kind:nonsense", "--explain")

    assert "kind:" in answer["notes"][0]
    assert "walrus" in answer["hits"][0]["matches"][0]["why"]
    assert answer["hits"][0]["bookends"]["first_request"]


def test_a_flag_can_be_looked_for(run: Run) -> None:
    answer = printed(run, "search", "--no-verify")

    assert [hit["session_uid"] for hit in answer["hits"]] == ["scripted:edits-1"]


def test_people_see_sessions_snippets_and_what_was_meant(run: Run) -> None:
    found, wrong, nothing = run("search", "walrus"), run("search", "wallrus"), run("search", "xylophone")

    assert "use a walrus" in found.output
    assert "No match for `wallrus`; showing `walrus`" in wrong.output
    assert "No matches" in nothing.output


def test_what_was_looked_for_is_bold_on_a_terminal(run: Run) -> None:
    told = CliRunner().invoke(main, ["search", "Wálrus"], color=True).output

    assert "use a \x1b[1mwalrus\x1b[0m" in told


_FAR_APART = f"fix the docs. {'filler words ' * 5}the race condition is gone. {'filler words ' * 5}"


@pytest.mark.parametrize(
    ("query", "text", "shown"),
    [
        ("src/deep/walrus.py", f"/home/{'somebody/' * 6}src/deep/walrus.py content", "src/deep/walrus.py"),
        ("fix race condition", _FAR_APART, "race condition"),
        ("海馬", "海" * 70 + " 海馬 " + "海" * 70, "海馬"),
    ],
)
@pytest.mark.parametrize("columns", [60, 80])
def test_what_is_shown_of_a_match_has_what_was_searched_for(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, query: str, text: str, shown: str, columns: int
) -> None:
    home.write("c", event("long-1", 1, text="begin"), event("long-1", 2, ASSISTANT_MSG, text))
    sweep(tmp_path / "store", home).close()
    monkeypatch.setenv("COLUMNS", str(columns))

    (line,) = [
        line
        for line in CliRunner().invoke(main, ["search", query]).output.splitlines()
        if line.strip().startswith("#2 ")
    ]

    assert shown in line


def test_a_title_that_is_the_first_request_is_told_once(run: Run) -> None:
    assert run("search", "--no-verify", "--context", "0").output.count("use a walrus") == 1


def test_a_title_that_is_the_first_request_cut_short_is_told_once(tmp_path: Path, home: Home, run: Run) -> None:
    home.write("c", event("long-1", 1, text="tusk " * 40), event("long-1", 2, ASSISTANT_MSG, "a seal"))
    sweep(tmp_path / "store", home).close()

    told = run("search", "seal", "--context", "0").output

    assert "tusk tusk" in told
    assert "began" not in told


def test_commands_take_the_id_by_which_a_sub_agents_match_is_shown(tmp_path: Path, home: Home, run: Run) -> None:
    home.write("c", event("parent-1", 1, text="begin"))
    child = SessionInfo("parent-1/ab", parent_native_id="parent-1", root_native_id="parent-1")
    home.write("d", child, event("parent-1/ab", 1, text="a narwhal"))
    sweep(tmp_path / "store", home).close()

    (name,) = re.findall(r" in (\S+): ", run("search", "narwhal").output)

    assert "a narwhal" in run("show", name).output


def test_a_budget_that_nothing_fits_into_is_not_nothing_found(run: Run) -> None:
    told = run("search", "walrus", "--budget", "1").output

    assert "Nothing fits into the budget" in told
    assert "0 of 2 sessions" in told


def test_two_ways_to_look_at_once_are_refused(run: Run) -> None:
    assert run("search", "x", "--regex", "--substring").exit_code == 2


def test_recent_lists_sessions_with_their_last_request(run: Run) -> None:
    assert "no walrus" in run("recent").output
    assert [hit["session_uid"] for hit in printed(run, "recent", "--repo", "shop")["hits"]] == ["scripted:edits-1"]


def test_blame_files_timeline_and_related_have_both_forms(run: Run) -> None:
    assert "use a walrus" in run("blame", "src/a.py").output
    assert [edit["request"] for edit in printed(run, "blame", "src/a.py")] == ["use a walrus"]
    assert "1 edit" in run("blame", "--all", "src/a.py").output
    assert [visit["edits"] for visit in printed(run, "blame", "--all", "src/a.py")] == [1]
    assert "2026-11-15" in run("sessions", "--timeline", "2026-11-15").output
    assert len(printed(run, "sessions", "--timeline", "--since", "2026-11-01")) == 2
    assert "talks-1" in run("sessions", "--related", "edits-1").output
    assert [other["session_uid"] for other in printed(run, "sessions", "--related", "edits-1")] == ["scripted:talks-1"]


def test_a_list_of_edits_fits_the_screen_and_shows_the_names_of_files(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/home/x/{'deep/' * 20}src/a.py"
    edits = [event("edits-1", number, EDIT, "edited") for number in range(2, 30)]
    for edit in edits:
        edit.payload = {"input": {"file_path": path, "new_string": "walrus"}}
    home.write("a", SessionInfo("edits-1", cwd="/home/x"), event("edits-1", 1, text="use a walrus"), *edits)
    sweep(tmp_path / "store", home).close()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "24")

    shown = CliRunner().invoke(main, ["blame", "a.py"]).stdout.splitlines()

    assert len(shown) <= 24
    assert max(map(len, shown)) <= 60
    assert [line.split()[0] for line in shown if line.endswith("/src/a.py")] == [f"#{seq}" for seq in range(29, 19, -1)]
    assert shown[-2:] == ["10 of 28 edits · more: --offset 10", "next: recollect diff edits-1 a.py"]


def test_a_note_is_wrapped_to_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    path = f"/no/such/{'deep/' * 4}walrus.py"

    lines = run("search", path).stdout.splitlines()

    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(lines[:3]).split()).startswith(
        f"note: No exact match for `{path}`; showing matches for its words"
    )


def test_events_of_a_kind_are_listed_whole(tmp_path: Path, home: Home) -> None:
    for session in range(12):
        home.write(
            f"{session}", *(event(f"talks-{session:02}", number, text=f"ask {number}") for number in range(1, 6))
        )
    sweep(tmp_path / "store", home).close()

    listed = CliRunner().invoke(main, ["search", "--kind", "user_msg"]).stdout
    ranked = CliRunner().invoke(main, ["search", "ask"]).stdout

    assert listed.count("  you  ") == 60
    assert "12 sessions" in listed
    assert ranked.count("  you  ") <= 30


def test_words_that_are_not_there_together_as_typed_are_all_named(run: Run) -> None:
    noted = " ".join(run("search", '"src/a.py",', "(use-a)").stdout.split())

    assert "note: No exact match for `src/a.py` and `use-a` together; showing matches for their words" in noted


def test_a_word_that_a_session_lacks_is_named_without_its_punctuation(run: Run) -> None:
    assert "[without like]" in run("search", "(like),", "walrus").stdout


def test_what_is_not_there_is_said_in_words(run: Run) -> None:
    assert "No edit" in run("blame", "nowhere.py").output
    assert "No session" in run("blame", "--all", "nowhere.py").output
    assert "No sessions" in run("sessions", "--timeline", "1999-01-01").output
    assert run("sessions", "--timeline", "someday").exit_code == 2
    assert run("sessions", "--related", "nobody").exit_code == 4
    assert run("show", "edits-1", "--at", "99").exit_code == 4


def test_show_opens_a_window(run: Run) -> None:
    shown = printed(run, "show", "edits-1", "--at", "2", "--context", "1")

    assert [item["seq"] for item in shown["events"]] == [1, 2, 3]
    assert [item["seq"] for item in printed(run, "show", "edits-1", "--at", "2", "--context", "0")["events"]] == [2]


def test_without_a_store_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "nothing"))

    result = CliRunner().invoke(main, ["search", "x"])

    assert result.exit_code == 4
    assert "recollect sweep" in result.output


def test_what_a_match_prints_leads_to_it(tmp_path: Path, home: Home) -> None:
    home.write("root", event("root-000001", 1, text="ask somebody"), event("root-000001", 2, text="something else"))
    sub = SessionInfo("agent-a1b2c3d4", parent_native_id="root-000001")
    home.write("sub", sub, event("agent-a1b2c3d4", 1), event("agent-a1b2c3d4", 2, ASSISTANT_MSG, "the walrus"))
    sweep(tmp_path / "store", home).close()

    def run(*words: str) -> Result:
        return CliRunner().invoke(main, list(words), catch_exceptions=False)

    told = run("search", "walrus", "--context", "0").stdout
    answer = json.loads(run("search", "walrus", "--json").stdout)
    shown = run("show", "a1b2c3d4", "--at", "2", "--context", "0").stdout

    assert "#2  agent     in a1b2c3d4: the walrus" in told
    assert breaches(SCHEMAS["search"], answer) == []
    assert answer["hits"][0]["matches"][0]["session_uid"] == "scripted:root-000001/agent-a1b2c3d4"
    assert "the walrus" in shown


def test_a_path_that_leads_upwards_is_seen_from_here(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getcwd", lambda: "/x/shop/lib")

    assert [edit["seq"] for edit in printed(run, "blame", "../src/a.py")] == [3]
    assert printed(run, "blame", "../../src/a.py") == []


def test_what_was_dropped_is_said_where_only_data_is_printed(tmp_path: Path, home: Home) -> None:
    edit = event("gone-01", 2, EDIT, "edited src/a.py")
    edit.payload = {"input": {"file_path": "src/a.py", "new_string": "walrus"}}
    home.write("gone", SessionInfo("gone-01", cwd="/x/shop"), event("gone-01", 1, text="mend it"), edit)
    with opened(tmp_path / "store", home) as memory:
        memory.sweep()
        evict_all(memory)

    for words in (
        ("show", "gone-01", "--raw"),
        ("show", "--exchanges", "gone-01", "--json"),
        ("blame", "src/a.py", "--json"),
    ):
        result = CliRunner().invoke(main, list(words), catch_exceptions=False)
        assert result.exit_code == 0
        assert result.stderr.startswith("note: "), words


def test_an_event_is_opened_by_either_end_of_its_uid(run: Run) -> None:
    events = json.loads(run("show", "edits-1", "--json").stdout)["events"]
    uid = events[1]["event_uid"]

    for part in (uid, uid[-12:], uid[-6:], uid[-8:].upper()):
        assert [
            found["event_uid"] for found in printed(run, "show", "edits-1", "--at", part, "--context", "0")["events"]
        ] == [uid]
    assert run("show", "edits-1", "--at", uid[:16]).exit_code == 5
    assert run("show", "edits-1", "--at", uid[-3:]).exit_code == 4
    assert run("show", "edits-1", "--at", "zzzzzz").exit_code == 4
    assert run("show", "edits-1", "--at", "%%%%%%").exit_code == 4


def test_a_number_after_n_is_the_limit_and_any_other_word_is_searched_for(run: Run) -> None:
    assert len(printed(run, "search", "walrus", "-n", "1")["hits"]) == 1
    assert printed(run, "search", "walrus", "-n", "1")["query"] == "walrus"
    assert printed(run, "search", "walrus", "-n")["query"] == "walrus -n"


def test_a_total_of_more_events_than_are_looked_at_says_at_least(tmp_path: Path, home: Home) -> None:
    for number in range(45):
        home.write(f"s{number}", *(event(f"s{number}", place, text=f"a walrus {place}") for place in range(50)))
    sweep(tmp_path / "store", home).close()

    answer = json.loads(CliRunner().invoke(main, ["search", "walrus", "--json"]).stdout)
    shown = CliRunner().invoke(main, ["search", "walrus"]).stdout

    assert answer["total_is_least"]
    assert f"10 of at least {answer['total']} sessions" in shown
