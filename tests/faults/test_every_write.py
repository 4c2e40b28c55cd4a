"""Struck at every single write: killed there, or told that the disk is broken or full."""

from pathlib import Path

import pytest

from recollect.failpoints import NAMES
from tests.faults.crashes import CASES, EIO, ENOSPC, KILL, MakeCase, strike_calls, strike_failpoints
from tests.faults.rig import IS_SOAK, needs_strace, sweep

POINTS, TIMES = (1_000_000, 1_000_000) if IS_SOAK else (3, 2)


@needs_strace
@pytest.mark.parametrize("fault", [KILL, EIO, ENOSPC])
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_command_struck_at_any_write_is_made_good_by_the_next_sweep(
    tmp_path: Path, make: MakeCase, fault: str
) -> None:
    case = make(tmp_path, None)
    clean = sweep(tmp_path / "clean", *case.writers.roots)

    struck = strike_calls(tmp_path, case, fault, POINTS, clean)

    print(f"{case.name}, {fault}: struck {struck.faults} times")
    assert struck.findings == []
    assert struck.faults > 0


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_a_command_killed_at_any_failpoint_is_made_good_by_the_next(tmp_path: Path, make: MakeCase) -> None:
    case = make(tmp_path, None)
    clean = sweep(tmp_path / "clean", *case.writers.roots)

    struck = strike_failpoints(tmp_path, case, TIMES, clean, NAMES if IS_SOAK else ["before-memory-commit"])

    print(f"{case.name}: killed at {struck.faults} failpoints")
    assert struck.findings == []
    assert struck.faults > 0
