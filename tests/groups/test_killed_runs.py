"""`run` killed at every step: each follow-up reaches the agent once, in order, and the next run goes on."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from recollect.api import open_memory
from tests.conftest import with_key
from tests.faults.rig import IS_SOAK, needs_strace

FOLLOW_UPS = ["follow-one", "follow-two", "follow-three"]
CALLS = ("renameat", "renameat2", "rename", "unlinkat", "unlink", "write", "pwrite64", "fsync", "fdatasync")
_CALL = re.compile(r"^(\w+)\((.*)")
MOST = 1_000_000 if IS_SOAK else 3


def _plant(folder: Path) -> Path:
    """A store with a group, three follow-ups waiting, and the agent on the PATH."""
    store, programs = with_key(folder / "store"), folder / "bin"
    for made in (folder / "work", programs):
        made.mkdir()
    program = programs / "claude"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {Path(__file__).with_name("stand_in.py")} "$@"\n')
    program.chmod(0o755)
    with open_memory(store, [f"claude={folder / 'nobody'}"]) as memory:
        memory.groups.add("work", folder / "work")
        inputs = Path(memory.groups.get("work").ipc) / "input"
    for number, text in enumerate(FOLLOW_UPS):
        (inputs / f"{number}.json").write_text(json.dumps({"text": text}))
    return store


def _run(folder: Path, prompt: str, *tracing: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "RECOLLECT_HOME": str(folder / "store"),
        "CLAUDE_CONFIG_DIR": str(folder / "nobody"),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
    }
    line = [*tracing, sys.executable, "-m", "recollect", "group", "run", "--group", "work", prompt]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=60)


def _tracing(log: Path, *inject: str) -> list[str]:
    return ["strace", "-qq", "-y", "-o", str(log), "-e", f"trace={','.join(CALLS)}", *inject]


def _points(folder: Path) -> Iterator[tuple[str, int]]:
    """Calls of a whole run that change the store's or the group's files, or give something to the agent."""
    store, seen = str(_plant(folder)), Counter[str]()
    done = _run(folder, "prompt zero", *_tracing(folder / "calls"))
    assert done.returncode == 0, done.stderr
    for match in filter(None, map(_CALL.match, (folder / "calls").read_text().splitlines())):
        seen[match[1]] += 1
        if store in match[2] or "<pipe:" in match[2]:
            yield match[1], seen[match[1]]


def _prompts(folder: Path) -> list[str]:
    """All that the agent was asked, in order."""
    files = (folder / "store" / "groups" / "work" / ".claude").rglob("*.jsonl")
    entries = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    asked = [entry for entry in entries if entry["type"] == "user"]
    return [entry["message"]["content"] for entry in sorted(asked, key=lambda entry: str(entry["timestamp"]))]


@needs_strace
def test_a_run_killed_at_any_step_neither_loses_nor_doubles_a_follow_up(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    points = list(_points(tmp_path / "probe"))
    delivering = [point for point in points if point[0].startswith(("rename", "unlink"))]
    chosen = [*delivering[:: max(1, len(delivering) // MOST)], *points[:: max(1, len(points) // MOST)]]
    killed, findings = 0, []

    for number, (call, nth) in enumerate(dict.fromkeys(chosen)):
        folder = tmp_path / str(number)
        folder.mkdir()
        _plant(folder)
        inject = ["-e", f"inject={call}:signal=SIGKILL:when={nth}"]
        struck = _run(folder, "prompt zero", *_tracing(folder / "calls", *inject))
        after = _run(folder, "prompt one")
        prompts = [prompt for prompt in _prompts(folder) if prompt in FOLLOW_UPS]
        left = [path.name for path in (folder / "store" / "groups" / "work" / "ipc" / "input").iterdir()]
        if (after.returncode, prompts, left) != (0, FOLLOW_UPS, []):
            findings.append((call, nth, after.returncode, after.stderr[-300:], prompts, left))
        killed += struck.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
        shutil.rmtree(folder)

    print(f"killed {killed} of {len(points)} steps")
    assert findings == []
    assert killed >= min(MOST, len(points) // 2)
