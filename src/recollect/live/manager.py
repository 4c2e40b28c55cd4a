"""A drop-in session manager: one truth, the store, and a JSONL file of each session that follows from it."""

import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

from recollect.clock import now_ms, rfc3339
from recollect.live.backfill import Backfill
from recollect.live.host import Live
from recollect.live.jsonl import (
    KEPT,
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
from recollect.live.records import FileStatus, ImportReport, LiveSession, Message

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

    def import_files(self, *, dry_run: bool = False) -> ImportReport:
        """Store what only the files have."""
        return Backfill(self.live).run(self.folder, dry_run=dry_run)

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
