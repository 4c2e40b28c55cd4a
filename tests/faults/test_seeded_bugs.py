"""The rigs find what they are for: programs with a bug built in do not pass them."""

import random
from pathlib import Path

import pytest

from tests.faults.crashes import (
    KILL,
    kill_at_random,
    second_sweep,
    strike_calls,
    strike_failpoints,
)
from tests.faults.rig import Struck, needs_strace
from tests.store.broken import BUGS
from tests.store.power_loss import cut_power, cut_power_once_acknowledged, record

AT_FAILPOINTS = {
    "cursor_before_rows": ("after-cache-commit", "lost"),
    "cursor_after_rows_without_key": ("after-cache-commit", "doubled"),
    "torn_tail_of_a_pack_kept": ("after-packs-durable", "damaged"),
}
AT_RANDOM = ("torn_last_line_taken",)
BY_POWER_LOSS = {
    "payloads_not_synced": "Pack is",
    "names_of_folders_not_synced": "Pack is missing",
}
ONCE_ACKNOWLEDGED = "lasting_rows_not_synced"


def _assert_found(struck: Struck, word: str) -> None:
    assert struck.faults > 0
    assert [finding for finding in struck.findings if word in finding], struck.findings


def test_every_seeded_bug_is_looked_for() -> None:
    assert {*AT_FAILPOINTS, *AT_RANDOM, *BY_POWER_LOSS, ONCE_ACKNOWLEDGED} == set(BUGS)


@pytest.mark.parametrize("bug", AT_FAILPOINTS)
def test_a_kill_at_a_failpoint_finds(tmp_path: Path, bug: str) -> None:
    name, word = AT_FAILPOINTS[bug]

    struck = strike_failpoints(tmp_path, second_sweep(tmp_path, bug), most=2, names=[name])

    _assert_found(struck, word)


@needs_strace
def test_a_kill_at_some_write_finds_a_cursor_that_is_committed_first(tmp_path: Path) -> None:
    struck = strike_calls(tmp_path, second_sweep(tmp_path, "cursor_before_rows"), [KILL], most=4, calls=["write"])

    _assert_found(struck, "lost")


@pytest.mark.parametrize("bug", AT_RANDOM)
def test_a_kill_at_a_random_instant_finds(tmp_path: Path, bug: str) -> None:
    struck = kill_at_random(tmp_path, seed=1, kills=3, bug=bug)

    assert [finding for finding in struck.findings if "lost" in finding or "wrong" in finding]


@pytest.mark.parametrize("bug", BY_POWER_LOSS)
def test_a_power_cut_finds(tmp_path: Path, bug: str) -> None:
    recording = record(tmp_path, 1, bug)

    # Which acts lie between a commit and the next sync is a matter of timing: a few disks may all miss them.
    struck = Struck(0, [])
    for seed in range(1, 9):
        struck = cut_power(recording, random.Random(seed), 25)
        if any(BY_POWER_LOSS[bug] in finding for finding in struck.findings):
            break

    _assert_found(struck, BY_POWER_LOSS[bug])


def test_a_power_cut_right_after_an_acknowledgement_finds_what_was_not_synced(
    tmp_path: Path,
) -> None:
    recording = record(tmp_path, 1, ONCE_ACKNOWLEDGED)

    struck = cut_power_once_acknowledged(recording, random.Random(1))

    # A digest whose session is missing, too, is not told apart: what was acknowledged is missing.
    _assert_found(struck, "acknowledged and missing: claude:")
