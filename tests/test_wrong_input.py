"""Inputs that people get wrong: one sentence that names the cause, and nothing is done."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from recollect.agents import adapters
from recollect.cli import main
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep

SESSION = "11111111-aaaa-4000-8000-0000000000f1"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The home of an agent whose one session is stored."""
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home = Home(tmp_path / "home")
    home.write("first", event(SESSION, 1, text="Fix the login"))
    sweep(tmp_path / "store", home).close()
    return home


def invoke(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=text, catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["forget"], 2, "Name the sessions to forget, or a condition"),
        (["forget", SESSION, "--before", "90d"], 2, "Give either sessions or conditions, not both"),
        (["restore", "/nope.zst"], 4, "No such file: /nope.zst"),
        (["exclude", "/nonexistent/x"], 4, "No such folder: /nonexistent/x"),
        (["archive", SESSION, "notes.md"], 2, "`--to DIR` names the folder to write into"),
        (
            ["sessions", "--timeline", "--since", "2026-04-30", "--before", "2026-04-01"],
            2,
            "`--since` is not before `--before`",
        ),
        (["search", "login", "--since", "2026-04-30", "--before", "2026-04-01"], 2, "swap them"),
        (["search", "--regex", "("], 2, "Invalid regular expression"),
        (["why", "nofile.py:12"], 4, "No such file: nofile.py"),
        (["fix", " "], 2, "Give the text of an error"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_input_gets_one_sentence_and_no_answer(arguments: list[str], code: int, said: str) -> None:
    result = invoke(*arguments)

    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_that_is_not_there_is_not_excluded() -> None:
    invoke("exclude", "/nonexistent/x")

    assert invoke("exclude").stdout == "Nothing is excluded\n"


@pytest.mark.parametrize("pattern", ["/old/place/**", "shop-{api,web}"])
def test_a_pattern_for_what_is_not_there_is_excluded(pattern: str) -> None:
    assert invoke("exclude", pattern).exit_code == 0


@pytest.mark.parametrize("name", ["short.py", "Makefile"])
def test_a_line_beyond_the_end_of_a_file_is_not_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).write_text("one\ntwo\n")
    monkeypatch.chdir(tmp_path)

    result = invoke("why", f"{name}:9999")

    assert (result.exit_code, result.stdout) == (4, "")
    assert "No line 9999 in a file of 2 lines" in result.stderr


@pytest.mark.parametrize(("query", "filter_"), [("sinc:2026-04-01 login", "since:"), ("repos:shop login", "repo:")])
def test_a_misspelt_filter_names_the_one_that_was_meant(query: str, filter_: str) -> None:
    assert f"did you mean `{filter_}`?" in invoke("search", query).stdout


@pytest.mark.parametrize("query", ["localhost:8080", "main.py:12", "10:30", "https://example.org"])
def test_a_colon_in_a_word_is_no_filter(query: str) -> None:
    assert "did you mean" not in invoke("search", query).stdout


def test_the_output_of_a_command_is_an_error_to_look_up_without_a_dash() -> None:
    assert invoke("fix", text="TypeError: x\n").stderr == invoke("fix", "-", text="TypeError: x\n").stderr


def test_the_graph_near_a_thing_is_asked_for_by_its_name_alone() -> None:
    assert _shown(invoke("knowledge", "graph", "quokkafish")) == _shown(
        invoke("knowledge", "graph", "--around", "quokkafish")
    )


def _shown(result: Result) -> tuple[int, str, str]:
    return result.exit_code, result.stdout, result.stderr


def test_an_archive_is_written_into_the_folder_after_o(tmp_path: Path) -> None:
    assert invoke("archive", SESSION, "-o", str(tmp_path / "notes")).exit_code == 0

    assert list((tmp_path / "notes").glob("*.md"))


@pytest.mark.parametrize("is_named", [False, True], ids=["default homes", "a home of its own"])
def test_a_sweep_says_that_reading_is_switched_off(home: Home, is_named: bool) -> None:
    home.append("first", event(SESSION, 2, text="Then the logout"))
    invoke("config", "capture.enabled", "false")

    result = invoke("sweep", *(["--root", home.flag] if is_named else []))

    assert result.stdout == "Nothing is read: `recollect config capture.enabled true` switches reading on\n"
    assert "No matches" in invoke("search", "logout").stdout
