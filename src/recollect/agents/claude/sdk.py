"""Entries of a transcript that Anthropic's agent SDK hands over itself, instead of a file they are read from.

An entry makes the events that a sweep makes of its line, so that a session that is both swept and handed over is one.
Beside that its first event holds it whole, because the SDK gets back what it gave; one that makes no event gets one
outside the session's order.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from recollect.agentkit.log import MALFORMED
from recollect.agentkit.protocol import EventRecord, Record, SessionInfo, Source
from recollect.agentkit.values import as_id, as_mapping, parse_time_ms
from recollect.agents.claude import discover
from recollect.agents.claude.log import TranscriptLog
from recollect.model.kinds import FILES_LANE, LIFECYCLE, OTHER

AGENT = "claude"
ENTRY = "entry"  # where the payload's native part holds an entry
_ROOT = Path("/")


def native_id(session_id: str, subpath: str | None) -> str:
    """What a sweep calls the session of a transcript, or of a sub-agent's below it."""
    if not subpath:
        return session_id
    return f"{session_id}/{subpath.rpartition('/')[2].removeprefix('agent-')}"


def entry_id(entry: Mapping[str, Any]) -> str | None:
    """The id under which an entry is stored once; most kinds have one."""
    return as_id(entry.get("uuid"))


def entry_of(payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entry that a payload holds, if it is the first of an entry's."""
    entry: dict[str, Any] | None = as_mapping(payload.get("native")).get(ENTRY)
    return entry


def fold_summary(
    before: Mapping[str, Any] | None, key: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The SDK's own summary of a session, extended by entries."""
    from claude_agent_sdk import fold_session_summary  # only who uses the SDK has it

    summary: dict[str, Any] = dict(fold_session_summary(before, key, list(entries)))
    return summary


class EntryReader:
    """Reads the entries of one transcript in their order."""

    def __init__(self, session: str, session_id: str, subpath: str | None) -> None:
        self._session = session
        path = _ROOT / "projects" / "p" / (f"{session_id}/{subpath}.jsonl" if subpath else f"{session_id}.jsonl")
        kind = discover.AGENT if subpath else discover.TRANSCRIPT
        self._log = TranscriptLog(Source(AGENT, kind, _ROOT, path), {})

    def read(self, entry: Mapping[str, Any]) -> Iterator[Record]:
        """What an entry yields: all events are of this session, facts may be of its sub-agents."""
        is_first = True
        for record in self._records(entry):
            if not isinstance(record, SessionInfo):
                record.native_session_id = self._session  # type: ignore[union-attr]
            if isinstance(record, EventRecord) and is_first:
                native = {} if record.kind == OTHER else as_mapping(record.payload.get("native"))
                record.payload = {**record.payload, "native": {**native, ENTRY: entry}}
                is_first = False
            yield record
        if is_first:
            yield self._unseen(entry)

    def _records(self, entry: Mapping[str, Any]) -> list[Record]:
        # Two entries without an id are two; what names one by its place in the file gets a place that no other has.
        place = uuid.uuid4().int >> 65
        try:
            return [
                record
                for record in self._log.read(place, orjson.dumps(entry))
                if not isinstance(record, SessionInfo) or record.native_session_id.startswith(self._session)
            ]
        except MALFORMED:
            return []

    def _unseen(self, entry: Mapping[str, Any]) -> EventRecord:
        name = entry_id(entry) or uuid.uuid4().hex
        ts_ms = parse_time_ms(entry.get("timestamp"))
        position, _ = self._log.next_position(ts_ms)
        payload = {"native": {ENTRY: entry}}
        summary = f"record {entry.get('type')}"[:100]
        return EventRecord(self._session, name, position, ts_ms, LIFECYCLE, payload, summary, lane=FILES_LANE)
