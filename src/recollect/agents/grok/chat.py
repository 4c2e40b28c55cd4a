"""Grok's chat_history.jsonl: the model's view of a session, read only where updates.jsonl is missing.

The agent rewrites the file on compaction and rewind, and it has neither times nor ids: its events are provisional and
named by their line. Old sessions that a newer version continued mix two formats.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from recollect import kinds
from recollect.agentkit.lines import KEPT_BAD_BYTES, salvage
from recollect.agentkit.log import Log
from recollect.agentkit.protocol import BadLine, EventRecord, Record, Source
from recollect.agentkit.values import as_list, as_mapping, as_text, call_key, summarise, text_in
from recollect.agents.grok.discover import session_name
from recollect.agents.grok.events import EMPTY
from recollect.agents.grok.records import Content, grok_id, loads, media_of
from recollect.agents.grok.tools import SHELL, call_kind, call_summary, result_summary

BLOCKS = 256
SYSTEM = "system"  # the vendor's prompt: no event
# How texts begin that the harness writes in the user's name.
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


def read_chat(source: Source, content: bytes) -> Iterator[Record]:
    """The events of the whole file."""
    chat = Chat(session_name(source.path.parent))
    offset = 0
    for number, raw in enumerate(content.split(b"\n"), 1):
        yield from chat.read_line(number, offset, raw)
        offset += len(raw) + 1
    yield from chat.drain_skips()


class Chat(Log):
    """The events of one chat_history.jsonl, line by line."""

    def __init__(self, session: str) -> None:
        super().__init__()
        self.session = session
        self.parent: str | None = None
        self.tools: dict[str, str] = {}

    def read_line(self, number: int, offset: int, raw: bytes) -> Iterator[Record]:
        salvaged = salvage(raw)
        block = 0
        for record in salvaged.records:
            if not isinstance(record, dict):
                yield BadLine(number, offset, "not an object", raw[:KEPT_BAD_BYTES])
                continue
            for part in self._parts(record):
                yield self._event(part, number, block, record, salvaged.is_lossy)
                block += 1
        if block:
            self.parent = f"{self.session}:chat:{number}"
        if salvaged.bad:
            yield BadLine(number, offset, salvaged.bad, raw[:KEPT_BAD_BYTES])

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
            lane=kinds.STAND_IN_LANE,
            parent_native_id=self.parent,
            role=part.role,
            tool=part.tool,
            call_id=part.call_id,
            status={kinds.TOOL_RESULT: "ok", kinds.ERROR: "failed"}.get(part.kind),
            is_error=part.kind == kinds.ERROR,
            is_provisional=True,
            retry_key=part.retry_key,
            model=grok_id(record.get("model_id")),
            metadata={"lossy": True} if is_lossy else None,
        )

    def _parts(self, record: Mapping[str, Any]) -> list[Part]:
        kind = record.get("type") if "type" in record else record.get("role")
        if kind == "system":
            self.skip(SYSTEM)
            return []
        if kind == "user":
            return self._user(record)
        if kind == "assistant":
            return self._assistant(record)
        if kind == "reasoning":
            return self._message(kinds.THINKING, "assistant", text_in(record.get("summary")), [])
        if kind in ("tool_result", "tool"):
            return [self._result(record)]
        if kind == "backend_tool_call":
            return [self._backend_call(record)]
        return [Part(kinds.OTHER, None, {"native": dict(record)}, summarise(str(kind)))]

    def _message(self, kind: str, role: str, text: str, media: list[dict[str, Any]]) -> list[Part]:
        if not text and not media:
            self.skip(EMPTY)
            return []
        payload = {"text": text, **({"media": media} if media else {})}
        return [Part(kind, role, payload, summarise(text) or "sent media")]

    def _user(self, record: Mapping[str, Any]) -> list[Part]:
        text, media = text_in(record.get("content")), _media(record.get("content"))
        reason = record.get("synthetic_reason")
        if (reason and reason != "interjection") or text.startswith(_HARNESS):
            return self._message(kinds.LIFECYCLE, "system", text, media)
        if _QUERY in text:
            text = text.partition(_QUERY)[2].partition(_QUERY_END)[0].strip("\n")
        return self._message(kinds.USER_MSG, "user", text, media)

    def _assistant(self, record: Mapping[str, Any]) -> list[Part]:
        calls = [call for call in as_list(record.get("tool_calls")) if isinstance(call, dict)]
        parts = []
        if thought := text_in(record.get("reasoning_content")):
            parts += self._message(kinds.THINKING, "assistant", thought, [])
        if (text := text_in(record.get("content"))) or not (calls or parts):
            parts += self._message(kinds.ASSISTANT_MSG, "assistant", text, [])
        return parts + [self._call(call) for call in calls]

    def _call(self, call: Mapping[str, Any]) -> Part:
        function = as_mapping(call.get("function")) or call
        name = str(function.get("name") or "")[:200]
        given = function.get("arguments")
        arguments = loads(given.encode("utf-8", "replace")) if isinstance(given, str) else given
        arguments, retry_key = call_key(name, given if arguments is None else arguments)
        call_id = as_text(call.get("id"))
        if call_id:
            self.tools[call_id] = name
        kind = call_kind(name, None, arguments)
        summary = call_summary(name, kind, arguments)
        return Part(kind, "assistant", {"input": arguments}, summary, name, call_id, retry_key)

    def _result(self, record: Mapping[str, Any]) -> Part:
        call_id = as_text(record.get("tool_call_id"))
        text, media = text_in(record.get("content")), _media(record.get("images"))
        tool = self.tools.get(call_id) if call_id else None
        code = text[6:40].partition("\n")[0].partition(" ")[0] if text.startswith("exit: ") else "0"
        kind = kinds.ERROR if code != "0" and tool in (SHELL, None) else kinds.TOOL_RESULT
        native = {"exit_code": code} if kind == kinds.ERROR else {}
        payload = {"output": text, **({"media": media} if media else {})}
        return Part(kind, "tool", payload, result_summary(kind, text, native), tool, call_id)

    def _backend_call(self, record: Mapping[str, Any]) -> Part:
        call = as_mapping(record.get("kind"))
        name = str(call.get("tool_type") or "backend_tool_call")[:200]
        arguments, retry_key = call_key(name, dict(call))
        summary = call_summary(name, kinds.TOOL_CALL, call)
        return Part(kinds.TOOL_CALL, "assistant", {"input": arguments}, summary, name, None, retry_key)


def _media(content: Any) -> list[dict[str, Any]]:
    blocks = (msgspec.convert(item, Content) for item in as_list(content) if isinstance(item, dict))
    return [media_of(block) for block in blocks if isinstance(block.data, str)]
