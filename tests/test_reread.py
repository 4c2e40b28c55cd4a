"""What was read is never lost by reading again: an event may be replaced or added, and the figures stay."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect.agents import adapters
from recollect.api import Memory
from tests.conftest import SHARED, needs_shared, swept

HOMES = [
    f"{agent}={home}"
    for agent in ("claude", "codex", "grok")
    for home in sorted((SHARED / "genuine").glob(f"{agent}-*/.{agent}"))
]

pytestmark = needs_shared
every_home = pytest.mark.parametrize("root", HOMES, ids=lambda root: Path(root).parent.name)


def _figures(memory: Memory, *, roots_only: bool = False) -> dict[str, tuple[Any, ...]]:
    sessions = memory.sessions(roots_only=roots_only)
    return {one.session_uid: (one.cost.usd, one.cost.turns, one.cost.output_tokens) for one in sessions}


def _events(memory: Memory) -> set[str]:
    return {event.event_uid for one in memory.sessions() for event in memory.events(one, with_copies=True)}


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def raise_versions() -> None:
        for adapter in adapters().values():
            monkeypatch.setattr(adapter, "version", adapter.version + 1)

    return raise_versions


def _copied(root: str, tmp_path: Path) -> tuple[str, Path]:
    agent, _, original = root.partition("=")
    return agent, shutil.copytree(original, tmp_path / "home")


@every_home
@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "first half"])
def test_a_raised_version_takes_nothing_away(
    root: str, is_cut: bool, tmp_path: Path, raised: Callable[[], None]
) -> None:
    agent, home = _copied(root, tmp_path)
    with swept(tmp_path / "store", f"{agent}={home}") as memory:
        before = _figures(memory), _events(memory)
        for log in home.rglob("*.jsonl") if is_cut else ():
            lines = log.read_bytes().splitlines(keepends=True)
            log.write_bytes(b"".join(lines[: len(lines) // 2]))
        memory.sweep()
        cut = _figures(memory), _events(memory)
        raised()
        memory.sweep()
        after = _figures(memory), _events(memory)

    assert cut == before
    assert after == before


@every_home
def test_what_is_left_of_a_log_whose_beginning_is_gone_counts_nothing_twice(
    root: str, tmp_path: Path, raised: Callable[[], None]
) -> None:
    """Some events are added: results whose call is gone, and sidechains that are named after their first record."""
    agent, home = _copied(root, tmp_path)
    with swept(tmp_path / "store", f"{agent}={home}") as memory:
        before, events = _figures(memory, roots_only=True), _events(memory)
        for log in home.rglob("*.jsonl"):
            lines = log.read_bytes().splitlines(keepends=True)
            log.write_bytes(b"".join(lines[len(lines) // 2 :]))
        memory.sweep()
        cut = _figures(memory, roots_only=True)
        raised()
        memory.sweep()
        after = _figures(memory, roots_only=True)

        assert cut == before
        assert after == before
        assert events <= _events(memory)


@pytest.mark.parametrize("root", [HOMES[-1], *HOMES[2:4]], ids=lambda root: Path(root).parent.name)
def test_rebuilt_files_are_never_read_as_new(root: str, tmp_path: Path, raised: Callable[[], None]) -> None:
    agent, home = _copied(root, tmp_path)
    with swept(tmp_path / "store", f"{agent}={home}") as memory:
        before, rebuilt = _figures(memory), 0
        for session in memory.sessions(roots_only=True):
            if not session.sources or not memory.events(session):
                continue
            for source in session.sources:
                Path(source.path).unlink(missing_ok=True)
            memory.handover.write(memory.handover.plan_rebuild(session))
            rebuilt += 1
        memory.sweep()
        swept_again = _figures(memory)
    for name in ("cache.db", "cache.db-wal", "cache.db-shm"):
        (tmp_path / "store" / name).unlink(missing_ok=True)
    with swept(tmp_path / "store", f"{agent}={home}") as memory:
        without_cache = _figures(memory)
        shutil.copytree(home, tmp_path / "copy")
    with swept(tmp_path / "store", f"{agent}={home}", f"{agent}={tmp_path / 'copy'}") as memory:
        copied = _figures(memory)
        raised()
        memory.sweep()
        after = _figures(memory)

    assert rebuilt
    assert swept_again == before
    assert without_cache == before
    assert copied == before
    assert after == before


@every_home
def test_files_rebuilt_without_marks_count_no_turn_again(root: str, tmp_path: Path) -> None:
    """Older versions of Recollect wrote them so."""
    agent, home = _copied(root, tmp_path)
    with swept(tmp_path / "store", f"{agent}={home}") as memory:
        before = _figures(memory, roots_only=True)
        for session in memory.sessions(roots_only=True):
            if session.sources and memory.events(session):
                draft = memory.handover.plan_rebuild(session).draft
                for source in session.sources:
                    Path(source.path).unlink(missing_ok=True)
                for path, content in draft.files if draft else ():
                    path.write_bytes(content)
        memory.sweep()

        assert _figures(memory, roots_only=True) == before
