"""A power cut at any instant: what was acknowledged is there, the rest is read again, nothing is damaged."""

import random
from pathlib import Path

import pytest

from tests.faults.power_loss import cut_power, record
from tests.faults.rig import IS_SOAK

SEEDS, DISKS = (20, 500) if IS_SOAK else (1, 40)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_power_cut_loses_nothing_that_was_acknowledged_or_can_be_read_again(tmp_path: Path, seed: int) -> None:
    recording = record(tmp_path, seed)

    struck = cut_power(recording, random.Random(seed), DISKS)

    print(f"{struck.faults} disks of {len(recording.tape.acts)} acts")
    assert struck.findings == []
    assert struck.faults == DISKS
