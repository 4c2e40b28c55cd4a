"""Grok's chat_history.jsonl: the model's view of a session, read only where updates.jsonl is missing.

The agent rewrites the file on compaction and rewind, and it tells neither times nor ids: its events
are provisional and named by their line. Old sessions that a newer version carried on mix two formats.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from recollect.adapters.commands import as_mapping, retry_key, summarise
from recollect.adapters.grok_facts import EMPTY
from recollect.adapters.grok_records import Content, loads, safe_id
from recollect.adapters.grok_tools import SHELL, call_kind, call_summary, media_of, result_summary
from recollect.adapters.grok_updates import session_name
from recollect.adapters.jsonl import KEPT_BAD_BYTES, read_rewritten, salvage
from recollect.adapters.protocol import BadLine, Cursor, EventRecord, Skipped, Source
from recollect.adapters.protocol import Record as Told
from recollect.schema import (
    ASSISTANT_MSG,
    ERROR,
    LIFECYCLE,
    OTHER,
    STAND_IN_LANE,
    THINKING,
    TOOL_CALL,
    TOOL_RESULT,
    USER_MSG,
)

BLOCKS = 256
SYSTEM = "system"  # the vendor's prompt: no event
# Texts the harness puts into the user's mouth without saying so.
_HARNESS = ("<user_info>", "<system-reminder>", "I executed a terminal command:")
_QUERY, _QUERY_END = "<user_query>", "</user_query>"


@dataclass(slots=True)
class Part:
    """One event of a line: what differs between the kinds."""

    kind: str
    role: str | None
    payload: dict[str, Any]
    summary: str
    tool: str | None = None
    call_id: str | None = None
    retry_key: str | None = None


def read_chat(source: Source, cursor: Cursor | None) -> Iterator[Told]:
    """Yield the events of the whole file, if it has changed."""
    found = read_rewritten(source, cursor)
    if found is None:
        return
    content, checkpoint = found
    chat = Chat(session_name(source.path.parent))
    offset = 0
    for number, raw in enumerate(content.split(b"\n"), 1):
        yield from chat.read(number, offset, raw)
        offset += len(raw) + 1
    yield from (Skipped(name, count) for name, count in sorted(chat.skips.items()))
    yield checkpoint


class Chat:
    """The events of one chat_history.jsonl, line by line."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.parent: str | None = None
        self.tools: dict[str, str] = {}
        self.skips: dict[str, int] = {}

    def read(self, number: int, offset: int, raw: bytes) -> Iterator[Told]:
        saved = salvage(raw)
        block = 0
        for record in saved.records:
            if not isinstance(record, dict):
                yield BadLine(number, offset, "not an object", raw[:KEPT_BAD_BYTES])
                continue
            for part in self._parts(record):
                yield self._event(part, number, block, record, saved.is_lossy)
                block += 1
        if block:
            self.parent = f"{self.session}:chat:{number}"
        if saved.bad:
            yield BadLine(number, offset, saved.bad, raw[:KEPT_BAD_BYTES])

    def _event(self, part: Part, number: int, block: int, record: Mapping[str, Any], is_lossy: bool) -> EventRecord:
        return EventRecord(
            self.session,
            f"{self.session}:chat:{number}",
            number * BLOCKS + min(block, BLOCKS - 1),
            None,
            part.kind,
            part.payload,
            part.summary,
            block=block,
            lane=STAND_IN_LANE,
            parent_native_id=self.parent,
            role=part.role,
            tool=part.tool,
            call_id=part.call_id,
            status={TOOL_RESULT: "ok", ERROR: "failed"}.get(part.kind),
            is_error=part.kind == ERROR,
            is_provisional=True,
            retry_key=part.retry_key,
            model=safe_id(record.get("model_id")),
            metadata={"lossy": True} if is_lossy else None,
        )

    def _parts(self, record: Mapping[str, Any]) -> list[Part]:
        told = record.get("type") if "type" in record else record.get("role")
        if told == "system":
            return self._skip(SYSTEM)
        if told == "user":
            return self._user(record)
        if told == "assistant":
            return self._assistant(record)
        if told == "reasoning":
            return self._message(THINKING, "assistant", _text(record.get("summary")), [])
        if told in ("tool_result", "tool"):
            return [self._result(record)]
        if told == "backend_tool_call":
            return [self._backend_call(record)]
        return [Part(OTHER, None, {"native": dict(record)}, summarise(str(told)))]

    def _skip(self, name: str) -> list[Part]:
        self.skips[name] = self.skips.get(name, 0) + 1
        return []

    def _message(self, kind: str, role: str, text: str, media: list[dict[str, Any]]) -> list[Part]:
        if not text and not media:
            return self._skip(EMPTY)
        payload = {"text": text, **({"media": media} if media else {})}
        return [Part(kind, role, payload, summarise(text) or "sent media")]

    def _user(self, record: Mapping[str, Any]) -> list[Part]:
        text, media = _text(record.get("content")), _media(record.get("content"))
        reason = record.get("synthetic_reason")
        if (reason and reason != "interjection") or text.startswith(_HARNESS):
            return self._message(LIFECYCLE, "system", text, media)
        if _QUERY in text:
            text = text.partition(_QUERY)[2].partition(_QUERY_END)[0].strip("\n")
        return self._message(USER_MSG, "user", text, media)

    def _assistant(self, record: Mapping[str, Any]) -> list[Part]:
        calls = [call for call in _items(record.get("tool_calls")) if isinstance(call, dict)]
        parts = []
        if thought := _text(record.get("reasoning_content")):
            parts += self._message(THINKING, "assistant", thought, [])
        if (text := _text(record.get("content"))) or not (calls or parts):
            parts += self._message(ASSISTANT_MSG, "assistant", text, [])
        return parts + [self._call(call) for call in calls]

    def _call(self, call: Mapping[str, Any]) -> Part:
        function = as_mapping(call.get("function")) or call
        name = str(function.get("name") or "")[:200]
        told = function.get("arguments")
        arguments = loads(told.encode("utf-8", "replace")) if isinstance(told, str) else told
        arguments = told if arguments is None else arguments
        call_id = call.get("id") if isinstance(call.get("id"), str) else None
        if call_id:
            self.tools[call_id] = name
        kind = call_kind(name, None, arguments)
        summary = call_summary(name, kind, arguments)
        return Part(kind, "assistant", {"input": arguments}, summary, name, call_id, retry_key(name, arguments))

    def _result(self, record: Mapping[str, Any]) -> Part:
        call_id = record.get("tool_call_id") if isinstance(record.get("tool_call_id"), str) else None
        text, media = _text(record.get("content")), _media(record.get("images"))
        tool = self.tools.get(call_id) if call_id else None
        code = text[6:40].partition("\n")[0].partition(" ")[0] if text.startswith("exit: ") else "0"
        kind = ERROR if code != "0" and tool in (SHELL, None) else TOOL_RESULT
        native = {"exit_code": code} if kind == ERROR else {}
        payload = {"output": text, **({"media": media} if media else {})}
        return Part(kind, "tool", payload, result_summary(kind, text, native), tool, call_id)

    def _backend_call(self, record: Mapping[str, Any]) -> Part:
        told = as_mapping(record.get("kind"))
        name = str(told.get("tool_type") or "backend_tool_call")[:200]
        summary = call_summary(name, TOOL_CALL, told)
        return Part(TOOL_CALL, "assistant", {"input": dict(told)}, summary, name, None, retry_key(name, told))


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = (as_mapping(item).get("text") for item in _items(content))
    return "\n".join(text for text in texts if isinstance(text, str))


def _media(content: Any) -> list[dict[str, Any]]:
    blocks = (msgspec.convert(item, Content) for item in _items(content) if isinstance(item, dict))
    return [media_of(block) for block in blocks if isinstance(block.data, str)]
