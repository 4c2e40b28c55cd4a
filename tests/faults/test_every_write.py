"""Struck at every single write: killed there, or told that the disk is broken or full."""

from pathlib import Path

import pytest

from tests.faults.crashes import EIO, ENOSPC, KILL, LONG_AND_SHORT, Case, strike_calls
from tests.faults.rig import IS_SOAK, needs_strace, sweep
from tests.faults.work import Writers

POINTS = 1_000_000 if IS_SOAK else 6


def first_sweep(folder: Path, bug: str | None = None) -> Case:
    """All sessions are new; there is no store yet."""
    writers = Writers(folder / "home", seed=3)
    writers.write(LONG_AND_SHORT)
    writers.finish()
    return Case("first sweep", ["sweep", *writers.root_flags], writers, bug=bug)


def second_sweep(folder: Path, bug: str | None = None) -> Case:
    """Sessions have grown, some of them where a line was torn."""
    writers = Writers(folder / "home", seed=4, big_share=0.1)
    writers.write([30] * 6)
    sweep(folder / "template", *writers.roots)
    writers.write([5] * 6)
    writers.finish()
    return Case("second sweep", ["sweep", *writers.root_flags], writers, folder / "template", bug)


CASES = (first_sweep, second_sweep)


@needs_strace
@pytest.mark.parametrize("fault", [KILL, EIO, ENOSPC])
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_command_struck_at_any_write_is_made_good_by_the_next_sweep(tmp_path: Path, make, fault: str) -> None:
    case = make(tmp_path)
    clean = sweep(tmp_path / "clean", *case.writers.roots)

    struck = strike_calls(tmp_path, case, fault, POINTS, clean)

    print(f"{case.name}, {fault}: struck {struck.faults} times")
    assert struck.findings == []
    assert struck.faults > 0
