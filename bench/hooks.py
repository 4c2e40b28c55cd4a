"""What hooks cost an agent: quiet, and while a sweep runs.

    python bench/hooks.py [--events 1000000 | --store COPY] [--calls 200]

Fills a store and prepares it as a sweep does, or takes the copy of one, and calls each hook as an agent does. Processor
time is beyond that of a bare interpreter; by the clock it is all that an agent waits for.
"""

import argparse
import fcntl
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recollect.analysis.distiller import distil_pending
from recollect.analysis.prepared import prepare
from recollect.store import open_store
from search import bar, fill, quantile

HOOK = (sys.executable, "-I", "-c", "from recollect.hooks.command import run; run()")
BARE = (sys.executable, "-I", "-c", "")
ERROR = "Traceback (most recent call last):\nKeyError: 'never seen before'\n"
EVENTS: dict[str, dict[str, Any]] = {
    "SessionStart": {"source": "clear"},
    "PostToolUse, failed": {"tool_name": "Bash", "tool_response": ERROR},
    "PreToolUse": {"tool_name": "apply_patch", "tool_input": {"command": "*** Update File: src/never_settled.py"}},
    "PostToolUse, fine": {"tool_name": "Bash", "tool_response": "3 passed\n"},
}


def measure(
    command: Sequence[str], given: bytes, store: Path, calls: int, **environment: str
) -> tuple[list[float], list[float]]:
    """Milliseconds of the processor and of the clock for each call."""
    processor, clock = [], []
    for _ in range(calls):
        begun, used = time.perf_counter(), _used()
        subprocess.run(
            command,
            input=given,
            stdout=subprocess.DEVNULL,
            env={"RECOLLECT_HOME": str(store), **environment},
            check=True,
        )
        processor.append((_used() - used) * 1000)
        clock.append((time.perf_counter() - begun) * 1000)
    return processor, clock


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--store", type=Path, help="a copy of a store that was swept")
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # sweeps that hooks started may still write
        store_folder = options.store or Path(folder) / "store"
        with open_store(store_folder, create=True) as store:
            if options.store is None:
                fill(store, options.events, random.Random(1), ())
                distil_pending(store, lambda done, total: None)
            prepare(store, {}, ())
            folder_worked_in = next((path for path, _ in store.sessions.folders()), "/home/x")
            print(f"     {store.sessions.count():,} sessions, {options.calls} calls of each hook")
        bare, _ = measure(BARE, b"", store_folder, options.calls)
        for name, fields in EVENTS.items():
            event = {"hook_event_name": name.partition(",")[0], "session_id": "bench", **fields}
            event |= {"cwd": folder_worked_in}
            processor, clock = measure(HOOK, json.dumps(event).encode(), store_folder, options.calls)
            bar(
                f"{name}, p50 of the processor beyond the interpreter",
                quantile(processor, 0.5) - quantile(bare, 0.5),
                30,
                "ms",
            )
            print(f"     {name}, by the clock: p50 {quantile(clock, 0.5):.0f} ms, p99 {quantile(clock, 0.99):.0f} ms")
        _in_the_server(store_folder, folder_worked_in, options.calls)
        _beside_a_sweep(store_folder, options.calls)
        for size in (1, 50):
            _before_a_compaction(Path(folder), size, calls=7)


def _in_the_server(store: Path, folder: str, calls: int) -> None:
    """The same events as calls of a server that runs already: what the agent waits for."""
    server = subprocess.Popen(
        (sys.executable, "-I", "-m", "recollect", "mcp"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"RECOLLECT_HOME": str(store)},
    )
    assert server.stdin and server.stdout
    told = {
        "SessionStart": {"source": "clear"},
        "PreToolUse": EVENTS["PreToolUse"],
        "PostToolUse": {"tool_name": "Bash", "tool_response": ERROR},
        "UserPromptSubmit": {"prompt": "please have a look at the test that fails in the parser of dates"},
    }
    (store / "hooks.json").write_text('{"brief": true, "fixes": true, "prompts": true}')
    for event, fields in told.items():
        payload = {"agent": "codex", "hook_event_name": event, "session_id": "bench", "cwd": folder, **fields}
        call = {"name": "hook_event", "arguments": payload}
        frame = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode() + b"\n"
        clock, processor = [], []
        for _ in range(calls + 1):  # the first one loads what it needs
            begun, used = time.perf_counter(), _used_by(server.pid)
            server.stdin.write(frame)
            server.stdin.flush()
            server.stdout.readline()
            clock.append((time.perf_counter() - begun) * 1000)
            processor.append((_used_by(server.pid) - used) * 1000)
        bar(f"{event} in the server, mean of the processor", sum(processor[1:]) / calls, 10, "ms")
        print(
            f"     {event} in the server, by the clock: p50 {quantile(clock[1:], 0.5):.1f} ms, first {clock[0]:.0f} ms"
        )
    server.stdin.close()
    server.wait()
    (store / "hooks.json").unlink()


def _used_by(pid: int) -> float:
    """Seconds of the processor, in the kernel's ticks: a mean over many calls is finer than one of them."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _beside_a_sweep(store: Path, calls: int) -> None:
    """Hooks while another process holds the store's locks and one processor."""
    busy = "import time\nfrom pathlib import Path\nfrom recollect.store import sweep_lock, write_lock\n"
    busy += f"with sweep_lock(Path({str(store)!r})), write_lock(Path({str(store)!r})):\n    print(flush=True)\n"
    busy += "    while True: sum(range(1000))\n"
    sweep = subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE, env=dict(os.environ))
    try:
        assert sweep.stdout and sweep.stdout.readline()
        event = {"hook_event_name": "PostToolUse", "session_id": "bench", "tool_name": "Bash", "tool_response": ERROR}
        _, clock = measure(HOOK, json.dumps(event).encode(), store, calls)
        bar("with the store locked and a processor busy, p99 by the clock", quantile(clock, 0.99), 250, "ms")
    finally:
        sweep.kill()
        sweep.wait()


def _before_a_compaction(folder: Path, megabytes: int, calls: int) -> None:
    """The hook that copies what is new in a log, here all of it."""
    subprocess.run(
        (sys.executable, Path(__file__).with_name("generate.py"), folder / f"{megabytes}", "--mb", str(megabytes)),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    home, store = folder / f"home-{megabytes}", folder / f"store-{megabytes}"
    log = home / "projects" / "-bench" / "5f0c2f6e-0000-4000-8000-000000000001.jsonl"
    log.parent.mkdir(parents=True)
    with log.open("wb") as file:
        for path in sorted((folder / f"{megabytes}").rglob("*.jsonl")):
            file.write(path.read_bytes())
    open_store(store, create=True).close()
    event = {"hook_event_name": "PreCompact", "session_id": "bench", "transcript_path": str(log)}
    processor, clock = [], []
    (store / "spool").mkdir()
    with (store / "spool" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the sweep that it starts ends at once
        for number in range(calls):
            given = json.dumps(event | {"prompt_id": str(number)}).encode()
            used, took = measure(HOOK, given, store, 1, CLAUDE_CONFIG_DIR=str(home))
            processor, clock = [*processor, *used], [*clock, *took]
            shutil.rmtree(store / "rescued")
    size = log.stat().st_size / 1e6
    print(f"     PreCompact, {size:.0f} MB to copy: best of the processor {min(processor):.0f} ms, ", end="")
    print(f"of the clock {min(clock):.0f} ms")


if __name__ == "__main__":
    main()
