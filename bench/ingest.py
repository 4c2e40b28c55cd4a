"""How fast, how small, how frugal: a sweep against the floor of merely parsing the same lines.

    python bench/ingest.py                              a generated home of 500 MB, all measurements
    python bench/ingest.py ~/.claude                    a home of your own, which is only read
    python bench/ingest.py --agent codex ~/.codex

Everything runs as a command of its own and takes turns, so that a busy machine disturbs all alike. Bars are
printed with a mark and never asserted: times are only worth something as ratios within one run.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import generate

MEGABYTE = generate.MEGABYTE
RECOLLECT = (sys.executable, "-m", "recollect")
SKIPPED_SOURCES = 3  # exit code of a sweep that could not read every file
FLOOR = """
import os, sys, orjson
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith(".jsonl"):
            with open(os.path.join(folder, name), "rb") as file:
                for line in file:
                    try:
                        orjson.loads(line)
                    except orjson.JSONDecodeError:
                        pass
"""
PEER = "agentsview"
# What the peer calls the folder of an agent's sessions, and where that lies below the agent's home.
PEER_FOLDERS = {"claude": ("CLAUDE_PROJECTS_DIR", "projects"), "codex": ("CODEX_SESSIONS_DIR", "sessions")}
SAMPLE_SECONDS = 0.02
BIG_FILE_MB = 200
LONG_LINE_MB = 50
FILES_OF_BAR = 10_000

MOST_CPU_FLOORS = 10  # read, redacted, indexed, distilled
MOST_CLOCK_FLOORS = 7
MOST_PEER_CPU = 0.6
MOST_PEER_CLOCK = 0.5
MOST_STORE = 0.35
MOST_NO_CHANGE_SECONDS = 0.5
MOST_MEMORY_MB = 250
MOST_LONG_LINE_MB = 100 + 10 * LONG_LINE_MB


@dataclass
class Run:
    """One command that was run. Peaks are the kernel's own high-water marks, read from /proc while it ran."""

    wall: float
    cpu: float
    peak_mb: float
    reader_peaks_mb: list[float]
    output: str


@dataclass
class Series:
    """The same command several times."""

    runs: list[Run] = field(default_factory=list)

    @property
    def wall(self) -> float:
        return min(run.wall for run in self.runs)

    @property
    def median(self) -> float:
        return statistics.median(run.wall for run in self.runs)

    @property
    def cpu(self) -> float:
        return min(run.cpu for run in self.runs)

    @property
    def peak_mb(self) -> float:
        return max(run.peak_mb for run in self.runs)

    @property
    def reader_peak_mb(self) -> float:
        return max((peak for run in self.runs for peak in run.reader_peaks_mb), default=0.0)

    def figures(self) -> dict[str, float]:
        told = {"wall_s": self.wall, "wall_median_s": self.median, "cpu_s": self.cpu}
        return told | {"peak_mb": self.peak_mb, "reader_peak_mb": self.reader_peak_mb}


class PeakWatch(threading.Thread):
    """Reads the memory peaks of a process and of all below it until told to stop."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._is_over = threading.Event()
        self.peaks: dict[int, float] = {}

    def run(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            for pid in _family(self._pid):
                peak = _peak_mb(pid)
                if peak:
                    self.peaks[pid] = peak

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def _family(pid: int) -> list[int]:
    """A process and its descendants, where the system lists them."""
    found, threads = [pid], Path(f"/proc/{pid}/task")
    try:
        told = [(thread / "children").read_text() for thread in threads.iterdir()]
    except OSError:
        return found  # it is ending
    for child in " ".join(told).split():
        found += _family(int(child))
    return found


def _peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peaks[0]) * 1024 / MEGABYTE if peaks else 0.0


def run(command: tuple[str, ...], environment: Mapping[str, str]) -> Run:
    """Run a command and measure it with everything it starts. A failing one ends the benchmark."""
    # With bytecode, as any installed program has it: to compile the sources takes longer than a sweep without news.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as output:
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, env={**inherited, **environment})
        watch = PeakWatch(process.pid)
        watch.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        watch.stop()
        if process.returncode not in (0, SKIPPED_SOURCES):
            raise SystemExit(f"failed with {process.returncode}: {' '.join(command)}")
        output.seek(0)
        own = watch.peaks.pop(process.pid, 0.0)
        return Run(wall, usage.ru_utime + usage.ru_stime, own, list(watch.peaks.values()), output.read())


@dataclass(frozen=True)
class Home:
    """An agent's folder that is measured."""

    agent: str
    folder: Path

    @property
    def logs(self) -> list[Path]:
        found = ((Path(folder), names) for folder, _, names in os.walk(self.folder))
        return [folder / name for folder, names in found for name in names if name.endswith(".jsonl")]

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.logs)

    def parse(self) -> Run:
        return run((sys.executable, "-c", FLOOR, str(self.folder)), {})

    def sweep(self, store: Path) -> Run:
        command = (*RECOLLECT, "sweep", "--root", f"{self.agent}={self.folder}", "--json")
        return run(command, {"RECOLLECT_HOME": str(store)})


def folder_bytes(folder: Path) -> int:
    found = (Path(path) / name for path, _, names in os.walk(folder) for name in names)
    return sum(path.stat().st_size for path in found)


@dataclass
class Sweeps:
    """First sweeps of a home, each into a new store, and sweeps that find nothing new."""

    home: Home
    floor: Series = field(default_factory=Series)
    first: Series = field(default_factory=Series)
    unchanged: Series = field(default_factory=Series)
    start: Series = field(default_factory=Series)
    peer: Series = field(default_factory=Series)
    peer_absence: str = ""
    stages: dict[str, float] = field(default_factory=dict)  # in floors
    report: dict[str, Any] = field(default_factory=dict)
    store_bytes: int = 0
    peer_bytes: int = 0

    def measure(self, work: Path, repeat: int, *, is_whole: bool) -> "Sweeps":
        self.home.parse()  # brings the files into memory for all of them
        self._empty_home(work).sweep(work / "empty-store")
        for number in range(repeat):
            self.floor.runs.append(self.home.parse())
            self._sweep(work / f"store-{number}")
            if is_whole:
                self._run_peer(work / f"peer-{number}")
        if is_whole:
            self._measure_stages(work / "stages")
        return self

    def _measure_stages(self, store: Path) -> None:
        program = str(Path(__file__).with_name("stages.py"))
        measured = run((sys.executable, program, self.home.agent, str(self.home.folder), str(store)), {})
        self.stages = {stage: seconds / self.floor.cpu for stage, seconds in json.loads(measured.output).items()}
        shutil.rmtree(store)

    def _empty_home(self, work: Path) -> Home:
        folder = work / "empty-home"
        folder.mkdir(parents=True, exist_ok=True)
        return Home(self.home.agent, folder)

    def _sweep(self, store: Path) -> None:
        first = self.home.sweep(store)
        self.first.runs.append(first)
        self.report = json.loads(first.output)
        self.store_bytes = folder_bytes(store)
        for _ in range(2):
            self.start.runs.append(self._empty_home(store.parent).sweep(store.parent / "empty-store"))
            self.unchanged.runs.append(self.home.sweep(store))
        shutil.rmtree(store)

    def _run_peer(self, store: Path) -> None:
        self.peer_absence = _peer_absence(self.home.agent)
        if self.peer_absence:
            return
        variable, below = PEER_FOLDERS[self.home.agent]
        source = self.home.folder / below
        environment = {
            variable: str(source if source.is_dir() else self.home.folder),
            "HOME": str(store),  # it would read the other agents' default homes too
            "AGENTSVIEW_DATA_DIR": str(store),
            "AGENTSVIEW_NO_DAEMON": "1",
            "AGENTSVIEW_TELEMETRY_ENABLED": "false",
            "DO_NOT_TRACK": "1",
        }
        store.mkdir(parents=True)
        self.peer.runs.append(run((PEER, "sync"), environment))
        self.peer_bytes = folder_bytes(store)
        shutil.rmtree(store)

    @property
    def megabytes(self) -> float:
        return self.home.bytes / MEGABYTE

    @property
    def cpu_floors(self) -> float:
        return self.first.cpu / self.floor.cpu

    @property
    def clock_floors(self) -> float:
        return self.first.wall / self.floor.wall

    @property
    def no_change_seconds(self) -> float:
        """Time of a sweep that finds nothing new, beyond one that finds no file at all, for 10,000 files.

        Fewer files are not scaled up: what is the same for any number of them would be multiplied too.
        """
        files = max(FILES_OF_BAR, int(self.report["sources"]))
        return max(0.0, self.unchanged.wall - self.start.wall) * FILES_OF_BAR / files

    def figures(self) -> dict[str, Any]:
        told: dict[str, Any] = {"mb": self.megabytes, "files": len(self.home.logs), "report": self.report}
        told |= {name: getattr(self, name).figures() for name in ("floor", "first", "unchanged", "start")}
        told |= {"cpu_floors": self.cpu_floors, "clock_floors": self.clock_floors, "store_bytes": self.store_bytes}
        told |= {"stages_in_floors": self.stages}
        told |= {"no_change_s_per_10000_files": self.no_change_seconds}
        if self.peer.runs:
            told["peer"] = self.peer.figures() | {"store_bytes": self.peer_bytes}
        return told | {"peer_absence": self.peer_absence}


def _peer_absence(agent: str) -> str:
    """Why the peer cannot be measured; empty if it can."""
    if agent not in PEER_FOLDERS:
        return f"{PEER} cannot be pointed at a folder of {agent} sessions"
    return "" if shutil.which(PEER) else f"{PEER} is not installed (pip install {PEER})"


Bar = tuple[str, float, float, str]  # what, measured, at most, unit


def bars_of(sweeps: Sweeps) -> list[Bar]:
    store = sweeps.store_bytes / sweeps.home.bytes
    first, peer = sweeps.first, sweeps.peer
    beside: list[Bar] = (
        [
            (f"processor time, of {PEER}'s", first.cpu / peer.cpu, MOST_PEER_CPU, "x"),
            (f"clock, of {PEER}'s", first.wall / peer.wall, MOST_PEER_CLOCK, "x"),
        ]
        if peer.runs
        else []
    )
    return [
        ("processor time, in floors", sweeps.cpu_floors, MOST_CPU_FLOORS, "x"),
        ("clock, in floors", sweeps.clock_floors, MOST_CLOCK_FLOORS, "x"),
        *beside,
        ("store, of the source", store, MOST_STORE, "x"),
        ("no change, per 10,000 files", sweeps.no_change_seconds, MOST_NO_CHANGE_SECONDS, "s"),
        ("memory of the writer", sweeps.first.peak_mb, MOST_MEMORY_MB, "MB"),
        ("memory of a reader", sweeps.first.reader_peak_mb, MOST_MEMORY_MB, "MB"),
    ]


def memory_bars(sweeps: Sweeps, name: str, most_mb: float) -> list[Bar]:
    found = [(f"{name}: writer", sweeps.first.peak_mb, most_mb, "MB")]
    return [*found, (f"{name}: reader", sweeps.first.reader_peak_mb, most_mb, "MB")]


@dataclass
class Bench:
    """All measurements that were asked for."""

    work: Path
    repeat: int
    seed: int
    sweeps: dict[str, Sweeps] = field(default_factory=dict)
    bars: list[Bar] = field(default_factory=list)

    def made(self, name: str, make: Callable[[Path], None]) -> Path:
        """A generated folder, kept for the next run."""
        folder = self.work / name
        if not folder.exists():
            unfinished = self.work / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(folder)
        return folder

    def home(self, agent: str, mb: int) -> Home:
        name = f"{agent}-{mb}-{self.seed}"
        return Home(agent, self.made(name, lambda out: generate.generate(out, mb, self.seed, agent)))

    def measure(self, home: Home) -> None:
        sweeps = self._measure("home", home, is_whole=True)
        self.bars += bars_of(sweeps)

    def measure_extremes(self, files: int) -> None:
        """Many small files, one big file, one long line: all in Claude Code's shape."""
        small = self.made(f"files-{files}-{self.seed}", lambda out: generate.write_small_files(out, files, self.seed))
        sweeps = self._measure(f"{files:,} small files", Home("claude", small))
        self.bars.append((f"no change, {files:,} small files", sweeps.no_change_seconds, MOST_NO_CHANGE_SECONDS, "s"))
        big = self.made(f"big-{self.seed}", lambda out: generate.write_one_file(out, BIG_FILE_MB, self.seed))
        sweeps = self._measure(f"one file of {BIG_FILE_MB} MB", Home("claude", big))
        self.bars += memory_bars(sweeps, f"{BIG_FILE_MB} MB file", MOST_MEMORY_MB)
        line = self.made(f"line-{self.seed}", lambda out: generate.write_long_line(out, LONG_LINE_MB, self.seed))
        sweeps = self._measure(f"one line of {LONG_LINE_MB} MB", Home("claude", line))
        self.bars += memory_bars(sweeps, f"{LONG_LINE_MB} MB line", MOST_LONG_LINE_MB)

    def _measure(self, name: str, home: Home, *, is_whole: bool = False) -> Sweeps:
        with tempfile.TemporaryDirectory(dir=self.work, prefix="run-") as folder:
            self.sweeps[name] = Sweeps(home).measure(Path(folder), self.repeat, is_whole=is_whole)
        return self.sweeps[name]


COLUMNS = ("wall s", "median", "CPU s", "MB/s", "floors", "CPU", "writer", "reader", "store")


def show(bench: Bench) -> None:
    print(" " * 32 + "".join(f"{name:>8}" for name in COLUMNS))
    for name, sweeps in bench.sweeps.items():
        _show_sweeps(name, sweeps)
    print(
        "\nTimes: the best run; `floors` compares wall, `CPU` beside it processor time. Memory (writer, reader) in MB:"
    )
    print("the worst run. Store: as a part of the logs' bytes.\n")
    for what, measured, most, unit in bench.bars:
        print(f"{'ok  ' if measured <= most else 'MISS'}  {what:38}{measured:>9.2f} {unit:3} (at most {most:g})")


def _show_sweeps(name: str, sweeps: Sweeps) -> None:
    counts = f"{len(sweeps.home.logs):,} logs, {sweeps.report['events_new']:,} events"
    print(f"{name}: {sweeps.megabytes:,.0f} MB, {counts}")
    if sweeps.report["sources_failed"]:
        print(f"  not read: {sweeps.report['sources_failed']} files, so the figures below mean little")
    _show_row("  parse every line", sweeps.floor, sweeps)
    _show_row("  recollect sweep", sweeps.first, sweeps, sweeps.store_bytes)
    _show_row("  recollect sweep, nothing new", sweeps.unchanged, None)
    _show_row("  recollect sweep, no files", sweeps.start, None)
    if sweeps.peer.runs:
        _show_row(f"  {PEER} sync", sweeps.peer, sweeps, sweeps.peer_bytes)
    elif sweeps.peer_absence:
        print(f"  {sweeps.peer_absence}")
    for stage, floors in sorted(sweeps.stages.items(), key=lambda item: -item[1]):
        print(f"    {stage:36}{floors:6.2f} floors of processor time")


def _show_row(name: str, series: Series, of: Sweeps | None, store_bytes: int = 0) -> None:
    cells = [f"{series.wall:.2f}", f"{series.median:.2f}", f"{series.cpu:.2f}"]
    cells += [f"{of.megabytes / series.wall:.0f}", *_floors(series, of.floor)] if of else ["", "", ""]
    cells += [f"{series.peak_mb:.0f}", f"{series.reader_peak_mb:.0f}" if series.reader_peak_mb else ""]
    cells += [f"{store_bytes / of.home.bytes:.3f}"] if of and store_bytes else []
    print(f"{name:32}" + "".join(f"{cell:>8}" for cell in cells))


def _floors(series: Series, floor: Series) -> list[str]:
    """Wall and CPU as multiples of the floor's; on a busy machine the second is the one to trust."""
    return [f"{series.wall / floor.wall:.2f}", f"{series.cpu / floor.cpu:.2f}"]


def as_json(bench: Bench) -> str:
    bars = [
        {"bar": what, "measured": measured, "at_most": most, "unit": unit, "is_met": measured <= most}
        for what, measured, most, unit in bench.bars
    ]
    told = {"sweeps": {name: sweeps.figures() for name, sweeps in bench.sweeps.items()}, "bars": bars}
    return json.dumps(told, indent=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="an agent's home to read, instead of a generated one")
    parser.add_argument("--agent", choices=sorted(generate.WRITERS), default="claude")
    parser.add_argument("--mb", type=int, default=500, help="size of the generated home")
    parser.add_argument("--files", type=int, default=10_000, help="number of small files; 0 leaves out the extremes")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "recollect-bench")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(asked.work, asked.repeat, asked.seed)
    bench.measure(Home(asked.agent, asked.folder) if asked.folder else bench.home(asked.agent, asked.mb))
    if asked.folder is None and asked.agent == "claude" and asked.files:
        bench.measure_extremes(asked.files)
    if asked.json:
        print(as_json(bench))
    else:
        show(bench)


if __name__ == "__main__":
    main()
