"""Reading commands notice what agents wrote since the last sweep, and read it first if that is quick."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from recollect.agents import adapters
from recollect.api import open_memory
from recollect.cli.entry import main
from recollect.ingest import freshness
from recollect.store import sweep_lock
from tests.builders import AGENT, Home, ScriptedAdapter, event


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An agent's home that is swept by default, and was."""
    home = Home(tmp_path / "home")
    home.write("project/one", event("s1", 1, text="first words"))
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    monkeypatch.setenv(ScriptedAdapter.home_variable, str(home.folder))
    assert run("sweep").exit_code == 0
    return home


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def set_mode(mode: str) -> None:
    Path(os.environ["RECOLLECT_HOME"], "config.toml").write_text(f'[capture]\nfresh = "{mode}"\n')


def test_a_session_that_grew_is_read_before_it_is_searched(home: Home) -> None:
    home.append("project/one", event("s1", 2, text="zebra crossing"))

    assert "zebra crossing" in run("search", "zebra").stdout


def test_a_session_in_a_new_folder_is_found(home: Home) -> None:
    home.write("other/two", event("s2", 1, text="zebra crossing"))

    assert "zebra crossing" in run("search", "zebra").stdout


def test_a_store_that_is_up_to_date_is_not_swept(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.cli.options._sweep", lambda: pytest.fail("there is nothing to read"))

    result = run("search", "first")

    assert (result.exit_code, result.stderr) == (0, "")


def test_much_to_read_is_only_mentioned(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "QUICK_BYTES", 10)
    home.append("project/one", event("s1", 2, text="zebra crossing"))

    result = run("search", "zebra")

    assert "No matches" in result.stdout
    assert "1 file changed since: `recollect sweep`" in result.stderr


def test_warn_mentions_and_off_says_nothing(home: Home) -> None:
    home.append("project/one", event("s1", 2, text="zebra crossing"))

    for mode, notice in (("warn", "1 file changed since"), ("off", "")):
        set_mode(mode)
        result = run("search", "zebra")
        assert "No matches" in result.stdout
        assert notice in result.stderr
        assert bool(notice) == bool(result.stderr)


def test_an_unknown_mode_is_an_error_that_names_it(home: Home) -> None:
    set_mode("always")

    result = run("search", "zebra")

    assert result.exit_code == 1
    assert "capture.fresh = 'always'" in result.stderr


def test_a_sweep_that_cannot_run_does_not_keep_an_answer_back(home: Home) -> None:
    home.append("project/one", event("s1", 2, text="zebra crossing"))

    with open_memory(create=False) as memory, memory.without_sweeps():
        result = run("search", "first")

    assert "first words" in result.stdout
    assert "1 file changed since" in result.stderr


def test_an_interrupted_first_sweep_says_what_is_kept_and_how_to_go_on(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.append("project/one", event("s1", 2, text="zebra crossing"))
    with monkeypatch.context() as patch:
        patch.setattr("recollect.sweep._Sweep.retain", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with open_memory() as memory, pytest.raises(KeyboardInterrupt):
            memory.sweep()

    result = run("search", "zebra")

    assert "zebra crossing" in result.stdout
    assert "The last sweep was interrupted:" in result.stderr
    assert "read and kept; `recollect sweep` continues" in result.stderr
    run("sweep")
    assert run("search", "zebra").stderr == ""


def test_ctrl_c_in_a_first_sweep_is_answered_with_what_is_kept(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.append("project/one", event("s1", 2, text="zebra crossing"))
    shown: list[tuple[str, int]] = []
    with monkeypatch.context() as patch:
        patch.setattr("recollect.ingest.gate.take_in", lambda *_all: (_ for _ in ()).throw(KeyboardInterrupt))
        with open_memory() as memory, pytest.raises(KeyboardInterrupt):
            memory.sweep(lambda stage, done, total: shown.append((stage, done)))
        stopped = run("sweep")

    assert shown == [("reading", 0)]
    assert (stopped.exit_code, "What was read is kept; `recollect sweep` continues" in stopped.stderr) == (1, True)


def test_a_session_of_an_unfinished_sweep_is_shown_by_its_request_and_the_time_of_its_match(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("project/two", event("s2", 1, text="paint a zebra"), event("s2", 2, text="zebra, please"))
    with monkeypatch.context() as patch:
        patch.setattr("recollect.sweep._Sweep.settle", lambda self, **_all: (_ for _ in ()).throw(KeyboardInterrupt))
        with open_memory() as memory, pytest.raises(KeyboardInterrupt):
            memory.sweep()

    head = next(line for line in run("search", "zebra").stdout.splitlines() if "  s2  " in line)

    assert not head.startswith("–")
    assert head.endswith("paint a zebra")


def test_a_first_sweep_that_has_just_begun_is_mentioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "new"))
    with open_memory(), sweep_lock(tmp_path / "new"):
        result = run("search", "zebra")

    assert result.stderr.strip() == "A sweep is running"
    assert "Nothing is indexed yet" in result.stdout
    assert "No sessions yet" in run("status").stdout


def test_status_shows_when_the_last_sweep_was(home: Home) -> None:
    assert "swept    20" in run("status").stdout
