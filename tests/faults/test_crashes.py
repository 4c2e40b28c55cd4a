"""Killed at any instant: no complete line is lost or held twice."""

import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from recollect.memory import doctor, open_memory
from tests.faults.rig import IS_SOAK, Held, command, needs_strace, run, sweep
from tests.logs import AGENT_LOGS, AgentLog, line, lines, session_id

KILLS = 250 if IS_SOAK else 20
CRASH_POINTS = 10_000 if IS_SOAK else 10
ERROR_POINTS = 10_000 if IS_SOAK else 5
LONG_AND_SHORT = [1100, 10, 10, 10, 10, 10]  # messages of each session: one does not fit into one batch


class Writers:
    """Agents at work: sessions of every agent that grow, a line at a time or torn in the middle."""

    def __init__(self, home: Path, seed: int, padding: int = 0) -> None:
        self.home = home
        self._padding = " padded" * (padding // 7)
        self.expected: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._sessions = [(log, session_id(number)) for number, log in enumerate(AGENT_LOGS * 2, start=1)]
        self._unfinished: dict[str, bytes] = {}
        self._count = 0
        for log, session in self._sessions:
            log.write(home / log.agent, lines(log.opening(session)), session)

    @property
    def roots(self) -> list[str]:
        return [log.root_flag(self.home / log.agent) for log in AGENT_LOGS]

    @property
    def complete(self) -> int:
        """Messages that are whole on disk, counted without the program's help; one may lack its line end."""
        openings = sum(len(log.opening(session)) for log, session in self._sessions)
        files = [path.read_bytes() for path in self.home.rglob("*.jsonl")]
        return sum(content.count(b"\n") + _ends_whole(content) for content in files) - openings

    def write(self, counts: Sequence[int]) -> None:
        """Add messages, so many to each session; some end in the middle of one."""
        for (log, session), count in zip(self._sessions, counts, strict=True):
            content = self._unfinished.pop(session, b"") + b"".join(self._messages(log, session, count))
            if self._random.random() < 0.5:
                cut = self._random.randrange(1, 40)
                content, self._unfinished[session] = content[:-cut], content[-cut:]
            self._append(log, session, content)

    def finish(self) -> None:
        for log, session in self._sessions:
            self._append(log, session, self._unfinished.pop(session, b""))

    def _messages(self, log: AgentLog, session: str, count: int) -> Iterator[bytes]:
        for _ in range(count):
            self._count += 1
            text = f"message {self._count} {self._random.randbytes(self._random.randrange(10, 60)).hex()}"
            text += self._padding
            if self._random.random() < 0.005:
                text += self._random.randbytes(60_000).hex()  # too big a frame for the database: goes to a pack
            self.expected[text] += 1
            yield line(log.message(session, self._count, text))

    def _append(self, log: AgentLog, session: str, content: bytes) -> None:
        with log.path(self.home / log.agent, session).open("ab") as file:
            file.write(content)


def _ends_whole(content: bytes) -> bool:
    """Whether the last line lacks nothing but its end."""
    try:
        return isinstance(json.loads(content.rpartition(b"\n")[2]), dict)
    except ValueError:
        return False


def _assert_sound(held: Held, clean: Held, store: Path) -> None:
    assert Counter(held.texts) == Counter(clean.texts)
    assert held.hashes == clean.hashes
    assert [finding for finding in doctor(store, []) if finding.level == "problem"] == []


def _roots(writers: Writers) -> list[str]:
    return [part for root in writers.roots for part in ("--root", root)]


def _start(store: Path, writers: Writers) -> subprocess.Popen[bytes]:
    environment = os.environ | {"RECOLLECT_HOME": str(store)}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command("sweep", *_roots(writers)), env=environment, stdout=quiet, stderr=quiet, start_new_session=True
    )


def _kill_after(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Let it run for a while; whether there was anything left to kill."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


class Killer:
    """Kills sweeps at random instants of the time one usually takes, which it learns from those that end."""

    def __init__(self, seed: int) -> None:
        self.killed = 0
        self._chance = random.Random(seed)
        self._usual_seconds = 60.0

    def strike(self, store: Path, writers: Writers) -> None:
        begun = time.monotonic()
        if _kill_after(_start(store, writers), self._usual_seconds * self._chance.uniform(0.3, 1.0)):
            self.killed += 1
        else:
            self._usual_seconds = time.monotonic() - begun


def _events_after_a_whole_sweep(store: Path, writers: Writers) -> int:
    with open_memory(store, writers.roots) as memory:
        memory.sweep()
        return sum(session.event_count for session in memory.sessions())


def test_sweeps_killed_at_random_lose_and_double_nothing(tmp_path: Path) -> None:
    store, writers = tmp_path / "store", Writers(tmp_path / "home", seed=5)
    killer, chance = Killer(seed=11), random.Random(7)

    for _ in range(KILLS + 1):
        writers.write(chance.sample(LONG_AND_SHORT, len(LONG_AND_SHORT)))
        killer.strike(store, writers)
        assert _events_after_a_whole_sweep(store, writers) == writers.complete
    writers.finish()
    held = sweep(store, *writers.roots)

    assert killer.killed >= KILLS // 2
    assert Counter(held.texts) == writers.expected
    _assert_sound(held, sweep(tmp_path / "clean", *writers.roots), store)


def test_a_sweep_that_stopped_inside_a_file_is_gone_on_with_though_the_file_stays_as_it_is(tmp_path: Path) -> None:
    store, writers = tmp_path / "store", Writers(tmp_path / "home", seed=2)
    writers.write([2400, 10, 10, 10, 10, 10])
    writers.finish()

    class Stopped(Exception):
        pass

    def stop(stage: str, done: int, total: int) -> None:
        raise Stopped

    with open_memory(store, writers.roots) as memory, pytest.raises(Stopped):
        memory.sweep(stop)

    assert _events_after_a_whole_sweep(store, writers) == writers.complete


def _readers() -> list[int]:
    """The reader processes this process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and b"recollect.reader_process" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the readers in /proc")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="readers are processes of their own on several cores only")
def test_what_a_killed_reader_was_reading_is_read_by_the_next_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.sweep.BATCH_EVENTS", 100)  # the kill comes while most is still to be read
    store, writers = tmp_path / "store", Writers(tmp_path / "home", seed=4, padding=4000)
    writers.write([1500, 1500, 10, 1500, 10, 10])  # enough that it is worth starting readers
    writers.finish()
    killed: list[int] = []

    def kill(stage: str, done: int, total: int) -> None:
        if not killed:
            killed.extend(_readers())
            for reader in killed:
                os.kill(reader, signal.SIGKILL)

    with open_memory(store, writers.roots) as memory:
        report = memory.sweep(kill)

    assert killed
    assert report.failures
    assert _events_after_a_whole_sweep(store, writers) == writers.complete


def test_an_interrupt_ends_the_sweep_in_one_word(tmp_path: Path) -> None:
    store, writers = tmp_path / "store", Writers(tmp_path / "home", seed=6, padding=4000)
    writers.write([1500, 1500, 10, 1500, 10, 10])  # enough that it is worth starting readers
    writers.finish()
    sweeping = subprocess.Popen(
        command("sweep", *_roots(writers)),
        env={**os.environ, "RECOLLECT_HOME": str(store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(0.6)
    os.killpg(sweeping.pid, signal.SIGINT)  # as a terminal does
    _, told = sweeping.communicate(timeout=60)

    assert "Traceback" not in told
    assert _events_after_a_whole_sweep(store, writers) == writers.complete


# Every write, one by one

_WRITES = ("pwrite64", "write", "fsync", "fdatasync", "ftruncate", "unlink", "mkdir", "openat")
_CALL = re.compile(r"^\d+\s+(\w+)\(")


def _traced(log: Path, store: Path, writers: Writers, injected: str | None = None) -> subprocess.CompletedProcess[str]:
    inject = ["-e", f"inject={injected}"] if injected else []
    tracing = ["strace", "-f", "-qq", "-o", str(log), "-e", f"trace={','.join(_WRITES)}", *inject]
    return run([*tracing, *command("sweep", *_roots(writers))], store)


def _points(tmp_path: Path, writers: Writers, calls: tuple[str, ...], most: int) -> list[tuple[str, int]]:
    """(call, n): the nth call of that name in one whole sweep, evenly sampled."""
    log = tmp_path / "calls"
    _traced(log, tmp_path / "probe", writers)
    named = [match[1] for text in log.read_text().splitlines() if (match := _CALL.match(text))]
    seen: Counter[str] = Counter()
    found = []
    for name in named:
        seen[name] += 1
        if name in calls:
            found.append((name, seen[name]))
    return found[:: max(1, len(found) // most)]


@pytest.fixture
def written(tmp_path: Path) -> Writers:
    """Logs of three agents, with payloads for the database and for packs."""
    writers = Writers(tmp_path / "home", seed=3)
    writers.write(LONG_AND_SHORT)
    writers.finish()
    return writers


@needs_strace
def test_a_sweep_killed_at_any_write_is_made_good_by_the_next(tmp_path: Path, written: Writers) -> None:
    clean = sweep(tmp_path / "clean", *written.roots)
    points = _points(tmp_path, written, tuple(set(_WRITES) - {"openat"}), CRASH_POINTS)
    killed = 0

    for name, number in points:
        store = tmp_path / f"{name}-{number}"
        done = _traced(Path(os.devnull), store, written, f"{name}:signal=SIGKILL:when={number}")
        killed += done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
        _assert_sound(sweep(store, *written.roots), clean, store)

    assert killed >= 0.8 * len(points) > 0


@needs_strace
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_write_that_fails_is_one_line_and_made_good_by_the_next_sweep(
    tmp_path: Path, written: Writers, error: str
) -> None:
    clean = sweep(tmp_path / "clean", *written.roots)
    calls = ("fsync", "fdatasync") if error == "EIO" else ("pwrite64", "ftruncate", "mkdir")
    points = _points(tmp_path, written, calls, ERROR_POINTS)
    told = 0

    for name, number in points:
        store = tmp_path / f"{name}-{number}"
        done = _traced(Path(os.devnull), store, written, f"{name}:error={error}:when={number}")
        assert "Traceback" not in done.stderr, (name, number)
        assert done.returncode in (0, 1), (name, number, done.stderr)
        told += done.returncode
        _assert_sound(sweep(store, *written.roots), clean, store)

    assert told >= len(points) // 2 > 0
