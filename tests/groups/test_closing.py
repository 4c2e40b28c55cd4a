"""`_close` ends an agent within two seconds, also one that will not end, with all that it started."""

import sys
import time
from pathlib import Path

import pytest

from recollect import Prompting
from recollect.api import open_memory
from tests.conftest import with_key


def _is_running(pid: int) -> bool:
    """Whether a process lives; one whose end nobody has taken notice of does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("place", ["input/_close", "_close"])
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for the agent in /proc")
def test_an_agent_that_will_not_end_and_was_started_by_a_script_is_gone_within_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    program = tmp_path / "bin" / "claude"
    for folder in (program.parent, tmp_path / "work"):
        folder.mkdir()
    program.write_text(f'#!/bin/sh\n{sys.executable} -S {Path(__file__).with_name("stand_in.py")} "$@"\nexit $?\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("STUBBORN", str(tmp_path / "pid"))
    asked: list[float] = []

    with open_memory(with_key(tmp_path / "store"), [f"claude={tmp_path / 'nobody'}"]) as memory:
        group = memory.groups.add("work", tmp_path / "work")

        def close(text: str) -> None:
            asked.append(time.monotonic())
            (Path(group.ipc) / place).touch()

        report = memory.groups.run("hello", "work", Prompting(wait_seconds=60), say=close)

    pid = int((tmp_path / "pid").read_text())
    while _is_running(pid) and time.monotonic() - asked[0] < 2:  # a killed process may take a moment to go
        time.sleep(0.01)
    assert time.monotonic() - asked[0] < 2
    assert report.ended == "closed"
