"""Batches as a reader hands them over, with events that have a name and a text and nothing else."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson

from recollect.agentkit.protocol import Checkpoint, Cursor, EventRecord, Record, Source
from recollect.ingest.builder import Task, read_batches
from recollect.model.kinds import SessionKey
from recollect.model.schema import USER_MSG
from recollect.redact import RedactionRules, Redactor
from recollect.store import Store, open_store
from recollect.store.batch import Batch, SourceRow
from tests.builders import AGENT, ScriptedAdapter

SESSION = "session-1"
_FILE = Source(AGENT, "log", Path("/home/x"), Path("/home/x/log.jsonl"))


@dataclass
class _Teller(ScriptedAdapter):
    """An adapter that tells the given records and has then read up to `offset`."""

    records: list[Record]
    offset: int
    version: int

    def read(self, source: Source, cursor: Cursor | None) -> Iterator[Record]:
        yield from self.records
        yield Checkpoint(Cursor(offset=self.offset), 1, self.offset)


_REDACTOR = Redactor(RedactionRules(), b"k" * 32)


def batch_of(records: list[Record], *, offset: int = 0, reader: int = 1) -> Batch:
    """One batch of a source that was read up to `offset`."""
    row = SourceRow("host", AGENT, str(_FILE.path), "log", 100, 1, 1, 1, reader)
    (found,) = read_batches(_Teller(records, offset, reader), Task(_FILE, row, has_cursor=False), _REDACTOR)
    return found


def batch(
    texts: dict[str, str], *, session: str = SESSION, offset: int = 0, provisional: bool = False, reader: int = 1
) -> Batch:
    """One batch with a message for each text, called by its name."""
    records: list[Record] = [
        EventRecord(session, name, position, None, USER_MSG, {"text": text}, name, is_provisional=provisional)
        for position, (name, text) in enumerate(texts.items())
    ]
    return batch_of(records, offset=offset, reader=reader)


def noise(size: int, seed: int = 1) -> str:
    """Text that compresses badly, so that a long one goes into a pack."""
    return random.Random(seed).randbytes(size // 2 + 1).hex()[:size]


class Stored(NamedTuple):
    """How many events were made and how many changed."""

    events_new: int
    events_replaced: int


def put(store: Store, *batches: Batch) -> Stored:
    written = store.intake.put(batches, store.sources.save)
    return Stored(written.events_new, written.events_replaced)


def held(store: Store, session: str = SESSION) -> list[tuple[str, str]]:
    """(name, text) of every event of a session, in reading order."""
    rows = store.events.rows(SessionKey(AGENT, session), ("native_id", "payload_start", "payload_bytes"))
    payloads = store.payloads.iter(SessionKey(AGENT, session), [(start, size) for _, start, size in rows])
    return [(name, orjson.loads(payload)["text"]) for (name, _, _), payload in zip(rows, payloads, strict=True)]


def column(store: Store, name: str, session: str = SESSION) -> list[object]:
    """One column of a session's events, in reading order."""
    return [value for (value,) in store.events.rows(SessionKey(AGENT, session), (name,))]


def offsets(store: Store) -> list[int]:
    """How far each source was read."""
    return [known.row.offset for known in store.sources.known("host", AGENT).values()]


def new_store(folder: Path) -> Store:
    return open_store(folder / "store", create=True)
