"""What is dropped when, what is told of it, and what is never dropped."""

import dataclasses
import json
import os
import sys
from pathlib import Path

import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.analysis import distiller
from recollect.api import Memory, doctor
from recollect.lifecycle import BudgetReport
from recollect.model.clock import now_ms
from recollect.model.errors import NotFound
from recollect.model.schema import FILES_LANE, OTHER
from tests.builders import AGENT, Home, event
from tests.retention.rig import (
    KILOBYTE,
    bytes_of,
    evict_all,
    grow,
    limit,
    opened,
    quoted_in_digests,
    rare_word,
    raw_names,
    row,
    topic,
    write,
)
from tests.store.digest_damage import damage_digest

DAY_MS = 86_400_000
IS_SOAK = bool(os.environ.get("RECOLLECT_SOAK"))


@pytest.fixture
def memory(tmp_path: Path, home: Home) -> Memory:
    for name in ("aa", "bb"):
        write(home, name)
    memory = opened(tmp_path / "store", home)
    memory.sweep()
    return memory


def keep(memory: Memory, days: float = 0, **limits: int) -> BudgetReport:
    """The last step of a sweep so many days from now."""
    limit(memory, **limits)
    at_ms = now_ms() + round(days * DAY_MS)
    with pytest.MonkeyPatch.context() as later:
        later.setattr("recollect.lifecycle.evict.now_ms", lambda: at_ms)
        return memory.keep_within_budget()


def test_old_sessions_go_by_their_age(memory: Memory) -> None:
    for day in range(1, 5):
        assert keep(memory, day, raw_max_age_days=5).sessions_evicted == 0

    assert keep(memory, 5.5, raw_max_age_days=5).sessions_evicted == 2


def test_nothing_goes_by_its_age_when_the_clock_has_jumped(memory: Memory) -> None:
    for days in (400, 400.1, 401, 402, 403, 439):
        assert keep(memory, days, raw_max_age_days=5).sessions_evicted == 0


def test_a_clock_that_ran_on_for_a_tenth_of_its_jump_is_trusted_again(memory: Memory) -> None:
    evicted = [keep(memory, days, raw_max_age_days=5).sessions_evicted for days in (20, 20.5, 21.9, 22.1)]

    assert evicted == [0, 0, 0, 2]


def test_a_clock_that_was_set_right_is_trusted_at_once(memory: Memory) -> None:
    keep(memory, 4, raw_max_age_days=5)
    keep(memory, 400, raw_max_age_days=5)

    assert keep(memory, 5.5, raw_max_age_days=5).sessions_evicted == 2


def test_with_a_weekly_cadence_a_week_is_no_jump(memory: Memory) -> None:
    memory.settings = memory.settings._replace(limits=dataclasses.replace(memory.settings.limits, cadence="weekly"))

    assert keep(memory, 7, raw_max_age_days=5).sessions_evicted == 2


def test_last_copies_stay_below_the_hard_cap_and_are_listed_when_they_go(memory: Memory, home: Home) -> None:
    (home.folder / "aa.jsonl").unlink()
    memory.sweep()
    limit(memory, raw_soft_cap=1)
    memory.sweep()
    assert raw_names(memory) == {"aa"}
    limit(memory, raw_hard_cap=1)

    report = memory.sweep()

    assert raw_names(memory) == set()
    assert report.budget.last_copies_evicted == 1
    assert memory.status().retention.losses == {"last_copy_evicted": 1}
    (loss,) = memory.outlook().to_json()["lost"]
    assert (loss["event"], loss["session_uid"]) == ("last_copy_evicted", f"{AGENT}:aa")
    told = [finding.message for finding in doctor(memory.settings.folder, [home.flag])]
    assert any("last_copy_evicted" in message for message in told)


def test_the_switch_lets_last_copies_go_without_a_word(memory: Memory, home: Home) -> None:
    (home.folder / "aa.jsonl").unlink()
    memory.sweep()
    memory.settings = memory.settings._replace(limits=dataclasses.replace(memory.settings.limits, evict_last_copy=True))
    evict_all(memory)

    assert raw_names(memory) == set()
    assert memory.status().retention.losses == {}


def test_what_cannot_be_digested_goes_last_and_is_told(memory: Memory, home: Home) -> None:
    side = [event("side", number, OTHER, f"side file {number}", lane=FILES_LANE) for number in range(3)]
    home.write("side", SessionInfo("side"), *side)
    memory.sweep()
    evict_all(memory)
    assert raw_names(memory) == {"side"}
    limit(memory, raw_soft_cap=1, raw_hard_cap=1)

    report = memory.sweep()

    assert raw_names(memory) == set()
    assert report.budget.data_loss == 1
    assert memory.status().retention.losses == {"data_loss": 1}
    limit(memory, raw_soft_cap=1 << 40, raw_hard_cap=1 << 40)
    memory.sweep(verify=True)
    assert raw_names(memory) == set()


def cache_bytes(memory: Memory) -> int:
    return (memory.settings.folder / "cache.db").stat().st_size


def test_a_digest_that_cannot_be_read_back_is_made_anew_before_its_session_goes(memory: Memory) -> None:
    digest = memory.digest(memory.session("aa"))
    damage_digest(memory, "aa")

    report = keep(memory, raw_soft_cap=1)

    assert raw_names(memory) == set()
    assert (report.sessions_evicted, report.warnings) == (2, [])
    assert memory.digest(memory.session("aa")) == digest


def test_a_digest_that_cannot_be_read_back_and_not_be_made_anew_keeps_its_session(memory: Memory, home: Home) -> None:
    evict_all(memory)
    grow(home, "aa", 4)
    memory.sweep()
    damage_digest(memory, "aa")

    report = keep(memory, raw_soft_cap=1, raw_hard_cap=1)

    assert raw_names(memory) == {"aa"}
    assert (report.sessions_evicted, report.data_loss) == (0, 0)
    assert any(f"{AGENT}:aa" in warning for warning in report.warnings)


def test_a_last_copy_stays_if_there_turns_out_to_be_room_without_the_others(memory: Memory, home: Home) -> None:
    home.write("dull", SessionInfo("dull"), *(event("dull", number, text="again " * 4000) for number in range(40)))
    write(home, "rich", 40, words=200)  # as large, but all its words stand in the index
    memory.sweep()
    (home.folder / "dull.jsonl").unlink()
    memory.sweep()
    limit(memory, raw_soft_cap=1)
    room = memory.outlook().bytes_after - 1  # so that by what is estimated the last copy would have to go

    report = keep(memory, raw_soft_cap=1, raw_hard_cap=room)

    assert report.raw_bytes < room
    assert raw_names(memory) == {"dull"}
    assert report.last_copies_evicted == 0


def test_a_digest_does_not_claim_what_was_lost(memory: Memory, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, "lost", turns=2)
    with monkeypatch.context() as patch:
        for step in ("distil_sessions", "distil_pending"):
            patch.setattr(distiller, step, lambda *_, **__: ())
        evict_all(memory, hard=True)
    assert memory.status().retention.losses == {"data_loss": 1}
    assert memory.session("lost").event_count == 8

    grow(home, "lost", 2)
    memory.sweep()

    assert memory.session("lost").event_count == 12
    assert memory.digest(memory.session("lost")).covers.event_count == 4


def test_a_base_stays_while_its_forks_are_held(memory: Memory, home: Home) -> None:
    home.write("fork", SessionInfo("fork", base_native_id="aa"), event("fork", 1, text="and now?"))
    memory.sweep()
    (home.folder / "fork.jsonl").unlink()
    memory.sweep()

    evict_all(memory)

    assert raw_names(memory) == {"aa", "fork"}  # the fork is a last copy


def test_digests_over_their_cap_are_told_and_kept(memory: Memory, tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    script = f"import sys; open({str(seen)!r}, 'w').write(sys.stdin.read())"
    memory.settings = memory.settings._replace(notify=(sys.executable, "-c", script))

    report = keep(memory, distilled_cap=1)

    assert len(report.warnings) == 1
    (told,) = json.loads(seen.read_text())["events"]
    assert told["event"] == "distilled_over_cap"
    assert all(memory.digest(session) for session in memory.sessions())


@pytest.mark.parametrize("command", [("no-such-program-anywhere",), (sys.executable, "-c", "raise SystemExit(3)")])
def test_a_sweep_does_not_fail_for_whom_it_tells(memory: Memory, command: tuple[str, ...]) -> None:
    memory.settings = memory.settings._replace(notify=command)

    assert keep(memory, distilled_cap=1).warnings


def test_a_cap_that_cannot_be_kept_is_told(memory: Memory) -> None:
    assert keep(memory, raw_soft_cap=1, raw_hard_cap=1 << 30).warnings == []

    (warning,) = keep(memory, raw_soft_cap=1, raw_hard_cap=1).warnings

    assert "raw_hard_cap" in warning


def test_a_sweep_with_nothing_to_do_writes_nothing(memory: Memory) -> None:
    memory.sweep()
    before = _written(memory)

    memory.sweep()

    assert _written(memory) == before


def _written(memory: Memory) -> dict[str, int]:
    """When each database was written last: what is in a log when a sweep ends is moved into it."""
    return {path.name: path.stat().st_mtime_ns for path in memory.settings.folder.glob("*.db")}


def test_what_is_measured_is_what_lies_on_the_disk(memory: Memory, home: Home) -> None:
    write(home, "large", words=60_000)
    memory.sweep()
    store = memory.settings.folder
    packs = sum(path.stat().st_size for path in store.rglob("*.pack"))

    measured = memory.outlook().raw_bytes

    assert packs
    assert packs < measured < packs + (store / "cache.db").stat().st_size
    everything = packs + sum((store / name).stat().st_size for name in ("cache.db", "memory.db"))
    # In neither: the first page of each table and index of cache.db that evicting leaves.
    assert measured + memory.outlook().distilled_bytes == pytest.approx(everything, rel=0.03)
    evict_all(memory)
    assert list(store.glob("packs/??/*.pack")) == []


def test_what_stays_of_evicted_sessions_is_no_raw_detail(tmp_path: Path, home: Home) -> None:
    with opened(tmp_path / "many", home) as memory:
        empty = memory.outlook().raw_bytes
        for number in range(100):
            write(home, f"many{number:03}", turns=1, words=5)
        memory.sweep()
        evict_all(memory)

        assert memory.outlook().raw_bytes <= empty + 16 * KILOBYTE
        assert cache_bytes(memory) > empty + 64 * KILOBYTE


def test_a_last_copy_is_not_dropped_to_make_room_for_what_cannot_be(tmp_path: Path, home: Home) -> None:
    """However much is known of sessions that went, a budget that holds the raw detail is kept."""
    with opened(tmp_path / "many", home) as memory:
        for number in range(100):
            write(home, f"many{number:03}", turns=1, words=5)
        memory.sweep()
        evict_all(memory)
        write(home, "last", turns=1, words=5)
        memory.sweep()
        (home.folder / "last.jsonl").unlink()
        memory.sweep()
        cap = memory.outlook().raw_bytes + 8 * KILOBYTE
        assert cap < cache_bytes(memory)

        report = keep(memory, raw_soft_cap=cap, raw_hard_cap=cap)

        assert (report.last_copies_evicted, report.warnings) == (0, [])
        assert raw_names(memory) == {"last"}


def test_rehydrating_brings_everything_back(memory: Memory, home: Home) -> None:
    before, events = memory.session("aa"), memory.events(memory.session("aa"))
    digest, stats = memory.digest(before), memory.stats("agent")
    evict_all(memory)

    memory.rehydrate(memory.session("aa"))

    after = memory.session("aa")
    assert raw_names(memory) == {"aa"}
    assert [one.event_uid for one in memory.events(after)] == [one.event_uid for one in events]
    assert (row(after), after.content_hash, after.evicted_at) == (row(before), before.content_hash, None)
    assert memory.digest(after) == digest
    assert memory.stats("agent") == stats
    memory.sweep(verify=True)
    assert row(memory.session("aa")) == row(before)


def test_what_is_rehydrated_is_not_the_first_to_go_again(memory: Memory, home: Home) -> None:
    evict_all(memory)
    write(home, "cc")
    memory.sweep()
    memory.rehydrate(memory.session("aa"))

    outlook = keep(memory, raw_soft_cap=memory.outlook().raw_bytes - 1)

    assert outlook.sessions_evicted == 1
    assert raw_names(memory) == {"aa"}


def test_a_session_whose_file_is_gone_is_not_rehydrated(memory: Memory, home: Home) -> None:
    evict_all(memory)
    (home.folder / "aa.jsonl").unlink()
    with pytest.raises(NotFound, match="gone"):
        memory.rehydrate(memory.session("aa"))
    with pytest.raises(NotFound, match="Not evicted"):
        grow(home, "bb", 4)
        memory.rehydrate(memory.session("bb"))
        memory.rehydrate(memory.session("bb"))


def test_no_byte_of_many_rare_words_is_left(tmp_path: Path, home: Home) -> None:
    sessions, turns = (50, 20) if IS_SOAK else (10, 10)
    names = [f"many{number}" for number in range(sessions)]
    for name in names:
        write(home, name, turns, words=60)
    store = tmp_path / "many"
    with opened(store, home) as memory:
        memory.sweep()
        words = [rare_word(name, turn) for name in names for turn in range(turns)]
        digests = quoted_in_digests(memory, names)
        words = [word for word in words if word.encode() not in digests]
        assert len(words) >= sessions * turns // 2
        write(home, "stays", 2)
        evict_all(memory)
        write(home, "later", 2)
        memory.sweep()
        assert raw_names(memory) == {"later"} | (raw_names(memory) & {"stays"})
        assert all(memory.search(topic(name))[0].evicted for name in names)
    content = bytes_of(store)

    assert [word for word in words if word[1:].encode() in content] == []
