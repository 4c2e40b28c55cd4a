"""The session store that an agent SDK mirrors its transcripts to and resumes them from."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import orjson

from recollect.agents import BUILT_IN, profile_of
from recollect.api import Memory, open_memory
from recollect.errors import NotFound, RecollectError
from recollect.kinds import SessionKey
from recollect.live.appender import READER, Appender
from recollect.live.in_threads import AsyncLive
from recollect.schema import session_uid
from recollect.store import LiveRow, Moved
from recollect.uids import event_uid

_MOST_READERS = 64
_TRIES = 16

Key = Mapping[str, Any]  # project_key, session_id, and of a sub-agent's transcript its subpath
Entry = Mapping[str, Any]


class RecollectSessionStore:
    """The `session_store` of an agent SDK's options.

    Sessions can be resumed after the local transcript is gone. They are the sessions that a sweep of the transcripts
    finds: searched, distilled and forgotten like all others. A secret resumes as its mark.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        """Without a memory, opens the user's own."""
        self._memory = memory if memory is not None else open_memory()
        self._is_own = memory is None
        self._threaded = AsyncLive(Transcripts(self._memory))

    async def append(self, key: Key, entries: list[Any]) -> None:
        """Store entries; one with a `uuid` that is stored already is left out."""
        await self._threaded.append(key, entries)

    async def load(self, key: Key) -> list[Any] | None:
        """All entries of a transcript in the order they were appended; None if there are none."""
        return await self._threaded.load(key)  # type: ignore[no-any-return]

    async def list_sessions(self, project_key: str) -> list[Any]:
        """The sessions of a project, without those of sub-agents, and when each was last appended to."""
        return await self._threaded.list_sessions(project_key)  # type: ignore[no-any-return]

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """The SDK's own summaries of the sessions of a project."""
        return await self._threaded.list_session_summaries(project_key)  # type: ignore[no-any-return]

    async def delete(self, key: Key) -> None:
        """Delete a transcript to the last byte, with all its sub-agents' unless the key names one of those."""
        await self._threaded.delete(key)

    async def list_subkeys(self, key: Key) -> list[str]:
        """The subpaths of a session's sub-agents."""
        return await self._threaded.list_subkeys(key)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Finish what was begun; a memory that was opened here is closed."""
        self._threaded.close()
        if self._is_own:
            self._memory.close()


def _sdk() -> ModuleType:
    """The module of the agent whose SDK takes a session store."""
    names = (name for agent in BUILT_IN if (name := profile_of(agent).sdk_module))
    return import_module(next(names))


class Transcripts:
    """The same, one call at a time."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._sdk = _sdk()
        self._appender = Appender(memory, self._sdk.AGENT)
        self._store = self._appender.store
        self._readers: OrderedDict[str, Any] = OrderedDict()

    def append(self, key: Key, entries: Sequence[Entry]) -> None:
        for _ in range(_TRIES if entries else 0):
            row = self._open(key)
            new = self._new(row, entries)
            if not new:
                return
            reader = self._reader(row, key)
            records = [record for entry in new for record in reader.read(entry)]
            try:
                self._appender.append(row, records, self._summary(row, key, new))
                return
            except Moved:  # another process appended to it first: the summary has to include that
                self._readers.pop(row.native_id, None)
        if entries:
            raise RecollectError(f"Session changes too often to append to it: {key['session_id']}", "try again")

    def _open(self, key: Key) -> LiveRow:
        name = _name(key)
        facts = {"channel": key["project_key"], "chat_id": key["session_id"], "character_id": key.get("subpath")}
        native_id = self._sdk.native_id(key["session_id"], key.get("subpath"))
        row = self._appender.find(name)
        if row is not None:
            return row
        if SessionKey(self._sdk.AGENT, native_id) in self._store.tombstones.names():
            raise NotFound(f"Session was forgotten: {native_id}", "start a new session")
        try:
            return self._appender.open(name, facts, native_id)
        except Moved:  # another project has a session of this id
            return self._appender.open(name, facts, f"{native_id}@{key['project_key']}")

    def _new(self, row: LiveRow, entries: Sequence[Entry]) -> list[Entry]:
        """The entries that were not appended before, each once."""
        named: dict[str | int, Entry] = {}
        for number, entry in enumerate(entries):
            name = self._sdk.entry_id(entry)
            named.setdefault(name if name is not None else number, entry)
        uids = {event_uid(row.agent, row.native_id, name): name for name in named if isinstance(name, str)}
        stored = self._store.raw.stored(list(uids))
        known = {uids[uid] for uid, event in stored.items() if event.reader == READER}
        return [entry for name, entry in named.items() if name not in known]

    def _reader(self, row: LiveRow, key: Key) -> Any:
        """The transcript's reader, which remembers what later entries refer to."""
        reader = self._readers.pop(row.native_id, None)
        if reader is None:
            reader = self._sdk.EntryReader(row.native_id, key["session_id"], key.get("subpath"))
        self._readers[row.native_id] = reader
        if len(self._readers) > _MOST_READERS:
            self._readers.popitem(last=False)
        return reader

    def _summary(self, row: LiveRow, key: Key, entries: Sequence[Entry]) -> dict[str, Any]:
        if key.get("subpath"):
            return {}
        before = orjson.loads(row.state)
        summary = self._sdk.fold_summary(before or None, dict(key), entries)
        return {"state": orjson.dumps(self._appender.redactor.value(summary)).decode()}

    def load(self, key: Key) -> list[dict[str, Any]] | None:
        row = self._appender.find(_name(key))
        if row is None:
            return None
        places = self._store.live.appended(row, READER)
        payloads = self._store.payloads.iter(SessionKey(row.agent, row.native_id), places)
        entries = (self._sdk.entry_of(orjson.loads(payload)) for payload in payloads)
        return [entry for entry in entries if entry is not None] or None

    def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        return [{"session_id": row.chat_id, "mtime": row.updated_ms} for row in self._sessions(project_key)]

    def list_session_summaries(self, project_key: str) -> list[dict[str, Any]]:
        rows = self._sessions(project_key)
        return [{**orjson.loads(row.state), "mtime": row.updated_ms} for row in rows if row.state != "{}"]

    def _sessions(self, project_key: str) -> list[LiveRow]:
        return [row for row in self._project(project_key) if row.character_id is None]

    def _project(self, project_key: str) -> list[LiveRow]:
        name = self._appender.name(project_key)
        return [row for row in self._store.live.all(self._sdk.AGENT, channel=name) if row.channel == name]

    def _below(self, key: Key) -> list[LiveRow]:
        """The rows of a session and its sub-agents, or of the one sub-agent that a key names."""
        session, subpath = self._appender.name(key["session_id"]), key.get("subpath")
        rows = [row for row in self._project(key["project_key"]) if row.chat_id == session]
        return rows if not subpath else [row for row in rows if row.character_id == self._appender.name(subpath)]

    def list_subkeys(self, key: Key) -> list[str]:
        return sorted(row.character_id for row in self._below(key) if row.character_id is not None)

    def delete(self, key: Key) -> None:
        rows = self._below(key)
        for row in rows:
            self._readers.pop(row.native_id, None)
        if rows:
            self._appender.show(rows)
            planned = self._memory.plan_forgetting(*(session_uid(row.agent, row.native_id) for row in rows))
            self._memory.forget(planned, keep_forks=True)


def _name(key: Key) -> str:
    return "/".join(filter(None, (key["project_key"], key["session_id"], key.get("subpath"))))
