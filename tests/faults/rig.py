"""What the fault tests share: a sweep and all it left behind, commands as processes, what is lost, flipped bytes."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from recollect import Event, Problem, Session
from recollect.api import Memory, doctor, open_memory
from recollect.model.errors import RecollectError
from recollect.model.schema import Digest
from recollect.sweep_report import SweepReport
from tests.faults.work import Writers, texts_on_disk
from tests.forks import fork_server, is_forkable
from tests.logs import AgentLog

NOBODY = 65534
IS_SOAK = bool(os.environ.get("RECOLLECT_SOAK"))
IS_LONG = os.environ.get("RECOLLECT_SOAK") == "all"  # takes hours; else a soak tries what the table of attacks asks for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount file systems and become another user")
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace (apt-get install strace)")
needs_nobody = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv to become another user"
)


@dataclass(frozen=True, slots=True)
class Held:
    """Everything one sweep said and everything the store held after it."""

    report: SweepReport
    sessions: list[Session]
    events: list[Event]
    payloads: list[dict[str, Any]]
    problems: list[Problem]
    digests: dict[str, Digest]

    @property
    def texts(self) -> list[str]:
        """What messages say, in reading order."""
        return [payload["text"] for payload in self.payloads if "text" in payload]

    @property
    def rows(self) -> list[Session]:
        """The sessions without the times that every store has its own of."""
        return [replace(session, discovered_at=None, ingested_at=None, analyzed_at=None) for session in self.sessions]

    @property
    def hashes(self) -> dict[str, str | None]:
        return {session.session_uid: session.content_hash for session in self.sessions}

    @property
    def accounted(self) -> int:
        """Events, named skips and problems: what the lines that were read became."""
        return self.report.events_new + sum(self.report.skipped.values()) + self.report.bad_lines

    def event(self, text: str) -> Event:
        return next(
            event for event, payload in zip(self.events, self.payloads, strict=True) if payload.get("text") == text
        )


def sweep(store: Path, *roots: str, verify: bool = False) -> Held:
    """Sweep the roots (AGENT=PATH) into the store, read everything back, and close it."""
    with open_memory(store, roots) as memory:
        return _held(memory, memory.sweep(verify=verify))


def _held(memory: Memory, report: SweepReport) -> Held:
    sessions = sorted(memory.sessions(), key=lambda session: session.session_uid)
    events: list[Event] = []
    payloads: list[dict[str, Any]] = []
    for session in sessions:
        found = memory.events(session, with_copies=True)
        events += found
        payloads += memory.payloads(session, found)
    digests = {
        session.session_uid: memory.digest(session)
        for session in sessions
        if session.event_count and session.parent_session_uid is None
    }
    return Held(report, sessions, events, payloads, memory.problems(), digests)


def swept_sessions(folder: Path, seed: int, settings: str = "") -> Writers:
    """Sessions, some with payloads in packs, and the store of them: the template of those that are struck."""
    writers = Writers(folder / "home", seed, big_share=0.1)
    writers.write([6] * 6)
    writers.finish()
    sweep(folder / "template", *writers.roots)
    (folder / "template" / "config.toml").write_text(settings)
    return writers


def sweep_file(folder: Path, log: AgentLog, content: bytes) -> Held:
    """Sweep a home with one session file of this content; no file may fail as a whole."""
    home = folder / "home"
    log.write(home, content)
    held = sweep(folder / "store", log.root_flag(home))
    assert held.report.failures == []
    return held


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one example of a property: `tmp_path` is one for all of them."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def command(*arguments: str, bug: str | None = None) -> list[str]:
    """The command line, or one with a bug of `broken.py` built in."""
    program = ["-m", "recollect"] if bug is None else [str(Path(__file__).parents[1] / "store" / "broken.py"), bug]
    return [sys.executable, "-P", *program, *arguments]


def as_nobody(arguments: Sequence[str]) -> list[str]:
    """The command as a user who owns nothing: root reads and writes whatever the modes say."""
    user = f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"
    return ["setpriv", *user, *arguments]


HOMES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GROK_HOME", "XDG_DATA_HOME")


def run(
    arguments: Sequence[str], store: Path, timeout: float = 60, tracer: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a command on a store and wait for it. Our own begins with everything imported, any other as it is.

    `tracer` is a strace that watches what our own does.
    """
    environment = os.environ | {"RECOLLECT_HOME": str(store), "PYTHONDONTWRITEBYTECODE": "1"}
    settings = store / "config.toml"
    if settings.exists() and "[agents." in settings.read_text():  # it says where the homes are: the test's must not
        environment = {name: value for name, value in environment.items() if name not in HOMES}
    while arguments[0] == "env":
        environment |= [arguments[1].split("=", 1)]
        arguments = arguments[2:]
    user = NOBODY if arguments[:4] == as_nobody([]) else None
    words = arguments if user is None else arguments[4:]
    if is_forkable(words):
        return fork_server().run(words, environment, timeout, user=user, tracer=tracer)
    return subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=timeout, cwd="/", check=False
    )


def run_json(arguments: Sequence[str], store: Path) -> Any:
    return json.loads(run(arguments, store).stdout)


def error_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a command complains about, without the hint that follows."""
    return [line for line in done.stderr.splitlines() if not line.startswith("hint:")]


def own(path: Path, user: int = NOBODY) -> None:
    """Give a folder and all below it to a user."""
    for found in (path, *path.rglob("*")):
        os.chown(found, user, user, follow_symlinks=False)


def listing(root: Path) -> dict[str, tuple[int, int, int, int, bytes]]:
    """Every entry below a folder with its mode, owner, inode, times and bytes."""
    found = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (info.st_mode, info.st_ino, info.st_mtime_ns, info.st_ctime_ns, content)
    return found


@dataclass(frozen=True, slots=True)
class Struck:
    """How often a rig really did harm, and what it found to be wrong after that."""

    faults: int
    findings: list[str]

    def __add__(self, other: "Struck") -> "Struck":
        return Struck(self.faults + other.faults, self.findings + other.findings)


def examine(store: Path, writers: Writers, clean: Held | None = None, bug: str | None = None) -> list[str]:
    """Sweep once more, by the same program, and say what the store lacks, has twice or has wrong."""
    try:
        if bug is not None:
            run(command("sweep", *writers.root_flags, bug=bug), store)
        held = sweep(store, *writers.roots)
    except RecollectError as error:
        return [f"unusable: {error.message}"]
    return [*_differences(held, texts_on_disk(writers.home)), *_unsound(store, held, clean)]


def problems(store: Path) -> Iterator[str]:
    """What `doctor` finds wrong with a store."""
    return (f"doctor: {finding.message}" for finding in doctor(store, []) if finding.level == "problem")


def _differences(held: Held, told: Counter[str]) -> Iterator[str]:
    found = Counter(held.texts)
    extra = found - told
    doubled = sum(count for text, count in extra.items() if text in told)
    for number, name in ((told - found).total(), "lost"), (doubled, "doubled"), (extra.total() - doubled, "wrong"):
        if number:
            yield f"{name}: {number} of {told.total()} messages"


def _unsound(store: Path, held: Held, clean: Held | None) -> Iterator[str]:
    yield from (f"wrong: {problem.path}:{problem.line} {problem.reason}" for problem in held.problems)
    yield from (f"failed: {path} {reason}" for path, reason in held.report.failures)
    yield from problems(store)
    if clean is not None and held.rows != clean.rows:
        yield "other rows than a clean store"
    if clean is not None and held.digests != clean.digests:
        yield "other digests than a clean store"


class Flip(NamedTuple):
    """One bit of one file of a store, turned over by `apply`; a second time turns it back."""

    path: Path
    offset: int
    bit: int

    def apply(self) -> None:
        with self.path.open("r+b") as file:
            file.seek(self.offset)
            (value,) = file.read(1)
            file.seek(self.offset)
            file.write(bytes([value ^ 1 << self.bit]))


def flip_bytes(folder: Path, seed: int, n: int) -> list[Flip]:
    """Choose `n` bytes that a store uses, of each of its databases, of its packs and of its other files in turn.

    In databases, these are bytes of pages in use. The store must be closed, its logs empty; nothing is changed yet.
    """
    chance = random.Random(seed)
    groups = [group for group in _used_bytes(folder) if group]
    flips = []
    for number in range(n):
        spans = groups[number % len(groups)]
        path, start, size = chance.choices(spans, [size for _, _, size in spans])[0]
        flips.append(Flip(path, start + chance.randrange(size), chance.randrange(8)))
    return flips


def _used_bytes(folder: Path) -> Iterator[list[tuple[Path, int, int]]]:
    """Groups of (file, offset, bytes)."""
    for database in sorted(folder.glob("*.db")):
        connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
        pages = "SELECT pgoffset, pgsize FROM dbstat WHERE NOT aggregate"
        yield [(database, *page) for page in connection.execute(pages)]
        connection.close()
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    spans = [(path, 0, path.stat().st_size) for path in files]
    yield [span for span in spans if span[0].suffix == ".pack"]
    yield [span for span in spans if not {".pack", ".db", ".lock", ".db-wal", ".db-shm"} & {span[0].suffix}]
