"""The memory measures its own effect: some sessions are told nothing, and the interval covers what is true."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.api import open_memory
from recollect.cli import main
from recollect.hooks.coin import comes_up_silent
from recollect.hooks.proof import compare
from tests.hooks.conftest import Desk

NAMES = [f"{number:08d}-0000-4000-8000-000000000001" for number in range(1000)]
SILENT = next(name for name in NAMES if comes_up_silent(name))
TOLD = next(name for name in NAMES if not comes_up_silent(name))
EARLIER = "5f0c2f6e-0000-4000-8000-000000000009"


def _prove(*words: str) -> dict[str, object]:
    done = CliRunner().invoke(main, ["prove", *words, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_one_in_five_sessions_comes_up_silent() -> None:
    assert 150 < sum(map(comes_up_silent, NAMES)) < 250


def test_a_silent_session_is_told_nothing_only_while_it_is_measured(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(desk.store))
    desk.write(EARLIER, "feed the walrus")
    desk.sweep()

    assert _prove("--start")["is_running"]
    assert desk.hook("SessionStart", source="clear", session=SILENT) == ""
    assert "walrus" in desk.added("SessionStart", source="clear", session=TOLD)
    for session in (SILENT, TOLD):
        desk.write(session, "feed the seal")
    desk.sweep()

    log = json.loads(CliRunner().invoke(main, ["hooks", "log", "--json"]).stdout)
    assert [(item["session"], item["is_silent"], "walrus" in item["text"]) for item in log] == [
        (TOLD, False, True),
        (SILENT, True, True),
    ]
    turns = next(effect for effect in _prove()["effects"] if effect["measure"] == "turns")  # type: ignore[attr-defined]
    assert (turns["spoken_sessions"], turns["silent_sessions"], turns["change"]) == (1, 1, None)
    assert not _prove("--stop")["is_running"]
    assert "seal" in desk.added("SessionStart", source="clear", session=SILENT + "0") or comes_up_silent(SILENT + "0")


def _turns(chance: random.Random, effect: float) -> float:
    """Most sessions are short, a few are very long."""
    return chance.lognormvariate(4, 1) * (1 + effect)


def _repeated_errors(chance: random.Random, effect: float) -> float:
    return float(chance.random() < 0.5 * (1 + effect))


@pytest.mark.parametrize("effect", [0.0, -0.1, -0.3])
@pytest.mark.parametrize("measured", [_turns, _repeated_errors])
def test_the_interval_covers_a_known_effect_in_most_runs(
    measured: Callable[[random.Random, float], float], effect: float
) -> None:
    covered = 0
    for run in range(1000):
        chance = random.Random(f"{run} {effect}")
        sides: tuple[list[float], list[float]] = [], []
        for number in range(100):
            is_silent = comes_up_silent(f"{run}-{number}")
            sides[is_silent].append(measured(chance, 0.0 if is_silent else effect))
        found = compare("fix", measured.__name__.lstrip("_"), *sides)
        assert found.low is not None and found.high is not None
        covered += found.low <= effect <= found.high

    assert covered >= 930


def test_too_few_sessions_have_no_interval() -> None:
    assert compare("fix", "turns", [1, 2, 3], [4]).change is None
    assert compare("fix", "repeated_errors", [0, 0, 0], [1, 0]).change is None


def test_sessions_from_before_the_measurement_are_not_compared(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(desk.store))
    desk.write(EARLIER, "feed the walrus")
    desk.sweep()
    assert "walrus" in desk.added("SessionStart", source="clear", session=TOLD)
    desk.write(TOLD, "feed the seal")
    desk.sweep()

    _prove("--start")

    assert _prove()["effects"] == []


def test_it_is_off_without_a_store_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "none"))

    assert CliRunner().invoke(main, ["prove", "--start"]).exit_code != 0
    assert not (tmp_path / "none").exists()


def test_forgetting_a_session_takes_only_its_words_out_of_the_log(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(desk.store))
    desk.write(EARLIER, "feed the walrus")
    desk.sweep()
    desk.hook("SessionStart", source="clear", session=TOLD)
    desk.hook("SessionStart", source="compact", session=TOLD)
    desk.write(TOLD, "feed the seal")
    desk.sweep()
    desk.hook("SessionStart", source="clear", session=SILENT)
    log = ["hooks", "log", "--json"]

    with open_memory(desk.store) as memory:
        memory.forget(memory.plan_forgetting(EARLIER))
    first = json.loads(CliRunner().invoke(main, log).stdout)
    with open_memory(desk.store) as memory:
        memory.forget(memory.plan_forgetting(TOLD))
    then = json.loads(CliRunner().invoke(main, log).stdout)

    assert [item["session"] for item in first] == [SILENT, TOLD, TOLD]
    assert [item["session"] for item in then] == [SILENT]
    assert b"walrus" not in (desk.store / "told.jsonl").read_bytes()


def test_forgetting_a_session_takes_it_out_of_the_comparison(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(desk.store))
    desk.write(EARLIER, "feed the walrus")
    desk.sweep()
    _prove("--start")
    desk.hook("SessionStart", source="clear", session=SILENT)
    desk.write(SILENT, "feed the seal")
    desk.sweep()
    assert _prove()["effects"]

    with open_memory(desk.store) as memory:
        memory.forget(memory.plan_forgetting(SILENT))

    assert _prove()["effects"] == []
