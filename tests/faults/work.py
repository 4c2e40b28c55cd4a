"""Agents at work: sessions that grow while they are read, and a second reader that says what is in them."""

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.logs import AGENT_LOGS, AgentLog, line, lines, session_id

BIG_BYTES = 60_000  # noise of this size makes a frame too big for the database: it goes to a pack


class Writers:
    """Two sessions of every agent that grow, a line at a time or torn in the middle."""

    def __init__(self, home: Path, seed: int, padding: int = 0, big_share: float = 0.005) -> None:
        self.home = home
        self._padding = " padded" * (padding // 7)
        self._big_share = big_share
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
    def root_flags(self) -> list[str]:
        return [part for root in self.roots for part in ("--root", root)]

    def path(self, number: int) -> Path:
        """The file of the nth session."""
        log, session = self._sessions[number - 1]
        return log.path(self.home / log.agent, session)

    @property
    def count(self) -> int:
        return len(self._sessions)

    @property
    def complete(self) -> int:
        """Messages that are whole on disk."""
        return texts_on_disk(self.home).total()

    def write(self, counts: Sequence[int]) -> None:
        """Add messages, so many to each session; some end in the middle of one."""
        for (log, session), count in zip(self._sessions, counts, strict=True):
            content = self._unfinished.pop(session, b"") + b"".join(self._messages(log, session, count))
            if content and self._random.random() < 0.5:
                cut = self._random.randrange(1, 40)
                content, self._unfinished[session] = content[:-cut], content[-cut:]
            self._append(log, session, content)

    def finish(self) -> None:
        for log, session in self._sessions:
            self._append(log, session, self._unfinished.pop(session, b""))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """They go on writing, a few lines at a time, for as long as the block runs."""
        is_over = threading.Event()

        def work() -> None:
            while not is_over.wait(0.02):
                self.write([self._random.randrange(3) for _ in self._sessions])

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _messages(self, log: AgentLog, session: str, count: int) -> Iterator[bytes]:
        for _ in range(count):
            self._count += 1
            text = f"message {self._count} {self._random.randbytes(self._random.randrange(10, 60)).hex()}"
            text += self._padding
            if self._random.random() < self._big_share:
                text += self._random.randbytes(BIG_BYTES).hex()
            yield line(log.message(session, self._count, text))

    def _append(self, log: AgentLog, session: str, content: bytes) -> None:
        with log.path(self.home / log.agent, session).open("ab") as file:
            file.write(content)


def texts_on_disk(home: Path) -> Counter[str]:
    """What every whole message below a home says, read without the program's help; one may lack its line end."""
    found: Counter[str] = Counter()
    for path in home.rglob("*.jsonl"):
        *whole, last = path.read_bytes().split(b"\n")
        records = [json.loads(text) for text in whole]
        found.update(text for record in [*records, _whole(last)] if (text := _text(record)) is not None)
    return found


def _whole(last: bytes) -> Any:
    """The record of a line that lacks nothing but its end."""
    try:
        return json.loads(last)
    except ValueError:
        return {}


def _text(record: Any) -> str | None:
    """The words of a message in whichever agent's shape; None for what is no message."""
    if "message" in record:
        return str(record["message"]["content"])
    if "params" in record:
        return str(record["params"]["update"]["content"]["text"])
    item = record.get("payload", {}).get("item")
    return str(item["content"][0]["text"]) if item else None
