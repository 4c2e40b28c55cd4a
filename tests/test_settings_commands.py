"""The commands config, exclude and completion."""

import json
import tomllib
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner, Result

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.cli import main
from recollect.config import with_value
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep

WRITTEN = """# mine
[retention]   # how much
raw_max_age_days = 30  # a month

[redact]
allow = [
  "one",
  "two",
]
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    home = Home(tmp_path / "home")
    remote = "git@github.com:acme/shop-api.git"
    home.write("s", event("session-one", 1, text="hello"), SessionInfo("session-one", cwd="/x/shop", git_remote=remote))
    sweep(tmp_path / "store", home).close()
    return tmp_path / "store"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def test_config_shows_where_the_settings_are_and_what_is_in_force(store: Path) -> None:
    (store / "config.toml").write_text(WRITTEN)

    lines = invoke("config").output.splitlines()

    assert lines[0] == f"settings  {store / 'config.toml'}"
    assert any(line.split() == ["retention.raw_max_age_days", "30", "(set)"] for line in lines)
    assert any(line.split() == ["retention.raw_hard_cap", "6GiB"] for line in lines)


def test_setting_one_value_keeps_the_rest_of_the_file(store: Path) -> None:
    (store / "config.toml").write_text(WRITTEN)

    assert invoke("config", "retention.cadence", "weekly").exit_code == 0
    assert invoke("config", "retention.raw_max_age_days", "60").exit_code == 0
    assert invoke("config", "redact.allow", '["three"]').exit_code == 0

    text = (store / "config.toml").read_text()
    assert text.startswith("# mine\n[retention]   # how much\n")
    assert tomllib.loads(text) == {
        "retention": {"cadence": "weekly", "raw_max_age_days": 60},
        "redact": {"allow": ["three"]},
    }


@pytest.mark.parametrize(("key", "value"), [("retention.cadence", "never"), ("retention.nope", "1"), ("x.y", "1")])
def test_an_invalid_setting_changes_nothing(store: Path, key: str, value: str) -> None:
    (store / "config.toml").write_text(WRITTEN)

    assert invoke("config", key, value).exit_code == 1
    assert (store / "config.toml").read_text() == WRITTEN


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ("capture.fresh", "sometimes", "known: auto, warn, off"),
        ("retention.soft_cap", "4GiB", "known: raw_soft_cap, "),
        ("retention.raw_soft_cap", "much", 'write "4GiB"'),
        ("fresh", "auto", "`recollect config` lists them"),
    ],
)
def test_an_invalid_setting_is_blamed_on_what_was_typed(store: Path, key: str, value: str, hint: str) -> None:
    result = invoke("config", key, value)

    assert key in result.output
    assert hint in result.output
    assert "config.toml" not in result.output


def test_a_broken_settings_file_is_blamed_when_another_setting_is_changed(store: Path) -> None:
    (store / "config.toml").write_text("[retention]\ncadence = 'sometimes'\n")

    result = invoke("config", "capture.fresh", "off")

    assert "config.toml: retention.cadence = 'sometimes'" in result.output


def test_a_value_is_written_into_a_section_that_is_not_there_yet() -> None:
    assert tomllib.loads(with_value("", "capture.exclude", ["a"])) == {"capture": {"exclude": ["a"]}}
    assert with_value("[tasks]\n", "capture.exclude", []) == "[tasks]\n\n[capture]\nexclude = []\n"


def test_exclude_names_a_known_repository_in_full_and_a_folder_by_its_path(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert "recollect forget --excluded" in invoke("exclude", "shop").output
    invoke("exclude", ".")

    assert json.loads(invoke("exclude", "--json").stdout) == {"exclude": ["github.com/acme/shop-api", str(tmp_path)]}
    invoke("exclude", "shop", "--remove")
    assert invoke("exclude").output == f"{tmp_path}\n"
    assert invoke("exclude", "shop", "--remove").exit_code == 4


def test_what_is_excluded_by_the_command_is_not_stored(store: Path, tmp_path: Path) -> None:
    home, private = Home(tmp_path / "more"), tmp_path / "private"
    private.mkdir()
    invoke("exclude", str(private))
    home.write("p", event("private", 1), SessionInfo("private", cwd=f"{private}/notes"))

    with sweep(store, home) as memory:
        assert [session.native_session_id for session in memory.sessions()] == ["session-one"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str) -> None:
    result = invoke("completion", shell)

    assert result.exit_code == 0
    assert f"_RECOLLECT_COMPLETE={shell}_complete" in result.stdout


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("arguments", "begun", "expected"),
    [
        (["show"], "sess", ["session-"]),
        (["sessions", "--repo"], "shop", ["shop-api"]),
        (["search", "hello", "--agent"], "scr", [AGENT]),
        ([], "sess", ["sessions"]),
    ],
)
def test_a_shell_completes_ids_names_and_commands(arguments: list[str], begun: str, expected: list[str]) -> None:
    completer = BashComplete(main, {}, "recollect", "_RECOLLECT_COMPLETE")

    assert [item.value for item in completer.get_completions(arguments, begun)] == expected


def test_a_session_is_not_exported_as_a_document(tmp_path: Path, store: Path) -> None:
    result = invoke("export", str(tmp_path / "x.md"), "session-one")

    assert result.exit_code == 2
    assert "recollect archive session-one" in result.stderr
    assert not (tmp_path / "x.md").exists()


@pytest.mark.parametrize(
    ("text", "is_placeholder"), [("password = your-password-here", True), ("nothing secret about this", False)]
)
def test_a_check_says_when_a_text_looks_like_a_placeholder(text: str, is_placeholder: bool) -> None:
    assert ("placeholder" in invoke("redact", "--check", text).stderr) == is_placeholder


@pytest.mark.parametrize(
    ("printed", "level"), [("Nothing new in 3 files\n", "ok"), ("Error: disk full\nhint: x\n", "problem")]
)
def test_doctor_shows_what_the_last_scheduled_sweep_printed(store: Path, printed: str, level: str) -> None:
    (store / "schedule.log").write_text(printed)

    findings = json.loads(invoke("doctor", "--json").stdout)

    (finding,) = [finding for finding in findings if finding["subject"] == "schedule"]
    assert finding["level"] == level
    assert finding["message"].endswith(printed.splitlines()[0])
