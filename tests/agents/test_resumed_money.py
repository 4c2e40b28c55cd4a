"""Claude Code goes on with sessions whose running total lacks a part, and they keep their money."""

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.api import open_memory
from recollect.model.schema import Cost
from tests.agents.conftest import GREET, GREET_AGAIN, SCRIPTS, SLOW, _end, _only_child, _slow_command, wait_for
from tests.agents.desk import Desk, opened_desk


@pytest.fixture(scope="module")
def desk(agents_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with opened_desk(tmp_path_factory.mktemp("desk"), agents_folder) as desk:
        yield desk


def _cost(desk: Desk, folder: Path, native_id: str) -> Cost:
    with open_memory(folder, [desk.root("claude")]) as memory:
        memory.sweep()
        return memory.session(native_id).cost


def _log(desk: Desk, native_id: str) -> Path:
    return next((desk.home / ".claude" / "projects").rglob(f"{native_id}.jsonl"))


def _total(desk: Desk, native_id: str) -> float:
    records = map(json.loads, _log(desk, native_id).read_text().splitlines())
    return [float(record["totalCostUSD"]) for record in records if record["type"] == "cost-state"][-1]


def test_an_old_session_that_is_continued_by_one_turn_keeps_its_money(desk: Desk, tmp_path: Path) -> None:
    native_id, real = str(uuid.uuid4()), desk.real("claude")
    desk.run("claude", real.ask, GREET, native_id)
    log = _log(desk, native_id)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if json.loads(line)["type"] != "cost-state"))
    before = _cost(desk, tmp_path / "before", native_id)

    desk.run("claude", real.resume, GREET_AGAIN, native_id)

    after = _cost(desk, tmp_path / "after", native_id)
    assert before.usd
    assert (after.usd, after.usd_is_estimate) == (pytest.approx(before.usd + _total(desk, native_id)), True)


def test_a_run_that_is_killed_between_two_others_is_paid_for(desk: Desk, tmp_path: Path) -> None:
    native_id, real = str(uuid.uuid4()), desk.real("claude")
    desk.run("claude", real.ask, GREET, native_id)
    words = [word.format(prompt=SLOW, id=native_id) for word in real.resume]
    command = [str(SCRIPTS / "run-claude.sh"), str(desk.project), *words]
    with subprocess.Popen(command, env=desk.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as run:
        wait_for(lambda: '"type":"tool_use"' in _log(desk, native_id).read_text(), "the call in the log")
        slow = wait_for(lambda: _slow_command(desk.project), "the slow command")
        os.kill(_only_child(run.pid), signal.SIGKILL)
    _end(slow)
    killed = _cost(desk, tmp_path / "killed", native_id)

    desk.run("claude", real.resume, GREET_AGAIN, native_id)

    after = _cost(desk, tmp_path / "after", native_id)
    assert killed.usd is not None
    assert after.usd is not None
    assert after.usd > max(killed.usd, _total(desk, native_id))
    assert after.usd_is_estimate
