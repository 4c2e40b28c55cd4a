"""Struck at every single write: killed there, or told that the disk is broken or full."""

from pathlib import Path

import pytest

from recollect.model.failpoints import NAMES
from tests.faults.cases import CASES, forgetting, repacking, rescanning
from tests.faults.crashes import (
    EIO,
    ENOSPC,
    KILL,
    SWEEPS,
    MakeCase,
    second_sweep,
    strike_calls,
    strike_failpoints,
)
from tests.faults.outside import OUTSIDE
from tests.faults.rig import IS_LONG, IS_SOAK, needs_strace, sweep

ALL = 1_000_000
TIMES = ALL if IS_LONG else 8 if IS_SOAK else 2
EDGES = ALL if IS_LONG else 2  # how often at each failpoint, with each fault
MOST = {} if IS_SOAK else {forgetting: 3, rescanning: 3, repacking: 3}
FAULTS = (KILL, EIO, ENOSPC)


def _named(value: object) -> str:
    return getattr(value, "__name__", str(value))


@needs_strace
@pytest.mark.parametrize("make", (*SWEEPS, *CASES), ids=_named)
def test_a_command_struck_at_any_write_is_made_good_by_the_next_sweep(tmp_path: Path, make: MakeCase) -> None:
    case = make(tmp_path, None)
    clean = sweep(tmp_path / "clean", *case.writers.roots)

    faults = FAULTS if IS_SOAK or make in SWEEPS else [KILL]
    struck = strike_calls(tmp_path, case, faults, MOST.get(make, TIMES), clean)

    print(f"{case.name}: struck {struck.faults} times")
    assert struck.findings == []
    assert struck.faults > 0


@needs_strace
def test_a_sweep_tells_of_every_file_beside_the_databases_that_cannot_be_written(tmp_path: Path) -> None:
    """They are few, and each is written by other code than the databases."""
    case = second_sweep(tmp_path, None)
    clean = sweep(tmp_path / "clean", *case.writers.roots)

    struck = strike_calls(tmp_path, case, [EIO], ALL, clean, ("rename", "fsync", "write"))

    assert struck.findings == []
    assert struck.faults > 0


WITHOUT_COMMITS = {"rebuilding", "track", "exclude", "config", *map(_named, OUTSIDE)}  # they write files, no database
WITH_COMMITS = [make for make in (*SWEEPS, *CASES) if _named(make) not in WITHOUT_COMMITS]


@pytest.mark.parametrize("make", WITH_COMMITS if IS_SOAK else SWEEPS, ids=_named)
def test_a_command_struck_at_any_failpoint_is_made_good_by_the_next(tmp_path: Path, make: MakeCase) -> None:
    case = make(tmp_path, None)
    clean = sweep(tmp_path / "clean", *case.writers.roots)

    names, actions = (NAMES, ("kill", "eio", "enospc")) if IS_SOAK else (["before-memory-commit"], ("kill",))
    struck = strike_failpoints(tmp_path, case, EDGES, clean, names, actions)

    print(f"{case.name}: struck at {struck.faults} failpoints")
    assert struck.findings == []
    assert struck.faults > 0
