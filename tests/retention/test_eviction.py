"""What stays of a session whose raw detail went, what comes back, and what never does."""

import os
import shutil
from pathlib import Path

import pytest

from recollect.agentkit.protocol import EventRecord, SessionInfo
from recollect.analysis import distiller
from recollect.api import repair
from recollect.model.schema import HISTORY_LANE
from tests.builders import AGENT, Home, at_ms, event, usage
from tests.retention.rig import (
    as_copied,
    bytes_of,
    evict_all,
    grow,
    limit,
    opened,
    quoted_in_digests,
    rare_word,
    raw_names,
    row,
    talk,
    topic,
    write,
)

IS_SOAK = bool(os.environ.get("RECOLLECT_SOAK"))


def test_an_evicted_session_keeps_its_row_and_its_digest(tmp_path: Path, home: Home) -> None:
    write(home, "aa")
    memory = opened(tmp_path / "store", home)
    memory.sweep()
    (before,) = memory.sessions()
    digest = memory.digest(before)

    evict_all(memory)

    (after,) = memory.sessions()
    assert raw_names(memory) == set()
    assert row(after) == row(before)
    assert after.evicted_at is not None
    assert memory.digest(after) == digest
    assert memory.events(after) == []


def test_nothing_evicted_comes_back_whatever_makes_the_file_be_read_again(tmp_path: Path, home: Home) -> None:
    path = write(home, "aa")
    memory = opened(tmp_path / "store", home)
    memory.sweep()
    (before,) = memory.sessions()
    evict_all(memory)

    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])  # shorter than its cursor
    memory.sweep()
    path.write_bytes(content)
    memory.sweep(verify=True)
    path.rename(path.with_name("moved.jsonl"))
    memory.sweep()
    shutil.copy(path.with_name("moved.jsonl"), path.with_name("copy.jsonl"))
    memory.sweep()

    (after,) = memory.sessions()
    assert raw_names(memory) == set()
    assert row(after) == row(before)


def test_nothing_evicted_comes_back_when_the_cache_is_lost(tmp_path: Path, home: Home) -> None:
    write(home, "aa")
    with opened(tmp_path / "store", home) as memory:
        memory.sweep()
        (before,) = memory.sessions()
        evict_all(memory)
    for file in (tmp_path / "store").glob("cache.db*"):
        file.unlink()

    with opened(tmp_path / "store", home) as memory:
        memory.sweep()

        (after,) = memory.sessions()
        assert raw_names(memory) == set()
        assert row(after) == row(before)


def test_a_session_that_grows_after_its_eviction_is_old_and_new_together(tmp_path: Path, home: Home) -> None:
    write(home, "aa", turns=2)
    write(home, "bb", turns=2)
    memory = opened(tmp_path / "store", home)
    memory.sweep()
    evict_all(memory)
    grow(home, "aa", 2, 3)
    write(home, "whole", turns=5)

    memory.sweep()

    grown, whole = memory.session("aa"), memory.session("whole")
    assert len(memory.events(grown)) == 12
    assert (grown.event_count, grown.message_count) == (whole.event_count, whole.message_count)
    assert grown.cost == whole.cost
    told, other = memory.digest(grown), memory.digest(whole)
    assert told.covers.event_count == other.covers.event_count
    assert (told.request_count, told.tokens, told.usd) == (other.request_count, other.tokens, other.usd)
    by_agent = memory.stats("agent").lines[0]
    assert by_agent.turns == 2 + 5 + 5
    assert by_agent.input_tokens == sum(one.cost.input_tokens for one in memory.sessions())
    assert by_agent.usd == pytest.approx(sum(one.cost.usd or 0 for one in memory.sessions()))


def _prompts(*names: str) -> list[EventRecord]:
    """What an agent's prompt history has of sessions."""
    return [
        event(
            name,
            1000 + turn,
            text=f"please look at {topic(name)} part {turn}",
            lane=HISTORY_LANE,
            ts_ms=at_ms(4 * turn),
        )
        for name in names
        for turn in range(2)
    ]


def test_a_prompt_history_that_is_told_again_brings_no_evicted_prompt_back(tmp_path: Path, home: Home) -> None:
    write(home, "aa", turns=2)
    home.write("history", *_prompts("aa", "vanished"))
    memory = opened(tmp_path / "store", home)
    memory.sweep()
    before, digest = memory.session("aa"), memory.digest(memory.session("aa"))
    evict_all(memory)
    home.write("history", *_prompts("zz", "aa", "vanished"))  # rewritten: it is read from its start

    memory.sweep()

    assert row(memory.session("aa")) == row(before)
    assert memory.digest(memory.session("aa")) == digest
    assert memory.session("vanished").event_count == 2
    assert memory.session("zz").event_count == 2


def test_growth_and_eviction_in_turn_lose_nothing(tmp_path: Path, home: Home) -> None:
    write(home, "aa", turns=1)
    memory = opened(tmp_path / "store", home)
    memory.sweep()
    for turn in range(1, 6):
        evict_all(memory)
        grow(home, "aa", turn)
        memory.sweep()

    (after,) = memory.sessions()
    assert after.event_count == 24
    assert after.cost.turns == 6
    assert after.cost.input_tokens == 6000
    assert memory.digest(after).request_count == 6
    assert memory.stats("agent").lines[0].turns == 6


def test_growth_after_the_cache_was_lost_adds_up_too(tmp_path: Path, home: Home) -> None:
    write(home, "aa", turns=2)
    with opened(tmp_path / "store", home) as memory:
        memory.sweep()
        evict_all(memory)
    for file in (tmp_path / "store").glob("cache.db*"):
        file.unlink()
    grow(home, "aa", 2)

    with opened(tmp_path / "store", home) as memory:
        memory.sweep()

        (after,) = memory.sessions()
        assert (after.event_count, after.cost.turns, after.cost.input_tokens) == (12, 3, 3000)
        assert len(memory.events(after)) == 4


def test_the_ledger_alone_brings_an_evicted_session_back_as_it_was_told(tmp_path: Path, home: Home) -> None:
    path = write(home, "aa")
    with opened(tmp_path / "store", home) as memory:
        memory.sweep()
        (before,) = memory.sessions()
        digest = memory.digest(before)
        evict_all(memory)
    for file in [*(tmp_path / "store").glob("*.db*"), *(tmp_path / "store").glob("high*")]:
        file.unlink()
    path.unlink()

    with opened(tmp_path / "store", home) as memory:
        (after,) = memory.sessions()
        assert row(after) == row(before)
        assert memory.digest(after) == digest
        home.write("other", SessionInfo("other"), *talk("other", 1))
        write(home, "aa")
        memory.sweep()
        assert raw_names(memory) == {"other"}


@pytest.mark.parametrize("is_distilled", [True, False])
def test_a_ledger_that_was_written_anew_counts_no_held_event_twice(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, is_distilled: bool
) -> None:
    store = tmp_path / "store"
    write(home, "aa", turns=2)
    with opened(store, home) as memory:
        with monkeypatch.context() as patch:
            for step in () if is_distilled else ("distil_sessions", "distil_pending"):
                patch.setattr(distiller, step, lambda *_, **__: [])
            evict_all(memory, hard=True)
        grow(home, "aa", 2, 3)
        memory.sweep()
        before, by_agent = memory.session("aa"), memory.stats("agent").lines
        digest = memory.digest(before)
    (store / "ledger.jsonl").unlink()
    repair(store, [home.flag])
    for file in [*store.glob("memory.db*"), *store.glob("high*")]:
        file.unlink()

    with opened(store, home) as memory:
        memory.sweep()

        after = memory.session("aa")
        told = memory.digest(after)
        assert row(after) == row(before)
        assert told.covers.event_count == digest.covers.event_count
        assert (told.request_count, told.tokens, told.usd) == (digest.request_count, digest.tokens, digest.usd)
        assert memory.stats("agent").lines == by_agent


def test_what_was_lost_is_still_told_when_only_the_ledger_is_left(tmp_path: Path, home: Home) -> None:
    path = write(home, "aa")
    write(home, "other")
    with opened(tmp_path / "store", home) as memory:
        memory.sweep()
        path.unlink()
        memory.sweep()
        evict_all(memory, hard=True)
        losses = memory.outlook().lost
        assert [loss.event for loss in losses] == ["last_copy_evicted"]
        path = write(home, "aa", turns=5)  # it is back, grows, and goes once more
        memory.sweep()
        evict_all(memory)
    for file in [*(tmp_path / "store").glob("*.db*"), *(tmp_path / "store").glob("high*")]:
        file.unlink()

    with opened(tmp_path / "store", home) as memory:
        assert memory.outlook().lost == losses


def test_a_fork_of_an_evicted_session_is_whole_and_paid_once(tmp_path: Path, home: Home) -> None:
    write(home, "base", turns=3)
    memory = opened(tmp_path / "store", home)
    memory.sweep()
    evict_all(memory)
    copied = [as_copied(record, "fork") for record in talk("base", 3)]
    home.write("fork", SessionInfo("fork", base_native_id="base"), *copied, *talk("fork", 1, 10))

    memory.sweep()

    fork = memory.session("fork")
    assert len(memory.events(fork, with_copies=True)) == 16
    assert fork.cost.input_tokens == 1000
    assert fork.cost.turns == 1
    assert raw_names(memory) == {"fork"}


def test_a_store_driven_far_over_its_cap_ends_below_it_and_is_still_searched(tmp_path: Path, home: Home) -> None:
    # Little enough at a time to be read in this process, which alone knows the scripted agent.
    sessions, turns, words, wanted = (160, 10, 300, 1000) if IS_SOAK else (24, 4, 1500, 60)
    names = [f"session{number:03}" for number in range(sessions)]
    store = tmp_path / "store"
    with opened(store, home) as memory:
        for name in names[: sessions // 2]:
            write(home, name, turns, words)
        assert memory.sweep().failures == []
        full = memory.outlook().raw_bytes
        limit(memory, raw_hard_cap=full * 2 // 3, raw_soft_cap=full // 2)  # the other half makes it three times that
        for name in names[sessions // 2 :]:
            write(home, name, turns, words)

        report = memory.sweep()

        assert report.failures == []
        assert memory.outlook().raw_bytes <= full // 2
        assert report.budget.data_loss == report.budget.last_copies_evicted == 0
        evicted = sorted(set(names) - raw_names(memory))
        assert report.budget.sessions_evicted == len(evicted) < len(names)
        for name in evicted:
            (hit, *_) = memory.search(topic(name))
            assert (hit.session_uid, hit.evicted) == (f"{AGENT}:{name}", True)
        digests = quoted_in_digests(memory, evicted)
    content = bytes_of(store)
    rare = [rare_word(name, turn).encode() for name in evicted for turn in range(turns)]
    rare = [word for word in rare if word not in digests]
    assert len(rare) >= wanted
    assert [word for word in rare if word[1:] in content] == []


def test_a_small_sub_agent_that_grows_after_its_eviction_keeps_the_line_that_says_what_it_was_for(
    tmp_path: Path, home: Home
) -> None:
    write(home, "root")
    home.write("sub", SessionInfo("sub", parent_native_id="root"), event("sub", 1, text="count the sheep"))
    with opened(tmp_path / "store", home) as memory:
        memory.sweep()
        evict_all(memory)
        home.append("sub", event("sub", 2, text="and the goats"))
        grow(home, "root", 4)

        memory.sweep()

        (line,) = memory.digest(memory.session("root")).sub_agents
        assert "count the sheep" in line
        grow(home, "root", 5)
        memory.sweep()
        assert memory.digest(memory.session("root")).sub_agents == (line,)


def test_forgetting_an_evicted_session_leaves_no_byte_of_it(tmp_path: Path, home: Home) -> None:
    write(home, "forgettable")
    write(home, "other")
    store = tmp_path / "store"
    with opened(store, home) as memory:
        memory.sweep()
        evict_all(memory)
        memory.forget(memory.plan_forgetting("forgettable"))
        memory.sweep()
        assert [session.native_session_id for session in memory.sessions()] == ["other"]
    assert topic("forgettable")[6:].encode() not in bytes_of(store)


def test_newer_rules_of_redaction_reach_what_is_kept_of_an_evicted_session(tmp_path: Path, home: Home) -> None:
    write(home, "aa")
    store = tmp_path / "store"
    with opened(store, home) as memory:
        memory.sweep()
        evict_all(memory)
    secret = topic("aa")
    assert secret.encode() in bytes_of(store)
    (store / "config.toml").write_text(f"[redact.rules]\nown = '{secret}'")

    with opened(store, home) as memory:
        memory.rescan()

        (session,) = memory.sessions()
        digest = memory.digest(session)
        assert secret not in (session.title or "") + str(digest)
        assert digest.request_count == 4
        assert memory.search("fine part")[0].evicted
        memory.sweep(verify=True)
        assert raw_names(memory) == set()
    (store / "config.toml").unlink()  # the rule itself
    assert secret[6:].encode() not in bytes_of(store)


def test_newer_rules_reach_the_names_of_models_by_which_an_evicted_session_is_counted(
    tmp_path: Path, home: Home
) -> None:
    def tell_usage(number: int) -> None:
        home.append("aa", usage("aa", f"u{number}", model="house badge-4711", output_tokens=number))

    write(home, "aa")
    tell_usage(50)
    store = tmp_path / "store"
    with opened(store, home) as memory:
        memory.sweep()
        evict_all(memory)
    (store / "config.toml").write_text("[redact.rules]\nown = 'badge-[0-9]+'\n")
    grow(home, "aa", 4)
    tell_usage(7)
    with opened(store, home) as memory:
        memory.sweep()
        evict_all(memory)  # what is counted has both names now
        plain, marked = (line.output_tokens for line in memory.stats("model").lines if "house" in str(line.name))

        memory.rescan()

        (both,) = (line.output_tokens for line in memory.stats("model").lines if "house" in str(line.name))
        assert both == (plain or 0) + (marked or 0) > 0
    (store / "config.toml").unlink()
    assert b"badge-4711" not in bytes_of(store)
