"""A process killed anywhere on the way of an eviction: the next one finishes it, and nothing is lost."""

import shutil
import signal
from pathlib import Path

import pytest

from recollect.api import open_memory
from tests.faults.rig import command, run
from tests.logs import CLAUDE, claude_call, claude_result, claude_user, lines, session_id
from tests.retention.rig import bytes_of, rare_word

EDGES = ("before-memory-commit", "after-memory-commit", "before-cache-commit", "after-cache-commit")
MOST = 40


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds two sessions and may hold none."""
    folder = tmp_path_factory.mktemp("kills")
    for number in (1, 2):
        session = session_id(number)
        talk = [claude_user(session, 1, f"look at the {rare_word('asked', number)}"), claude_call(session, 2, "cat x")]
        noise = " ".join(f"w{step}" for step in range(9000))
        talk.append(claude_result(session, 3, f"{noise} {rare_word('said', number)} {noise}"))
        CLAUDE.write(folder / "home", lines(talk), session)
    done = run(command("sweep", "--root", CLAUDE.root_flag(folder / "home")), folder / "store")
    assert done.returncode == 0, done.stderr
    (folder / "store" / "config.toml").write_text("[retention]\nraw_soft_cap = 1\nraw_hard_cap = 1")
    return folder


@pytest.mark.parametrize("edge", EDGES)
def test_an_eviction_that_is_killed_is_finished_by_the_next_sweep(tmp_path: Path, full: Path, edge: str) -> None:
    for nth in range(1, MOST):
        store = tmp_path / f"store{nth}"
        shutil.copytree(full / "store", store)

        killed = run(["env", f"RECOLLECT_FAILPOINT={edge}:kill:{nth}", *command("retention")], store)
        done = run(command("sweep", "--root", CLAUDE.root_flag(full / "home")), store)

        assert done.returncode == 0, done.stderr
        _check(store)
        if killed.returncode != -signal.SIGKILL:
            return
    raise AssertionError("never came to its end")


def _check(store: Path) -> None:
    with open_memory(store, create=False) as memory:
        sessions = memory.sessions()
        assert len(sessions) == 2
        assert [memory.events(session) for session in sessions] == [[], []]
        assert {memory.digest(session).covers.event_count for session in sessions} == {3}
        assert memory.status().retention.losses == {}
        assert all(memory.search(rare_word("asked", number))[0].evicted for number in (1, 2))
    content = bytes_of(store)
    assert not any(rare_word("said", number)[1:].encode() in content for number in (1, 2))
