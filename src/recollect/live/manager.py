"""What a host plugs in: a drop-in session manager, slash commands, the API for asyncio, a store of agent sessions.

The manager has one truth, the store, and a JSONL file of each session that follows from it. The slash commands are
`/history`, `/sessions`, `/new` and `/compact`, and no other: a host's own commands pass through, above all its
`/search`. For asyncio every method runs in one thread, so that no event loop waits for a disk.
"""

import asyncio
import re
import shutil
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial, wraps
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import orjson

from recollect.agents import BUILT_IN, profile_of
from recollect.api import Memory, open_memory
from recollect.live.appender import READER, Appender
from recollect.live.host import Live
from recollect.live.jsonl import (
    KEPT,
    Backfill,
    SessionFile,
    appending,
    find_path,
    header,
    line_of,
    path_of,
    paths_of,
    read_file,
    write_file,
)
from recollect.live.recall import lines_for_people
from recollect.live.records import FileStatus, LiveSession, Message
from recollect.model.clock import now_ms, rfc3339
from recollect.model.errors import NotFound, RecollectError
from recollect.model.kinds import SessionKey
from recollect.model.schema import event_uid, session_uid
from recollect.model.text import plural
from recollect.store import LiveRow, Moved

_OF_AN_APPEND = ("content_type", "provider", "model", "tokens", "metadata", "usd", "message_id")
_FOR_A_MODEL = ("role", "content", "tool_calls", "tool_call_id", "name")


@dataclass(slots=True)
class ManagedSession:
    """A session in memory. What is added is stored by `SessionManager.save`."""

    key: str
    session_uid: str
    metadata: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    unsaved: list[dict[str, Any]] = field(default_factory=list)

    def add_message(self, role: str, content: Any, **more: Any) -> None:
        """Add a message; `more` are `append_message`'s other arguments, or fields such as `tool_calls`."""
        message = {"role": role, "content": content, "timestamp": rfc3339(now_ms()), **more}
        self.messages.append(message)
        self.unsaved.append(message)

    def get_history(self, max_messages: int = 50) -> list[dict[str, Any]]:
        """The last messages as a model takes them: role and content, calls and what they answer."""
        return _for_a_model(self.messages[-max_messages:] if max_messages else [])


class SessionManager:
    """Sessions by key in the store, with a readable JSONL file of each in `folder`.

    A save writes to the store, then to the file. Whatever stops it in between, the next use of the session brings both
    into step: lines that only the file has are stored, messages that only the store has are added to the file.
    """

    def __init__(self, live: Live, folder: str | PathLike[str]) -> None:
        self.live = live
        self.folder = Path(folder).expanduser()
        self.folder.mkdir(parents=True, exist_ok=True)

    def get_or_create(self, key: str) -> ManagedSession:
        """A session with its history; an older JSONL file of it is taken over first."""
        self._bring_into_step(key)
        session = self.live.session(key)
        history = [_as_dict(message) for message in self.live.get_history(key, None)]
        return ManagedSession(session.key, session.session_uid, dict(session.metadata), history)

    def add_message(self, session: ManagedSession, role: str, content: Any, **more: Any) -> None:
        """Add a message and save it at once."""
        session.add_message(role, content, **more)
        self.save(session)

    def get_history(self, key: str, max_messages: int = 50) -> Sequence[dict[str, Any]]:
        """The last messages of a session, as `ManagedSession.get_history` has them."""
        return _for_a_model(map(_as_dict, self.live.get_history(key, max_messages)))

    def save(self, session: ManagedSession) -> None:
        """Store what was added, then write it to the file."""
        added = []
        while session.unsaved:
            message = session.unsaved[0]
            rest = {name: value for name, value in message.items() if name not in ("role", "content", "timestamp")}
            more = {name: rest.pop(name) for name in _OF_AN_APPEND if name in rest}
            at = datetime.fromisoformat(message["timestamp"])
            said = (session.key, message["role"], message["content"])
            added.append(self.live.append_message(*said, at=at, extra=rest, **more).id)
            session.unsaved.pop(0)
        self._write(session.key, added)

    def archive(self, key: str) -> LiveSession:
        """Begin a new session under a key; the old one and its file get a name of their own."""
        self._bring_into_step(key)
        new = self.live.new_session(key)
        self._bring_into_step(key)
        return new

    def delete(self, key: str) -> bool:
        """Delete a session with its file, to the last byte; False if there is none."""
        held = paths_of(self.folder, key)
        is_stored = self.live.delete(key)
        for path in held:
            path.unlink()
        return is_stored or bool(held)

    def list(self, channel: str | None = None, limit: int = 20) -> Sequence[LiveSession]:
        """Sessions, the one active last first."""
        return self.live.list_sessions(channel, limit=limit)

    def status(self) -> Sequence[FileStatus]:
        """How far each file is behind the store, or the store behind a file."""
        return Backfill(self.live).status(self.folder)

    def derive(self, key: str) -> Path:
        """Make a session's file again from the store."""
        session = self.live.session(key)
        path = path_of(self.folder, session.key)
        return self._replace(session, read_file(path) if path.exists() else None)

    def _replace(self, session: LiveSession, before: SessionFile | None) -> Path:
        path = path_of(self.folder, session.key)
        write_file(path, session, self.live.all_messages(session.key), before)
        return path

    def _bring_into_step(self, key: str) -> None:
        path = find_path(self.folder, key)
        session = self.live.find(key)
        if not path.exists():
            if session is not None:
                self.derive(key)
            return
        found = read_file(path, key)
        if session is not None and found.session_uid not in (None, session.session_uid):
            self._leave_to_archived(found.session_uid, key)
            return
        Backfill(self.live).take(found)
        if found.session_uid is None:  # of an older host: kept as it was, beside the one that follows from the store
            shutil.copy2(path, path.with_name(f"{path.name}{KEPT}"))
            if self._replace(self.live.session(key), found) != path:
                path.unlink()
        self._write(key, [])

    def _leave_to_archived(self, session_uid: str | None, key: str) -> None:
        """The key stands for a newer session: the file becomes that of the archived one, made anew under its name."""
        old = next((row for row in self.live.archived(key) if row.session_uid == session_uid), None)
        if old is not None:
            self._replace(old, read_file(path_of(self.folder, key)))
        self._replace(self.live.session(key), None)

    def _write(self, key: str, added: Collection[str]) -> None:
        """Add to a file what the store has behind its last line, and what was just added."""
        session = self.live.session(key)
        path = path_of(self.folder, key)
        with appending(path) as tail:
            if tail.is_empty:
                lines = [header(session), *map(line_of, self.live.all_messages(key))]
            else:
                known = set(tail.ids)
                lines = [
                    line_of(message)
                    for message in self.live.messages_after(key, tail.ids[-1] if tail.ids else None, added)
                    if message.id not in known
                ]
            tail.add(b"".join(lines))


def _for_a_model(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: message[name] for name in _FOR_A_MODEL if name in message} for message in messages]


def _as_dict(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content, "timestamp": message.ts}
    fields |= message.extra
    return fields | ({"metadata": dict(message.metadata)} if message.metadata else {})


_COMMAND = re.compile(r"/(history|sessions|new|compact)(?:@\w+)?(?:\s+(.*))?", re.DOTALL)
_LISTED = 10


class Reply(NamedTuple):
    """What to answer in the channel; `command` is the one that was carried out."""

    command: str
    text: str


def route(live: "Live", key: str, text: str) -> Reply | None:
    """Carry out a slash command that was typed in the conversation of a key; None if it is none of ours."""
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    command, words = match[1], (match[2] or "").strip()
    return Reply(command, _ANSWERS[command](live, key, words))


def _history(live: "Live", key: str, words: str) -> str:
    result = live.session_search(words, current=key, limit=_LISTED)
    return "\n".join(lines_for_people(result)) or "Nothing found"


def _sessions(live: "Live", key: str, words: str) -> str:
    rows = live.list_sessions(words or None, limit=_LISTED)
    lines = [f"{row.key}: {row.title or 'untitled'} ({plural(row.message_count, 'message')})" for row in rows]
    return "\n".join(lines) or "No sessions yet"


def _new(live: "Live", key: str, words: str) -> str:
    live.new_session(key, title=words or None)
    return "Started a new session; the old one is archived"


def _compact(live: "Live", key: str, words: str) -> str:
    if live.find(key) is None:
        return "There is nothing to compact yet"
    before = len(live.get_history(key, None))
    live.compact(key, words or None)
    after = len(live.get_history(key, None))
    if after >= before:
        return f"The history is short: {after} messages"
    return f"The history has {after} messages instead of {before}; /history still finds all of them"


_ANSWERS = {"history": _history, "sessions": _sessions, "new": _new, "compact": _compact}


class AsyncLive:
    """Methods of an object as coroutines: `await live.aio.append_message(…)`.

    One thread for all calls: a store serves one at a time, and messages stay in the order they were appended in.
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self._thread = ThreadPoolExecutor(1, "recollect-live")

    async def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function that uses the same store, in the same thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args, **options))

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._target, name)
        if not callable(method):
            raise AttributeError(name)
        return partial(self.run, method)

    def close(self) -> None:
        """End the thread; calls that have begun are finished first."""
        self._thread.shutdown()


_MOST_READERS = 64
_TRIES = 16

Key = Mapping[str, Any]  # project_key, session_id, and of a sub-agent's transcript its subpath
Entry = Mapping[str, Any]


def _sdk() -> ModuleType:
    """The module of the agent whose SDK takes a session store."""
    names = (name for agent in BUILT_IN if (name := profile_of(agent).sdk_module))
    return import_module(next(names))


class Transcripts:
    """The transcripts of an agent's SDK, one call at a time."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._sdk = _sdk()
        self._appender = Appender(memory, self._sdk.AGENT)
        self._store = self._appender.store
        self._readers: OrderedDict[str, Any] = OrderedDict()

    def append(self, key: Key, entries: Sequence[Entry]) -> None:
        """Store entries; one with a `uuid` that is stored already is left out."""
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
        """All entries of a transcript in the order they were appended; None if there are none."""
        row = self._appender.find(_name(key))
        if row is None:
            return None
        places = self._store.live.places(row, READER)
        payloads = self._store.payloads.iter(SessionKey(row.agent, row.native_id), places)
        entries = (self._sdk.entry_of(orjson.loads(payload)) for payload in payloads)
        return [entry for entry in entries if entry is not None] or None

    def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """The sessions of a project, without those of sub-agents, and when each was last appended to."""
        return [{"session_id": row.chat_id, "mtime": row.updated_ms} for row in self._sessions(project_key)]

    def list_session_summaries(self, project_key: str) -> list[dict[str, Any]]:
        """The SDK's own summaries of the sessions of a project."""
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
        """The subpaths of a session's sub-agents."""
        return sorted(row.character_id for row in self._below(key) if row.character_id is not None)

    def delete(self, key: Key) -> None:
        """Delete a transcript to the last byte, with all its sub-agents' unless the key names one of those."""
        rows = self._below(key)
        for row in rows:
            self._readers.pop(row.native_id, None)
        if rows:
            self._appender.show(rows)
            planned = self._memory.plan_forgetting(*(session_uid(row.agent, row.native_id) for row in rows))
            self._memory.forget(planned, keep_forks=True)


def _name(key: Key) -> str:
    return "/".join(filter(None, (key["project_key"], key["session_id"], key.get("subpath"))))


def _threaded(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """A method of the transcripts as a coroutine."""

    @wraps(method)
    async def run(store: "RecollectSessionStore", *args: Any) -> Any:
        return await store._live.run(method, store._transcripts, *args)

    return run


class RecollectSessionStore:
    """The `session_store` of an agent SDK's options.

    Sessions can be resumed after the local transcript is gone. They are the sessions that a sweep of the transcripts
    finds: searched, distilled and forgotten like all others. A secret resumes as its mark.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        """Without a memory, opens the user's own."""
        self._memory = memory if memory is not None else open_memory()
        self._is_own = memory is None
        self._transcripts = Transcripts(self._memory)
        self._live = AsyncLive(self._transcripts)

    append = _threaded(Transcripts.append)
    load = _threaded(Transcripts.load)
    list_sessions = _threaded(Transcripts.list_sessions)
    list_session_summaries = _threaded(Transcripts.list_session_summaries)
    list_subkeys = _threaded(Transcripts.list_subkeys)
    delete = _threaded(Transcripts.delete)

    def close(self) -> None:
        """Finish what was begun; a memory that was opened here is closed."""
        self._live.close()
        if self._is_own:
            self._memory.close()
