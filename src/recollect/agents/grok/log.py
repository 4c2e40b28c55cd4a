"""Grok's updates.jsonl: the log of one session, as events.

The number in an `eventId` starts again at every resume, so an event is named by number and moment together
(`<eventId>@<agentTimestampMs>`), which a fork's copy shares. Lines are written out of order, so positions come from
moment and number, never from the line: see `order`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from recollect.agentkit.log import REBUILT, LineReader, Log, read_log, read_rewritten, salvage
from recollect.agentkit.protocol import BadLine, EventRecord, Record, SessionInfo, Source
from recollect.agentkit.values import as_mapping, as_text, call_key, summarise
from recollect.agents.grok import discover, events, side_files
from recollect.agents.grok.events import (
    CHUNKS,
    NUMBERS,
    USER_CHUNK,
    Call,
    OpenMessage,
    Order,
    State,
    content_of,
    message_key,
    native_of,
    scalars,
)
from recollect.agents.grok.records import Content, Output, Update, UpdateRecord, grok_id, loads, parse_line
from recollect.agents.grok.side_files import read_chat
from recollect.agents.grok.tools import (
    call_kind,
    call_summary,
    read_full_log,
    read_result,
    result_kind,
    result_summary,
    tool_name,
)
from recollect.model import kinds

_BY_USER = frozenset({kinds.HUMAN_INTERVENTION, kinds.DECISION})


class UpdatesLog(Log):
    """The events of one updates.jsonl, line by line, put into `order`."""

    def __init__(self, source: Source, reader: LineReader) -> None:
        super().__init__()
        self.source = source
        self.folder = source.path.parent
        self.state = State.load(reader.state)
        self.order = Order(self.state)
        self._reader = reader

    def read(self, offset: int, raw: bytes, is_lossy: bool = False) -> Sequence[Record]:
        record = parse_line(raw, self._reader.line, offset, is_lossy)
        order, kind = self.order, record.kind
        if self.state.session is None:
            self.state.session = grok_id(record.session) or discover.session_name(self.folder)
        if order.since is not None:
            order.expire(record)
        if kind in events.SKIPPED:
            order.skip(kind)
        else:
            _READERS.get(kind, UpdatesLog._read_rare)(self, record)
        return order.take()

    def read_damaged(self, number: int, offset: int, raw: bytes) -> list[Record]:
        records = super().read_damaged(number, offset, raw)
        # A cursor cannot be held within a line, nor before a bad one.
        if len(salvage(raw).records) > 1 or any(isinstance(record, BadLine) for record in records):
            self.order.settle()
            records += self.order.take()
        return records

    def settle(self, reader: LineReader) -> Iterator[Record]:
        if self.order.since is None:
            for name in self.order.skips:
                self.skip(name)
            self.order.skips.clear()
            yield from self.drain_skips()
            yield reader.checkpoint(self.state.dump())

    def finish(self, reader: LineReader) -> Iterator[Record]:
        """Yield what still waits as it is, and leave the cursor before it."""
        yield from self.settle(reader)
        if self.order.since is not None:
            for name in self.order.skips:
                self.skip(name)
            yield from self.drain_skips()
            at, mark = self.order.since
            self.order.settle()
            for event in self.order.take():
                assert isinstance(event, EventRecord)
                event.is_provisional = True
                yield event
            yield reader.checkpoint(self.state.dump() | mark, at=at)

    # Messages

    def _read_chunk(self, record: UpdateRecord) -> None:
        content = record.update.content
        if not isinstance(content, Content):
            content = _NO_CONTENT
        if content.meta is not None and "bash_command" in as_mapping(content.meta):
            self.order.close()
            self.order.skip(events.BASH_PROMPT)
            return
        text, media = content_of(content)
        key = message_key(record)
        if self.order.open and self.order.open.key == key:
            self.order.add(record, (self._position(record), record.event_id, text), media)
        elif text or media:
            self._begin_message(record, key, text, media)
        else:
            self.order.close()
            self.order.skip(events.EMPTY)

    def _begin_message(
        self, record: UpdateRecord, key: tuple[Any, ...], text: str, media: list[dict[str, Any]]
    ) -> None:
        kind, role = CHUNKS[record.kind]
        facts = record.update.facts
        native = native_of(record)
        if record.kind == USER_CHUNK:
            native |= scalars(promptIndex=facts.promptIndex, modelId=facts.modelId)
            if facts.hideFromScrollback is True or text.startswith("<system-reminder>"):
                kind, role = kinds.LIFECYCLE, "system"
        event = self._event(record, kind, role, {"native": native})
        self.order.begin(record, OpenMessage(key, event, [(event.position, record.event_id, text)], media))
        if record.kind == USER_CHUNK:
            self.state.add_prompt(facts.promptIndex, event.position, event.parent_native_id)
            self.state.model = grok_id(facts.modelId) or self.state.model
        else:
            event.model = self.state.model

    # Tools

    def _read_call(self, record: UpdateRecord) -> None:
        update = record.update
        tool = update.tool
        call = Call(tool_name(update), grok_id(tool.get("kind")), update.facts.bash_mode is True)
        native = native_of(record) | scalars(namespace=tool.get("namespace"), label=tool.get("label"))
        event = self._event(record, kinds.TOOL_CALL, "user" if call.is_user else "assistant", {"native": native})
        self._describe(event, call, update)
        self.order.put(event)
        if not update.rawInput:
            event.is_provisional = True
            call.unfinished = (event.native_id, event.position, event.ts_ms, event.parent_native_id)
        if call_id := grok_id(update.toolCallId):
            self.state.add_call(call_id, call)

    def _describe(self, event: EventRecord, call: Call, update: Update) -> None:
        """Add what a call was called with."""
        arguments = loads(update.rawInput)
        event.tool = "shell" if call.is_user else call.tool
        arguments, event.retry_key = call_key(event.tool, {} if arguments is None else arguments)
        event.payload = {"input": arguments, **event.payload}
        event.call_id = as_text(update.toolCallId)
        if not call.is_user:
            event.kind = call_kind(call.tool, call.tool_kind, arguments)
            event.model = self.state.model
        event.summary = call_summary(call.tool, event.kind, arguments)
        mcp_tool = as_mapping(arguments).get("tool_name")
        if call.tool == "use_tool" and isinstance(mcp_tool, str):
            event.metadata = {"mcp_tool": mcp_tool[:200], **(event.metadata or {})}

    def _read_tool_update(self, record: UpdateRecord) -> None:
        update = record.update
        call_id = grok_id(update.toolCallId) or ""
        call = self.state.calls.get(call_id)
        if update.status in ("completed", "failed"):
            self._read_result(record, call or Call(tool_name(update)))
            return
        self.order.skip(events.TOOL_DETAILS)
        if call and call.unfinished and update.rawInput:
            self._complete(record, call)

    def _complete(self, record: UpdateRecord, call: Call) -> None:
        """Yield a call again, now that a later update has its arguments."""
        assert call.unfinished
        event = self._event(
            record, kinds.TOOL_CALL, "user" if call.is_user else "assistant", {"native": native_of(record)}
        )
        event.native_id, event.position, event.ts_ms, event.parent_native_id = call.unfinished
        self._describe(event, call, record.update)
        self.order.ready.append(event)
        call.unfinished = None

    def _read_result(self, record: UpdateRecord, call: Call) -> None:
        update = record.update
        result = read_result(update, self._full_log(update))
        kind, status = result_kind(
            update, result.output, call.tool, call.tool_kind, events.answer_variant(record, call)
        )
        payload: dict[str, Any] = {"output": result.output}
        if result.media:
            payload["media"] = result.media
        payload["native"] = {**native_of(record), **result.native, "status": update.status}
        event = self._event(record, kind, "user" if kind in _BY_USER or call.is_user else "tool", payload)
        event.summary = result_summary(kind, result.output, result.native)
        event.tool = "shell" if call.is_user else call.tool or None
        event.call_id = as_text(update.toolCallId)
        event.status = status
        event.is_error = status != "ok"
        self.order.put(event)
        if isinstance(update.rawOutput, Output):
            self._add_child(record, update.rawOutput.subagent_id, event.call_id)

    def _full_log(self, update: Update) -> str | None:
        output = update.rawOutput
        if isinstance(output, Output) and output.truncated is True and (call_id := grok_id(update.toolCallId)):
            return read_full_log(self.source.root, self.folder, call_id)
        return None

    # Everything else

    def _read_turn_end(self, record: UpdateRecord) -> None:
        update, meta = record.update, record.meta
        reason = as_text(update.stop_reason) or "end"
        text = as_text(update.agent_result)
        native = native_of(record) | scalars(
            sessionUpdate=record.kind,
            stop_reason=reason,
            prompt_id=update.prompt_id,
            elapsed_ms=update.elapsed_ms,
            cancelTrigger=meta.cancelTrigger,
            cancellationCategory=meta.cancellationCategory,
        )
        payload = {"text": text, "native": native} if text else {"native": native}
        event = self._event(record, kinds.LIFECYCLE, "system", payload, summarise(f"turn ended: {reason}"))
        if reason == "cancelled":
            event.kind, event.role, event.status = kinds.HUMAN_INTERVENTION, "user", "interrupted"
            event.summary = "interrupted the turn"
        elif reason == "error":
            event.kind, event.role, event.status, event.is_error = kinds.ERROR, "assistant", "failed", True
            event.summary = summarise(f"failed: {text or 'the turn ended in an error'}")
        # Nothing of a turn follows its end except the last piece of a message that was cut off.
        if reason == "cancelled" and self.order.open:
            self.order.hold(record, event)
        else:
            self.order.end(event)
        self.order.ready += events.usages(event, update, self.state.model)

    def _read_retry(self, record: UpdateRecord) -> None:
        fields = record.plain()
        state = as_text(fields.get("type")) or ""
        if state == "failed":
            self.order.skip(events.RETRIES_FAILED)
            return
        text = as_text(fields.get("message")) or as_text(fields.get("reason")) or ""
        payload = {"text": text, "native": native_of(record) | events.without(fields, "message", "reason")}
        event = self._event(record, kinds.LIFECYCLE, "system", payload, summarise(f"{state}: {text}"))
        if state == "retrying":
            event.kind, event.status, event.is_retry, event.is_error = kinds.RETRY, "retrying", True, True
        self.order.hold(record, event)

    def _read_rewind(self, record: UpdateRecord) -> None:
        fields = record.plain()
        target = fields.get("target_prompt_index")
        event = self._event(record, kinds.LIFECYCLE, "system", {"native": native_of(record) | fields})
        event.summary = summarise(f"went back to before prompt {target}")
        self.order.end(event)
        rewind_to = self.state.rewind(target)
        if rewind_to is not None:
            event.metadata = {"rewind_to": rewind_to, "rewind_until": event.position, **(event.metadata or {})}

    def _read_lifecycle(self, record: UpdateRecord) -> None:
        fields = record.plain()
        text = as_text(as_mapping(fields.get("task_snapshot")).get("output"))
        payload: dict[str, Any] = {"text": text} if text else {}
        payload["native"] = native_of(record) | events.without_output(fields)
        event = self._event(record, kinds.LIFECYCLE, "system", payload, events.lifecycle_summary(record.kind, fields))
        self.order.hold(record, event)
        if record.kind.startswith("model_"):
            self.state.model = events.new_model(fields) or self.state.model
        if record.kind == "subagent_spawned":
            self._add_child(record, fields.get("child_session_id"))

    def _read_rare(self, record: UpdateRecord) -> None:
        if record.kind.startswith(events.LIFECYCLE_FAMILIES):
            self._read_lifecycle(record)
            return
        native = native_of(record) | record.plain()
        self.order.hold(record, self._event(record, kinds.OTHER, None, {"native": native}, summarise(record.kind)))

    def _add_child(self, record: UpdateRecord, value: Any, spawn_call_id: str | None = None) -> None:
        """Name the parent of a sub-agent, unless the record is a fork's copy from another session."""
        session, child = self.state.session, grok_id(value)
        is_own = record.event_id is None or record.event_id.rpartition("-")[0] == session
        if child and child != session and is_own:
            self.order.ready.append(
                SessionInfo(child, parent_native_id=session, spawn_call_id=spawn_call_id, session_class=kinds.SUB_AGENT)
            )

    def _event(
        self, record: UpdateRecord, kind: str, role: str | None, payload: dict[str, Any], summary: str = ""
    ) -> EventRecord:
        event_id, moment, session = record.event_id, record.moment, self.state.session or ""
        if event_id is None:
            native_id = f"{session}:{record.offset}"
        else:
            native_id = event_id if moment is None else f"{event_id}@{moment}"
        return EventRecord(
            session,
            native_id,
            self._position(record),
            record.ts_ms,
            kind,
            payload,
            summary,
            role=role,
            metadata={"lossy": True} if record.is_lossy else None,
            is_rebuilt=record.raw.endswith(REBUILT),  # it may be yielded with a later line
        )

    def _position(self, record: UpdateRecord) -> int:
        """Moment and number together, since the number alone starts again at a resume."""
        moment = record.moment
        if moment is None:
            return max((record.ts_ms or 0) * NUMBERS, self.state.top + 1)
        if record.event_id is None:
            return moment * NUMBERS
        number = record.event_id.rpartition("-")[2][-9:]
        return moment * NUMBERS + (int(number) % NUMBERS if number.isdecimal() else 0)


_NO_CONTENT = Content()
_READERS = {
    **dict.fromkeys(CHUNKS, UpdatesLog._read_chunk),
    "tool_call": UpdatesLog._read_call,
    "tool_call_update": UpdatesLog._read_tool_update,
    "turn_completed": UpdatesLog._read_turn_end,
    "retry_state": UpdatesLog._read_retry,
    "rewind_marker": UpdatesLog._read_rewind,
    **dict.fromkeys(events.LIFECYCLE_TYPES, UpdatesLog._read_lifecycle),
}


READERS = {
    discover.UPDATES: lambda source, cursor: read_log(reader := LineReader(source, cursor), UpdatesLog(source, reader)),
    discover.EVENTS: lambda source, cursor: read_log(
        reader := LineReader(source, cursor), side_files.EventsLog(source, reader.state)
    ),
    discover.HISTORY: lambda source, cursor: read_log(LineReader(source, cursor), side_files.HistoryLog()),
    discover.CHAT: lambda source, cursor: read_rewritten(source, cursor, read_chat),
    discover.SUMMARY: lambda source, cursor: read_rewritten(source, cursor, side_files.read_summary),
    discover.CHILD: lambda source, cursor: read_rewritten(source, cursor, side_files.read_child),
}
