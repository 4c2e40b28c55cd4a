"""How quickly and how surely things are found: needles of nine kinds among many events.

    python bench/search.py [--events 100000] [--keep FOLDER]

Events go through the real store, as a sweep would put them there. Prints each bar with what was measured.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from generate import Words
from recollect.agentkit.protocol import AgentProfile, Checkpoint, Cursor, EventRecord, Record, SessionInfo, Source
from recollect.analysis.distiller import distil_pending
from recollect.ingest.builder import Protection, Task, read_batches
from recollect.model.schema import ASSISTANT_MSG, ERROR, SUMMARY_CHARS, THINKING, TOOL_CALL, TOOL_RESULT, USER_MSG
from recollect.recall import Options, SearchAnswer, search
from recollect.redact import RedactionRules
from recollect.sessions import AccountRules
from recollect.sessions.account import account_for
from recollect.store import Store, open_store
from recollect.store.batch import SourceRow

AGENT = "bench"
EVENTS_OF_SESSION = 100
SESSIONS_AT_ONCE = 40
NEEDLES_OF_KIND = 20
POOL = 4000
BEGIN_MS = 1_760_000_000_000
NOT_ON_A_USERS_MACHINE = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
COLD_RUNS = 30
KINDS = {USER_MSG: 0.06, ASSISTANT_MSG: 0.14, THINKING: 0.1, TOOL_CALL: 0.33, TOOL_RESULT: 0.35, ERROR: 0.02}


@dataclass(frozen=True)
class Needle:
    """Something planted once: where it stands, what is asked for it."""

    kind: str
    event_kind: str
    text: str
    query: str
    session: str


def make_needles(chance: random.Random, sessions: int) -> list[Needle]:
    return [needle for number in range(NEEDLES_OF_KIND) for needle in _needles(chance, sessions, number)]


def _needles(chance: random.Random, sessions: int, number: int) -> Iterator[Needle]:
    def word() -> str:
        return "".join(chance.choices("bcdfghjklmnpqrstvwz", k=4)) + "".join(chance.choices("aeiou", k=3))

    def plant(kind: str, event_kind: str, text: str, query: str) -> Needle:
        return Needle(kind, event_kind, text, query, f"session-{chance.randrange(sessions)}")

    name = word()
    yield plant("word in a message", ASSISTANT_MSG, f"we should call it {name}, as agreed", name)
    phrase = f"the {word()} is not a {word()}"
    yield plant("phrase in a tool output", TOOL_RESULT, f"checked 14 items\nresult: {phrase}\ndone", f'"{phrase}"')
    path = f"src/{word()}/{word()}_test.py"
    yield plant("path", TOOL_CALL, f"cat /home/dev/code/ledger/{path}", path)
    url = f"https://example.com/api/{word()}?page=2&token={word()}"
    yield plant("URL with query string", TOOL_RESULT, f"GET {url} 200 OK", url)
    command = f"kubectl rollout restart deploy/{word()}"
    yield plant("command", TOOL_CALL, command, command)
    flag = f"--no-{word()}"
    yield plant("flag", TOOL_CALL, f"git commit {flag} -m wip", flag)
    error = f"TypeError: cannot read {word()} of undefined"
    yield plant("error text", ERROR, f"Traceback:\n{error}\n    at main", f'"{error}"')
    han = "".join(chr(chance.randrange(0x4E00, 0x9F00)) for _ in range(6))
    yield plant("CJK", USER_MSG, f"请把{han}改成一小时,谢谢", han)
    indonesian = f"perbaiki kesalahan {word()} pada halaman masuk"
    yield plant("Indonesian", USER_MSG, f"Tolong {indonesian} sekarang juga", indonesian)


class Teller:
    """Tells the events of some sessions."""

    agent = AGENT
    home = "~/.bench"
    home_variable = "BENCH_HOME"
    version = 1
    profile = AgentProfile("Bench")

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def discover(self, root: Path) -> Iterator[Source]:
        return iter(())

    def read(self, source: Source, cursor: Cursor | None) -> Iterator[Record]:
        yield from self._records
        yield Checkpoint(Cursor(), 1, 1)


def make_pool(chance: random.Random) -> dict[str, list[str]]:
    words = Words(chance)
    files = words.library[:300]
    prose = [words.prose(220) for _ in range(POOL)]
    logs = [words.log(files)[:6000] for _ in range(POOL)]
    calls = [
        "\n".join(words.code(chance.choice(files), 1 + chance.randrange(6))[1]) or "make test" for _ in range(POOL)
    ]
    return {USER_MSG: prose, ASSISTANT_MSG: prose, THINKING: prose, TOOL_CALL: calls, TOOL_RESULT: logs, ERROR: logs}


def session_records(
    name: str, number: int, chance: random.Random, pool: dict[str, list[str]], needles: Sequence[Needle]
) -> Iterator[Record]:
    yield SessionInfo(name, cwd=f"/home/dev/code/service-{number % 20}")
    kinds = chance.choices(list(KINDS), list(KINDS.values()), k=EVENTS_OF_SESSION)
    places = dict(zip(chance.sample(range(EVENTS_OF_SESSION), len(needles)), needles, strict=True))
    for place, kind in enumerate(kinds):
        needle = places.get(place)
        kind = needle.event_kind if needle else kind
        text = chance.choice(pool[kind])
        text = f"{text}\n{needle.text}" if needle else text
        told = "output" if kind in (TOOL_RESULT, ERROR) else "input" if kind == TOOL_CALL else "text"
        payload = {told: {"command": text} if told == "input" else text}
        at_ms = BEGIN_MS + (number * EVENTS_OF_SESSION + place) * 1000
        yield EventRecord(name, f"{name}-{place}", place, at_ms, kind, payload, text[:SUMMARY_CHARS])


def fill(store: Store, events: int, chance: random.Random, needles: Sequence[Needle]) -> None:
    pool = make_pool(chance)
    redactor = Protection(store.folder, RedactionRules()).redactor()
    by_session: dict[str, list[Needle]] = {}
    for needle in needles:
        by_session.setdefault(needle.session, []).append(needle)
    sessions = events // EVENTS_OF_SESSION
    for start in range(0, sessions, SESSIONS_AT_ONCE):
        records: list[Record] = []
        for number in range(start, min(sessions, start + SESSIONS_AT_ONCE)):
            name = f"session-{number}"
            records += session_records(name, number, chance, pool, by_session.get(name, ()))
        row = SourceRow("bench", AGENT, f"/bench/{start}", "log", 1, 1, 1, start + 1, 1, 0, 0, "", "", "{}")
        source = Source(AGENT, "log", Path("/bench"), Path(row.path))
        store.intake.put(list(read_batches(Teller(records), Task(source, row, False), redactor)), store.sources.save)
    account_for(store, AccountRules(), lambda done, total: None)
    store.streams.set_dirty(store.streams.dirty(), False)


def quantile(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def bar(name: str, figure: float, most: float, unit: str) -> None:
    print(f"{'ok  ' if figure <= most else 'MISS'} {name}: {figure:.3g} {unit} (bar {most:g})")


class Times:
    """How long searches took, in ms of the processor and by the clock: on a busy machine only the former says much."""

    def __init__(self) -> None:
        self.processor: list[float] = []
        self.clock: list[float] = []

    def search(self, store: Store, query: str) -> SearchAnswer:
        begun = time.process_time()
        answer = search(store, query, Options())
        self.processor.append((time.process_time() - begun) * 1000)
        self.clock.append(answer.took_ms)
        return answer

    def show(self, name: str, p50: float, p99: float) -> None:
        bar(f"{name} p50 (CPU)", statistics.median(self.processor), p50, "ms")
        bar(f"{name} p99 (CPU)", quantile(self.processor, 0.99), p99, "ms")
        print(f"     by the clock: {statistics.median(self.clock):.3g}, {quantile(self.clock, 0.99):.3g} ms")


def find_needles(store: Store, needles: Sequence[Needle], p50: float, p99: float) -> None:
    search(store, "warm up", Options())
    times = Times()
    missed: dict[str, list[str]] = {}
    for needle in needles:
        answer = times.search(store, needle.query)
        if not answer.hits or answer.hits[0].session_uid != f"{AGENT}:{needle.session}":
            missed.setdefault(needle.kind, []).append(needle.query)
    found = len(needles) - sum(map(len, missed.values()))
    print(
        f"{'ok  ' if not missed else 'MISS'} found first: {found} of {len(needles)} needles of 9 kinds {missed or ''}"
    )
    times.show("needles", p50, p99)


def find_common(store: Store, events: int) -> None:
    """Words that stand in more than 5 % of all events."""
    candidates = [
        "self",
        "the",
        "a",
        "of",
        "in",
        "is",
        "to",
        "if",
        "return",
        "def",
        "import",
        "for",
        "py",
        "src",
        "not",
    ]
    months = store.words.frequencies(candidates).values()
    counts = {word: sum(month.get(word, 0) for month in months) for word in candidates}
    common = [word for word, count in counts.items() if count > 0.05 * events]
    queries = [*common, *(f"{one} {other}" for one, other in pairwise(common))]
    times = Times()
    for query in queries * 3:
        times.search(store, query)
    print(f"     common words: {', '.join(f'{word} {counts[word] / events:.0%}' for word in common)}")
    times.show("common words", 400, 400)


def cold(folder: Path, query: str) -> None:
    """A whole `recollect search` against an interpreter that does nothing, and one with its libraries, by turns."""
    run = "import sys; from recollect.__main__ import run; sys.argv[:1] = ['recollect', 'search']; run()"
    programs = {"bare": "pass", "libraries": "import apsw, click, orjson, zstandard", "search": run}
    environment = {name: value for name, value in os.environ.items() if name not in NOT_ON_A_USERS_MACHINE}
    environment["RECOLLECT_HOME"] = str(folder)
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for _ in range(COLD_RUNS + 1):
        for name, code in programs.items():
            took[name].append(_seconds([sys.executable, "-c", code, query, "--json"], environment))
    bare, *others = ([1000 * statistics.median(kind) for kind in zip(*some[1:], strict=True)] for some in took.values())
    (library_clock, _), (clock, processor) = (
        [many - few for many, few in zip(some, bare, strict=True)] for some in others
    )
    bar("cold search beyond bare Python, p50", clock, 100, "ms")
    print(f"     of the processor {processor:.3g} ms; its libraries alone {library_clock:.3g} ms by the clock")


def _seconds(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """By the clock, and of the processor."""
    begun, used = time.perf_counter(), _used()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun, _used() - used


def _used() -> float:
    told = os.times()
    return told.children_user + told.children_system


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="fill this folder once, and use it again")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp())
    chance = random.Random(options.seed)
    needles = make_needles(chance, options.events // EVENTS_OF_SESSION)
    is_new = not (folder / "memory.db").exists()
    with open_store(folder, create=True) as store:
        if is_new:
            begun = time.process_time()
            fill(store, options.events, chance, needles)
            filled = time.process_time()
            store.fulltext.index_pending(store.payloads)
            store.checkpoint()
            took, text = time.process_time() - filled, store.fulltext.sizes()["text"]
            distil_pending(store, lambda done, total: None)
            print(
                f"     stored in {filled - begun:.0f} s, indexed in {took:.1f} s of CPU: {text / took / 1e6:.0f} MB/s"
            )
        sizes = store.fulltext.sizes()
        print(f"     {options.events:,} events, {sizes['text'] / 1e6:.0f} MB of text")
        bar("index of the text it indexes", sizes["index"] / sizes["text"], 0.6, "")
        is_large = options.events > 100_000
        find_needles(store, needles, *((20, 200) if is_large else (10, 50)))
        find_common(store, options.events)
    cold(folder, needles[0].query)
    if not options.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
