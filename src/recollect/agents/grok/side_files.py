"""Grok's files beside the log: facts about sessions, telemetry, typed prompts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from recollect.agentkit.lines import LineReader
from recollect.agentkit.log import NOTHING, Log, Unreadable, bad_document, parse_document
from recollect.agentkit.protocol import EventRecord, Record, SessionInfo, Source
from recollect.agentkit.values import as_list, as_mapping, parse_time_ms, summarise
from recollect.agents.grok.discover import session_name
from recollect.agents.grok.events import NUMBERS, provider_of
from recollect.agents.grok.records import grok_id
from recollect.kinds import (
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
