"""A live host's small frames: a sweep puts those of idle sessions together, and nothing that was said changes."""

from pathlib import Path

import pytest

from recollect import sweep
from recollect.api import Memory, doctor, open_memory, restore
from recollect.live import Live
from recollect.model.clock import now_ms
from recollect.store import open_store
from tests.forget.traces import left_in

KEY, MESSAGES = "cli:one", 200


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with one live session, which counts as idle at once."""
    monkeypatch.setattr(sweep, "IDLE_MS", -1)
    with open_memory(tmp_path / "store") as memory:
        live = Live(memory)
        for number in range(MESSAGES):
            live.append_message(KEY, "user" if number % 2 else "assistant", _text(number))
    return tmp_path / "store"


def _text(number: int) -> str:
    return f"message number{number} about the deploy of the invoice parser and its retry queue"


def _value(store: Path, sql: str) -> int:
    with open_store(store) as opened:
        return int(opened.databases[0].value(sql))


def _frames(store: Path) -> int:
    return _value(store, "SELECT count(*) FROM frames")


def _bytes(store: Path) -> int:
    return sum(path.stat().st_size for path in (store / "packs").rglob("*.pack"))


def _said(memory: Memory) -> list[object]:
    return [message.content for message in Live(memory).get_history(KEY, None)]


def test_frames_of_an_idle_session_are_put_together_by_a_sweep(store: Path) -> None:
    before = _bytes(store)
    with open_memory(store) as memory:
        scattered, session = _frames(store), memory.sessions()[0]
        memory.sweep()
        together, hashed = _frames(store), memory.session(session.session_uid).content_hash
        memory.sweep()  # takes away what was replaced, which somebody might have been reading

        assert scattered >= MESSAGES and together < 10
        assert _said(memory) == [_text(number) for number in range(MESSAGES)]
        assert memory.session(session.session_uid).content_hash == hashed
        assert [hit.session_uid for hit in memory.search("number150")] == [session.session_uid]
    assert _bytes(store) < before / 2
    assert [finding for finding in doctor(store, []) if finding.level == "problem"] == []


def test_a_session_that_is_read_or_goes_on_meanwhile_loses_nothing(store: Path) -> None:
    with open_memory(store) as memory, open_memory(store) as host:
        session = memory.sessions()[0]
        events = memory.events(session)
        payloads = memory.payloads(session, events)
        first = next(iter(payloads))
        host.sweep()
        Live(host).append_message(KEY, "user", "one more")

        assert [first["text"], *(payload["text"] for payload in payloads)][:3] == [_text(0), _text(1), _text(2)]
        assert _said(memory)[-2:] == [_text(MESSAGES - 1), "one more"]
        host.sweep()
        assert len(_said(memory)) == MESSAGES + 1


def test_a_repacked_session_comes_back_from_its_packs_alone(store: Path) -> None:
    with open_memory(store) as memory:
        memory.sweep()
        memory.sweep()
    for path in store.glob("cache.db*"):
        path.unlink()

    with open_memory(store) as memory:
        memory.sweep()

        assert _said(memory) == [_text(number) for number in range(MESSAGES)]


def test_a_sweep_without_scattered_frames_writes_nothing(store: Path) -> None:
    with open_memory(store) as memory:
        memory.sweep()
        memory.sweep()
        before = _value(store, "SELECT commits FROM history")
        memory.sweep()

        assert _value(store, "SELECT commits FROM history") == before


def test_a_sweep_looks_only_at_sessions_that_fell_idle_since_the_last(store: Path) -> None:
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    with open_memory(store) as memory:
        live = Live(memory)
        for number in range(20 * 5):
            live.append_message(f"cli:other{number % 20}", "user", _text(number))
        memory.sweep()
        memory.sweep()
    with open_store(store) as opened:
        opened.databases[0].connection.set_progress_handler(count, 1)
        opened.rewrites.repack_idle(now_ms() + 1, now_ms() + 2)
        of_none, steps = steps, 0
        opened.rewrites.repack_idle(0, now_ms() + 2)

        assert 0 < of_none < steps / 10


def test_a_long_session_is_not_written_again_for_a_few_messages(store: Path) -> None:
    with open_memory(store) as memory:
        memory.sweep()
        together = _frames(store)
        for number in range(30):
            Live(memory).append_message(KEY, "user", _text(number))
        memory.sweep()
        scattered = _frames(store)
        for number in range(60):
            Live(memory).append_message(KEY, "user", _text(number))
        memory.sweep()

        assert scattered >= together + 30
        assert _frames(store) < 10
        assert len(_said(memory)) == MESSAGES + 90


@pytest.mark.parametrize("sweeps", [1, 2])
def test_a_repacked_session_is_forgotten_to_the_last_byte_while_a_host_holds_its_pack(store: Path, sweeps: int) -> None:
    word = "quetzalcoatl"
    with open_memory(store) as host, open_memory(store) as memory:
        Live(host).append_message("cli:other", "user", "keeps the pack open")
        appended = Live(host).append_message(KEY, "user", word)
        for _ in range(sweeps):
            memory.sweep()
        assert left_in(store, [word]) == {word}
        memory.forget(memory.plan_forgetting(appended.session_uid))

        assert left_in(store, [word]) == set()
        Live(host).append_message("cli:other", "user", "goes on")
        said = [message.content for message in Live(memory).get_history("cli:other")]
    assert said == ["keeps the pack open", "goes on"]
    assert [finding for finding in doctor(store, [], deep=True) if finding.level == "problem"] == []


@pytest.mark.parametrize("sweeps", [1, 2])
def test_a_backup_after_repacking_is_whole(store: Path, tmp_path: Path, sweeps: int) -> None:
    with open_memory(store) as memory:
        for _ in range(sweeps):
            memory.sweep()
        memory.backup(tmp_path / "backup.tar.zst")
    assert [finding for finding in doctor(store, [], deep=True) if finding.level == "problem"] == []

    restore(tmp_path / "backup.tar.zst", tmp_path / "restored")

    assert [finding for finding in doctor(tmp_path / "restored", [], deep=True) if finding.level == "problem"] == []
    with open_memory(tmp_path / "restored") as memory:
        memory.sweep()
        assert _said(memory) == [_text(number) for number in range(MESSAGES)]
