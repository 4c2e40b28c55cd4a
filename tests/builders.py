"""An agent made for tests: its log holds the records of the adapter contract themselves, one per line.

So a test of the core says exactly what an adapter told, and no format of a real agent stands in between.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct, structs

from recollect.agentkit.files import iter_files
from recollect.agentkit.log import LineReader
from recollect.agentkit.protocol import (
    AgentProfile,
    BadLine,
    CostTotal,
    Cursor,
    EventRecord,
    FileChange,
    Record,
    SessionInfo,
    SettingAdvice,
    Skipped,
    Source,
    Usage,
)
from recollect.agents.codex.edits import changes as codex_changes
from recollect.api import Memory, open_memory
from recollect.model.errors import SourceUnreadable
from recollect.model.schema import QUEUE_ONLY, SUMMARY_CHARS, USER_MSG

AGENT = "scripted"
BEGIN_MS = 1_794_765_600_000  # 2026-11-15T18:00:00Z
KNOWN_MODEL = "claude-sonnet-4-5"  # 3 dollars for a million tokens read, 15 for a million written
_TYPES = {kind.__name__: kind for kind in (SessionInfo, EventRecord, Usage, CostTotal, BadLine, Skipped)}


class ScriptedAdapter:
    """Reads what `Home.write` wrote; a record of type `str` is the reason why the file cannot be read."""

    agent = AGENT
    home = "~/.scripted"
    home_variable = "SCRIPTED_HOME"
    profile = AgentProfile(
        "Scripted", settings_advice=(SettingAdvice("settings.json", "keepDays", 30, 365, "put 365 there"),)
    )

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def discover(self, root: Path) -> Iterator[Source]:
        for path in iter_files(root):
            if path.suffix == ".jsonl":
                yield Source(AGENT, "log", root, path)

    def read(self, source: Source, cursor: Cursor | None) -> Iterator[Record]:
        lines = LineReader(source, cursor)
        for _, _, raw in lines:
            record = _record(raw)
            if record is None:
                yield lines.checkpoint({})
            else:
                yield record
        yield lines.checkpoint({})

    def changes(self, call: Mapping[str, Any], result: Mapping[str, Any] | None) -> list[FileChange]:
        return codex_changes(call, result)  # which knows most of the shapes that edits have


def _record(line: bytes) -> Record | None:
    name, fields = orjson.loads(line)
    if name == "str":
        raise SourceUnreadable(fields)
    if name == "BadLine":
        fields["raw"] = fields["raw"].encode("latin-1")
    return _TYPES[name](**fields) if fields else None


def _line(record: Record | str | None) -> bytes:
    if record is None or isinstance(record, str):
        return orjson.dumps([type(record).__name__, record]) + b"\n"
    fields = structs.asdict(record) if isinstance(record, Struct) else dataclasses.asdict(record)
    if isinstance(record, BadLine):
        fields["raw"] = record.raw.decode("latin-1")
    return orjson.dumps([type(record).__name__, fields]) + b"\n"


class Home:
    """A folder of the scripted agent's logs. None among the records is a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def flag(self) -> str:
        return f"{AGENT}={self.folder}"

    def write(self, name: str, *records: Record | str | None) -> Path:
        path = self.folder / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(_line, records)))
        return path

    def append(self, name: str, *records: Record | str | None) -> None:
        with (self.folder / f"{name}.jsonl").open("ab") as file:
            file.write(b"".join(map(_line, records)))


def at_ms(number: int) -> int:
    """The moment of a session's nth event."""
    return BEGIN_MS + number * 1000


def event(session: str, number: int, kind: str = USER_MSG, text: str | None = None, **fields: Any) -> EventRecord:
    """The nth event of a session; its id, place and time follow from the number unless given."""
    text = f"{kind} {number}" if text is None else text
    told: dict[str, Any] = {"native_id": f"{session}-{number}", "position": number, "ts_ms": at_ms(number)}
    return EventRecord(session, kind=kind, payload={"text": text}, summary=text[:SUMMARY_CHARS], **(told | fields))


def without_delivered(events: list[EventRecord]) -> list[EventRecord]:
    """Events as the store keeps them: a prompt in the queue goes when a record of the session tells it."""
    told = {(event.native_session_id, event.retry_key) for event in events if event.status != QUEUE_ONLY}
    return [
        event
        for event in events
        if event.status != QUEUE_ONLY or (event.native_session_id, event.retry_key) not in told
    ]


def usage(session: str, usage_id: str, **fields: Any) -> Usage:
    told: dict[str, Any] = {"ts_ms": at_ms(1), "model": KNOWN_MODEL}
    return Usage(session, usage_id, **(told | fields))


def sweep(store: Path, home: Home) -> Memory:
    """The store, open, with everything of the home in it."""
    memory = open_memory(store, [home.flag])
    report = memory.sweep()
    assert report.failures == []
    return memory
