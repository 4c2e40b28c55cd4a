"""Grok ("Grok Build"): which files below its home hold sessions, and what each of them tells.

A session is a folder. updates.jsonl is its log and the only lane; the other files add facts
(summary.json, subagents/*/meta.json), a few lifecycle events (events.jsonl) or prompts whose
session is gone (prompt_history.jsonl). docs/formats/grok.md says why each is read or left alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from recollect.adapters.commands import as_mapping, parse_time_ms, summarise
from recollect.adapters.files import iter_files, unreadable_folders
from recollect.adapters.grok_chat import read_chat
from recollect.adapters.grok_facts import provider_of
from recollect.adapters.grok_lineage import NUMBERS
from recollect.adapters.grok_records import safe_id
from recollect.adapters.grok_updates import read_updates, session_name
from recollect.adapters.jsonl import KEPT_BAD_BYTES, LineReader, read_rewritten, salvage
from recollect.adapters.protocol import (
    AgentProfile,
    BadLine,
    Cursor,
    EventRecord,
    Record,
    SessionInfo,
    Skipped,
    Source,
)
from recollect.schema import (
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

AGENT = "grok"
UPDATES, EVENTS, SUMMARY, CHAT, CHILD, HISTORY = "updates", "events", "summary", "chat", "child", "history"
_REWRITTEN = frozenset({SUMMARY, CHAT, CHILD})

# Telemetry of events.jsonl: the updates tell the same, or it is timing.
SKIPPED_EVENTS = frozenset(
    {"turn_started", "turn_ended", "loop_started", "phase_changed", "first_token", "interjected"}
    | {"tool_started", "tool_completed", "permission_requested", "permission_resolved"}
)
SKIPPED_EVENT_FAMILIES = ("mcp_", "goal_", "laziness_", "todo_gate_")
LIFECYCLE_EVENTS = frozenset({"yolo_toggled"})


class GrokAdapter:
    """Reader of Grok's files."""

    agent = AGENT
    home = "~/.grok"
    home_variable = "GROK_HOME"
    version = 2
    profile = AgentProfile("Grok", "GROK_SESSION_ID")

    def discover(self, root: Path) -> Iterator[Source]:
        """Find the session folders below `root`, Grok's home or any folder sessions were copied to."""
        sessions = root / "sessions"
        is_home = sessions.is_dir() and not sessions.is_symlink()
        folders: dict[Path, set[str]] = defaultdict(set)
        unreadable: list[OSError] = []
        for path in iter_files(sessions if is_home else root, unreadable):
            folders[path.parent].add(path.name)
        for folder in sorted(folders):
            depth = len(folder.relative_to(sessions).parts) if is_home else None
            for kind, name in _named(folder, folders[folder], depth):
                owner = _session_of(kind, folder)
                yield Source(AGENT, kind, root, folder / name, kind in _REWRITTEN, session=owner)
        yield from unreadable_folders(AGENT, root, unreadable)

    def read(self, source: Source, cursor: Cursor | None) -> Iterator[Record]:
        """Yield what the source tells from the cursor on."""
        return _READERS[source.kind](source, cursor)


def _named(folder: Path, names: set[str], depth: int | None) -> Iterator[tuple[str, str]]:
    """The files of one folder that are read. `depth` is below `sessions`, None in a folder of copies."""
    if depth in (None, 1) and "prompt_history.jsonl" in names:
        yield HISTORY, "prompt_history.jsonl"
    if depth in (None, 4) and folder.parent.name == "subagents" and "meta.json" in names:
        yield CHILD, "meta.json"
    lanes = names & {"updates.jsonl", "chat_history.jsonl"}
    # Other programs use names like these: outside Grok's own tree both files must be there.
    if not lanes or not (depth == 2 or (depth is None and "summary.json" in names)):
        return
    yield (UPDATES, "updates.jsonl") if "updates.jsonl" in names else (CHAT, "chat_history.jsonl")
    if "events.jsonl" in names:
        yield EVENTS, "events.jsonl"
    if "summary.json" in names:
        yield SUMMARY, "summary.json"


def _session_of(kind: str, folder: Path) -> str | None:
    """The session that a file's folder is named after; a child's facts lie in its parent's."""
    if kind == HISTORY:
        return None
    return session_name(folder.parent.parent if kind == CHILD else folder)


def _read_facts(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Yield the one SessionInfo of a summary.json or meta.json."""
    found = read_rewritten(source, cursor)
    if found is None:
        return
    content, checkpoint = found
    saved = salvage(content)
    told = saved.records[0] if saved.records else None
    tell = _child_info if source.kind == CHILD else _session_info
    if isinstance(told, dict) and (info := tell(source, told)):
        yield info
    else:
        yield BadLine(1, 0, saved.bad or "not what the file should hold", content[:KEPT_BAD_BYTES])
    yield checkpoint


def _session_info(source: Source, told: dict[str, Any]) -> SessionInfo | None:
    info = as_mapping(told.get("info"))
    kind = _text(told.get("session_kind")) or ""
    is_child = kind.startswith("subagent")
    parent = safe_id(told.get("parent_session_id"))
    remotes = told.get("git_remotes")
    model = safe_id(told.get("current_model_id"))
    title, title_rank = _title(told)
    return SessionInfo(
        safe_id(info.get("id")) or session_name(source.path.parent),
        parent_native_id=parent if is_child else None,
        base_native_id=None if is_child and kind != "subagent_fork" else parent,
        base_end=_text(told.get("fork_parent_prompt_id")) if parent else None,
        born_ms=parse_time_ms(told.get("created_at")),
        session_class=SUB_AGENT if is_child else AUTOMATION if kind == "headless" else HUMAN,
        cwd=_text(info.get("cwd")),
        git_root=_text(told.get("git_root_dir")),
        git_remote=_text(remotes[0]) if isinstance(remotes, list) and remotes else None,
        git_branch=_text(told.get("head_branch")),
        model=model,
        provider=provider_of(model),
        title=title,
        title_rank=title_rank,
        metadata=_small(told, ("session_kind", "agent_name", "sandbox_profile", "reasoning_effort")),
    )


def _title(told: dict[str, Any]) -> tuple[str | None, int]:
    if title := _text(told.get("generated_title")):
        return title, 3 if told.get("title_is_manual") is True else 2
    summary = _text(told.get("session_summary"))
    return summary, 1 if summary else 0


def _child_info(source: Source, told: dict[str, Any]) -> SessionInfo | None:
    """A sub-agent's own folder does not name its parent; the parent's folder names both."""
    child, parent = safe_id(told.get("child_session_id")), safe_id(told.get("parent_session_id"))
    if child is None or parent is None or child == parent:
        return None
    return SessionInfo(
        child,
        parent_native_id=parent,
        session_class=SUB_AGENT,
        cwd=_text(told.get("child_cwd")),
        metadata=_small(told, ("subagent_type", "description", "status")),
    )


class _Telemetry(msgspec.Struct):
    """All that is looked at in most lines of events.jsonl."""

    type: str = ""
    session_id: str | None = None


_TELEMETRY = msgspec.json.Decoder(_Telemetry)


def _read_events(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Yield the few things events.jsonl tells that the updates do not."""
    reader = LineReader(source, cursor)
    state = {"session": reader.state.get("session"), "top": reader.state.get("top", 0)}
    skips: Counter[str] = Counter()
    for number, offset, raw in reader:
        if not _is_telemetry(raw, state, skips):
            yield from _unusual_events(source, state, (number, offset, raw), skips)
        if reader.is_due:
            yield from _told(skips)
            yield SessionInfo(state["session"] or session_name(source.path.parent))
            yield reader.checkpoint(dict(state))
    yield from reader.too_long
    yield from _told(skips)
    # Most of these files make no event: this says whose they are.
    yield SessionInfo(state["session"] or session_name(source.path.parent))
    yield reader.checkpoint(dict(state))


def _is_telemetry(raw: bytes, state: dict[str, Any], skips: Counter[str]) -> bool:
    """Count a line that makes no event; False if it has to be looked at as a whole."""
    try:
        told = _TELEMETRY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    state["session"] = state["session"] or safe_id(told.session_id)
    if told.type not in SKIPPED_EVENTS and not told.type.startswith(SKIPPED_EVENT_FAMILIES):
        return False
    skips[told.type] += 1
    return True


def _unusual_events(
    source: Source, state: dict[str, Any], line: tuple[int, int, bytes], skips: Counter[str]
) -> Iterator[Record]:
    number, offset, raw = line
    saved = salvage(raw)
    for index, told in enumerate(saved.records):
        if isinstance(told, dict):
            yield from _event(source, state, offset + index, told, skips)
        else:
            yield BadLine(number, offset, "not an object", raw[:KEPT_BAD_BYTES])
    if saved.bad:
        yield BadLine(number, offset, saved.bad, raw[:KEPT_BAD_BYTES])


def _event(
    source: Source, state: dict[str, Any], offset: int, told: dict[str, Any], skips: Counter[str]
) -> Iterator[EventRecord]:
    kind = _text(told.get("type")) or ""
    if kind in SKIPPED_EVENTS or kind.startswith(SKIPPED_EVENT_FAMILIES):
        skips[kind] += 1
        return
    state["session"] = state["session"] or safe_id(told.get("session_id"))
    session = session_name(source.path.parent)
    moment = parse_time_ms(told.get("ts"))
    state["top"] = max((moment or 0) * NUMBERS, state["top"] + 1)
    event_kind, role = (LIFECYCLE, "system") if kind in LIFECYCLE_EVENTS else (OTHER, None)
    yield EventRecord(
        state["session"] or session,
        f"events:{session}:{offset}",
        state["top"],
        moment,
        event_kind,
        {"native": told},
        summarise(kind.replace("_", " ")),
        lane=FILES_LANE,
        role=role,
    )


def _read_history(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Yield the prompts typed in one working directory, whichever session they went to."""
    reader = LineReader(source, cursor)
    for number, offset, raw in reader:
        saved = salvage(raw)
        for told in saved.records:
            event = _prompt(told, offset) if isinstance(told, dict) else None
            yield event or BadLine(number, offset, "not a prompt", raw[:KEPT_BAD_BYTES])
        if saved.bad:
            yield BadLine(number, offset, saved.bad, raw[:KEPT_BAD_BYTES])
        if reader.is_due:
            yield reader.checkpoint({})
    yield from reader.too_long
    yield reader.checkpoint({})


def _prompt(told: dict[str, Any], offset: int) -> EventRecord | None:
    session, text = safe_id(told.get("session_id")), _text(told.get("prompt"))
    if session is None or text is None:
        return None
    moment = parse_time_ms(told.get("timestamp"))
    # The moment is told in nanoseconds: it names a prompt even after the agent has cut its history.
    name = safe_id(told.get("timestamp")) if moment else None
    is_shell = told.get("is_bash") is True
    return EventRecord(
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


def _told(skips: Counter[str]) -> Iterator[Skipped]:
    yield from (Skipped(f"events.jsonl {name}", count) for name, count in sorted(skips.items()))
    skips.clear()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _small(told: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any] | None:
    return {name: text[:200] for name in names if (text := _text(told.get(name)))} or None


_READERS = {
    UPDATES: read_updates,
    CHAT: read_chat,
    EVENTS: _read_events,
    SUMMARY: _read_facts,
    CHILD: _read_facts,
    HISTORY: _read_history,
}

ADAPTER = GrokAdapter()
