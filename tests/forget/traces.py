"""Rare words, where to plant them, and the search for what is left of them."""

import contextlib
import random
import string
from collections.abc import Iterable
from pathlib import Path

import zstandard

from recollect.api import Memory
from tests.faults.rig import IS_SOAK
from tests.logs import AGENT_LOGS, AgentLog, lines, session_id

WORDS = 1000 if IS_SOAK else 100
_ZSTD = b"\x28\xb5\x2f\xfd"


def rare_words(seed: int, count: int = WORDS) -> list[str]:
    chance = random.Random(seed)
    return ["".join(chance.choices(string.ascii_lowercase, k=14)) for _ in range(count)]


def left_in(folder: Path, words: Iterable[str]) -> set[str]:
    """The words that stand in any file of the folder, less their first four letters, compressed or not."""
    contents = [path.read_bytes() + path.name.encode() for path in folder.rglob("*") if path.is_file()]
    contents += [inner for content in contents for inner in unpacked(content)]
    return {word for word in words if any(word[4:].encode() in content for content in contents)}


def unpacked(content: bytes) -> Iterable[bytes]:
    start = content.find(_ZSTD)
    while start >= 0:
        with contextlib.suppress(zstandard.ZstdError):
            yield zstandard.ZstdDecompressor().decompressobj().decompress(content[start : start + 300_000])
        start = content.find(_ZSTD, start + 1)


class Planted:
    """Sessions of every agent: some hold the words, others that lie between them must stay."""

    def __init__(self, home: Path, words: list[str]) -> None:
        self.home = home
        self.words = words
        self.forgotten: list[str] = []
        self.kept: list[str] = []
        for number in range(1, 31):
            log = AGENT_LOGS[number % len(AGENT_LOGS)]
            names, chosen = (
                (self.forgotten, words[number // 2 - 1 :: 15]) if number % 2 == 0 else (self.kept, ["stays"])
            )
            names.append(session_id(number))
            self._write(log, session_id(number), chosen)

    def _write(self, log: AgentLog, session: str, words: list[str]) -> None:
        texts = [f"{word} and so on" for word in words]
        texts.append(f"{words[0]} " + random.Random(session).randbytes(60_000).hex())  # too big for the database
        messages = [log.message(session, number, text) for number, text in enumerate(texts, start=1)]
        torn = b'{"torn": "' + words[-1].encode() + b"\n"
        log.write(self.home / log.agent, lines([*log.opening(session), *messages]) + torn, session)

    @property
    def roots(self) -> list[str]:
        return [log.root_flag(self.home / log.agent) for log in AGENT_LOGS]


def forget(memory: Memory, *sessions: str, keep_forks: bool = False, with_forks: bool = False) -> None:
    memory.forget(memory.plan_forgetting(*sessions, with_forks=with_forks), keep_forks=keep_forks)


def native_ids(memory: Memory) -> set[str]:
    return {session.native_session_id for session in memory.sessions()}
