"""What one more line costs: a sweep of a session that has grown by a line, and of one exchange in a large store.

    python bench/append.py [--events 500000] [--sessions 1] [--repeat 5] [--work DIR]

Writes that many events into that many Claude Code transcripts, sweeps them once, then lets one of them grow and sweeps
again: processor time of the command beyond the interpreter and what it imports, and peak memory.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from ingest import RECOLLECT, Run, run

BEGIN = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
WORDS = ("parser", "ledger", "token", "cache", "index", "retry", "socket", "schema", "worker", "queue", "merge")
EVENTS_OF_EXCHANGE = 11  # a request, three calls each with words before it and its result, the answer
MODULES_OF_A_CHANGE = (
    "import recollect.cli.entry, recollect.sweep, recollect.ingest.gate, recollect.ingest.pool,"
    " recollect.agents.claude, recollect.ingest.builder, recollect.sessions.account, recollect.analysis.distiller,"
    " recollect.recall, genai_prices"
)


class Transcript:
    """A transcript that grows by whole exchanges."""

    def __init__(self, folder: Path, number: int) -> None:
        self._chance = random.Random(number)
        self.session = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
        self.path = folder / "projects" / "-home-dev-shop" / f"{self.session}.jsonl"
        self._now = BEGIN + timedelta(minutes=number)
        self._parent: str | None = None
        self._calls = 0

    def _words(self, count: int) -> str:
        return " ".join(self._chance.choices(WORDS, k=count))

    def _line(self, kind: str, content: Any, **more: Any) -> bytes:
        self._now += timedelta(seconds=self._chance.randrange(1, 20))
        name = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
        record = {"parentUuid": self._parent, "isSidechain": False, "cwd": "/home/dev/shop", "sessionId": self.session}
        record |= {"version": "2.1.19", "gitBranch": "main", "type": kind, "uuid": name}
        record |= {"timestamp": f"{self._now:%Y-%m-%dT%H:%M:%S}.000Z", "message": {"role": kind, "content": content}}
        record["message"] |= more
        self._parent = name
        return orjson.dumps(record) + b"\n"

    def _said(self, *blocks: Any) -> bytes:
        usage = {"input_tokens": 8, "cache_read_input_tokens": 40_000, "cache_creation_input_tokens": 900}
        named = {"id": f"msg_{self._chance.getrandbits(80):020x}", "model": "claude-opus-4-5-20251101"}
        return b"".join(
            self._line("assistant", [block], usage=usage | {"output_tokens": 210}, **named) for block in blocks
        )

    def prompt(self) -> bytes:
        return self._line("user", f"please change the {self._words(14)}")

    def exchange(self) -> bytes:
        lines = [self.prompt()]
        for _ in range(3):
            self._calls += 1
            call = {"type": "tool_use", "id": f"toolu_{self._calls:012}", "name": "Bash"}
            call["input"] = {"command": self._chance.choice(("pytest -q", "git diff", f"rg {self._words(1)}"))}
            lines.append(self._said({"type": "text", "text": self._words(20)}, call))
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"{self._words(30)}\n3 passed"}
            lines.append(self._line("user", [result]))
        lines.append(self._said({"type": "text", "text": f"Done: {self._words(30)}."}))
        return b"".join(lines)

    def write(self, events: int) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("wb") as file:
            for _ in range(max(1, events // EVENTS_OF_EXCHANGE)):
                file.write(self.exchange())

    def grow(self, lines: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(lines)


def sweep(home: Path, store: Path) -> Run:
    return run((*RECOLLECT, "sweep", "--root", f"claude={home}", "--json"), {"RECOLLECT_HOME": str(store)})


def imports() -> float:
    """Processor time of the interpreter and of all that a sweep with something to do loads."""
    return min(run((sys.executable, "-c", MODULES_OF_A_CHANGE), {}).cpu for _ in range(5))


def measure(work: Path, events: int, sessions: int, repeat: int) -> None:
    home, store = work / "home", work / "store"
    transcripts = [Transcript(home, number) for number in range(sessions)]
    for transcript in transcripts:
        transcript.write(events // sessions)
    first = sweep(home, store)
    print(f"first sweep of {events:,} events in {sessions:,} sessions: {first.cpu:.1f} s, {first.peak_mb:.0f} MB")
    floor = imports()
    print(f"interpreter and imports: {floor:.3f} s")
    grown = transcripts[len(transcripts) // 2]
    for name, lines in (("one line", grown.prompt), ("one exchange", grown.exchange)):
        runs = []
        for _ in range(repeat):
            grown.grow(lines())
            runs.append(sweep(home, store))
        beyond = sorted(one.cpu - floor for one in runs)
        peak = max(one.peak_mb for one in runs)
        print(f"{name}: {beyond[0]:.3f} s best, {statistics.median(beyond):.3f} median beyond imports; {peak:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--work", type=Path)
    asked = parser.parse_args()
    os.umask(0o077)
    with tempfile.TemporaryDirectory(prefix="append-", dir=asked.work) as work:
        measure(Path(work), asked.events, asked.sessions, asked.repeat)


if __name__ == "__main__":
    main()
