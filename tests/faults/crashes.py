"""Three ways of crashing a command: at a random instant, at its failpoints, and at every system call that writes.

Calls are struck by strace. It counts them for each thread of its own, so a number may mean a call of several
threads; the first of them to get there is struck.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from recollect.api import open_memory
from recollect.model.failpoints import NAMES
from tests.faults.rig import Held, Struck, command, examine, run, sweep
from tests.faults.work import Writers, texts_on_disk
from tests.forget.traces import Planted
from tests.tally import count

LONG_AND_SHORT = [330, 10, 10, 10, 10, 10]  # messages of each session: one does not fit into one of the small batches
SMALL_BATCHES = "small_batches"
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


# At random instants


def kill_at_random(folder: Path, seed: int, kills: int, bug: str | None = None) -> Struck:
    """Kill so many sweeps of sessions that are being written; each is followed by a whole one and a count."""
    store, writers = folder / "store", Writers(folder / "home", seed)
    killer, chance = _Killer(seed), random.Random(seed)
    findings: list[str] = []
    while killer.killed < kills and not findings:
        writers.write(chance.sample(LONG_AND_SHORT, len(LONG_AND_SHORT)))
        with writers.at_work():
            killer.strike(command("sweep", *writers.root_flags, bug=bug or SMALL_BATCHES), store)
        findings = _count(store, writers, bug)
    writers.finish()
    clean = sweep(folder / "clean", *writers.roots)
    findings += examine(store, writers, clean, bug)
    if bug is None:
        count("kill", killer.killed, killer.killed - bool(findings))
    return Struck(killer.killed, findings)


def _count(store: Path, writers: Writers, bug: str | None) -> list[str]:
    """Whether a whole sweep gets to as many events as there are messages; reading all of them would take too long."""
    if bug is not None:
        run(command("sweep", *writers.root_flags, bug=bug), store)
    with open_memory(store, writers.roots) as memory:
        memory.sweep()
        held = sum(session.event_count for session in memory.sessions())
    told = texts_on_disk(writers.home).total()
    return [] if held == told else [f"{held} events of {told} messages"]


class _Killer:
    """Kills commands at random instants of the time one usually takes, which it learns from those that end."""

    def __init__(self, seed: int) -> None:
        self.killed = 0
        self._chance = random.Random(seed)
        self._usual_seconds = 60.0

    def strike(self, arguments: Sequence[str], store: Path) -> None:
        begun = time.monotonic()
        if _kill_after(_start(arguments, store), self._usual_seconds * self._chance.uniform(0.3, 1.0)):
            self.killed += 1
        else:
            self._usual_seconds = time.monotonic() - begun


def _start(arguments: Sequence[str], store: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"RECOLLECT_HOME": str(store)}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(arguments, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)


def _kill_after(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Let it run for a while; whether there was anything left to kill."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


@dataclass(frozen=True, slots=True)
class Case:
    """A command to be struck, the store it is run on (none, or a copy of one that is there already), and the judge.

    In its words `{store}` stands for that store. After each fault `judge` is given the store, the agents' sessions
    (`writers`), what a clean store holds, and the bug to be found. A command that writes `outside` the store, below a
    folder, is struck there too; before each run that folder is made anew from a copy of it.
    """

    name: str
    words: list[str]
    writers: Writers | Planted
    template: Path | None = None
    bug: str | None = None
    judge: Callable[[Path, Any, Held | None, str | None], list[str]] = examine
    outside: Path | None = None
    variable: str | None = None  # of the environment, as `env` takes it

    @property
    def _pristine(self) -> Path:
        assert self.outside is not None
        return self.outside.with_name(f"{self.outside.name}-pristine")

    def prepare(self, store: Path) -> Path:
        if self.outside is not None:
            if not self._pristine.exists():
                self.outside.rename(self._pristine)
            shutil.rmtree(self.outside, ignore_errors=True)
            shutil.copytree(self._pristine, self.outside, symlinks=True)
        if self.template is not None:
            shutil.copytree(self.template, store)
        return store

    def command(self, store: Path) -> list[str]:
        words = command(*(word.format(store=store) for word in self.words), bug=self.bug or SMALL_BATCHES)
        return ["env", self.variable, *words] if self.variable else words


# Sweeps; the other commands that are struck are in `cases.py`.

MakeCase = Callable[[Path, str | None], Case]


def first_sweep(folder: Path, bug: str | None) -> Case:
    """All sessions are new; there is no store yet."""
    writers = Writers(folder / "home", seed=3)
    writers.write(LONG_AND_SHORT)
    writers.finish()
    return Case("first sweep", ["sweep", *writers.root_flags], writers, bug=bug)


def second_sweep(folder: Path, bug: str | None) -> Case:
    """Sessions have grown, some of them where a line was torn, and one is new."""
    writers = Writers(folder / "home", seed=4, big_share=0.1)
    writers.write([30, 30, 30, 0, 30, 30])
    sweep(folder / "template", *writers.roots)
    writers.write([5] * 6)
    writers.finish()
    return Case("second sweep", ["sweep", *writers.root_flags], writers, folder / "template", bug)


SWEEPS: tuple[MakeCase, ...] = (first_sweep, second_sweep)


# At failpoints


def strike_failpoints(
    folder: Path,
    case: Case,
    most: int,
    clean: Held | None = None,
    names: Sequence[str] = NAMES,
    actions: Sequence[str] = ("kill",),
) -> Struck:
    """Strike the command at each failpoint, the first, second … time it comes there, but at most so often.

    Without a clean store to compare with, the agents go on writing after each kill.
    """
    struck = Struck(0, [])
    for name, action in product(names, actions):
        for nth in range(1, most + 1):
            one = _strike_at(folder / f"{name}-{action}-{nth}", case, f"{name}:{action}:{nth}", clean)
            if not one.faults:
                break  # it does not come there so often
            struck += one
    return struck


def _strike_at(folder: Path, case: Case, failpoint: str, clean: Held | None) -> Struck:
    folder.mkdir()
    store = case.prepare(folder / "store")
    done = run(["env", f"RECOLLECT_FAILPOINT={failpoint}", *case.command(store)], store)
    if clean is None:
        case.writers.write([3] * 6)
        case.writers.finish()
    is_kill = ":kill:" in failpoint
    is_struck = done.returncode in _KILLED if is_kill else done.returncode != 0
    said = [] if is_kill else _badly_told(done)
    findings = said + case.judge(store, case.writers, clean, case.bug)
    shutil.rmtree(folder)
    return _counted(case, f"{case.name}, {failpoint}", "kill" if is_kill else "failed commit", is_struck, findings)


def _counted(case: Case, place: str, promise: str, is_struck: bool, findings: list[str]) -> Struck:
    if is_struck and case.bug is None:
        count(promise, 1, int(not findings))
    return Struck(int(is_struck), [f"{place}: {finding}" for finding in findings])


# At every call


class Point(NamedTuple):
    """The nth call of a name that one thread makes."""

    call: str
    number: int


WRITES = ("pwrite64", "write", "fsync", "fdatasync", "ftruncate", "unlink", "rename", "mkdir", "openat")
KILL, EIO, ENOSPC = "SIGKILL", "EIO", "ENOSPC"
# A full disk has no room for names and bytes, but lets what is there be cut, removed and synced.
CALLS = {KILL: WRITES, EIO: WRITES, ENOSPC: ("pwrite64", "write", "mkdir", "openat")}
_CALL = re.compile(r"^(\d+)\s+(\w+)\(")


def strike_calls(
    folder: Path,
    case: Case,
    faults: Sequence[str],
    most: int,
    clean: Held | None = None,
    calls: Sequence[str] = WRITES,
) -> Struck:
    """Strike the command with each fault at every call, each time in a run of its own; at most at so many of them, the
    last one included."""
    points = _points(folder, case, calls)
    struck = Struck(0, [] if points else ["no call to strike"])
    for fault in faults:
        open_to = [point for point in points if point.call in CALLS[fault]]
        for point in open_to[:: -max(1, -(-len(open_to) // most))]:
            struck += _strike(folder / f"{fault}-{point.call}-{point.number}", case, point, fault, clean)
    return struck


def _strike(folder: Path, case: Case, point: Point, fault: str, clean: Held | None) -> Struck:
    folder.mkdir()
    store, log = case.prepare(folder / "store"), folder / "calls"
    action = f"signal={fault}" if fault == KILL else f"error={fault}"
    done = _traced(case, store, log, ["-e", f"inject={point.call}:{action}:when={point.number}"])
    is_struck = done.returncode in _KILLED if fault == KILL else "(INJECTED)" in log.read_text()
    said = [] if fault == KILL else _badly_told(done)
    findings = said + case.judge(store, case.writers, clean, case.bug)
    shutil.rmtree(folder)
    promise = "kill" if fault == KILL else "failed write"
    return _counted(case, f"{case.name}, {fault} at {point}", promise, is_struck, findings)


def _badly_told(done: subprocess.CompletedProcess[str]) -> list[str]:
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:
        return [f"no clear line, exit code {done.returncode}: {done.stderr[-2000:]}"]
    return []


def _points(folder: Path, case: Case, calls: Sequence[str]) -> list[Point]:
    """Every call of one whole run that writes below its store or outside it, in order."""
    store, log = case.prepare(folder / "probe"), folder / "probe-calls"
    places = [str(place) for place in (store, case.outside) if place is not None]
    done = _traced(case, store, log, [])
    assert done.returncode == 0, done.stderr
    seen: Counter[tuple[str, str]] = Counter()
    found: dict[Point, None] = {}
    for text in log.read_text().splitlines():
        if (match := _CALL.match(text)) is None:
            continue
        thread, name = match.groups()
        seen[thread, name] += 1
        is_writing = name != "openat" or "O_CREAT" in text
        if name in calls and is_writing and any(place in text for place in places):
            found[Point(name, seen[thread, name])] = None
    return list(found)


def _traced(case: Case, store: Path, log: Path, inject: list[str]) -> subprocess.CompletedProcess[str]:
    # Not with --seccomp-bpf, however fast: strace then lets the signals that it should inject fall silently.
    tracing = ["strace", "-f", "-qq", "-y", "-o", str(log), "-e", f"trace={','.join(WRITES)}", *inject]
    return run(case.command(store), store, tracer=tracing)
