"""Doctor says what stands in the way, and the exact thing to do about it."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect import Finding
from recollect.agents import adapters
from recollect.api import doctor
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep
from tests.faults.rig import as_nobody, command, needs_nobody, own, run, scratch
from tests.logs import CLAUDE
from tests.store.rows import noise


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.write("s", event("s", 1), event("s", 2, text=noise(100_000)))
    return home


@pytest.fixture
def store(tmp_path: Path, home: Home) -> Path:
    sweep(tmp_path / "store", home).close()
    return tmp_path / "store"


def findings(store: Path, home: Home, subject: str) -> list[Finding]:
    return [finding for finding in doctor(store, [home.flag]) if finding.subject == subject]


def test_a_sound_store_and_home_are_said_to_be_so(store: Path, home: Home) -> None:
    found = doctor(store, [home.flag])

    assert {finding.level for finding in found} <= {"ok", "note"}
    assert any("1 files" in finding.message or "1 file" in finding.message for finding in found)


def test_it_is_noted_when_no_agent_has_a_home_and_which_variables_say_where(tmp_path: Path, store: Path) -> None:
    missing = Home(tmp_path / "nowhere")
    missing.folder.rmdir()

    (finding,) = findings(store, missing, "agents")

    assert finding.level == "note"
    assert finding.message.endswith(str(missing.folder))
    assert "SCRIPTED_HOME" in (finding.advice or "")


def test_agents_that_are_not_here_share_one_line_without_a_warning(tmp_path: Path, store: Path, home: Home) -> None:
    roots = [home.flag, f"claude={tmp_path / 'a'}", f"codex={tmp_path / 'b'}"]

    (finding,) = [finding for finding in doctor(store, roots) if finding.subject == "agents"]

    assert (finding.level, finding.message) == ("ok", "No Claude Code, Codex here")


def test_without_a_store_there_is_a_note_and_nothing_is_made(tmp_path: Path, home: Home) -> None:
    (finding,) = findings(tmp_path / "no-store", home, "store")

    assert finding.level == "note"
    assert "recollect sweep" in (finding.advice or "")
    assert not (tmp_path / "no-store").exists()


def test_a_home_that_is_a_link_is_shown_with_what_it_links_to(tmp_path: Path, store: Path, home: Home) -> None:
    (tmp_path / "link").symlink_to(home.folder)

    found = findings(store, Home(tmp_path / "link"), AGENT)

    assert str(home.folder) in found[0].message


@pytest.mark.parametrize(
    ("settings", "level", "days"),
    [
        (None, "note", "30 days"),
        ("{}", "note", "30 days"),
        ('{"keepDays": 7}', "note", "7 days"),
        ('{"keepDays": 365}', "ok", "365 days"),
        ('{"keepDays": 99999}', "ok", "99999 days"),
        ('{"keepDays": "long"}', "note", "30 days"),
        ("no json", "note", "30 days"),
        ("[]", "note", "30 days"),
    ],
)
def test_a_short_retention_of_the_agent_is_noted(
    store: Path, home: Home, settings: str | None, level: str, days: str
) -> None:
    if settings is not None:
        (home.folder / "settings.json").write_text(settings)

    _, found = findings(store, home, AGENT)

    assert (found.level, days in found.message) == (level, True)
    assert (found.advice is not None) == (level == "note")


def test_a_store_that_others_may_look_into_is_a_problem(store: Path, home: Home) -> None:
    store.chmod(0o755)

    problems = [finding for finding in findings(store, home, "store") if finding.level == "problem"]

    assert [finding.advice for finding in problems] == [f"chmod 700 {store}"]


def _damage(path: Path, offset: int) -> None:
    """Write over a piece of a file, as a failing disk does."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xa5" * 512)


@pytest.mark.parametrize("name", ["cache.db", "memory.db"])
@pytest.mark.parametrize("page", [0, 1, 2])
def test_a_damaged_database_is_a_problem_and_doctor_goes_on(store: Path, home: Home, name: str, page: int) -> None:
    _damage(store / name, page * 4096)

    found = findings(store, home, "store")

    assert any(finding.level == "problem" and finding.advice for finding in found)


@pytest.mark.parametrize(
    "harm", [lambda pack: os.truncate(pack, 100), lambda pack: pack.unlink(), lambda pack: _damage(pack, 5000)]
)
def test_a_pack_that_is_cut_off_missing_or_flipped_is_a_problem(
    store: Path, home: Home, harm: Callable[[Path], None]
) -> None:
    (pack,) = store.rglob("*.pack")

    harm(pack)

    assert any(finding.level == "problem" for finding in findings(store, home, "store"))


def test_the_advice_on_damage_is_something_to_do_and_not_to_look_again(store: Path, home: Home) -> None:
    (pack,) = store.rglob("*.pack")
    pack.unlink()

    (finding,) = [finding for finding in findings(store, home, "store") if finding.level == "problem"]

    assert "recollect doctor --repair" in (finding.advice or "")


def test_settings_that_cannot_be_read_are_a_problem_and_no_exception(store: Path, home: Home) -> None:
    (store / "config.toml").write_text("[nonsense]\n")

    (finding,) = doctor(store, [home.flag])

    assert (finding.level, finding.subject) == ("problem", "settings")
    assert "nonsense" in finding.message


@needs_nobody
def test_a_home_that_cannot_be_read_is_a_problem_with_the_line_to_type() -> None:
    with scratch() as folder:
        CLAUDE.write(folder / "home", CLAUDE.content(1))
        own(folder)
        (folder / "home").chmod(0)

        arguments = as_nobody(command("doctor", "--json", "--root", CLAUDE.root_flag(folder / "home")))
        done = run(arguments, folder / "store")

        found = [finding for finding in json.loads(done.stdout) if finding["subject"] == CLAUDE.agent]
        assert done.returncode == 1
        assert [finding["level"] for finding in found] == ["problem"]
        assert found[0]["advice"] == f"chmod u+rx {folder / 'home'}"
