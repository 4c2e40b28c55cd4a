"""One append: records to a batch, without its secrets, to the store.

Of a message's content it keeps the text, calls, parts without the bytes of media, and references to files.
"""

import hashlib
import mimetypes
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from recollect.agentkit.protocol import EventRecord, SessionInfo, Usage
from recollect.agentkit.values import as_id, media_reference, storable
from recollect.api import Memory
from recollect.ingest import Protection, batch_of
from recollect.live.records import CHANGED, MISSING, MOVED, PRESENT, Media, Message
from recollect.model.clock import now_ms
from recollect.model.errors import NotFound
from recollect.model.kinds import HUMAN, UNKNOWN
from recollect.model.schema import SCHEMA_VERSION, session_uid
from recollect.model.text import cut_short
from recollect.redact import Redactor
from recollect.store import MAIN_GROUP, LiveRow, Moved, SessionRow, SourceRow, Written, source_of_host

LIVE = "live"  # the agent of a host's own sessions, and the kind of what they come from
# An entry that was appended has more than an adapter reads from a file of it: no reader's version replaces it.
READER = 1 << 20
SHOWN_MS = 10_000  # how far a session's lasting row may be behind
TITLE_CHARS = 80

MIRRORED = "session_store"  # in the metadata of a session that an SDK mirrors here: where
FACTS = ("key", "channel", "chat_id", "user_id", "character_id")


class Appender:
    """Appends to sessions of one agent by their keys. The rules of redaction are loaded once."""

    def __init__(self, memory: Memory, agent: str = LIVE, group: str = MAIN_GROUP) -> None:
        self.store = memory._store
        self.agent = agent
        self._group = group
        self._memory = memory
        self._last_position = 0
        self._restore()

    @cached_property
    def redactor(self) -> Redactor:
        settings = self._memory.settings
        protection = Protection(settings.folder, settings.redaction)
        protection.compile_rules()  # at the first append, not in the middle of a later one
        return protection.redactor()

    @cached_property
    def _source(self) -> SourceRow:
        return source_of_host(self._memory.settings.host, self.agent)

    def name(self, text: str) -> str:
        """A key or id as it is stored."""
        return self.redactor.functional(text)

    def find(self, key: str) -> LiveRow | None:
        """The session that a key stands for."""
        return self.store.live.find(self.agent, self.name(key))

    def get(self, key: str) -> LiveRow:
        row = self.find(key)
        if row is None:
            raise NotFound(f"No session with this key: {key}", "`list_sessions()` returns all keys")
        return row

    def open(self, key: str, facts: Mapping[str, Any] | None = None, native_id: str | None = None) -> LiveRow:
        """The session that a key stands for, made if there is none; `facts` are columns of a new one."""
        row = self.find(key)
        return row if row is not None else self._make(key, facts or {}, native_id)

    def _make(self, key: str, facts: Mapping[str, Any], native_id: str | None) -> LiveRow:
        named = {name: self.name(value) for name in FACTS[1:] if (value := facts.get(name))}
        title, at_ms = facts.get("title"), facts.get("created_ms") or now_ms()
        row = self._blank(native_id or uuid.uuid4().hex, named | {"key": self.name(key)})._replace(
            parent=facts.get("parent"),
            title=self.redactor.text(title) if title else None,
            metadata=orjson.dumps(self.redactor.value(dict(facts.get("metadata") or {}))).decode(),
            created_ms=at_ms,
            updated_ms=at_ms,
        )
        return self.store.live.open(row)

    def next_position(self, row: LiveRow) -> int:
        """Behind everything that was appended before, here or, as far as it is committed, elsewhere."""
        self._last_position = max(time.time_ns() // 1000, self._last_position + 1, row.last_position + 1)
        return self._last_position

    def append(
        self,
        row: LiveRow,
        records: Sequence[EventRecord | Usage | SessionInfo],
        changes: Mapping[str, Any] | None = None,
        *,
        is_shown: bool = True,
    ) -> Written:
        """Store records of a session; raises Moved if its key stands for another one meanwhile.

        Without `is_shown` the caller has the lasting row brought up to date.
        """
        is_due = is_shown and now_ms() - row.shown_ms >= SHOWN_MS
        facts = [session_info(row)] if row.last_position == 0 else []
        batch = batch_of([*facts, *records], self._source, READER, self.redactor)
        shown: dict[str, Any] = {"shown_ms": now_ms()} if is_due else {}
        if row.title is None and (title := _title(records)) is not None:
            shown["title"] = self.redactor.text(title)
        active = row._replace(updated_ms=self._active_ms(records))
        written = self.store.live.append(active, batch, {**shown, **(changes or {})})
        if is_due or changes:
            self.show([row])
        return written

    def _active_ms(self, records: Iterable[EventRecord | Usage | SessionInfo]) -> int:
        """When a session was last active: for a host that is when its messages were said, for a mirror now."""
        times = [record.ts_ms for record in records if isinstance(record, EventRecord) and record.ts_ms is not None]
        return max(times, default=0) or now_ms() if self.agent == LIVE else now_ms()

    def show(self, rows: Iterable[LiveRow]) -> None:
        """Bring the lasting rows of sessions up to date, or make them."""
        found = (self.store.live.find_session(row.agent, row.native_id) for row in rows)
        missing = self.store.live.show([row for row in found if row is not None])
        if missing:
            host = self._memory.settings.host
            self.store.session_rows.put([(_session_row(row, host)._replace(group=self._group), []) for row in missing])

    def _restore(self) -> None:
        """Know again what only the packs remember, and sessions that came by an import."""
        if self.store.read_only:
            return
        self.store.live.announce()
        self.store.recover_appended()
        for native_id, info in self.store.live.unindexed(self.agent):
            self.restore(native_id, orjson.loads(info)["last"])

    def restore(self, native_id: str, facts: Mapping[str, Any]) -> None:
        details = dict(facts.get("metadata") or {})
        facts = {**facts, **details.get(MIRRORED, {})}
        key = facts.get("key")
        if not key:
            return
        held = self.store.live.find(self.agent, key)
        unique = key if held is None else f"{key}#{native_id[:8]}"  # another machine's session of the same name
        figures: dict[str, Any] = self.store.live.figures(self.agent, native_id)
        self.store.live.open(
            self._blank(native_id, {**facts, "key": unique})._replace(
                **figures,
                title=next((facts[name] for name in ("title_3", "title_2") if facts.get(name)), None),
                metadata=orjson.dumps(details.get("host") or {}).decode(),
                first_position=details.get("history_from") or 0,
                archived_ms=details.get("archived_ms"),
            )
        )

    def _blank(self, native_id: str, facts: Mapping[str, Any]) -> LiveRow:
        """A session with nothing in it yet."""
        values: dict[str, Any] = dict.fromkeys(LiveRow._fields, 0)
        values |= {name: facts.get(name) for name in (*FACTS, "parent", "title", "archived_ms")}
        return LiveRow(**{**values, "agent": self.agent, "native_id": native_id, "parent": None, "state": "{}"})


def session_info(row: LiveRow, **changes: Any) -> SessionInfo:
    """What a session's frames say of it, so that its row can be made again from them."""
    row = row._replace(**changes)
    details: dict[str, Any] = {"host": orjson.loads(row.metadata)} if row.metadata != "{}" else {}
    details |= {"history_from": row.first_position} if row.first_position else {}
    details |= {"archived_ms": row.archived_ms} if row.archived_ms else {}
    if row.agent != LIVE:  # the rest of it is in what the agent writes
        place = {name: value for name in FACTS if (value := getattr(row, name)) is not None}
        return SessionInfo(row.native_id, metadata={MIRRORED: place})
    return SessionInfo(
        row.native_id,
        base_native_id=row.parent,
        born_ms=row.created_ms,
        session_class=HUMAN,
        title=row.title,
        title_rank=3,
        metadata=details or None,
        **{name: getattr(row, name) for name in FACTS},
    )


def _title(records: Iterable[EventRecord | Usage | SessionInfo]) -> str | None:
    """The session's first request, until somebody names it."""
    said = (record for record in records if isinstance(record, EventRecord) and record.role == "user")
    return next((cut_short(record.summary, TITLE_CHARS) for record in said if record.summary), None)


def _session_row(row: LiveRow, host: str) -> SessionRow:
    """The lasting row until the next sweep adds up all there is."""
    values: dict[str, Any] = dict.fromkeys(SessionRow._fields)
    uid = session_uid(row.agent, row.native_id)
    values |= {name: 0 for name in SessionRow._fields if name.endswith("_tokens")}
    values |= {"retries": 0, "event_count": 0, "usd_is_estimate": False, "schema_version": SCHEMA_VERSION}
    values |= {"agent": row.agent, "native_session_id": row.native_id, "session_uid": uid, "root_session_uid": uid}
    values |= {"session_class": HUMAN, "group": MAIN_GROUP, "host": host, "outcome": UNKNOWN, "instructions": "[]"}
    values |= {name: getattr(row, name) for name in (*(FACTS if row.agent == LIVE else ()), "title", "turns")}
    values |= {"started_ms": row.created_ms, "ended_ms": row.updated_ms, "updated_ms": row.updated_ms}
    values |= {"message_count": row.messages, "discovered_ms": row.created_ms, "metadata": "{}"}
    values["base_session_uid"] = session_uid(row.agent, row.parent) if row.parent else None
    return SessionRow(**values)


__all__ = ["LIVE", "Appender", "Moved", "session_info"]


_LEAST_MEDIA_CHARS = 256  # of base64; less is a text that happens to be called so


def said(content: Any) -> tuple[str, Any]:
    """The text of a content, and its parts where it is more than a text."""
    if content is None or isinstance(content, str):
        return content or "", None
    parts = without_bytes(content)
    return "\n".join(_texts(parts)), parts


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        texts = (_texts(part) for key, part in value.items() if key in ("text", "content", "parts", "input", "output"))
        return [text for found in texts for text in found]
    return [text for part in value for text in _texts(part)] if isinstance(value, list | tuple) else []


def text_of(message: Message) -> str:
    """What a message said, or the calls that it made instead."""
    return said(message.content)[0] or "\n".join(as_one_line(name, call) for name, call, _ in calls_of(message.extra))


def as_one_line(name: str, arguments: Any) -> str:
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return f"{name} {command if isinstance(command, str) else orjson.dumps(arguments).decode()}"


def calls_of(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any, str | None]]:
    """The calls among a message's fields, in the shape of OpenAI's API: name, arguments and id of each."""
    calls = fields.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            yield function["name"], _arguments(function.get("arguments")), as_id(call.get("id"))


def _arguments(value: Any) -> Any:
    """Arguments, which that API has as a text of JSON."""
    try:
        parsed = orjson.loads(value) if isinstance(value, str) else value
    except orjson.JSONDecodeError:
        parsed = value
    return {} if parsed is None else storable(without_bytes(parsed))


def without_bytes(value: Any, name: str = "") -> Any:
    """A JSON value in which inline media are references: sort, size and hash, never the bytes."""
    if isinstance(value, dict):
        mime = value.get("media_type") or value.get("mime_type") or value.get("mimeType")
        return {
            key: without_bytes(part, mime if key == "data" and isinstance(mime, str) else "")
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_bytes(part) for part in value]
    is_inline = isinstance(value, str) and ((value.startswith("data:") and ";base64," in value[:200]) or bool(name))
    if not is_inline or len(value) < _LEAST_MEDIA_CHARS:
        return value
    mime = name or value[len("data:") : value.index(";")]
    return {"media": media_reference(mime.partition("/")[0], mime, value)}


def reference(kind: str, path: Path, mime: str | None) -> dict[str, Any]:
    """What is kept of a file; raises NotFound if it cannot be read."""
    path = path.expanduser().absolute()
    try:
        sha256, size = _hash(path), path.stat().st_size
    except OSError as error:
        raise NotFound(f"Cannot read the file ({error.strerror}): {path}", "attach it while it exists") from error
    mime = mime or mimetypes.guess_type(path.name)[0]
    return {"kind": kind, "mime": mime, "sha256": sha256, "bytes": size, "path": str(path)}


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_states(references: Sequence[Mapping[str, Any]], roots: Sequence[Path]) -> list[Media]:
    """What became of each file; one that is not where it was is looked for below the roots by size and hash."""
    states = [_state(item) for item in references]
    sizes = {media.bytes for media in states if media.state != PRESENT}
    elsewhere: dict[str, str] = {}
    for path in _files(roots) if sizes else ():
        with suppress(OSError):  # removed meanwhile, or not ours to read
            if path.stat().st_size in sizes:
                elsewhere.setdefault(_hash(path), str(path))
    return [
        replace(media, state=MOVED, found_path=elsewhere[media.sha256])
        if media.state != PRESENT and media.sha256 in elsewhere
        else media
        for media in states
    ]


def _state(item: Mapping[str, Any]) -> Media:
    media = Media(item["kind"], item["path"], item.get("mime"), item["sha256"], item["bytes"], MISSING)
    try:
        state = PRESENT if _hash(Path(media.path)) == media.sha256 else CHANGED
    except OSError:
        return media
    return replace(media, state=state)


def _files(roots: Sequence[Path]) -> Iterator[Path]:
    """Regular files below the roots; links are not followed."""
    for root in roots:
        for folder, _, names in os.walk(root):
            paths = (Path(folder, name) for name in names)
            yield from (path for path in paths if path.is_file() and not path.is_symlink())
