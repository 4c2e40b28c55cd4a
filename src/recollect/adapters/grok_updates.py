"""Grok's updates.jsonl: the log of one session, as events.

The number in an `eventId` starts again at every resume, so an event is named by number and moment together
(`<eventId>@<agentTimestampMs>`), which a fork's copy shares. Lines are written out of order, so events are
placed by moment and number, never by line: see grok_order.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recollect.adapters.commands import as_mapping, retry_key, summarise
from recollect.adapters.grok_facts import (
    BASH_PROMPT,
    EMPTY,
    LIFECYCLE_FAMILIES,
    LIFECYCLE_TYPES,
    RETRIES_FAILED,
    SKIPPED,
    TOOL_DETAILS,
    answer_variant,
    lifecycle_summary,
    native_of,
    new_model,
    plain,
    text_of,
    usages,
    without,
    without_output,
)
from recollect.adapters.grok_lineage import NUMBERS, Call, Lineage
from recollect.adapters.grok_messages import CHUNKS, USER_CHUNK, Message, content_of, message_key
from recollect.adapters.grok_order import Order
from recollect.adapters.grok_records import (
    Content,
    Output,
    Record,
    Update,
    loads,
    parse_line,
    safe_id,
    salvage_line,
)
from recollect.adapters.grok_tools import (
    call_kind,
    call_summary,
    read_full_log,
    read_result,
    result_kind,
    result_summary,
    tool_name,
)
from recollect.adapters.jsonl import KEPT_BAD_BYTES, LineReader, fingerprint
from recollect.adapters.protocol import BadLine, Cursor, EventRecord, SessionInfo, Source
from recollect.adapters.protocol import Record as Told
from recollect.schema import (
    DECISION,
    ERROR,
    HUMAN_INTERVENTION,
    LIFECYCLE,
    OTHER,
    RETRY,
    SUB_AGENT,
    TOOL_CALL,
)

_BY_USER = frozenset({HUMAN_INTERVENTION, DECISION})


def read_updates(source: Source, cursor: Cursor | None) -> Iterator[Told]:
    """Yield the session's events from the cursor on."""
    reader = LineReader(source, cursor)
    lane = Lane(source, Lineage.from_state(reader.state))
    order = lane.order
    for number, offset, raw in reader:
        lane.read_line(number, offset, raw)
        if order.told:
            yield from order.told
            order.told.clear()
        if order.since is None and reader.is_due:
            yield from order.take_skips()
            yield reader.checkpoint(lane.lineage.as_state())
    yield from reader.too_long
    yield from order.finish(reader)


class Lane:
    """The events of one updates.jsonl, line by line, put into `order`."""

    def __init__(self, source: Source, lineage: Lineage) -> None:
        self.source = source
        self.folder = source.path.parent
        self.lineage = lineage
        self.order = Order(lineage)

    def read_line(self, number: int, offset: int, raw: bytes) -> None:
        record = parse_line(raw, number, offset)
        if record is not None:
            self._read(record)
        else:
            self._read_damaged(number, offset, raw)

    def _read_damaged(self, number: int, offset: int, raw: bytes) -> None:
        records, wrong = salvage_line(raw, number, offset)
        for record in records:
            self._read(record)
        # A cursor cannot be held within a line, nor before one that was told as bad.
        if wrong or len(records) > 1:
            self.order.settle()
        self.order.told += [BadLine(number, offset, reason, raw[:KEPT_BAD_BYTES]) for reason in wrong]

    def _read(self, record: Record) -> None:
        order, kind = self.order, record.kind
        if self.lineage.session is None:
            self.lineage.session = safe_id(record.session) or session_name(self.folder)
        if order.since is not None:
            order.expire(record)
        if kind in SKIPPED:
            order.skip(kind)
        else:
            _READERS.get(kind, Lane._read_rare)(self, record)

    # Messages

    def _read_chunk(self, record: Record) -> None:
        content = record.update.content
        if not isinstance(content, Content):
            content = _NO_CONTENT
        if "bash_command" in as_mapping(content.meta):
            self.order.close()
            self.order.skip(BASH_PROMPT)
            return
        text, media = content_of(content)
        key = message_key(record)
        if self.order.open and self.order.open.key == key:
            self.order.add(record, (*self._place(record), text), media)
        elif text or media:
            self._begin_message(record, key, text, media)
        else:
            self.order.close()
            self.order.skip(EMPTY)

    def _begin_message(self, record: Record, key: tuple[Any, ...], text: str, media: list[dict[str, Any]]) -> None:
        kind, role = CHUNKS[record.kind]
        facts = record.update.facts
        native = native_of(record)
        if record.kind == USER_CHUNK:
            native |= plain(promptIndex=facts.promptIndex, modelId=facts.modelId)
            if facts.hideFromScrollback is True or text.startswith("<system-reminder>"):
                kind, role = LIFECYCLE, "system"
        event = self._event(record, kind, role, {"native": native})
        self.order.begin(record, Message(key, event, [(event.position, event.native_id, text)], media))
        if record.kind == USER_CHUNK:
            self.lineage.add_prompt(facts.promptIndex, event.position, event.parent_native_id)
            self.lineage.model = safe_id(facts.modelId) or self.lineage.model
        else:
            event.model = self.lineage.model

    # Tools

    def _read_call(self, record: Record) -> None:
        update = record.update
        tool = update.tool
        call = Call(tool_name(update), safe_id(tool.kind), update.facts.bash_mode is True)
        native = native_of(record) | plain(namespace=tool.namespace, label=tool.label)
        event = self._event(record, TOOL_CALL, "user" if call.is_user else "assistant", {"native": native})
        self._describe(event, call, update)
        self.order.put(event)
        if not update.rawInput:
            event.is_provisional = True
            call.unfinished = (event.native_id, event.position, event.ts_ms, event.parent_native_id)
        if call_id := safe_id(update.toolCallId):
            self.lineage.add_call(call_id, call)

    def _describe(self, event: EventRecord, call: Call, update: Update) -> None:
        """Tell what a call was called with."""
        arguments = loads(update.rawInput)
        if arguments is None:
            arguments = {}
        event.payload = {"input": arguments, **event.payload}
        event.call_id = text_of(update.toolCallId)
        event.tool = "shell" if call.is_user else call.tool
        if not call.is_user:
            event.kind = call_kind(call.tool, call.tool_kind, arguments)
            event.model = self.lineage.model
        event.summary = call_summary(call.tool, event.kind, arguments)
        event.retry_key = retry_key(event.tool, arguments)
        mcp_tool = as_mapping(arguments).get("tool_name")
        if call.tool == "use_tool" and isinstance(mcp_tool, str):
            event.metadata = {"mcp_tool": mcp_tool[:200], **(event.metadata or {})}

    def _read_tool_update(self, record: Record) -> None:
        update = record.update
        call_id = safe_id(update.toolCallId) or ""
        call = self.lineage.calls.get(call_id)
        if update.status in ("completed", "failed"):
            self._read_result(record, call or Call(tool_name(update)))
            return
        self.order.skip(TOOL_DETAILS)
        if call and call.unfinished and update.rawInput:
            self._complete(record, call)

    def _complete(self, record: Record, call: Call) -> None:
        """Tell a call again, now that a later update says what it was called with."""
        assert call.unfinished
        event = self._event(record, TOOL_CALL, "user" if call.is_user else "assistant", {"native": native_of(record)})
        event.native_id, event.position, event.ts_ms, event.parent_native_id = call.unfinished
        self._describe(event, call, record.update)
        self.order.told.append(event)
        call.unfinished = None

    def _read_result(self, record: Record, call: Call) -> None:
        update = record.update
        result = read_result(update, self._full_log(update))
        kind, status = result_kind(update, result.output, call.tool, call.tool_kind, answer_variant(record, call))
        payload: dict[str, Any] = {"output": result.output}
        if result.media:
            payload["media"] = result.media
        payload["native"] = {**native_of(record), **result.native, "status": update.status}
        event = self._event(record, kind, "user" if kind in _BY_USER or call.is_user else "tool", payload)
        event.summary = result_summary(kind, result.output, result.native)
        event.tool = "shell" if call.is_user else call.tool or None
        event.call_id = text_of(update.toolCallId)
        event.status = status
        event.is_error = status != "ok"
        self.order.put(event)
        if isinstance(update.rawOutput, Output):
            self._tell_child(record, update.rawOutput.subagent_id, event.call_id)

    def _full_log(self, update: Update) -> str | None:
        told = update.rawOutput
        if isinstance(told, Output) and told.truncated is True and (call_id := safe_id(update.toolCallId)):
            return read_full_log(self.source.root, self.folder, call_id)
        return None

    # Everything else

    def _read_turn_end(self, record: Record) -> None:
        update, meta = record.update, record.meta
        reason = text_of(update.stop_reason) or "end"
        text = text_of(update.agent_result)
        native = native_of(record) | plain(
            sessionUpdate=record.kind,
            stop_reason=reason,
            prompt_id=update.prompt_id,
            elapsed_ms=update.elapsed_ms,
            cancelTrigger=meta.cancelTrigger,
            cancellationCategory=meta.cancellationCategory,
        )
        payload = {"text": text, "native": native} if text else {"native": native}
        event = self._event(record, LIFECYCLE, "system", payload, summarise(f"turn ended: {reason}"))
        _judge_turn(event, reason, text)
        # Nothing of a turn follows its end, but for the last piece of a message that was cut off.
        if reason == "cancelled" and self.order.open:
            self.order.hold(record, event)
        else:
            self.order.end(event)
        self.order.told += usages(event, update, self.lineage.model)

    def _read_retry(self, record: Record) -> None:
        told = record.plain()
        state = text_of(told.get("type")) or ""
        if state == "failed":
            self.order.skip(RETRIES_FAILED)
            return
        text = text_of(told.get("message")) or text_of(told.get("reason")) or ""
        payload = {"text": text, "native": native_of(record) | without(told, "message", "reason")}
        event = self._event(record, LIFECYCLE, "system", payload, summarise(f"{state}: {text}"))
        if state == "retrying":
            event.kind, event.status, event.is_retry, event.is_error = RETRY, "retrying", True, True
        self.order.hold(record, event)

    def _read_rewind(self, record: Record) -> None:
        told = record.plain()
        target = told.get("target_prompt_index")
        event = self._event(record, LIFECYCLE, "system", {"native": native_of(record) | told})
        event.summary = summarise(f"went back to before prompt {target}")
        self.order.end(event)
        rewind_to = self.lineage.rewind(target)
        if rewind_to is not None:
            event.metadata = {"rewind_to": rewind_to, "rewind_until": event.position, **(event.metadata or {})}

    def _read_lifecycle(self, record: Record) -> None:
        told = record.plain()
        text = text_of(as_mapping(told.get("task_snapshot")).get("output"))
        payload: dict[str, Any] = {"text": text} if text else {}
        payload["native"] = native_of(record) | without_output(told)
        event = self._event(record, LIFECYCLE, "system", payload, lifecycle_summary(record.kind, told))
        self.order.hold(record, event)
        if record.kind.startswith("model_"):
            self.lineage.model = new_model(told) or self.lineage.model
        if record.kind == "subagent_spawned":
            self._tell_child(record, told.get("child_session_id"))

    def _read_rare(self, record: Record) -> None:
        if record.kind.startswith(LIFECYCLE_FAMILIES):
            self._read_lifecycle(record)
            return
        native = native_of(record) | record.plain()
        self.order.hold(record, self._event(record, OTHER, None, {"native": native}, summarise(record.kind)))

    def _tell_child(self, record: Record, told: Any, spawn_call_id: str | None = None) -> None:
        """Name the parent of a sub-agent, unless its spawning is a fork's copy of what another session did."""
        session, child = self.lineage.session, safe_id(told)
        is_own = record.event_id is None or record.event_id.rpartition("-")[0] == session
        if child and child != session and is_own:
            self.order.told.append(
                SessionInfo(child, parent_native_id=session, spawn_call_id=spawn_call_id, session_class=SUB_AGENT)
            )

    def _event(
        self, record: Record, kind: str, role: str | None, payload: dict[str, Any], summary: str = ""
    ) -> EventRecord:
        position, native_id = self._place(record)
        return EventRecord(
            self.lineage.session or "",
            native_id,
            position,
            record.ts_ms,
            kind,
            payload,
            summary,
            role=role,
            metadata={"lossy": True} if record.is_lossy else None,
        )

    def _place(self, record: Record) -> tuple[int, str]:
        """Position and native id: moment and number together, since the number alone starts again at a resume."""
        event_id, moment = record.event_id, record.moment
        if moment is None:
            position = max((record.ts_ms or 0) * NUMBERS, self.lineage.top + 1)
            return position, event_id or f"{self.lineage.session}:{record.offset}"
        if event_id is None:
            return moment * NUMBERS, f"{self.lineage.session}:{record.offset}"
        number = event_id.rpartition("-")[2][-9:]
        return moment * NUMBERS + (int(number) % NUMBERS if number.isdecimal() else 0), f"{event_id}@{moment}"


_NO_CONTENT = Content()
_READERS = {
    **dict.fromkeys(CHUNKS, Lane._read_chunk),
    "tool_call": Lane._read_call,
    "tool_call_update": Lane._read_tool_update,
    "turn_completed": Lane._read_turn_end,
    "retry_state": Lane._read_retry,
    "rewind_marker": Lane._read_rewind,
    **dict.fromkeys(LIFECYCLE_TYPES, Lane._read_lifecycle),
}


def _judge_turn(event: EventRecord, reason: str, text: str | None) -> None:
    if reason == "cancelled":
        event.kind, event.role, event.status = HUMAN_INTERVENTION, "user", "interrupted"
        event.summary = "interrupted the turn"
    elif reason == "error":
        event.kind, event.role, event.status, event.is_error = ERROR, "assistant", "failed", True
        event.summary = summarise(f"failed: {text or 'the turn ended in an error'}")


def session_name(folder: Path) -> str:
    """The session a folder holds, for files that do not say it: Grok names the folder after it."""
    return safe_id(folder.name) or fingerprint(folder.name.encode("utf-8", "replace"))
