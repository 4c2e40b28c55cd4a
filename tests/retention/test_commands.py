"""The commands of the budget, and what the others say of an evicted session."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from recollect.cli import main
from recollect.web import session
from recollect.web.pages import Params
from tests.builders import AGENT, Home
from tests.retention.rig import evict_all, grow, opened, raw_names, row, topic, write


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def told(*words: str) -> Any:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def store(tmp_path: Path, home: Home) -> Path:
    for name in ("session-aa", "session-bb"):
        write(home, name)
    with opened(tmp_path / "store", home) as memory:
        memory.sweep()
    return tmp_path / "store"


@pytest.fixture
def evicted(store: Path, home: Home) -> Path:
    with opened(store, home) as memory:
        evict_all(memory)
    return store


def test_retention_says_what_would_go_and_changes_nothing(store: Path, home: Home) -> None:
    (store / "config.toml").write_text("[retention]\nraw_soft_cap = 1")

    shown = run("retention", "--dry-run").output
    listed = told("retention", "--dry-run")["evictions"]

    assert "2 sessions would be evicted" in shown
    assert f"{AGENT}:session-aa" in shown
    assert re.search(r"soft cap +scripted:session-aa", shown)
    assert {one["session_uid"] for one in listed} == {f"{AGENT}:session-aa", f"{AGENT}:session-bb"}
    with opened(store, home) as memory:
        assert len(raw_names(memory)) == 2


def test_retention_drops_what_does_not_fit(store: Path, home: Home) -> None:
    assert "Nothing to evict" in run("retention").output
    (store / "config.toml").write_text("[retention]\nraw_soft_cap = 1")

    report = told("retention")

    assert report["sessions_evicted"] == 2
    with opened(store, home) as memory:
        assert raw_names(memory) == set()


def test_show_and_exchanges_of_an_evicted_session_tell_its_digest(evicted: Path) -> None:
    for options in ((), ("--exchanges",)):
        shown = run("show", *options, "session-aa")
        assert shown.exit_code == 0, shown.output
        assert "was evicted to stay within the budget" in shown.output
        assert topic("session-aa") in shown.output
    assert told("show", "session-aa")["digest"]["request_count"] == 4
    assert told("show", "--exchanges", "session-aa") == []


def test_a_place_in_an_evicted_session_shows_its_digest(evicted: Path, home: Home) -> None:
    cited = told("digest", "session-aa")["requests"][0]["event_uid"]

    shown = run("show", "session-aa", "--at", cited[-10:])
    with opened(evicted, home) as memory:
        page = session.session(memory, Params({"uid": f"{AGENT}:session-aa"}, {"at": cited[-12:]}))

    assert shown.exit_code == 0, shown.output
    assert "was evicted to stay within the budget" in shown.output
    assert topic("session-aa") in shown.output
    assert (page["at"], page["exchanges"]) == ("", [])
    assert page["digest"].request_count == 4


def test_exchanges_after_an_eviction_are_numbered_on(evicted: Path, home: Home) -> None:
    grow(home, "session-aa", 4, turns=2)
    run("sweep", "--root", home.flag)

    assert [exchange["number"] for exchange in told("show", "--exchanges", "session-aa")] == [5, 6]


def test_a_search_finds_an_evicted_session_by_its_digest(evicted: Path) -> None:
    (hit,) = told("search", topic("session-aa"))["hits"]

    assert (hit["session_uid"], hit["evicted"]) == (f"{AGENT}:session-aa", True)
    assert topic("session-aa") in hit["matches"][0]["snippet"]
    assert "[digest only]" in run("search", topic("session-aa")).output


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("agent:nobody", 0),
        (f"agent:{AGENT}", 1),
        ("kind:error", 0),
        ("before:2001-01-01", 0),
        ("-fine", 0),
        ("session:session-bb", 0),
        ("session:session-aa", 1),
    ],
)
def test_filters_hold_for_digests_too(evicted: Path, query: str, count: int) -> None:
    assert len(told("search", f"{topic('session-aa')} {query}")["hits"]) == count


def test_a_session_that_is_left_out_is_not_found_by_its_digest(evicted: Path) -> None:
    assert told("search", topic("session-aa"), "--exclude", "session-aa")["hits"] == []


def test_status_tells_how_the_budget_stands(evicted: Path) -> None:
    found = told("status")["retention"]

    assert found["sessions_evicted"] == 2
    assert found["losses"] == {}
    assert "2 sessions kept as digests only" in run("status").output


def test_status_says_that_digests_have_outgrown_their_cap(evicted: Path) -> None:
    assert "distilled_cap" not in run("status").output
    (evicted / "config.toml").write_text("[retention]\ndistilled_cap = 1")

    assert "over retention.distilled_cap" in run("status").output


def test_a_sweep_says_what_it_dropped(store: Path, home: Home) -> None:
    (store / "config.toml").write_text("[retention]\nraw_soft_cap = 1")

    shown = run("sweep", "--root", home.flag)

    assert "Evicted the raw detail of 2 sessions" in shown.output


def test_rehydrate_reads_the_session_again(evicted: Path, home: Home) -> None:
    found = told("retention", "rehydrate", "session-aa", "--root", home.flag)

    assert found == {"session_uid": f"{AGENT}:session-aa", "events": 16}


def test_rehydrate_says_in_one_line_that_the_file_is_gone(evicted: Path, home: Home) -> None:
    (home.folder / "session-aa.jsonl").unlink()

    result = run("retention", "rehydrate", "session-aa", "--root", home.flag)

    assert result.exit_code == 4
    assert "The agent has deleted its file" in result.output


def test_a_session_that_could_not_be_rehydrated_is_evicted_and_found_as_before(evicted: Path, tmp_path: Path) -> None:
    found, shown, counted = told("search", topic("session-aa")), told("show", "session-aa"), told("stats")["lines"]
    elsewhere = Home(tmp_path / "elsewhere")
    elsewhere.write("other")

    result = run("retention", "rehydrate", "session-aa", "--root", elsewhere.flag)

    assert result.exit_code == 4
    assert "The sweep did not read this file" in result.output
    assert told("search", topic("session-aa"))["hits"] == found["hits"]
    assert (told("show", "session-aa"), told("stats")["lines"]) == (shown, counted)


def test_what_could_not_be_rehydrated_can_be_later(evicted: Path, home: Home, tmp_path: Path) -> None:
    elsewhere = Home(tmp_path / "elsewhere")
    assert run("retention", "rehydrate", "session-aa", "--root", elsewhere.flag).exit_code == 4

    assert told("retention", "rehydrate", "session-aa", "--root", home.flag)["events"] == 16


def _interrupt(*given: object) -> None:
    raise KeyboardInterrupt


def test_a_session_is_evicted_until_its_events_are_there(
    evicted: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after the file was read."""
    with opened(evicted, home) as memory:
        before = memory.session("session-aa")
        digest, stats = memory.digest(before), memory.stats("agent")
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("recollect.store.EvictionTable.lift_awaited", _interrupt)
            memory.rehydrate(before)

    with opened(evicted, home) as memory:
        memory.sweep()
        assert row(memory.session("session-aa")) == row(before)
        assert (memory.digest(before), memory.stats("agent")) == (digest, stats)
        memory.rehydrate(memory.session("session-aa"))
        assert row(memory.session("session-aa")) == row(before)
        assert (memory.digest(before), memory.stats("agent")) == (digest, stats)
        assert len(memory.events(before)) == 16


def test_what_went_for_good_is_listed(store: Path, home: Home) -> None:
    (home.folder / "session-aa.jsonl").unlink()
    (store / "config.toml").write_text("[retention]\nraw_soft_cap = 1\nraw_hard_cap = 1")
    run("sweep", "--root", home.flag)

    shown = run("retention", "--dry-run").output

    assert re.search(r"20..-..-.. .* last_copy_evicted +scripted:session-aa$", shown, re.MULTILINE)


def test_a_schedule_goes_also_after_the_cadence_was_changed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{_crontab(store)}:/usr/bin:/bin")
    (store / "config.toml").write_text('[retention]\ncadence = "on-hook"')
    assert run("schedule", "--dry-run").exit_code == 2

    assert run("schedule", "--remove").output == "No schedule is installed\n"


def _crontab(folder: Path) -> Path:
    """A folder with a crontab that is empty."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "crontab").write_text("#!/bin/sh\nexit 0\n")
    (programs / "crontab").chmod(0o700)
    return programs


def test_a_schedule_is_shown_before_it_is_asked_for(store: Path) -> None:
    shown = run("schedule", "--dry-run")
    assert shown.exit_code == 0
    assert "sweep" in shown.output
    assert told("schedule", "--dry-run")["is_done"] is False

    asked = run("schedule")
    assert asked.exit_code == 1
    assert "--yes" in asked.output
