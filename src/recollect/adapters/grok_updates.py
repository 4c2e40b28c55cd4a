"""Grok's updates.jsonl: the log of one session, as events.

Two things decide the design. The number in an `eventId` starts again at every resume, so an event is
named by number and moment together (`<eventId>@<agentTimestampMs>`), which a fork's copy shares. And lines
are written out of order, so events are placed by moment and number, never by line.

A message may be streamed in several lines. While one is open its event is provisional and the cursor
stays before its first line; what was read after it is read again, to the same result.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recollect.adapters.commands import as_mapping, retry_key
from recollect.adapters.grok_facts import (
    BASH_PROMPT,
    EMPTY,
    LIFECYCLE_FAMILIES,
    LIFECYCLE_TYPES,
    SKIPPED,
    TOOL_DETAILS,
    answer_variant,
    lifecycle_summary,
    native_of,
    new_model,
    only_plain,
    text_of,
    usages,
    without,
    without_output,
)
from recollect.adapters.grok_lineage import NUMBERS, Call, Lineage
from recollect.adapters.grok_messages import CHUNKS, USER_CHUNK, Message, content_of, message_key
from recollect.adapters.grok_records import (
    Output,
    Record,
    Update,
    loads,
    parse_line,
    safe_id,
)
from recollect.adapters.grok_tools import (
    brief,
    call_kind,
    call_summary,
    read_full_log,
    read_result,
    result_kind,
    result_summary,
    tool_facts,
    tool_name,
)
from recollect.adapters.jsonl import KEPT_BAD_BYTES, LineReader, fingerprint
from recollect.adapters.protocol import (
    BadLine,
    Cursor,
    EventRecord,
    SessionInfo,
    Skipped,
    Source,
)
from recollect.adapters.protocol import Record as Told
from recollect.schema import (
    ERROR,
    HUMAN_INTERVENTION,
    LIFECYCLE,
    OTHER,
    RETRY,
    SUB_AGENT,
    TOOL_CALL,
    USER_MSG,
)


def read_updates(source: Source, cursor: Cursor | None) -> Iterator[Told]:
    """Yield the session's events from the cursor on."""
    reader = LineReader(source, cursor)
    lane = Lane(source, Lineage.from_state(reader.state))
    for number, offset, raw in reader:
        records = parse_line(raw, number, offset)
        for found in records:
            if isinstance(found, Record):
                yield from lane.read(found)
            # A cursor cannot be held within a line, nor before one that was told as bad.
            if isinstance(found, str) or len(records) > 1:
                yield from lane.close()
            if isinstance(found, str):
                yield BadLine(number, offset, found, raw[:KEPT_BAD_BYTES])
        if reader.is_due and lane.open is None:
            yield from lane.told_skips()
            yield reader.checkpoint(lane.lineage.as_state())
    yield from reader.too_long
    yield from lane.finish(reader)


class Lane:
    """The events of one updates.jsonl, line by line."""

    def __init__(self, source: Source, lineage: Lineage) -> None:
        self.source = source
        self.folder = source.path.parent
        self.lineage = lineage
        self.open: Message | None = None
        self.skips: Counter[str] = Counter()
        self.skips_since_open: Counter[str] = Counter()

    def read(self, record: Record) -> Iterator[Told]:
        """Yield what one update tells."""
        lineage = self.lineage
        if lineage.session is None:
            lineage.session = safe_id(record.session) or session_name(self.folder)
        kind = record.kind
        if self.open and self.open.is_over(record.number, kind):
            yield from self.close()
        if kind in CHUNKS:
            yield from self._read_chunk(record, kind)
        elif kind == "tool_call":
            yield from self.close()
            yield self._call(record)
        elif kind == "tool_call_update":
            yield from self._read_tool_update(record)
        elif kind in SKIPPED:
            self.skip(kind)
        else:
            yield from self._read_rare(record, kind)

    def skip(self, name: str) -> None:
        (self.skips if self.open is None else self.skips_since_open)[name] += 1

    def told_skips(self) -> Iterator[Skipped]:
        yield from (Skipped(name, count) for name, count in sorted(self.skips.items()))
        self.skips.clear()

    def close(self) -> Iterator[EventRecord]:
        if self.open:
            yield self.open.joined(is_provisional=False)
            self.open = None
            self.skips += self.skips_since_open
            self.skips_since_open.clear()

    def finish(self, reader: LineReader) -> Iterator[Told]:
        """Yield an open message as it stands, and hold the cursor before it."""
        yield from self.told_skips()
        if self.open is None:
            yield reader.checkpoint(self.lineage.as_state())
            return
        yield self.open.joined(is_provisional=True)
        yield reader.checkpoint(self.open.before.as_state(), at=self.open.at)

    # Messages

    def _read_chunk(self, record: Record, kind: str) -> Iterator[Told]:
        content = as_mapping(record.update.content)
        if kind == USER_CHUNK and "bash_command" in as_mapping(content.get("_meta")):
            yield from self.close()
            self.skip(BASH_PROMPT)
            return
        text, media = content_of(content)
        key = message_key(record, kind)
        if self.open is None or self.open.key != key:
            yield from self.close()
            if not text and not media:
                self.skip(EMPTY)
                return
            self._open_message(record, kind, key, text)
        assert self.open is not None
        self.open.add(self._position(record), text, media, record.number)
        if record.is_lossy:
            self.open.event.metadata = {"lossy": True}

    def _open_message(self, record: Record, kind: str, key: tuple[Any, ...], text: str) -> None:
        before = self.lineage.snapshot()
        event_kind, role = CHUNKS[kind]
        facts = as_mapping(record.update.meta)
        self.lineage.has_failed = False
        if event_kind == USER_MSG:
            self.lineage.model = safe_id(facts.get("modelId")) or self.lineage.model
            if facts.get("hideFromScrollback") is True or text.startswith("<system-reminder>"):
                event_kind, role = LIFECYCLE, "system"
        event = self._event(record, event_kind, role=role)
        if kind == USER_CHUNK:
            self.lineage.add_prompt(facts.get("promptIndex"), event.position, event.parent_native_id)
            event.payload["native"].update(only_plain(facts, ("promptIndex", "modelId")))
        else:
            event.model = self.lineage.model
        self.open = Message(key, event, (record.number - 1, record.offset), before, record.number)

    # Tools

    def _call(self, record: Record) -> EventRecord:
        update = record.update
        name = tool_name(update)
        tool_kind = tool_facts(update).get("kind")
        is_user = as_mapping(update.meta).get("bash_mode") is True
        event = self._event(record, TOOL_CALL, role="user" if is_user else "assistant")
        call = Call(
            safe_id(name) or "",
            safe_id(tool_kind),
            is_user,
            (event.position, event.native_id),
            event.parent_native_id,
            event.ts_ms,
            not update.rawInput,
        )
        call_id = safe_id(update.toolCallId)
        if call_id:
            self.lineage.add_call(call_id, call)
        event.payload["native"].update(only_plain(tool_facts(update), ("namespace", "label")))
        return self._with_input(event, call, name, update)

    def _with_input(self, event: EventRecord, call: Call, name: str, update: Update) -> EventRecord:
        arguments = loads(update.rawInput)
        arguments = {} if arguments is None else arguments
        event.kind = TOOL_CALL if call.is_user else call_kind(name, call.tool_kind, arguments)
        event.summary = call_summary(name, event.kind, arguments)
        event.tool = "shell" if call.is_user else name
        event.call_id = text_of(update.toolCallId)
        event.retry_key = retry_key(event.tool, arguments)
        event.payload = {"input": arguments, **event.payload}
        event.is_provisional = call.lacks_input
        event.model = None if call.is_user else self.lineage.model
        mcp_tool = as_mapping(arguments).get("tool_name")
        if name == "use_tool" and isinstance(mcp_tool, str):
            event.metadata = {"mcp_tool": mcp_tool[:200], **(event.metadata or {})}
        return event

    def _read_tool_update(self, record: Record) -> Iterator[Told]:
        update = record.update
        call_id = safe_id(update.toolCallId)
        call = self.lineage.calls.get(call_id) if call_id else None
        if update.status in ("completed", "failed"):
            yield from self._result(record, update, call)
            return
        self.skip(TOOL_DETAILS)
        if call_id and call and call.lacks_input and update.rawInput:
            yield self._completed_call(record, update, call_id, call)

    def _completed_call(self, record: Record, update: Update, call_id: str, call: Call) -> EventRecord:
        """The call again, now that a later update tells what it was called with."""
        call = Call(call.tool, call.tool_kind, call.is_user, call.place, call.parent, call.ts_ms)
        self.lineage.add_call(call_id, call)
        position, native_id = call.place
        event = EventRecord(
            self.lineage.session or "",
            native_id,
            position,
            call.ts_ms,
            TOOL_CALL,
            {"native": native_of(record)},
            "",
            parent_native_id=call.parent,
            role="user" if call.is_user else "assistant",
        )
        return self._with_input(event, call, call.tool, update)

    def _result(self, record: Record, update: Update, call: Call | None) -> Iterator[Told]:
        call = call or Call(tool_name(update))
        told = update.rawOutput
        result = read_result(update, self._full_log(update))
        kind, status = result_kind(update, result.output, call.tool, call.tool_kind, answer_variant(record, call))
        event = self._event(record, kind, role="user" if kind in _BY_USER or call.is_user else "tool")
        event.payload = {
            "output": result.output,
            **({"media": result.media} if result.media else {}),
            "native": {**event.payload["native"], **result.native, "status": update.status},
        }
        event.tool = "shell" if call.is_user else call.tool or None
        event.call_id = text_of(update.toolCallId)
        event.status = status
        event.is_error = status != "ok"
        event.summary = result_summary(kind, result.output, result.native)
        yield event
        if isinstance(told, Output) and self._is_own(record):
            yield from self._child(told.subagent_id, spawn_call_id=event.call_id)

    def _full_log(self, update: Update) -> str | None:
        told = update.rawOutput
        if isinstance(told, Output) and told.truncated is True and (call_id := safe_id(update.toolCallId)):
            return read_full_log(self.source.root, self.folder, call_id)
        return None

    # Everything else

    def _read_rare(self, record: Record, kind: str) -> Iterator[Told]:
        if kind == "turn_completed":
            yield from self._turn_end(record)
        elif kind == "retry_state":
            yield self._retry(record)
        elif kind == "rewind_marker":
            yield from self.close()
            yield self._rewind(record)
        elif kind in LIFECYCLE_TYPES or kind.startswith(LIFECYCLE_FAMILIES):
            yield from self._lifecycle(record, kind)
        else:
            event = self._event(record, OTHER)
            event.payload = {"native": {**event.payload["native"], **record.plain()}}
            event.summary = brief(kind[:200])
            yield event

    def _turn_end(self, record: Record) -> Iterator[Told]:
        update, meta = record.update, record.meta
        reason = text_of(update.stop_reason) or "end"
        if reason != "cancelled":
            yield from self.close()
        event = self._event(record, LIFECYCLE, role="system")
        event.payload["native"].update(
            {"sessionUpdate": "turn_completed", "prompt_id": text_of(update.prompt_id), "stop_reason": reason},
            **only_plain({"cancelTrigger": meta.cancelTrigger, "elapsed_ms": update.elapsed_ms}, None),
        )
        event.summary = brief(f"turn ended: {reason[:80]}")
        self._judge_turn(event, update, reason, text_of(meta.cancellationCategory) or "")
        self.lineage.has_failed = reason == "error"
        yield event
        yield from usages(event, update, self.lineage.model)

    def _judge_turn(self, event: EventRecord, update: Update, reason: str, category: str) -> None:
        """A refusal or a failure that has an event of its own is not told a second time here."""
        if reason == "cancelled" and not category.startswith("Permission"):
            event.kind, event.role, event.status = HUMAN_INTERVENTION, "user", "interrupted"
            event.summary = "interrupted the turn"
        if category:
            event.payload["native"]["cancellationCategory"] = category
        text = text_of(update.agent_result)
        if text and not self.lineage.has_failed:
            event.payload = {"text": text, **event.payload}
        if reason == "error" and not self.lineage.has_failed:
            event.kind, event.role, event.status, event.is_error = ERROR, "assistant", "failed", True
            event.summary = brief(f"failed: {text or 'the turn ended in an error'}"[:260])

    def _retry(self, record: Record) -> EventRecord:
        told = record.plain()
        text = text_of(told.get("message")) or text_of(told.get("reason")) or ""
        state = text_of(told.get("type")) or ""
        event = self._event(record, LIFECYCLE, role="system")
        event.payload = {
            "text": text,
            "native": {**event.payload["native"], **without(told, "message", "reason")},
        }
        event.summary = brief(f"{state[:40]}: {text[:260]}")
        if state == "retrying":
            event.kind, event.status, event.is_retry, event.is_error = RETRY, "retrying", True, True
        elif state == "failed" and not self.lineage.has_failed:
            event.kind, event.role, event.status, event.is_error = ERROR, "assistant", "failed", True
            self.lineage.has_failed = True
        return event

    def _rewind(self, record: Record) -> EventRecord:
        told = record.plain()
        target = told.get("target_prompt_index")
        rewind_to = self.lineage.rewind(target)
        event = self._event(record, LIFECYCLE, role="system")
        event.payload["native"].update(told)
        event.summary = brief(f"went back to before prompt {target}"[:200])
        if rewind_to is not None:
            event.metadata = {
                "rewind_to": rewind_to,
                "rewind_until": event.position,
                **(event.metadata or {}),
            }
        return event

    def _lifecycle(self, record: Record, kind: str) -> Iterator[Told]:
        told = record.plain()
        event = self._event(record, LIFECYCLE, role="system")
        text = text_of(as_mapping(told.get("task_snapshot")).get("output"))
        event.payload = {"native": {**event.payload["native"], **without_output(told)}}
        if text:
            event.payload = {"text": text, **event.payload}
        event.summary = lifecycle_summary(kind, told)
        if kind.startswith("model_"):
            self.lineage.model = new_model(told) or self.lineage.model
        yield event
        if kind == "subagent_spawned" and self._is_own(record):
            yield from self._child(told.get("child_session_id"))

    def _child(self, child: Any, spawn_call_id: str | None = None) -> Iterator[SessionInfo]:
        child_id = safe_id(child)
        if child_id and child_id != self.lineage.session:
            yield SessionInfo(
                child_id,
                parent_native_id=self.lineage.session,
                spawn_call_id=spawn_call_id,
                session_class=SUB_AGENT,
            )

    def _is_own(self, record: Record) -> bool:
        """Whether the session did this itself: a fork's copy of its parent's spawning is not its own."""
        return record.event_id is None or record.event_id.rpartition("-")[0] == self.lineage.session

    def _event(self, record: Record, kind: str, role: str | None = None) -> EventRecord:
        """An event at the record's place, in line after the event before it."""
        position, native_id = self._position(record), self._native_id(record)
        return EventRecord(
            self.lineage.session or "",
            native_id,
            position,
            record.moment,
            kind,
            {"native": native_of(record)},
            "",
            parent_native_id=self.lineage.follow(position, native_id),
            role=role,
            metadata={"lossy": True} if record.is_lossy else None,
        )

    def _native_id(self, record: Record) -> str:
        if record.event_id is None:
            return f"{self.lineage.session}:{record.offset}"
        return f"{record.event_id}@{record.moment}" if record.has_own_moment else record.event_id

    def _position(self, record: Record) -> int:
        """Moment and number together order events over resumes, where the number alone starts again."""
        if record.moment is None or not record.has_own_moment:
            return max((record.moment or 0) * NUMBERS, self.lineage.top + 1)
        number = record.event_id.rpartition("-")[2][-9:] if record.event_id else ""
        return record.moment * NUMBERS + (int(number) % NUMBERS if number.isdecimal() else 0)


_BY_USER = frozenset({"human_intervention", "decision"})


def session_name(folder: Path) -> str:
    """The session a folder holds, for files that do not say it: Grok names the folder after it."""
    return safe_id(folder.name) or fingerprint(folder.name.encode("utf-8", "replace"))
