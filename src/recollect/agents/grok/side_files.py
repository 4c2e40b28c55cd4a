"""Grok's files beside the log: facts about sessions, telemetry, typed prompts, and chat_history.jsonl.

That is the model's view of a session, read only where updates.jsonl is missing. The agent rewrites it on compaction
and rewind, and it has neither times nor ids: its events are provisional and named by their line. Old sessions that a
newer version continued mix two formats.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from recollect.agentkit.log import (
    KEPT_BAD_BYTES,
    NOTHING,
    LineReader,
    Log,
    Unreadable,
    bad_document,
    parse_document,
    salvage,
)
from recollect.agentkit.protocol import BadLine, EventRecord, Record, SessionInfo, Source
from recollect.agentkit.values import as_list, as_mapping, as_text, call_key, parse_time_ms, summarise, text_in
from recollect.agents.grok.discover import session_name
from recollect.agents.grok.events import EMPTY, NUMBERS, provider_of
from recollect.agents.grok.records import Content, grok_id, loads, media_of
from recollect.agents.grok.tools import SHELL, call_kind, call_summary, result_summary
from recollect.model import kinds
from recollect.model.kinds import (
    AUTOMATION,
    FILES_LANE,
    HISTORY_LANE,
    HUMAN,
    LIFECYCLE,
    OTHER,
    SUB_AGENT,
    TOOL_CALL,
    USER_MSG,
)

# Telemetry of events.jsonl: timing, or what the updates have too.
SKIPPED_EVENTS = frozenset(
    {"turn_started", "turn_ended", "loop_started", "phase_changed", "first_token", "interjected"}
    | {"tool_started", "tool_completed", "permission_requested", "permission_resolved"}
)
SKIPPED_EVENT_FAMILIES = ("mcp_", "goal_", "laziness_", "todo_gate_")
LIFECYCLE_EVENTS = frozenset({"yolo_toggled"})


Facts = Mapping[str, Any]


def read_summary(source: Source, content: bytes) -> Iterable[Record]:
    """The facts about a session in its summary.json."""
    return _read_facts(source, content, _session_info)


def read_child(source: Source, content: bytes) -> Iterable[Record]:
    """The facts about a sub-agent in its parent's folder."""
    return _read_facts(source, content, _child_info)


def _read_facts(
    source: Source, content: bytes, info_of: Callable[[Source, Facts], SessionInfo | None]
) -> Iterable[Record]:
    info = info_of(source, as_mapping(parse_document(content)))
    return [info or bad_document(content, "not what the file should hold")]


def _session_info(source: Source, facts: Facts) -> SessionInfo | None:
    if not facts:
        return None
    info = as_mapping(facts.get("info"))
    kind = _text(facts.get("session_kind")) or ""
    is_child = kind.startswith("subagent")
    parent = grok_id(facts.get("parent_session_id"))
    remotes = as_list(facts.get("git_remotes"))
    model = grok_id(facts.get("current_model_id"))
    title, title_rank = _title(facts)
    return SessionInfo(
        grok_id(info.get("id")) or session_name(source.path.parent),
        parent_native_id=parent if is_child else None,
        base_native_id=None if is_child and kind != "subagent_fork" else parent,
        base_end=_text(facts.get("fork_parent_prompt_id")) if parent else None,
        born_ms=parse_time_ms(facts.get("created_at")),
        session_class=SUB_AGENT if is_child else AUTOMATION if kind == "headless" else HUMAN,
        cwd=_text(info.get("cwd")),
        git_root=_text(facts.get("git_root_dir")),
        git_remote=_text(remotes[0]) if remotes else None,
        git_branch=_text(facts.get("head_branch")),
        model=model,
        provider=provider_of(model),
        title=title,
        title_rank=title_rank,
        metadata=_small(facts, ("session_kind", "agent_name", "sandbox_profile", "reasoning_effort")),
    )


def _title(facts: Facts) -> tuple[str | None, int]:
    if title := _text(facts.get("generated_title")):
        return title, 3 if facts.get("title_is_manual") is True else 2
    summary = _text(facts.get("session_summary"))
    return summary, 1 if summary else 0


def _child_info(source: Source, facts: Facts) -> SessionInfo | None:
    """A sub-agent's own folder does not name its parent; the parent's folder names both."""
    child, parent = grok_id(facts.get("child_session_id")), grok_id(facts.get("parent_session_id"))
    if child is None or parent is None or child == parent:
        return None
    return SessionInfo(
        child,
        parent_native_id=parent,
        session_class=SUB_AGENT,
        cwd=_text(facts.get("child_cwd")),
        metadata=_small(facts, ("subagent_type", "description", "status")),
    )


class _Telemetry(msgspec.Struct, gc=False):
    """All that is looked at in most lines of events.jsonl."""

    type: Any = None
    session_id: Any = None


_decode_telemetry = msgspec.json.Decoder(_Telemetry).decode


class EventsLog(Log):
    """The few lines of events.jsonl that the updates do not have."""

    def __init__(self, source: Source, state: Mapping[str, Any]) -> None:
        super().__init__()
        self._folder_session = session_name(source.path.parent)
        self._session: str | None = state.get("session")
        self._top: int = state.get("top", 0)

    def dump(self) -> Mapping[str, Any]:
        return {"session": self._session, "top": self._top}

    def settle(self, reader: LineReader) -> Iterable[Record]:
        # Most of these files make no event: the info shows whose they are.
        return [
            *self.drain_skips(),
            SessionInfo(self._session or self._folder_session),
            reader.checkpoint(self.dump()),
        ]

    def read(self, offset: int, raw: bytes, is_lossy: bool = False) -> Sequence[Record]:
        line = _decode_telemetry(raw)
        kind = line.type if isinstance(line.type, str) else ""
        self._session = self._session or grok_id(line.session_id)
        if kind in SKIPPED_EVENTS or kind.startswith(SKIPPED_EVENT_FAMILIES):
            self.skip(f"events.jsonl {kind}")
            return NOTHING
        event = as_mapping(orjson.loads(raw))
        moment = parse_time_ms(event.get("ts"))
        self._top = max((moment or 0) * NUMBERS, self._top + 1)
        is_lifecycle = kind in LIFECYCLE_EVENTS
        return [
            EventRecord(
                self._session or self._folder_session,
                f"events:{self._folder_session}:{offset}",
                self._top,
                moment,
                LIFECYCLE if is_lifecycle else OTHER,
                {"native": event},
                summarise(kind.replace("_", " ")) or "event",
                lane=FILES_LANE,
                role="system" if is_lifecycle else None,
            )
        ]


class HistoryLog(Log):
    """The prompts typed in one working directory, whichever session they went to."""

    def read(self, offset: int, raw: bytes, is_lossy: bool = False) -> Sequence[Record]:
        prompt = as_mapping(orjson.loads(raw))
        session, text = grok_id(prompt.get("session_id")), _text(prompt.get("prompt"))
        if session is None or text is None:
            raise Unreadable("not a prompt")
        moment = parse_time_ms(prompt.get("timestamp"))
        # The time has nanoseconds: it names a prompt even after the agent has cut its history.
        name = grok_id(prompt.get("timestamp")) if moment else None
        is_shell = prompt.get("is_bash") is True
        return [
            EventRecord(
                session,
                f"history:{name}" if name else f"history:{session}:{offset}",
                (moment or 0) * NUMBERS + (0 if moment else offset),
                moment,
                TOOL_CALL if is_shell else USER_MSG,
                {"input": {"command": text}} if is_shell else {"text": text},
                summarise(f"ran {text}" if is_shell else text),
                lane=HISTORY_LANE,
                role="user",
                tool="shell" if is_shell else None,
            )
        ]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _small(facts: Facts, names: tuple[str, ...]) -> dict[str, Any] | None:
    return {name: text[:200] for name in names if (text := _text(facts.get(name)))} or None


BLOCKS = 256
SYSTEM = "system"  # the vendor's prompt: no event
# How texts begin that the harness writes in the user's name.
_HARNESS = ("<user_info>", "<system-reminder>", "I executed a terminal command:")
_QUERY, _QUERY_END = "<user_query>", "</user_query>"


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
            for event in self._events(record):
                event.native_id = f"{self.session}:chat:{number}"
                event.position, event.block = number * BLOCKS + min(block, BLOCKS - 1), block
                event.model = grok_id(record.get("model_id"))
                event.metadata = {"lossy": True} if salvaged.is_lossy else None
                yield event
                block += 1
        if block:
            self.parent = f"{self.session}:chat:{number}"
        if salvaged.bad:
            yield BadLine(number, offset, salvaged.bad, raw[:KEPT_BAD_BYTES])

    def _event(
        self,
        kind: str,
        role: str | None,
        payload: dict[str, Any],
        summary: str,
        tool: str | None = None,
        call_id: str | None = None,
        retry_key: str | None = None,
    ) -> EventRecord:
        """One event of a line; `read_line` adds its place."""
        return EventRecord(
            self.session,
            "",
            0,
            None,
            kind,
            payload,
            summary,
            lane=kinds.STAND_IN_LANE,
            parent_native_id=self.parent,
            role=role,
            tool=tool,
            call_id=call_id,
            status={kinds.TOOL_RESULT: "ok", kinds.ERROR: "failed"}.get(kind),
            is_error=kind == kinds.ERROR,
            is_provisional=True,
            retry_key=retry_key,
        )

    def _events(self, record: Mapping[str, Any]) -> list[EventRecord]:
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
        return [self._event(kinds.OTHER, None, {"native": dict(record)}, summarise(str(kind)))]

    def _message(self, kind: str, role: str, text: str, media: list[dict[str, Any]]) -> list[EventRecord]:
        if not text and not media:
            self.skip(EMPTY)
            return []
        payload = {"text": text, **({"media": media} if media else {})}
        return [self._event(kind, role, payload, summarise(text) or "sent media")]

    def _user(self, record: Mapping[str, Any]) -> list[EventRecord]:
        text, media = text_in(record.get("content")), _media(record.get("content"))
        reason = record.get("synthetic_reason")
        if (reason and reason != "interjection") or text.startswith(_HARNESS):
            return self._message(kinds.LIFECYCLE, "system", text, media)
        if _QUERY in text:
            text = text.partition(_QUERY)[2].partition(_QUERY_END)[0].strip("\n")
        return self._message(kinds.USER_MSG, "user", text, media)

    def _assistant(self, record: Mapping[str, Any]) -> list[EventRecord]:
        calls = [call for call in as_list(record.get("tool_calls")) if isinstance(call, dict)]
        parts = []
        if thought := text_in(record.get("reasoning_content")):
            parts += self._message(kinds.THINKING, "assistant", thought, [])
        if (text := text_in(record.get("content"))) or not (calls or parts):
            parts += self._message(kinds.ASSISTANT_MSG, "assistant", text, [])
        return parts + [self._call(call) for call in calls]

    def _call(self, call: Mapping[str, Any]) -> EventRecord:
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
        return self._event(kind, "assistant", {"input": arguments}, summary, name, call_id, retry_key)

    def _result(self, record: Mapping[str, Any]) -> EventRecord:
        call_id = as_text(record.get("tool_call_id"))
        text, media = text_in(record.get("content")), _media(record.get("images"))
        tool = self.tools.get(call_id) if call_id else None
        code = text[6:40].partition("\n")[0].partition(" ")[0] if text.startswith("exit: ") else "0"
        kind = kinds.ERROR if code != "0" and tool in (SHELL, None) else kinds.TOOL_RESULT
        native = {"exit_code": code} if kind == kinds.ERROR else {}
        payload = {"output": text, **({"media": media} if media else {})}
        return self._event(kind, "tool", payload, result_summary(kind, text, native), tool, call_id)

    def _backend_call(self, record: Mapping[str, Any]) -> EventRecord:
        call = as_mapping(record.get("kind"))
        name = str(call.get("tool_type") or "backend_tool_call")[:200]
        arguments, retry_key = call_key(name, dict(call))
        summary = call_summary(name, kinds.TOOL_CALL, call)
        return self._event(kinds.TOOL_CALL, "assistant", {"input": arguments}, summary, name, None, retry_key)


def _media(content: Any) -> list[dict[str, Any]]:
    blocks = (msgspec.convert(item, Content) for item in as_list(content) if isinstance(item, dict))
    return [media_of(block) for block in blocks if isinstance(block.data, str)]
