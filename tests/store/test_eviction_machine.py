"""Anything that can happen to sessions and their files, in any order, and what must hold after every sweep."""

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from recollect import sweep
from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from recollect.analysis import distiller
from recollect.api import Memory
from recollect.lifecycle import evict as budget
from recollect.lifecycle.budget import Limits
from recollect.model import failpoints
from recollect.model.clock import now_ms
from recollect.model.errors import NotFound, RecollectError
from recollect.model.schema import Session, event_uid
from recollect.sessions import account
from recollect.store import RetentionEvent
from tests.builders import AGENT, Home, ScriptedAdapter
from tests.retention.rig import as_copied, grow, limit, opened, talk
from tests.store.digest_damage import damage_digest

IS_SOAK = bool(os.environ.get("RECOLLECT_SOAK"))
EXAMPLES, STEPS = (2100, 50) if IS_SOAK else (12, 50)
DAY_MS = 86_400_000
LIMITS = Limits(raw_soft_cap=1 << 40, raw_hard_cap=1 << 40, raw_max_age_days=5)
EVENTS_OF_A_TURN = 4
FORK_BEGINS = 500  # the first turn that a fork has not copied
CLOCKS = (account, budget, distiller, sweep)
STAYS = (
    *("streams", "usage", "cost_totals", "sources", "infos", "stream_sources", "problems", "evicted_streams"),
    *("kept", "live", "named_values"),
)
CRASHES = ("before-memory-commit", "after-memory-commit", "before-cache-commit", "after-cache-commit")


@dataclass
class Written:
    """What was written of one session, what of it was dropped, and how much of that no digest tells of."""

    turns: int
    files: list[Path]
    base: str | None = None
    copied_turns: int = 0
    gone: set[str] = field(default_factory=set)  # uids of events
    covers: int = 0
    lost: int = 0


class Retention(RuleBasedStateMachine):
    """One store, one home, and a clock that only the test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="retention-"))
        self.home = Home(self.folder / "home")
        self.sessions: dict[str, Written] = {}
        self.days = 0
        self.has_distiller = True
        self.told: Counter[RetentionEvent] = Counter()
        for module in CLOCKS:
            module.now_ms = lambda: now_ms() + self.days * DAY_MS
        adapters()[AGENT] = ScriptedAdapter()
        self.memory = self._open()

    def _open(self) -> Memory:
        return opened(self.folder / "store", self.home, LIMITS)

    def teardown(self) -> None:
        for module in CLOCKS:
            module.now_ms = now_ms
        failpoints.arm("")
        self.memory.close()
        del adapters()[AGENT]
        shutil.rmtree(self.folder)

    # What agents and people do

    @initialize(turns=st.integers(1, 3))
    def first_session(self, turns: int) -> None:
        self.begin(turns, 30)
        self.home.write("keeper", SessionInfo("keeper"))  # a folder without any file would mark nothing as gone

    @rule(turns=st.integers(1, 3), words=st.sampled_from([30, 3000]))
    def begin(self, turns: int, words: int) -> None:
        name = f"s{len(self.sessions):03}"
        path = self.home.write(name, SessionInfo(name, cwd="/proj"), *talk(name, turns, words=words))
        self.sessions[name] = Written(turns, [path])

    def _pick(self, number: int, *, with_file: bool = True) -> str | None:
        names = [name for name, one in self.sessions.items() if one.files or not with_file]
        return names[number % len(names)] if names else None

    @rule(number=st.integers(0, 99), turns=st.integers(1, 2))
    def grow(self, number: int, turns: int) -> None:
        if name := self._pick(number):
            one = self.sessions[name]
            grow(self.home, str(one.files[0].relative_to(self.home.folder).with_suffix("")), one.turns, turns, name)
            one.turns += turns

    @rule(number=st.integers(0, 99))
    def move(self, number: int) -> None:
        if name := self._pick(number):
            files = self.sessions[name].files
            target = files[0].parent / "archived" / files[0].name
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                files[0] = files[0].rename(target)

    @rule(number=st.integers(0, 99))
    def copy(self, number: int) -> None:
        if name := self._pick(number):
            files = self.sessions[name].files
            files.append(Path(shutil.copy(files[0], files[0].with_name(f"{name}-copy{len(files)}.jsonl"))))

    @rule(number=st.integers(0, 99))
    def vanish(self, number: int) -> None:
        if name := self._pick(number):
            self._sweep()  # what was never read cannot be kept
            for path in self.sessions[name].files:
                path.unlink()
            self.sessions[name].files = []

    @rule(number=st.integers(0, 99))
    def reset_the_cursor(self, number: int) -> None:
        """A file that begins otherwise is read again from its start."""
        if name := self._pick(number):
            path = self.sessions[name].files[0]
            content = path.read_bytes()
            self.home.write("x", SessionInfo(name, cwd="/proj", title=f"t{len(content)}"))
            path.write_bytes((self.home.folder / "x.jsonl").read_bytes() + content)
            (self.home.folder / "x.jsonl").unlink()

    @rule(number=st.integers(0, 99))
    def fork(self, number: int) -> None:
        name = self._pick(number)
        if name is None or self.sessions[name].base:
            return
        fork, turns = f"f{len(self.sessions):03}", self.sessions[name].turns
        copied = [as_copied(record, fork) for record in talk(name, turns)]
        path = self.home.write(fork, SessionInfo(fork, base_native_id=name), *copied, *talk(fork, 1, FORK_BEGINS))
        self.sessions[fork] = Written(FORK_BEGINS + 1, [path], name, turns)

    # What the store does

    @rule()
    def sweep(self) -> None:
        self._sweep()

    @rule(percent=st.integers(0, 100))
    def sweep_over_the_soft_cap(self, percent: int) -> None:
        held = self._raw_bytes()
        self._sweep(raw_soft_cap=max(1, held * percent // 100))

    @rule(percent=st.integers(0, 100))
    def sweep_over_the_hard_cap(self, percent: int) -> None:
        cap = max(1, self._raw_bytes() * percent // 100)
        self._sweep(raw_soft_cap=cap, raw_hard_cap=cap)

    @rule()
    def a_day_passes(self) -> None:
        self.days += 1
        self._sweep()

    @rule(days=st.integers(3, 400))
    def the_clock_jumps(self, days: int) -> None:
        before = self._held()
        self.days += days

        report = self._sweep()

        assert report.sessions_evicted == 0
        assert before.keys() <= self._held().keys()

    @rule(days=st.integers(1, 400))
    def the_clock_is_put_back(self, days: int) -> None:
        self.days -= days
        self._sweep()

    @rule(percent=st.integers(0, 100), is_hard=st.booleans())
    def sweep_without_digests(self, percent: int, is_hard: bool) -> None:
        """Whatever keeps digests from being made, what has none goes only over the hard cap."""
        cap = max(1, self._raw_bytes() * percent // 100)
        steps = {name: getattr(distiller, name) for name in ("distil_sessions", "distil_pending")}
        for name in steps:
            setattr(distiller, name, lambda *_, **__: ())
        self.has_distiller = False
        try:
            self._sweep(raw_soft_cap=cap, raw_hard_cap=cap if is_hard else LIMITS.raw_hard_cap)
        finally:
            self.has_distiller = True
            for name, step in steps.items():
                setattr(distiller, name, step)
        self._sweep()

    @rule(number=st.integers(0, 99), percent=st.integers(0, 60))
    def a_digest_rots(self, number: int, percent: int) -> None:
        """What cannot be read back is no digest."""
        self._sweep()
        name = self._pick(number, with_file=False)
        if name is None or self.sessions[name].gone:
            return
        damage_digest(self.memory, name)
        self._sweep_rotten(name, percent)

    def _sweep_rotten(self, name: str, percent: int) -> None:
        cap = max(1, self._raw_bytes() * percent // 100)
        limit(self.memory, raw_soft_cap=cap)
        self.memory.sweep()
        limit(self.memory, raw_soft_cap=LIMITS.raw_soft_cap)
        if name in self._held():
            self.memory._store.digest_rows.set_outdated(AGENT, name)
        self._sweep()

    @rule(number=st.integers(0, 99))
    def rehydrate(self, number: int) -> None:
        self._sweep()
        name = self._pick(number, with_file=False)
        if name is None or not self.sessions[name].gone:
            return
        one = self.sessions[name]
        try:
            self.memory.rehydrate(self.memory.session(name))
        except NotFound:
            assert not one.files
            return
        assert one.files
        one.gone, one.lost = set(), 0
        self._look()
        assert self._held()[name] == self._uids(name)

    @rule(number=st.integers(0, 99))
    def rehydrate_from_nowhere(self, number: int) -> None:
        """A file that lies in no folder that is swept is not read, and nothing else changes."""
        self._sweep()
        name = self._pick(number, with_file=False)
        if name is None or not self.sessions[name].gone:
            return
        before, self.memory.settings = self.memory.settings, self.memory.settings._replace(roots={})
        try:
            self.memory.rehydrate(self.memory.session(name))
            raise AssertionError("it was not there to be read")
        except NotFound:
            self._look()
        finally:
            self.memory.settings = before

    @rule(where=st.sampled_from(CRASHES), nth=st.integers(1, 8), percent=st.integers(0, 60))
    def crash(self, where: str, nth: int, percent: int) -> None:
        """Stopped anywhere in a sweep that drops something; the store is then opened anew."""
        cap = max(1, self._raw_bytes() * percent // 100)
        failpoints.arm(f"{where}:eio:{nth}")
        try:
            limit(self.memory, raw_soft_cap=cap)
            self.memory.sweep()
        except (RecollectError, OSError):
            pass
        finally:
            failpoints.arm("")
            self.memory.close()
            self.memory = self._open()
        self._sweep()

    @rule(where=st.sampled_from(CRASHES), nth=st.integers(1, 3))
    def crash_while_dropping(self, where: str, nth: int) -> None:
        """The same when there is nothing else to do, so that the first commits are those of the eviction."""
        self._sweep()
        self.crash(where, nth, 0)

    @precondition(lambda self: all(one.files for one in self.sessions.values()))
    @rule()
    def lose_the_cache(self) -> None:
        self._sweep()
        self.memory.close()
        for path in (self.folder / "store").glob("cache.db*"):
            path.unlink()
        shutil.rmtree(self.folder / "store" / "packs", ignore_errors=True)
        self.memory = self._open()
        self._sweep()

    # What must hold

    def _sweep(self, **limits: int) -> budget.BudgetReport:
        before = self._rows()
        limit(self.memory, **limits)
        cap = self.memory.settings.limits.raw_hard_cap
        report = self.memory.sweep()
        assert report.failures == []
        limit(self.memory, raw_soft_cap=LIMITS.raw_soft_cap, raw_hard_cap=LIMITS.raw_hard_cap)
        self._look_at_losses(before, report.budget, is_over=cap < LIMITS.raw_hard_cap)
        assert self._raw_bytes() <= cap or not self._held()
        self._look()
        return report.budget

    def _look_at_losses(self, before: dict[str, Session], report: budget.BudgetReport, is_over: bool) -> None:
        """What cannot be had again goes only over the hard cap, and every piece of it is told."""
        told = Counter(self.memory.outlook().lost)
        losses, self.told = told - self.told, told
        new = Counter(loss.event for loss in losses)
        assert (new["last_copy_evicted"], new["data_loss"]) == (report.last_copies_evicted, report.data_loss)
        assert is_over or not new
        assert not self.has_distiller or not new["data_loss"]
        listed = {loss.session_uid for loss in losses}
        last = {name for name, one in self.sessions.items() if not one.files}
        held = self._held()
        assert {f"{AGENT}:{name}" for name in last & before.keys() - held.keys()} <= listed
        if new["last_copy_evicted"] and self.has_distiller:
            self._look_at_last_copies(before, set(held), last)

    def _look_at_last_copies(self, before: dict[str, Session], held: set[str], last: set[str]) -> None:
        """They go when nothing else is left, the longest analysed first, and after others those that have forks."""
        assert held <= last, "a last copy went before what can be read again"
        bases = {one.base for one in self.sessions.values()}
        gone = max(before[name].analyzed_at or "" for name in last & before.keys() - held)
        assert all(gone <= (before[name].analyzed_at or "") for name in held - bases)

    def _raw_bytes(self) -> int:
        """What Tier 1 takes, measured here: packs, and the pages of the cache in use, without what eviction leaves."""
        packs = sum(path.stat().st_size for path in (self.folder / "store" / "packs").rglob("*.pack"))
        cache = self.memory._store.databases[0]
        packs -= cache.value("SELECT coalesce(sum(pack_bytes), 0) FROM frames WHERE bytes = 0")
        pages, free, size = (cache.value(f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size"))
        tables = dict(cache.rows("SELECT name, tbl_name FROM sqlite_schema"))
        stays = [bytes for name, bytes in cache.rows("SELECT name, pgsize FROM dbstat") if tables.get(name) in STAYS]
        return int(packs + (pages - free) * size - sum(stays))

    def _rows(self) -> dict[str, Session]:
        """Sessions of which raw detail is held."""
        held = self._held()
        return {one.native_session_id: one for one in self.memory.sessions() if one.native_session_id in held}

    def _held(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        sql = "SELECT s.native_id, e.event_uid FROM events e JOIN streams s ON s.id = e.stream"
        for name, uid in self.memory._store.databases[0].rows(sql):
            found.setdefault(name, set()).add(uid.hex())
        return found

    def _look(self) -> None:
        held = self._held()
        rows = {session.native_session_id: session for session in self.memory.sessions()}
        for name, one in self.sessions.items():
            here, written = held.get(name, set()), self._uids(name)
            assert here <= written
            assert not here & one.gone, "an evicted event came back"
            dropped = written - here - one.gone
            one.gone |= dropped
            session = rows[name]
            assert session.event_count == len(written)
            assert session.cost.turns == self._own_turns(one)
            assert session.cost.input_tokens == 1000 * self._own_turns(one)
            assert (session.evicted_at is not None) == bool(one.gone)
            self._look_at_digest(name, one, dropped)

    def _look_at_digest(self, name: str, one: Written, dropped: set[str]) -> None:
        """No digest ever covers less; what was dropped stands in it, or was told to be lost."""
        try:
            covers = self.memory.digest(self.memory.session(name)).covers.event_count
        except NotFound:
            covers = 0
        assert covers >= one.covers
        one.covers = covers
        missing = len(one.gone) - one.lost - covers
        if dropped and missing > 0:
            assert f"{AGENT}:{name}" in {
                loss.session_uid for loss in self.memory.outlook().lost if loss.event == "data_loss"
            }, "raw went before its digest, and nobody was told"
            one.lost += missing
        assert covers + one.lost >= len(self._uids(name) if self.has_distiller else one.gone)

    def _uids(self, name: str) -> set[str]:
        """Events of a session, by the names that an agent gave them."""
        one = self.sessions[name]
        begun = FORK_BEGINS if one.base else 0
        own = {f"{name}-{number}" for number in range(begun * EVENTS_OF_A_TURN, one.turns * EVENTS_OF_A_TURN)}
        copied = {f"{one.base}-{number}" for number in range(one.copied_turns * EVENTS_OF_A_TURN)}
        return {event_uid(AGENT, name, native_id).hex() for native_id in own | copied}

    def _own_turns(self, one: Written) -> int:
        return one.turns - FORK_BEGINS if one.base else one.turns


TestRetention = Retention.TestCase
TestRetention.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
