"""Reading the records of a Codex rollout, of every generation.

    bare        the item itself, after a first line that names the session (2025, before 0.34)
    wrapped     {timestamp, type, payload}
    paginated   {timestamp, ordinal, type, payload}, the turn's items told by `item_completed`

What a file is shows in its records, never in a version number.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import orjson

from recollect.adapters import codex_calls as calls
from recollect.adapters import codex_items as items
from recollect.adapters import codex_messages as messages
from recollect.adapters.codex_fold import BLOCKS, Fold, bounded, native, plain, segment_start
from recollect.adapters.codex_text import name_instructions, short_hash
from recollect.adapters.commands import as_mapping, parse_time_ms, summarise
from recollect.schema import AUTOMATION, HUMAN, LIFECYCLE, OTHER, SUB_AGENT

# Records that are no event, by native type, and why.
SKIPPED = {
    "record_type=state": "a separator of the bare generation",
    "inter_agent_communication_metadata": "announces the `agent_message` that follows",
    "event_msg/agent_message": "the `response_item` says the same",
    "event_msg/agent_message_delta": "a piece of a message",
    "event_msg/agent_reasoning": "the `response_item` says the same",
    "event_msg/agent_reasoning_raw_content": "the `response_item` says the same",
    "event_msg/agent_reasoning_section_break": "no content",
    "event_msg/agent_reasoning_delta": "a piece of a message",
    "event_msg/thread_settings_applied": "`turn_context` says the same",
    "event_msg/context_compacted": "`compacted` says the same",
    "event_msg/item_started": "`item_completed` follows",
    "event_msg/exec_command_begin": "the call says the same",
    "event_msg/exec_command_output_delta": "a piece of an output",
    "event_msg/patch_apply_begin": "the call says the same",
    "event_msg/mcp_tool_call_begin": "the call says the same",
    "event_msg/web_search_begin": "the call says the same",
    "event_msg/view_image_tool_call": "the call says the same",
    "event_msg/collab_agent_spawn_begin": "the call says the same",
    "event_msg/collab_waiting_begin": "the call says the same",
    "event_msg/collab_waiting_end": "the output says the same",
    "event_msg/collab_agent_interaction_begin": "the call says the same",
    "event_msg/collab_agent_interaction_end": "the output says the same",
    "event_msg/collab_close_begin": "the call says the same",
    "event_msg/collab_close_end": "the output says the same",
    "event_msg/collab_resume_begin": "the call says the same",
    "event_msg/collab_resume_end": "the output says the same",
    "event_msg/plan_update": "the call of `update_plan` says the same",
    "event_msg/turn_diff": "the edits say the same",
    "event_msg/raw_response_item": "the `response_item` says the same",
    "event_msg/session_configured": "`session_meta` says the same",
    "response_item/additional_tools": "the vendor's list of tools",
    "response_item/ghost_snapshot": "a git commit for undo",
    "response_item/compaction": "an encrypted summary",
    "response_item/compaction_summary": "an encrypted summary",
    "response_item/context_compaction": "an encrypted summary",
    "response_item/compaction_trigger": "no content",
}

# Records whose content the items of a paginated log tell; elsewhere they are read.
PAGINATED_TWINS = frozenset(
    {
        "response_item/reasoning",
        "response_item/web_search_call",
        "response_item/image_generation_call",
        "event_msg/token_count",
        "event_msg/user_message",
    }
)


class Line(msgspec.Struct):
    timestamp: Any = None
    ordinal: Any = None
    type: Any = None
    payload: msgspec.Raw = msgspec.Raw(b"")
    record_type: Any = None
    id: Any = None


class Meta(msgspec.Struct):
    """Who a session is. The vendor's instructions (20 KB in every file) are not even decoded."""

    id: Any = None
    session_id: Any = None
    timestamp: Any = None
    cwd: Any = None
    originator: Any = None
    cli_version: Any = None
    source: Any = None
    model_provider: Any = None
    git: Any = None
    instructions: Any = None
    parent_thread_id: Any = None
    agent_nickname: Any = None
    agent_role: Any = None
    agent_path: Any = None
    forked_from_id: Any = None
    forked_from_ordinal_exclusive: Any = None
    history_base: Any = None


class Context(msgspec.Struct):
    model: Any = None
    cwd: Any = None
    effort: Any = None


class WorldState(msgspec.Struct):
    state: Any = None


class UsageRecord(msgspec.Struct):
    response_id: Any = None
    usage: Any = None


class TokenCount(msgspec.Struct):
    info: Any = None


class Wrapper(msgspec.Struct):
    item: msgspec.Raw = msgspec.Raw(b"")


class Named(msgspec.Struct):
    type: Any = None


class Unreadable(ValueError):
    """A record of a shape no reader can use."""


_LINE = msgspec.json.Decoder(Line)
_NAMED = msgspec.json.Decoder(Named)
_META = msgspec.json.Decoder(Meta)
_WRAPPER = msgspec.json.Decoder(Wrapper)


def read_record(fold: Fold, offset: int, raw: bytes) -> None:
    """Read one record. Raises msgspec.DecodeError or Unreadable before anything is told."""
    line = _LINE.decode(raw)
    payload = bytes(line.payload) or raw
    if payload[:1] != b"{":
        raise Unreadable("payload is no object")
    name, reader = _find_reader(line, payload)
    is_twin = name in PAGINATED_TWINS and (line.ordinal is not None or fold.state.is_paginated)
    if is_twin or (reader is None and name in SKIPPED):
        fold.move_to(offset, line.ordinal, None)
        fold.skip(f"{name} (twin)" if is_twin else name)
        return
    decode, tell = reader or (orjson.loads, _tell_other(name))
    record = decode(payload)
    fold.move_to(offset, line.ordinal, line.timestamp)
    tell(fold, record)


def _find_reader(line: Line, payload: bytes) -> tuple[str, "Reader | None"]:
    """The record's native type as the skip list spells it, and who reads it."""
    kind = line.type
    if kind == "response_item" or kind == "event_msg":
        name = f"{kind}/{_payload_type(payload)}"
        return name, _READERS.get(name)
    if not bytes(line.payload):
        return _find_bare_reader(line)
    kind = kind[:100] if isinstance(kind, str) else "None"
    return kind, _TOP.get(kind)


def _payload_type(payload: bytes) -> str:
    """The payload's type, which every version writes first."""
    if payload.startswith(b'{"type":"'):
        return payload[9 : payload.find(b'"', 9)].decode("utf-8", "replace")
    named = _NAMED.decode(payload).type
    return named if isinstance(named, str) else "None"


def _find_bare_reader(line: Line) -> tuple[str, "Reader | None"]:
    if isinstance(line.type, str):
        name = f"response_item/{line.type}"
        return name, _READERS.get(name)
    if line.record_type is not None:
        return f"record_type={line.record_type}"[:100], None
    if isinstance(line.id, str):
        return "meta", (_META.decode, _first_line)
    raise Unreadable("no record of a rollout")


def _tell_other(name: str) -> Callable[[Fold, Any], None]:
    def tell(fold: Fold, record: Any) -> None:
        fold.tell(OTHER, {"native": {"type": name, "payload": plain(record)}}, summarise(name))

    return tell


def _first_line(fold: Fold, meta: Meta) -> None:
    """The first line of a bare log has the only time in it, which its first event takes."""
    fold.state.start_ms = parse_time_ms(meta.timestamp)
    _session_meta(fold, meta)


def _session_meta(fold: Fold, meta: Meta) -> None:
    state = fold.state
    own = bounded(meta.id) or bounded(meta.session_id)
    if own is None:
        return
    if not state.lineage and (own == state.thread or not state.has_name or fold.is_at_start):
        _begin(fold, own)
    elif own != state.thread:
        _inherit(fold, own)
        return
    _inform(fold, meta)


def _begin(fold: Fold, own: str) -> None:
    """The first `session_meta` is the file's identity: whatever follows may be a copy of another's."""
    state = fold.state
    # A rewind's file is named <thread>_<segment>; elsewhere the name's id is the thread's.
    state.unit = state.unit if state.unit != state.thread else own
    state.thread = state.lineage = own
    fold.here = f"{state.unit}{fold.here[fold.here.rfind(':') :]}"


def _inherit(fold: Fold, base: str) -> None:
    """A second `session_meta` before any event: the file begins with a copy of that session."""
    if fold.state.has_events:
        fold.skip("session_meta (of a copied session)")
        return
    fold.state.lineage = base
    fold.inform(base_native_id=base)


def _inform(fold: Fold, meta: Meta) -> None:
    state = fold.state
    state.provider = bounded(meta.model_provider) or state.provider
    cwd = meta.cwd if isinstance(meta.cwd, str) and meta.cwd else None
    if cwd:
        state.cwd = short_hash(cwd)
    git = as_mapping(meta.git)
    fold.inform(
        born_ms=fold.ts_ms or parse_time_ms(meta.timestamp),
        cwd=cwd,
        git_remote=_string(git.get("repository_url")),
        git_branch=_string(git.get("branch")),
        agent_version=_string(meta.cli_version),
        provider=state.provider,
        **_relations(fold, meta),
    )
    if isinstance(meta.instructions, str) and meta.instructions.strip():
        messages.learn_instructions(fold, name_instructions(None, meta.instructions))


def _string(value: Any) -> str | None:
    return value[:4096] if isinstance(value, str) and value else None


def _relations(fold: Fold, meta: Meta) -> dict[str, Any]:
    """What the session is to others: a sub-agent, a fork, a rewind, or none of these."""
    thread = fold.state.thread
    base = as_mapping(meta.history_base)
    forked_from = bounded(meta.forked_from_id)
    facts: dict[str, Any] = {"session_class": _session_class(meta), **_sub_agent(meta, thread)}
    if forked_from and forked_from != thread:
        end = meta.forked_from_ordinal_exclusive
        end = base.get("end_ordinal_exclusive") if end is None else end
        facts |= {"base_native_id": forked_from, "base_end": str(end) if type(end) is int else None}
    # A fork's base is history too, but not its own; a fork that was rewound says both.
    if (not forked_from or fold.state.unit != thread) and type(base.get("end_ordinal_exclusive")) is int:
        _tell_rewind(fold, meta, base)
    return facts


def _session_class(meta: Meta) -> str:
    if isinstance(meta.source, dict) and "subagent" in meta.source:
        return SUB_AGENT
    return AUTOMATION if meta.originator == "codex_exec" or meta.source == "exec" else HUMAN


def _sub_agent(meta: Meta, thread: str) -> dict[str, Any]:
    spawn = as_mapping(as_mapping(as_mapping(meta.source).get("subagent")).get("thread_spawn"))
    parent = bounded(meta.parent_thread_id) or bounded(spawn.get("parent_thread_id"))
    if parent is None:
        return {}
    root = bounded(meta.session_id)
    names = {
        "nickname": meta.agent_nickname or spawn.get("agent_nickname"),
        "role": meta.agent_role or spawn.get("agent_role"),
        "path": meta.agent_path or spawn.get("agent_path"),
    }
    path = _string(names["path"])
    return {
        "parent_native_id": parent,
        "root_native_id": root if root and root != thread else parent,
        # A task given by path is told encrypted: the path's last part is all that says what it is.
        "title": path.rpartition("/")[2] if path else None,
        "title_rank": 1,
        "metadata": {name: _string(value) for name, value in names.items() if _string(value)} or None,
    }


def _tell_rewind(fold: Fold, meta: Meta, base: Any) -> None:
    """A segment of the same thread: what its base told from there on is left behind."""
    end = base["end_ordinal_exclusive"]
    if not 0 <= end < 2**40 or fold.state.has_events:
        return
    fold.tell(
        LIFECYCLE,
        {"text": "rewound", "native": native(history_base=base)},
        "rewound",
        ts_ms=parse_time_ms(meta.timestamp) or fold.ts_ms,
        role="system",
        metadata={"rewind_to": _base_start(fold, base) + end * BLOCKS},
    )


def _base_start(fold: Fold, base: Any) -> int:
    """Where the positions of a rewind's base begin: a segment of this thread, or the thread's first file.

    An id older than the thread names what the thread was forked from: then all of its own file is left behind.
    """
    unit = bounded(base.get("thread_id")) or ""
    return segment_start(unit) if unit > fold.state.thread else 0


def _turn_context(fold: Fold, context: Context) -> None:
    state = fold.state
    model, cwd = bounded(context.model), context.cwd
    if model and model != state.model:
        state.model = model
        fold.inform(model=model, provider=state.provider)
    if isinstance(cwd, str) and cwd and state.cwd is None:
        state.cwd = short_hash(cwd)
        fold.inform(cwd=cwd)


def _world_state(fold: Fold, world: WorldState) -> None:
    told = as_mapping(as_mapping(world.state).get("agents_md"))
    if isinstance(told.get("text"), str) and told["text"].strip():
        messages.learn_instructions(fold, name_instructions(_string(told.get("directory")), told["text"]))


def _token_usage_record(fold: Fold, record: UsageRecord) -> None:
    messages.count_usage(fold, record.usage, bounded(record.response_id) or fold.here)


def _token_count(fold: Fold, record: TokenCount) -> None:
    messages.count_totals(fold, record.info)


def _compacted(fold: Fold, notice: messages.Notice) -> None:
    messages.tell_notice(fold, notice, "compacted")


def _thread_name(fold: Fold, notice: messages.Notice) -> None:
    if isinstance(notice.thread_name, str) and notice.thread_name.strip():
        fold.inform(title=notice.thread_name.strip()[:500], title_rank=2)


def _decode_item(payload: bytes) -> tuple[items.Item, bytes]:
    return items.decode_item(bytes(_WRAPPER.decode(payload).item))


def _call(name: str) -> Callable[[Fold, Any], None]:
    return lambda fold, item: calls.tell_call(fold, item, name)


def _output(name: str) -> Callable[[Fold, Any], None]:
    return lambda fold, item: calls.tell_output(fold, item, name)


def _notice(name: str) -> Callable[[Fold, Any], None]:
    return lambda fold, notice: messages.tell_notice(fold, notice, name)


Reader = tuple[Callable[[bytes], Any], Callable[[Fold, Any], None]]


def _reader(shape: type, tell: Callable[[Fold, Any], None]) -> Reader:
    return msgspec.json.Decoder(shape).decode, tell


_TOP: dict[str, Reader] = {
    "session_meta": _reader(Meta, _session_meta),
    "turn_context": _reader(Context, _turn_context),
    "world_state": _reader(WorldState, _world_state),
    "token_usage_record": _reader(UsageRecord, _token_usage_record),
    "compacted": _reader(messages.Notice, _compacted),
}
_READERS: dict[str, Reader] = {
    "response_item/message": _reader(messages.Message, messages.tell_message),
    "response_item/agent_message": _reader(messages.Message, messages.tell_agent_message),
    "response_item/reasoning": _reader(messages.Reasoning, messages.tell_reasoning),
    "response_item/web_search_call": _reader(items.Item, items.tell_web_search),
    "event_msg/user_message": _reader(messages.Notice, messages.tell_user_event),
    "event_msg/token_count": _reader(TokenCount, _token_count),
    "event_msg/thread_name_updated": _reader(messages.Notice, _thread_name),
    "event_msg/item_completed": (_decode_item, items.tell_item),
    "event_msg/exec_command_end": _reader(items.Item, items.tell_command),
    "event_msg/patch_apply_end": _reader(items.Item, items.tell_file_change),
    "event_msg/mcp_tool_call_end": _reader(items.Item, items.tell_mcp_call),
    "event_msg/web_search_end": _reader(items.Item, items.tell_search_results),
    "event_msg/collab_agent_spawn_end": _reader(items.Item, items.tell_spawn_end),
}
for _name in (
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "tool_search_call",
    "image_generation_call",
):
    _READERS[f"response_item/{_name}"] = _reader(calls.CallItem, _call(_name.removesuffix("_call")))
for _name in (
    "function_call_output",
    "custom_tool_call_output",
    "local_shell_call_output",
    "tool_search_output",
):
    _READERS[f"response_item/{_name}"] = _reader(calls.OutputItem, _output(f"response_item/{_name}"))
for _name in messages.NOTICES:
    _READERS.setdefault(f"event_msg/{_name}", _reader(messages.Notice, _notice(_name)))
