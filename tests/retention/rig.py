"""What the tests of eviction share: sessions with rare words, and stores with small limits."""

import dataclasses
import hashlib
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
from msgspec import structs

from recollect.agentkit.protocol import EventRecord, SessionInfo, Usage
from recollect.api import Memory, open_memory
from recollect.lifecycle.budget import Limits
from recollect.model.schema import ASSISTANT_MSG, TOOL_CALL, TOOL_RESULT, USER_MSG, Session, to_json
from tests.builders import Home, event, usage

GENEROUS = Limits(raw_soft_cap=1 << 40, raw_hard_cap=1 << 40, raw_max_age_days=100_000)
KILOBYTE = 1024


def rare_word(*parts: Any) -> str:
    """A word that stands nowhere else."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=10).hexdigest()
    return "q" + digest.translate(str.maketrans("0123456789", "ghijklmnop"))


def talk(name: str, turns: int, first: int = 0, words: int = 200) -> list[EventRecord | Usage]:
    """Turns of a session: a request, a call whose output has a rare word deep inside, an answer, and what it cost."""
    records: list[EventRecord | Usage] = []
    for turn in range(first, first + turns):
        number = turn * 4
        call = {"tool": "shell", "call_id": f"{name}-{turn}", "role": "assistant"}
        output = f"{noise(name, turn, words)} {rare_word(name, turn)} {noise(name, -turn, words)}"
        records += [
            event(name, number, USER_MSG, f"please look at {topic(name)} part {turn}", role="user"),
            event(name, number + 1, TOOL_CALL, f"ran cat part{turn}", **call),
            event(name, number + 2, TOOL_RESULT, output, tool="shell", call_id=f"{name}-{turn}", role="tool"),
            event(name, number + 3, ASSISTANT_MSG, f"{topic(name)} part {turn} is fine", role="assistant"),
            usage(name, f"{name}-u{turn}", input_tokens=1000, output_tokens=10),
        ]
    return records


def topic(name: str) -> str:
    """A word of a session that its digest quotes."""
    return f"topic{rare_word('topic', name)}"


def noise(*parts: Any) -> str:
    rng = random.Random(repr(parts))
    return " ".join(f"w{rng.randrange(40_000)}" for _ in range(int(str(parts[-1]))))


def write(home: Home, name: str, turns: int = 4, words: int = 200) -> Path:
    info = SessionInfo(name, cwd="/proj/demo")
    return home.write(name, info, *talk(name, turns, words=words))


def grow(home: Home, file: str, first: int, turns: int = 1, name: str | None = None) -> None:
    """More turns of a session, written to a file that is named like it unless `name` is given."""
    home.append(file, *talk(name or file, turns, first))


def as_copied(record: EventRecord | Usage, session: str) -> EventRecord | Usage:
    """The record as an agent writes it into a fork."""
    if isinstance(record, Usage):
        return dataclasses.replace(record, native_session_id=session)
    return structs.replace(record, native_session_id=session)


def opened(store: Path, home: Home, limits: Limits = GENEROUS, **fields: Any) -> Memory:
    """The store with these limits, and `fields` of them changed."""
    memory = open_memory(store, [home.flag])
    memory.settings = memory.settings._replace(limits=dataclasses.replace(limits, **fields))
    return memory


def limit(memory: Memory, **fields: Any) -> None:
    memory.settings = memory.settings._replace(limits=dataclasses.replace(memory.settings.limits, **fields))


def evict_all(memory: Memory, hard: bool = False) -> None:
    """A sweep after which nothing is held that may go; with `hard` nothing that can go."""
    before = memory.settings
    limit(memory, raw_soft_cap=1, raw_hard_cap=1 if hard else 1 << 40)
    memory.sweep()
    memory.settings = before


def raw_names(memory: Memory) -> set[str]:
    """Sessions with raw detail."""
    return {one.native_session_id for one in memory.sessions() if memory.events(one, with_copies=True)}


def quoted_in_digests(memory: Memory, names: Iterable[str]) -> bytes:
    """What the digests of sessions say, as JSON."""
    return orjson.dumps([to_json(memory.digest(memory.session(name))) for name in names])


def row(session: Session) -> dict[str, Any]:
    """What a session's row tells, but for when it was stored."""
    told = dataclasses.asdict(session)
    for name in ("ingested_at", "discovered_at", "analyzed_at", "evicted_at", "sources", "content_hash"):
        told.pop(name)
    return told


def bytes_of(folder: Path) -> bytes:
    """Every byte of every file of a store."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
