"""Options narrow every list in the same way, and what is mistyped is answered with the nearest."""

import json
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.api import Filters
from recollect.cli import main
from recollect.model.errors import Ambiguous, NotFound, UsageError
from recollect.model.kinds import OUTCOMES
from recollect.model.schema import ASSISTANT_MSG, EDIT, ERROR, LIFECYCLE, USER_MSG
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep, usage

LISTS = ("search", "history", "recent", "sessions", "blame", "signals", "stats")
FILTERS = ("--agent", "--repo", "--here", "--branch", "--since", "--before", "--outcome", "--kind")
DAY = 86_400


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def store(tmp_path: Path, home: Home) -> Path:
    """Four sessions about a walrus in three repositories, and one that is only `/status`."""
    for number, (name, remote, kind) in enumerate(
        [
            ("shop-one", "acme/shop-api", EDIT),
            ("shop-two", "acme/shop-api", ERROR),
            ("vault-one", "acme/vaultwarden", EDIT),
            ("blog-one", "acme/vibelife", ERROR),
        ]
    ):
        call = {"input": {"file_path": "src/walrus.py", "old_string": "a", "new_string": "b"}}
        done = event(name, number * DAY + 1, kind, "about the walrus", call_id=f"call-{name}")
        home.write(
            name,
            event(name, number * DAY, text="feed the walrus"),
            structs.replace(done, payload=done.payload | call),
            event(name, number * DAY + 60 * number, ASSISTANT_MSG, "fed", model="m"),
            usage(name, "u", output_tokens=100 * (4 - number), usd=number / 2),
            SessionInfo(name, cwd=f"/home/x/{name}", git_branch=name, git_remote=f"git@github.com:{remote}.git"),
        )
    home.write("idle-one", event("idle-one", 50, LIFECYCLE, "/status"), SessionInfo("idle-one", cwd="/home/x/idle"))
    sweep(tmp_path / "store", home).close()
    return tmp_path / "store"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def listed(command: str, *options: str) -> set[str]:
    """The sessions that a list names."""
    words = {"blame --all": ["walrus.py"], "search": ["walrus"], "history": ["walrus"]}
    since = ["--since", "2026-01-01"] if "--timeline" in command and "--since" not in options else []
    found: Any = json.loads(invoke(*command.split(), *words.get(command, []), *options, *since, "--json").stdout)
    rows = found["hits"] if isinstance(found, dict) else found
    return {row["session_uid"].partition(":")[2] for row in rows} - {"idle-one"}


def test_every_list_has_every_filter() -> None:
    for name in LISTS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert set(FILTERS) <= {spelling for option in command.params for spelling in option.opts}, name


SHOP = {"shop-one", "shop-two"}
ALL = {*SHOP, "vault-one", "blog-one"}


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--repo", "shop"], SHOP),
        (["--repo", "acme/shop-api"], SHOP),
        (["--repo", "vault"], {"vault-one"}),
        (["--repo", "vibe"], {"blog-one"}),
        (["--repo", "/home/x/shop-one"], SHOP),
        (["--branch", "shop-two"], {"shop-two"}),
        (["--agent", AGENT.upper()], ALL),
        (["--kind", "error"], {"shop-two", "blog-one"}),
        (["--since", "17 nov 2026"], {"vault-one", "blog-one"}),
        (["--before", "nov 16 2026"], {"shop-one"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_filter_means_the_same_in_every_list(options: list[str], expected: set[str]) -> None:
    for command in ("search", "history", "recent", "sessions", "sessions --timeline", "blame --all"):
        assert listed(command, *options) == expected, command


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_means_the_same_in_every_list(outcome: str) -> None:
    commands = ("search", "recent", "sessions", "sessions --timeline", "blame --all")

    assert len({frozenset(listed(command, "--outcome", outcome)) for command in commands}) == 1


@pytest.mark.usefixtures("store")
def test_options_are_no_words_of_a_query_wherever_they_are() -> None:
    assert listed("search", "--repo", "vault") == {"vault-one"}
    assert json.loads(invoke("search", "--limit=1", "walrus", "--json").stdout)["query"] == "walrus"
    assert json.loads(invoke("search", "walrus", "-feed", "--json").stdout)["query"] == "walrus -feed"


@pytest.mark.usefixtures("store")
def test_a_misspelt_option_is_asked_about_and_another_text_is_searched_for() -> None:
    refused = invoke("search", "walrus", "--limt", "3")
    assert refused.exit_code == 2
    assert "Did you mean --limit? To search for it:" in refused.stderr

    for arguments in (["--no-verify"], ["--", "--limit", "3"], ["-v"], ["--limit 3 is set"], ["-hooks"]):
        result = invoke("search", *arguments)
        assert (result.exit_code, result.output.splitlines()[-1]) == (0, "No matches"), arguments


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("options", "code", "answer"),
    [
        (["--repo", "vualtwarden"], 4, "nearest: vaultwarden"),
        (["--repo", "v"], 5, "Several repositories match `v`"),
        (["--repo", "/nowhere"], 4, "No session worked in this folder: /nowhere"),
        (["--branch", "shop-tow"], 4, "nearest: shop-two"),
        (["--agent", "script"], 4, "nearest: scripted"),
        (["--since", "lastweek"], 2, "did you mean `last week`?"),
        (["--since", "mondy"], 2, "did you mean `monday`?"),
        (["--here", "--repo", "shop"], 2, "Cannot use `--here` and `--repo` together"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("command", ["sessions", "search", "signals", "stats"])
def test_what_matches_nothing_is_answered_with_the_nearest(
    command: str, options: list[str], code: int, answer: str
) -> None:
    result = invoke(command, *options)

    assert result.exit_code == code
    assert answer in result.stderr


@pytest.mark.usefixtures("store")
def test_in_a_query_a_repository_that_is_not_there_is_a_note() -> None:
    assert (
        "note: No repository matches `vualtwarden`; nearest: vaultwarden"
        in invoke("search", "walrus repo:vualtwarden").output
    )
    assert listed("search", "repo:vibe") == {"blog-one"}


def test_here_is_the_checkout_that_the_current_folder_lies_in(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "elsewhere" / "deep" / "inside"
    checkout.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", checkout.parent.parent], check=True)
    remote = ["remote", "add", "origin", "https://github.com/acme/vibelife"]
    subprocess.run(["git", "-C", checkout, *remote], check=True)
    monkeypatch.chdir(checkout)

    assert listed("sessions", "--here") == listed("search", "--here") == {"blog-one"}


def test_the_library_takes_what_the_command_line_takes(store: Path, tmp_path: Path, home: Home) -> None:
    with sweep(store, home) as memory:
        found = memory.sessions(Filters(repo="shop", since="2026-11-16"))
        assert [session.native_session_id for session in found] == ["shop-two"]
        for filters, error in (
            (Filters(repo="v"), Ambiguous),
            (Filters(repo="zzz"), NotFound),
            (Filters(kind="nonsense"), UsageError),
            (Filters(since="someday"), UsageError),
        ):
            with pytest.raises(error):
                memory.sessions(filters)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("sort", "first"), [("recent", "blog-one"), ("cost", "blog-one"), ("duration", "blog-one"), ("tokens", "shop-one")]
)
def test_sessions_are_sorted_by_what_is_asked_for(sort: str, first: str) -> None:
    found = json.loads(invoke("sessions", "--sort", sort, "--json").stdout)

    assert found[0]["native_session_id"] == first


@pytest.mark.usefixtures("store")
def test_lists_say_how_much_they_show() -> None:
    assert (
        "2 of 4 sessions · more: --offset 2 · 1 without work hidden: --all" in invoke("sessions", "--limit", "2").output
    )
    assert "3–4 of 4 sessions" in invoke("search", "walrus", "--limit", "2", "--offset", "2").output
    assert "1 of 2 edits · more: --offset 1" in invoke("blame", "walrus.py", "--limit", "1").output


@pytest.mark.usefixtures("store")
def test_pages_of_a_search_make_up_the_whole() -> None:
    def uids(*options: str) -> list[str]:
        return [hit["session_uid"] for hit in json.loads(invoke("search", "walrus", *options, "--json").stdout)["hits"]]

    pages = [uids("--limit", "1", "--offset", str(number)) for number in range(4)]

    assert [uid for page in pages for uid in page] == uids()


@pytest.mark.usefixtures("store")
def test_a_session_without_work_is_hidden_and_counted() -> None:
    assert "/home/x/idle" not in invoke("sessions").output
    assert "idle-one" in invoke("sessions", "--all").output
    assert "idle" not in invoke("recent").output
    assert "idle" not in invoke("sessions", "--timeline", "--since", "2026-01-01").output


@pytest.mark.usefixtures("store")
def test_a_search_shows_one_screen_each_match_once_and_what_to_type_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "12")

    lines = invoke("search", "walrus").output.splitlines()
    detailed = invoke("search", "walrus", "--context", "3").output

    assert len(lines) <= 12
    assert "next: recollect show" in lines[-1]
    assert detailed.count("feed the walrus") == 4 + 4  # a title and an event of each session
    command = lines[-1].rpartition("next: recollect ")[2].split()
    assert invoke(*command).exit_code == 0


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("command", [["sessions"], ["sessions", "--all"], ["recent"], ["search", "walrus"], ["signals"],
                                     ["sessions", "--timeline", "--since", "2026-01-01"],
                                     ["blame", "--all", "walrus.py"],
                                     ["sessions", "--sort", "tokens"]], ids=" ".join)  # fmt: skip
def test_no_list_wraps(command: list[str], columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    assert max(map(len, invoke(*command).output.splitlines())) <= columns


@pytest.mark.usefixtures("store")
def test_a_line_of_a_match_shows_the_word_that_was_found(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "all the other things of this very long line come first and only then the penguin and what follows"
    home.write("long", event("long", 1, USER_MSG, words))
    sweep(tmp_path / "store", home).close()
    monkeypatch.setenv("COLUMNS", "60")

    line = next(line for line in invoke("search", "penguin").output.splitlines() if "#1" in line)

    assert "penguin" in line and len(line) <= 60


@pytest.mark.usefixtures("store")
def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    for arguments, answer in ((["serch"], "Did you mean search?"), (["zzz"], "recollect search zzz")):
        result = invoke(*arguments)
        assert (result.exit_code, answer in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("list", "sessions"),
        ("costs", "stats"),
        ("delete", "forget"),
        ("summary", "digest"),
        ("todo", "open"),
        ("prompts", "search --kind user_msg"),
        ("version", "--version"),
    ],
)
def test_a_command_by_the_name_that_other_programs_give_it_is_recognised(typed: str, meant: str) -> None:
    assert f"Did you mean {meant}?" in invoke(typed).stderr
    assert invoke(*meant.split(), "--help").exit_code == 0


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("command", ["show", "digest", "diff", "exchanges", "related"])
def test_without_a_session_the_last_one_is_meant(command: str) -> None:
    assert invoke(command).output == invoke(command, "last").output != ""


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("command", ["sessions", "recent"])
def test_a_list_is_shortened_by_the_option_that_git_has_for_it(command: str) -> None:
    assert "1 of 4 sessions" in invoke(command, "-n", "1").output


@pytest.mark.usefixtures("store")
def test_an_id_that_is_too_short_is_said_to_be() -> None:
    assert "hint: give at least 6 characters of an id" in invoke("show", "sho1").stderr
    assert "at least 6" not in invoke("show", "nothing-like-it").stderr


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("columns", [40, 60, 80])
def test_the_status_breaks_lines_between_words(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    whole = invoke("status").output
    monkeypatch.setenv("COLUMNS", str(columns))

    lines = invoke("status").output.splitlines()

    assert " ".join(" ".join(lines).split()) == " ".join(whole.split())
    assert all(len(line) <= columns for line in lines if not line.startswith("store "))


@pytest.mark.usefixtures("store")
def test_decisions_on_a_topic_are_another_command() -> None:
    assert "recollect why walrus food" in invoke("decisions", "walrus", "food").stderr


@pytest.mark.usefixtures("store")
def test_an_option_that_search_lacks_is_said_to_be_searched_for_as_text() -> None:
    result = invoke("search", "walrus", "--sort", "cost")

    assert result.exit_code == 0
    assert "Searching for the text --sort: `search` has no such option" in result.stderr
    assert "Searching for the text" not in invoke("search", "--", "walrus", "--sort").stderr


@pytest.mark.usefixtures("store")
def test_a_search_shows_as_many_matches_of_a_session_as_asked_for() -> None:
    def matches(*options: str) -> list[int]:
        hits = json.loads(invoke("search", "walrus", *options, "--json").stdout)["hits"]
        return [len(hit["matches"]) for hit in hits]

    assert matches("--matches", "1") == [1, 1, 1, 1]
    assert matches() == [2, 2, 2, 2]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("date", "count"),
    [(("2026-11-15",), 1), (("2026-11",), 4), (("november", "2026"), 4), (("2026",), 4), (("2025-11",), 0)],
)
def test_a_timeline_covers_the_whole_period_that_a_date_names(date: tuple[str, ...], count: int) -> None:
    assert len(json.loads(invoke("sessions", "--timeline", *date, "--json").stdout)) == count


@pytest.mark.usefixtures("store")
def test_part_of_a_name_deletes_nothing_and_is_answered_with_the_nearest() -> None:
    result = invoke("forget", "--repo", "vault", "--dry-run")

    assert result.exit_code == 4
    assert "did you mean `--repo github.com/acme/vaultwarden`?" in result.stderr
    assert "nearest: vaultwarden" in invoke("forget", "--repo", "vualtwarden", "--dry-run").stderr


@pytest.mark.usefixtures("store")
def test_a_diff_of_a_file_that_the_session_left_alone_names_those_it_edited() -> None:
    result = invoke("diff", "shop-one", "src/seal.py")

    assert result.exit_code == 4
    assert "did not edit this file: src/seal.py" in result.stderr
    assert "it edited src/walrus.py" in result.stderr


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("command", [["digest", "shop-one"], ["diff", "shop-one"], ["blame", "walrus.py"]])
def test_what_names_a_session_says_how_to_continue_it(command: list[str]) -> None:
    printed = json.loads(invoke(*command, "--json").stdout)

    assert {"cwd", "resume_command"} <= (printed[0] if isinstance(printed, list) else printed).keys()


@pytest.mark.usefixtures("store")
def test_words_that_are_no_title_can_be_searched_for() -> None:
    result = invoke("show", "walrus feeding")

    assert result.exit_code == 4
    assert "`recollect search walrus feeding`" in result.stderr


@pytest.mark.usefixtures("store")
def test_a_name_and_a_note_of_several_words_need_no_quotes() -> None:
    invoke("mark", "rename", "shop-one", "about", "the", "walrus")

    assert "about the walrus" in invoke("mark", "note", "shop-one", "it", "worked").stdout
    assert "it worked" in invoke("mark", "note", "shop-one", "again").stdout


@pytest.mark.usefixtures("store")
def test_an_archive_goes_into_a_folder_and_no_folder_is_named_like_a_document(tmp_path: Path) -> None:
    result = invoke("archive", "shop-one", "--to", str(tmp_path / "x.md"))

    assert result.exit_code == 2
    assert "takes a folder, not a file" in result.stderr
    assert not (tmp_path / "x.md").exists()
