"""What a sweep costs: as much as what changed, however much is held. Work is counted, not time."""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.analysis import distiller
from recollect.api import open_memory
from recollect.model.kinds import ASSISTANT_MSG, USER_MSG
from recollect.sessions import AccountRules, account, parts
from recollect.store import KeptState, Store, StoredSession, open_store
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep, usage
from tests.logs import CLAUDE, claude_answer, lines, session_id
from tests.store.rows import batch_of, put


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


def _talk(session: str, first: int, last: int) -> list[Any]:
    kinds = (USER_MSG, ASSISTANT_MSG)
    events = [event(session, number, kinds[number % 2], f"thing {number}") for number in range(first, last)]
    return [*events, usage(session, f"{session}-{last}", input_tokens=10)]


def _fill(home: Home, families: int) -> None:
    """Families of a session, a fork that copied from it, and a sub-agent; all in one repository."""
    for number in range(families):
        base, fork, sub = (f"{name}-{number}" for name in ("base", "fork", "sub"))
        copies = [event(fork, place, USER_MSG, f"thing {place}", copy_key=f"{base}-{place}") for place in range(1, 4)]
        originals = [
            event(base, place, USER_MSG, f"thing {place}", copy_key=f"{base}-{place}") for place in range(1, 4)
        ]
        home.write(base, SessionInfo(base, cwd="/code/shop"), *originals, *_talk(base, 4, 20))
        home.write(fork, SessionInfo(fork, base_native_id=base, cwd="/code/shop"), *copies, *_talk(fork, 4, 20))
        home.write(sub, SessionInfo(sub, parent_native_id=base, cwd="/code/shop"), *_talk(sub, 1, 10))


class _Work:
    """The steps that SQLite's machine took, by statement; those of its index of words aside."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: Counter[str] = Counter()
        make_rows = account.settle_sessions

        def traced(store: Store, *arguments: Any, **options: Any) -> int:
            for database in store.databases:
                database.connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._count)
            try:
                return make_rows(store, *arguments, **options)
            finally:
                for database in store.databases:
                    database.connection.trace_v2(0)

        monkeypatch.setattr(account, "settle_sessions", traced)

    def _count(self, seen: dict[str, Any]) -> None:
        if "'main'" not in seen["sql"]:
            self.steps[seen["sql"]] += seen["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


def _steps_of_growing(folder: Path, families: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    home = Home(folder / "home")
    _fill(home, families)
    with sweep(folder / "store", home) as memory, monkeypatch.context() as patch:
        work = _Work(patch)
        home.append("base-0", *_talk("base-0", 20, 24))

        memory.sweep()

        assert memory.session("base-0").event_count == 23
        return work.steps


def test_a_session_that_grew_costs_the_same_in_a_large_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = _steps_of_growing(tmp_path / "small", 3, monkeypatch)
    large = _steps_of_growing(tmp_path / "large", 60, monkeypatch)

    assert small
    more = {sql: count - small[sql] for sql, count in large.items() if count > small[sql] * 1.2 + 50}
    assert not more


def test_a_sweep_that_finds_nothing_makes_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    _fill(home, 2)
    with sweep(tmp_path / "store", home) as memory:
        work = _Work(monkeypatch)

        memory.sweep()

        assert not work.steps


def test_sub_agents_of_a_session_that_grew_are_not_accounted_for_again(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    _fill(home, 1)
    with sweep(tmp_path / "store", home) as memory:
        before = memory.session("sub-0")
        home.append("base-0", *_talk("base-0", 20, 24))

        memory.sweep()

        assert memory.session("sub-0") == before


def test_a_session_is_accounted_for_again_when_its_sub_agent_grew(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    _fill(home, 1)
    with sweep(tmp_path / "store", home) as memory:
        before = memory.session("base-0")
        home.append("sub-0", *_talk("sub-0", 10, 12))

        memory.sweep()

        assert memory.session("base-0").ingested_at > before.ingested_at


def _sweep_and_die(store: Path, home: Home) -> None:
    """Sweep, and be killed once so many parts of sessions were distilled."""
    distilled = Counter[str]()
    make_part = distiller.make_part

    def counted(*arguments: Any) -> Any:
        distilled["parts"] += 1
        if distilled["parts"] > 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return make_part(*arguments)

    distiller.make_part = counted
    sweep(store, home).close()


def test_a_sweep_that_is_always_killed_gets_past_a_very_long_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_EVENTS", 10)
    monkeypatch.setattr(parts, "PIECE_EVENTS", 100)
    monkeypatch.setattr(account, "_EVENTS_AT_ONCE", 100)
    home = Home(tmp_path / "home")
    _fill(home, 6)
    home.write("long", SessionInfo("long", cwd="/code/notes"), *_talk("long", 1, 800))
    forked = get_context("fork")
    codes: list[int | None] = []

    while 0 not in codes and len(codes) < 20:
        run = forked.Process(target=_sweep_and_die, args=(tmp_path / "store", home))
        run.start()
        run.join()
        codes.append(run.exitcode)

    assert codes[:3] == [-signal.SIGKILL] * 3
    assert codes[-1] == 0
    with open_memory(tmp_path / "store", [home.flag]) as stopped, sweep(tmp_path / "other", home) as undisturbed:
        for session in undisturbed.sessions():
            found = stopped.session(session.session_uid)
            assert found.content_hash == session.content_hash
            assert (found.repo, found.cost) == (session.repo, session.cost)
            if session.parent_session_uid is None:
                assert stopped.digest(found) == undisturbed.digest(session)


def test_a_session_is_settled_at_once_unless_it_is_longer_than_a_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_EVENTS", 10)
    monkeypatch.setattr(parts, "PIECE_EVENTS", 100)
    monkeypatch.setattr(account, "_EVENTS_AT_ONCE", 100)
    settled = Counter[str]()

    def count(sessions: Sequence[StoredSession]) -> Sequence[KeptState]:
        settled.update(session.key.native_id for session in sessions)
        return ()

    with open_store(tmp_path, create=True) as store:
        for name, last in (("long", 90), ("longer", 250)):
            put(store, batch_of(_talk(name, 1, last)))
        account.settle_sessions(store, AccountRules(), {}, lambda stage, done, total: None, count)

    assert settled["long"] == 1 < settled["longer"]


def test_the_newest_files_are_read_first_and_the_progress_says_how_far_back(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    days = {"old": 1_700_000_000, "new": 1_760_000_000, "middle": 1_730_000_000}
    for name, moment in days.items():
        os.utime(home.write(name, event(name, 1)), (moment, moment))
    stages: list[str] = []

    with open_memory(tmp_path / "store", [home.flag]) as memory:
        memory.sweep(lambda stage, done, total: stages.append(stage))

    with open_store(tmp_path / "store") as store:
        arrived = store.streams.names()
    assert [key.native_id for key in sorted(arrived, key=lambda key: arrived[key])] == ["new", "middle", "old"]
    assert "reading, back to 2023-11-14" in stages


def test_what_was_read_can_be_found_before_all_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.sweep.SETTLE_SECONDS", -1)
    monkeypatch.setattr("recollect.ingest.pool.BATCH_EVENTS", 1)
    home = Home(tmp_path / "home")
    for name in ("one", "two", "three"):
        home.write(name, event(name, 1))
    seen: set[int] = set()

    with open_memory(tmp_path / "store", [home.flag]) as memory:
        memory.sweep(lambda stage, done, total: seen.add(len(memory.sessions())))

        assert len(memory.sessions()) == 3
    assert {1, 2} <= seen


def test_a_sweep_that_is_stopped_soon_has_stored_the_beginning_of_a_large_file(tmp_path: Path) -> None:
    large = session_id(5)
    records = [claude_answer(large, number, f"answer {number}") for number in range(1, 9_001)]
    CLAUDE.write(tmp_path / "home", lines(records), large)
    stored = []

    def stop(stage: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    for _ in range(3):
        opened = open_memory(tmp_path / "store", [CLAUDE.root_flag(tmp_path / "home")])
        with opened as memory, pytest.raises(KeyboardInterrupt):
            memory.sweep(stop)
        with open_store(tmp_path / "store") as store:
            stored.append(sum(store.raw.event_counts().values()))

    assert stored == [1000, 2000, 3000]
