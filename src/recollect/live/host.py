"""Live: the write and recall API for agent hosts."""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from recollect import live
from recollect.agentkit.calls import shell_kind
from recollect.agentkit.protocol import EventRecord, SessionInfo, Usage
from recollect.agentkit.values import as_id, as_text, call_key, summarise
from recollect.api import Filters, Memory
from recollect.live.appender import (
    LIVE,
    Appender,
    as_one_line,
    calls_of,
    find_states,
    reference,
    said,
    session_info,
    without_bytes,
)
from recollect.live.records import Appended, LiveSession, LiveStatus, Media, Message, make_status
from recollect.model.clock import now_ms, rfc3339
from recollect.model.errors import UsageError
from recollect.model.kinds import ASSISTANT_MSG, ERROR, LIFECYCLE, OTHER, TOOL_CALL, TOOL_RESULT, USER_MSG, SessionKey
from recollect.model.schema import event_uid, session_uid
from recollect.recall import SearchAnswer
from recollect.store import MAIN_GROUP, MEDIA, SUMMARY, LiveRow, MessageRow, Moved

if TYPE_CHECKING:
    from os import PathLike

    from recollect.live.jsonl import Line
    from recollect.live.recall import SessionSearch


_KINDS = {"user": USER_MSG, "assistant": ASSISTANT_MSG, "system": LIFECYCLE, "tool": TOOL_RESULT}
_FAILED = ("error", "failed", "denied", "timeout")
_TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}
LIVE_WINDOW = 50  # messages that a prompt begins with, unless a host asks for another number
_TRIES = 16  # against hosts that archive a session again and again while it is appended to


class Live:
    """The sessions of an agent host, by key (`channel:chat_id`).

    Any number of processes may append at once, each with a Live and a Memory of its own. One Live serves one thread at
    a time; `live.aio` has the same methods for asyncio. `media_roots` are folders in which a moved file is looked for;
    new sessions belong to `group`.
    """

    def __init__(
        self, memory: Memory, *, media_roots: Sequence["str | PathLike[str]"] = (), group: str = MAIN_GROUP
    ) -> None:
        self.memory = memory
        self._media_roots = [Path(root).expanduser() for root in media_roots]
        self._appender = Appender(memory, group=group)
        self._store = self._appender.store

    @cached_property
    def aio(self) -> "live.AsyncLive":
        """The same methods as coroutines; each runs in one thread of its own."""
        return live.AsyncLive(self)

    def session(
        self,
        key: str,
        *,
        channel: str | None = None,
        chat_id: str | None = None,
        user_id: str | None = None,
        character_id: str | None = None,
        parent: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> LiveSession:
        """The session of a key, made if there is none; the other arguments describe a new one.

        Without them `channel` and `chat_id` are the two parts of the key. `parent` is the key or id of the session that
        this one continues.
        """
        facts = {"user_id": user_id, "character_id": character_id, "title": title, "metadata": metadata}
        facts |= {"channel": channel, "chat_id": chat_id, "parent": self._native_id(parent) if parent else None}
        return self._describe(self._open(key, facts))

    def _open(self, key: str, facts: Mapping[str, Any] | None = None) -> LiveRow:
        if not key.strip():
            raise UsageError("The key of a session is empty", "use `channel:chat_id`")
        channel, _, chat_id = key.partition(":")
        parts = {"channel": channel, "chat_id": chat_id} if chat_id else {}
        given = {name: value for name, value in (facts or {}).items() if value is not None}
        return self._appender.open(key, {**parts, **given})

    def _native_id(self, name: str) -> str:
        """The native id of a session by its key or its uid."""
        row = self._appender.find(name)
        return row.native_id if row is not None else name.removeprefix(f"{LIVE}:")

    def append_message(
        self,
        session: str,
        role: str,
        content: Any,
        content_type: str = "text",
        provider: str | None = None,
        model: str | None = None,
        tokens: Mapping[str, int] | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        usd: float | None = None,
        message_id: str | None = None,
        at: datetime | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Appended:
        """Append a message to the session of a key; it is stored for good when this returns.

        `role` is user, assistant, system or tool; `content` a text or any JSON. `tokens` may have input, output,
        cache_read, cache_write and reasoning. A message with an id that the session has is not stored again. `extra`
        are its other fields; `tool_calls` among them, in the shape of OpenAI's API, are stored as calls.
        """
        events = _said(role, content, content_type, message_id, at, metadata, extra or {})
        events[0].provider, events[0].model = provider, model
        return self._append(session, [*events, *_usage(tokens or {}, usd, events[0])])

    def record_tool_call(
        self,
        session: str,
        name: str,
        arguments: Any = None,
        result_summary: str | None = None,
        status: str = "ok",
        *,
        call_id: str | None = None,
        at: datetime | None = None,
    ) -> Appended:
        """Append a tool call and what came of it; a `status` of error, failed, denied or timeout is a failure."""
        call = _call(name, {} if arguments is None else without_bytes(arguments), call_id, at)
        call_id = call.call_id
        has_failed = status in _FAILED
        text = result_summary or ("" if not has_failed else status)
        result = _event(
            ERROR if has_failed else TOOL_RESULT, {"output": text}, summarise(text), f"result:{call_id}", at
        )
        result.role, result.tool, result.call_id, result.status = "tool", name, call_id, status
        result.is_error = has_failed
        return self._append(session, [call, result])

    def attach_media(
        self,
        session: str,
        kind: str,
        path: "str | PathLike[str]",
        mime: str | None = None,
        *,
        at: datetime | None = None,
    ) -> Appended:
        """Append a reference to a file: its path, size and SHA-256, never its bytes."""
        media = reference(kind, Path(path), mime)
        text = f"attached {kind}: {media['path']}"
        event = _event(LIFECYCLE, {"text": text, "media": [media]}, summarise(text), None, at)
        event.role, event.content_type = "user", MEDIA
        return self._append(session, [event])

    def media(self, session: str) -> list[Media]:
        """The files attached to a session, and what became of each; `media_roots` are searched for moved ones."""
        row = self._appender.get(session)
        payloads = self._store.payloads.iter(SessionKey(row.agent, row.native_id), self._store.live.places(row))
        references = [item for payload in payloads for item in orjson.loads(payload)["media"]]
        return find_states(references, self._media_roots)

    def get_history(self, key: str, max_messages: int | None = LIVE_WINDOW) -> list[Message]:
        """The last messages of the session of a key, oldest first; after `compact`, its summary comes first."""
        row = self._appender.find(key)
        if row is None:
            return []
        summaries = self._store.live.messages(row, 1, of_summary=True) if row.first_position else []
        return self._messages(row, [*summaries, *self._store.live.messages(row, max_messages)])

    def _messages(self, row: LiveRow, rows: Sequence[MessageRow]) -> list[Message]:
        places = [(message.payload_start, message.payload_bytes) for message in rows]
        payloads = self._store.payloads.iter(SessionKey(row.agent, row.native_id), places)
        return [_message(message, orjson.loads(payload)) for message, payload in zip(rows, payloads, strict=True)]

    def list_sessions(
        self, channel: str | None = None, *, with_archived: bool = False, limit: int = 20, offset: int = 0
    ) -> list[LiveSession]:
        """Sessions, the one active last first, each with its last message, its counts and what it cost so far."""
        rows = self._store.live.all(LIVE, channel=channel, with_archived=with_archived, limit=limit, offset=offset)
        return self.describe(rows)

    def describe(self, rows: Sequence[LiveRow]) -> list[LiveSession]:
        """Rows of the store as a host gets them."""
        from recollect.sessions import add_up, usd_of  # the price list takes a quarter of a second to load

        used = self._store.steps.responses([SessionKey(row.agent, row.native_id) for row in rows if row.tokens])
        sessions = []
        for row in rows:
            usd, doubt = usd_of(add_up(used.get(SessionKey(row.agent, row.native_id), [])))
            last = self._messages(row, self._store.live.messages(row, 1))
            sessions.append(_session(row, usd, usd is not None and doubt > 0, last[0] if last else None))
        return sessions

    def _describe(self, row: LiveRow) -> LiveSession:
        return self.describe([row])[0]

    def search(
        self,
        query: str = "",
        *,
        channel: str | None = None,
        session: str | None = None,
        exclude: str | Collection[str] = (),
        limit: int = 10,
        matches: int = 3,
        context: int = 2,
    ) -> SearchAnswer:
        """Sessions of this host that match, best first; an empty query gives the recent ones.

        `session` and `exclude` are keys or ids: one to look into, and those to leave out, such as the current one. Each
        hit has the `key`, `channel` and `chat_id` of its session.
        """
        if not self._store.live.all(LIVE, limit=1):  # a filter by an agent that nobody ever used is an error
            return SearchAnswer(query, 0.0, [])
        keys = [exclude] if isinstance(exclude, str) else exclude
        left_out = [session_uid(LIVE, self._native_id(key)) for key in keys]
        within = None if session is None else session_uid(LIVE, self._native_id(session))
        filters = Filters(agent=LIVE, channel=channel, in_session=within)
        return self.memory.answer(query, filters, limit=limit, matches=matches, context=context, exclude=left_out)

    @cached_property
    def session_search(self) -> "SessionSearch":
        """Earlier conversations for the host's agent in one call: recent ones, matches, or messages to scroll in."""
        from recollect.live.recall import SessionSearch  # not every host has an agent that asks

        return SessionSearch(self)

    def find(self, name: str) -> LiveSession | None:
        """The session of a key or a session's id, if there is one."""
        row = self._appender.find(name) or self._store.live.find_session(LIVE, name.removeprefix(f"{LIVE}:"))
        return None if row is None else self._describe(row)

    def archived(self, key: str) -> list[LiveSession]:
        """The sessions that a key stood for before."""
        return self.describe(self._store.live.all(LIVE, prefix=f"{self._appender.name(key)}#"))

    def all_messages(self, key: str) -> list[Message]:
        """Every message of the session of a key, compacted or not, oldest first."""
        row = self._appender.get(key)
        return self._messages(row, self._store.live.messages(row._replace(first_position=0)))

    def history_start(self, row: LiveSession) -> int:
        """The position of the first message that `get_history` gives; 0 if it gives all."""
        held = self._store.live.find_session(LIVE, row.session_uid.removeprefix(f"{LIVE}:"))
        window = self._store.live.messages(held, LIVE_WINDOW) if held is not None else []
        is_whole = held is None or (not held.first_position and len(window) < LIVE_WINDOW)
        return 0 if is_whole or not window else window[0].position

    def before(self, position: int, event_uids: Collection[str]) -> set[str]:
        """Which of these events come before a position in their session."""
        events = self._store.events.by_uid(event_uids)
        return {uid for uid, event in events.items() if event.position < position}

    def messages_after(self, key: str, message_id: str | None, added: Collection[str] = ()) -> list[Message]:
        """The messages behind one of a session, and those of `added`, oldest first."""
        row = self._appender.get(key)
        rows = self._store.live.messages_after(row, message_id, added)
        return self._messages(row, rows)

    def known_ids(self, key: str) -> set[str]:
        """The ids of all messages that the key's session, or one archived under it, holds."""
        name = self._appender.name(key)
        rows = [*self._store.live.all(LIVE, prefix=f"{name}#"), self._appender.find(key)]
        return {name for row in rows if row is not None for name in self._store.live.message_ids(row)}

    def append_lines(
        self, key: str, lines: "Sequence[Line]", facts: Mapping[str, Any], *, is_shown: bool = True
    ) -> None:
        """Append messages that a host wrote before, in one transaction; their times place them among the others."""
        times = [round(line.at.timestamp() * 1000) for line in lines if line.at is not None]
        row = self._open(key, {**facts, "created_ms": min(times, default=None)})
        records: list[EventRecord | Usage] = []
        position = 0
        tools: dict[str | None, str] = {}  # of the calls so far: a result may name its call alone
        for line in lines:
            fields = line.fields
            content_type = str(fields.get("content_type", "text"))
            content_type = "text" if content_type in (MEDIA, SUMMARY) else content_type
            metadata = fields.get("metadata") if isinstance(fields.get("metadata"), dict) else None
            events = _said(line.role, line.content, content_type, line.id, line.at, metadata, line.extra)
            tools |= {event.call_id: event.tool for event in events if event.tool}
            events[0].model, events[0].provider = as_text(fields.get("model")), as_text(fields.get("provider"))
            events[0].tool = events[0].tool or tools.get(events[0].call_id)
            usage = _usage(dict(_counts(fields.get("tokens"))), None, events[0])
            for event in events:
                at_us = self._appender.next_position(row) if line.at is None else round(line.at.timestamp() * 1_000_000)
                position = event.position = max(position + 1, at_us)
            records += [*events, *usage]
        for record in records:
            record.native_session_id = row.native_id
        self._appender.append(row, records, is_shown=is_shown)

    def status(self, folder: Path | None = None) -> LiveStatus:
        """What live sessions hold, by channel; with a folder, also how far each JSONL file in it is behind."""
        files = tuple(live.Backfill(self).status(folder)) if folder is not None else ()
        return make_status(self._store.live.all(LIVE), files)

    def show(self, keys: Iterable[str]) -> None:
        """Have the lasting rows of sessions say what was appended to them."""
        self._appender.show([self._appender.get(key) for key in keys])

    def new_session(self, key: str, *, keep: bool = True, **facts: Any) -> LiveSession:
        """Begin anew under a key. The old session is archived under a name of its own; without `keep` it is deleted.

        Nothing of it is found under the key any more: it is the `parent` of the new one. `facts` describe the new
        session as for `session`.
        """
        row = self._appender.find(key)
        if row is not None and not keep:
            self.delete(key)
        elif row is not None and row.last_position:
            self._archive(row)
            facts = {"parent": session_uid(row.agent, row.native_id), **facts}
        return self.session(key, **facts)

    def _archive(self, row: LiveRow) -> None:
        at_ms = now_ms()
        changes = {"key": f"{row.key}#{rfc3339(at_ms)}", "archived_ms": at_ms}
        try:
            self._appender.append(row, [session_info(row, **changes)], changes)
        except Moved:
            return  # another process was quicker

    def compact(self, key: str, summary: str | None = None, *, keep_last: int = 10) -> LiveSession:
        """Have the history begin with a summary and the last messages; all others stay stored, and are found."""
        row = self._appender.get(key)
        kept = self._store.live.messages(row, keep_last + 1)
        if len(kept) <= keep_last:
            return self._describe(row)
        earlier = row.messages - keep_last
        text = summary or f"{earlier} earlier messages are not shown; search finds them"
        first = kept[1].position if keep_last else row.last_position + 1
        event = _event(LIFECYCLE, {"text": text}, summarise(text), None, None)
        event.role, event.content_type = "system", SUMMARY
        self._append(key, [event, session_info(row, first_position=first)], {"first_position": first})
        return self._describe(self._appender.get(key))

    def delete(self, key: str) -> bool:
        """Delete the session of a key for good, to the last byte; False if there is none.

        Raises Busy while a sweep is running.
        """
        row = self._appender.find(key)
        if row is None:
            return False
        if row.last_position:
            self._appender.show([row])
            planned = self.memory.plan_forgetting(session_uid(row.agent, row.native_id))
            self.memory.forget(planned, keep_forks=True)
        else:
            self._store.live.drop(row)
        return True

    def _append(
        self,
        key: str,
        records: "Sequence[EventRecord | Usage | SessionInfo]",
        changes: Mapping[str, Any] | None = None,
    ) -> Appended:
        """Append to whatever session the key stands for; if that changes on the way, to the new one."""
        event = records[0]
        assert isinstance(event, EventRecord)
        for _ in range(_TRIES):
            row = self._open(key)
            for record in records:
                record.native_session_id = row.native_id
                if isinstance(record, EventRecord):
                    record.position = self._appender.next_position(row)
            try:
                written = self._appender.append(row, records, changes)
            except Moved:
                continue
            uid = event_uid(row.agent, row.native_id, event.native_id).hex()
            return Appended(session_uid(row.agent, row.native_id), event.native_id, uid, bool(written.events_new))
        raise UsageError(f"Session keeps being archived: {key}", "append from fewer places at once")


def _said(
    role: str,
    content: Any,
    content_type: str,
    message_id: str | None,
    at: datetime | None,
    metadata: Mapping[str, Any] | None,
    extra: Mapping[str, Any],
) -> list[EventRecord]:
    """The events of a message: its text, or the first call if it has none, then the other calls."""
    if content_type in (MEDIA, SUMMARY):
        raise UsageError(f"Reserved content type: {content_type}", "use `attach_media` or `compact`")
    text, parts = said(content)
    name = message_id or uuid.uuid4().hex
    calls = [_call(*call, at) for call in calls_of(extra)]
    for number, call in enumerate(calls):  # hosts number the calls of each answer anew
        call.native_id = f"{name}:{number}"
    native = {} if parts is None else {"content": parts}
    native |= {"extra": without_bytes(dict(extra))} if extra else {}
    answered = as_id(extra.get("tool_call_id")) if role == "tool" else None
    if calls and not text:
        event, *calls = calls
        event.native_id = name
        event.payload = {**event.payload, "native": {"content": content, **native}}
    else:
        payload = {"text" if answered is None else "output": text, **({"native": native} if native else {})}
        event = _event(_KINDS.get(role, OTHER), payload, summarise(text), name, at)
    if answered is not None:
        event.call_id, event.tool = answered, as_text(extra.get("name"))
    event.role, event.content_type = role, content_type
    event.metadata = without_bytes(dict(metadata)) if metadata else None
    return [event, *calls]


def _call(name: str, arguments: Any, call_id: str | None, at: datetime | None) -> EventRecord:
    arguments, retry_key = call_key(name, arguments)
    call_id = call_id or uuid.uuid4().hex
    command = arguments.get("command") if isinstance(arguments, dict) else None
    kind = shell_kind(command) if isinstance(command, str) else TOOL_CALL
    call = _event(kind, {"input": arguments}, summarise(as_one_line(name, arguments)), f"call:{call_id}", at)
    call.role, call.tool, call.call_id, call.retry_key = "assistant", name, call_id, retry_key
    return call


def _event(
    kind: str, payload: Mapping[str, Any], summary: str, native_id: str | None, at: datetime | None
) -> EventRecord:
    ts_ms = now_ms() if at is None else round(at.timestamp() * 1000)
    return EventRecord("", native_id or uuid.uuid4().hex, 0, ts_ms, kind, payload, summary)


def _counts(tokens: Any) -> Iterable[tuple[str, int]]:
    """The counts of tokens in a line of a file, as far as there are any."""
    named = tokens.items() if isinstance(tokens, dict) else ()
    return ((name, count) for name, count in named if name in _TOKENS and isinstance(count, int))


def _usage(tokens: Mapping[str, int], usd: float | None, event: EventRecord) -> list[Usage]:
    unknown = set(tokens) - set(_TOKENS)
    if unknown:
        raise UsageError(f"Unknown token type: {', '.join(sorted(unknown))}", f"known: {', '.join(_TOKENS)}")
    if not tokens and usd is None:
        return []
    event.input_tokens, event.output_tokens = tokens.get("input"), tokens.get("output")
    usage = Usage("", event.native_id, event.ts_ms, event.model, event.provider, usd=usd)
    for name, count in tokens.items():
        setattr(usage, _TOKENS[name], count)
    return [usage]


def _message(row: MessageRow, payload: Mapping[str, Any]) -> Message:
    native = payload.get("native") or {}
    tokens = {"input": row.input_tokens, "output": row.output_tokens}
    return Message(
        id=row.native_id,
        event_uid=row.event_uid.hex(),
        role=row.role or "",
        content=native.get("content", payload.get("text", payload.get("output"))),
        content_type=row.content_type,
        ts=rfc3339(row.ts_ms),
        model=row.model,
        provider=row.provider,
        tokens={name: count for name, count in tokens.items() if count is not None},
        metadata=orjson.loads(row.metadata) if row.metadata else {},
        extra=native.get("extra") or {},
    )


def _session(row: LiveRow, usd: float | None, is_estimate: bool, last: Message | None) -> LiveSession:
    return LiveSession(
        session_uid=session_uid(row.agent, row.native_id),
        key=row.key,
        channel=row.channel,
        chat_id=row.chat_id,
        user_id=row.user_id,
        character_id=row.character_id,
        parent_session_uid=session_uid(row.agent, row.parent) if row.parent else None,
        title=row.title,
        metadata=orjson.loads(row.metadata),
        created_at=rfc3339(row.created_ms),
        updated_at=rfc3339(row.updated_ms),
        archived_at=rfc3339(row.archived_ms),
        message_count=row.messages,
        tool_calls=row.tool_calls,
        media=row.media,
        tokens=row.tokens,
        usd=usd,
        usd_is_estimate=is_estimate,
        last_message=last,
    )
