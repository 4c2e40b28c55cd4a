"""The watcher: from a line on disk to a search that finds it, and what it costs while nothing happens.

    python bench/watch.py [--files 10000] [--lines 30] [--rest 60] [--traffic 120]

Writes a home full of small sessions, watches it as the command does, and appends to one of them as an agent would.
Processor time and memory are those of the watching process.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from statistics import fmean

from recollect.api import open_memory
from search import bar, quantile

PATIENCE_S = 120
CURVE_POINTS = 12
TICKS = os.sysconf("SC_CLK_TCK")


def write_line(path: Path, session: str, text: str) -> None:
    record = {
        "type": "user",
        "uuid": str(uuid.uuid4()),
        "sessionId": session,
        "cwd": "/home/dev/shop",
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
        "message": {"role": "user", "content": text},
    }
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def fill(home: Path, files: int) -> list[Path]:
    paths = []
    for number in range(files):
        folder = home / "projects" / f"-work-{number % 100}"
        folder.mkdir(parents=True, exist_ok=True)
        session = str(uuid.uuid4())
        paths.append(folder / f"{session}.jsonl")
        write_line(paths[-1], session, f"session number {number}")
    return paths


def used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])) / TICKS


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def line_to_hit(path: Path, store: Path, number: int) -> float:
    """Seconds from a line to the first search that finds it."""
    word = f"needle{number}x{uuid.uuid4().hex[:8]}"
    write_line(path, path.stem, f"a line with {word}")
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE_S:
        with open_memory(store, read_only=True) as memory:
            if memory.search(word):
                return time.monotonic() - begun
        time.sleep(0.02)
    raise TimeoutError(word)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=30)
    parser.add_argument("--rest", type=int, default=60, help="seconds")
    parser.add_argument("--traffic", type=int, default=120, help="seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, store = Path(folder) / "home", Path(folder) / "store"
        paths = fill(home, options.files)
        with open_memory(store, [f"claude={home}"]) as memory:
            memory.sweep()
        command = [sys.executable, "-m", "recollect", "watch", "--root", f"claude={home}"]
        watcher = subprocess.Popen(command, env=os.environ | {"RECOLLECT_HOME": str(store)}, stdout=subprocess.DEVNULL)
        try:
            _measure(watcher.pid, paths, store, options)
        finally:
            watcher.terminate()
            watcher.wait()


def _measure(pid: int, paths: list[Path], store: Path, options: argparse.Namespace) -> None:
    line_to_hit(paths[0], store, -1)  # by the sweep of everything with which it begins
    print(f"     {options.files:,} files, load {os.getloadavg()[0]:.1f}")
    delays = []
    for number in range(options.lines):
        delays.append(line_to_hit(paths[number % 3], store, number))
        time.sleep(0.5)
    bar("from a line to a hit, p50", quantile(delays, 0.5), 2, "s")
    bar("from a line to a hit, worst", max(delays), 2, "s")
    time.sleep(10)
    begun, used = time.monotonic(), used_s(pid)
    time.sleep(options.rest)
    bar("processor at rest", (used_s(pid) - used) / (time.monotonic() - begun) * 100, 0.5, "%")
    _traffic(pid, paths, options.traffic)


def _traffic(pid: int, paths: list[Path], seconds: int) -> None:
    """Lines as fast as several agents write them, and the memory meanwhile."""
    sizes, ends_at, number = [], time.monotonic() + seconds, 0
    while time.monotonic() < ends_at:
        path = paths[number % 20]
        write_line(path, path.stem, f"traffic {number} " + "word " * 200)
        number += 1
        time.sleep(0.1)
        if number % 20 == 0:
            sizes.append(resident_mb(pid))
    part = max(1, len(sizes) // CURVE_POINTS)
    curve = [fmean(sizes[start : start + part]) for start in range(0, len(sizes), part)]
    print(f"     {number} lines in {seconds} s: memory, MB: {' '.join(f'{size:.0f}' for size in curve)}")


if __name__ == "__main__":
    main()
