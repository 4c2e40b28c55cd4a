"""The state machine finds what it is for: with a bug built in it does not pass."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from recollect.analysis import distiller
from recollect.lifecycle import evict as budget
from recollect.model.errors import RecollectError
from recollect.store import DigestRows
from recollect.store.tables import evictions
from recollect.store.tables.digests import Digests
from recollect.store.tables.evictions import Evicted, EvictionTable
from recollect.store.tables.raw import Sizes
from tests.store.test_eviction_machine import IS_SOAK, Retention

# The seed is fixed, for a test that fails now and then tells nothing.
SEARCH = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _read_without_a_look(digests: DigestRows, agent: str, native_id: str) -> dict[str, Any] | None:
    find, Digests.find = Digests.find, lambda self, key: None
    try:
        return _read_back(digests, agent, native_id)
    finally:
        Digests.find = find


_read_back = DigestRows.read_back


class Bug(NamedTuple):
    """Where it is put, what it is, and steps of the machine that find it."""

    owner: Any
    name: str
    broken: Callable[..., Any]
    steps: Callable[[Retention], object]


BUGS = {
    "raw goes though its digest cannot be read back": Bug(
        DigestRows, "read_back", _read_without_a_look, lambda machine: machine.a_digest_rots(number=0, percent=0)
    ),
    "what was evicted is read again": Bug(
        Evicted,
        "without",
        lambda self, batch: batch,
        lambda machine: (
            machine.sweep_over_the_soft_cap(percent=0),
            machine.reset_the_cursor(number=0),
            machine.sweep(),
        ),
    ),
    "a digest is replaced by that of the newest events": Bug(
        distiller,
        "extend",
        lambda old, new: new,
        lambda machine: (
            machine.sweep_over_the_soft_cap(percent=0),
            machine.vanish(number=0),
            machine.begin(turns=1, words=30),
            machine.sweep_over_the_soft_cap(percent=0),
            machine.grow(number=0, turns=1),
            machine.sweep(),
        ),
    ),
    "last copies go like others": Bug(
        Sizes,
        "_with_sources",
        lambda self, host: {number for (number,) in self._cache.rows("SELECT id FROM streams")},
        lambda machine: (machine.vanish(number=0), machine.sweep_over_the_soft_cap(percent=0)),
    ),
    "a loss is not told": Bug(
        evictions,
        "note_loss",
        lambda *_: None,
        lambda machine: (machine.vanish(number=0), machine.sweep_over_the_hard_cap(percent=0)),
    ),
    "what has no digest counts as analysed": Bug(
        Sizes,
        "_rows",
        lambda self: {
            (agent, name): [(uid, ended_ms, ingested_ms, 1)]
            for agent, name, uid, ended_ms, ingested_ms in self._memory.rows(
                "SELECT agent, native_session_id, session_uid, ended_ms, ingested_ms FROM sessions"
            )
        },
        lambda machine: (
            machine.begin(turns=1, words=30),
            machine.sweep_without_digests(percent=0, is_hard=True),
        ),
    ),
    "nobody looks at the clock": Bug(
        budget,
        "trusted_from_ms",
        lambda clock, now_ms, limits: 0,
        lambda machine: (machine.sweep(), machine.the_clock_jumps(days=100)),
    ),
    "an eviction that was stopped is forgotten": Bug(
        EvictionTable,
        "unfinished",
        lambda self: set(),
        lambda machine: machine.crash_while_dropping(where="after-memory-commit", nth=1),
    ),
    "the budget is not measured": Bug(
        Sizes,
        "raw_bytes",
        lambda self, enough=0: 1,
        lambda machine: (machine.sweep(), machine.sweep_over_the_hard_cap(percent=0)),
    ),
}


def _play(bug: str) -> None:
    machine = Retention()
    try:
        machine.first_session(turns=2)
        machine.sweep()
        BUGS[bug].steps(machine)
    finally:
        machine.teardown()


@pytest.mark.parametrize("bug", BUGS)
def test_the_steps_pass_without_the_bug(bug: str) -> None:
    _play(bug)


@pytest.mark.parametrize("bug", BUGS)
def test_the_steps_find(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BUGS[bug].owner, BUGS[bug].name, BUGS[bug].broken)

    with pytest.raises((AssertionError, RecollectError)):
        _play(bug)


if IS_SOAK:  # takes minutes; the steps find the same

    @pytest.mark.parametrize("bug", BUGS)
    def test_the_machine_finds(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(BUGS[bug].owner, BUGS[bug].name, BUGS[bug].broken)

        with pytest.raises((AssertionError, RecollectError)):
            run_state_machine_as_test(Retention, settings=SEARCH)
