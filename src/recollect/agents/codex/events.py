"""Which reader each record of a Codex rollout has, in every generation of the format.

    bare        the item itself, after a first line that names the session (2025, before 0.34)
    wrapped     {timestamp, type, payload}
    paginated   {timestamp, ordinal, type, payload}; `item_completed` holds the items of a turn

The records show the generation; a version number never does.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from recollect.agentkit.log import Unreadable
from recollect.agentkit.values import storable, summarise
from recollect.agents.codex import calls, items, messages, rollout
from recollect.agents.codex.rollout import Rollout
from recollect.model.kinds import OTHER

# Records that make no event, by native type, and why.
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

# In a paginated log the items hold what these hold; elsewhere they are read.
PAGINATED_TWINS = frozenset(
    {
        "response_item/reasoning",
        "response_item/web_search_call",
        "response_item/image_generation_call",
        "event_msg/token_count",
        "event_msg/user_message",
    }
)

T = TypeVar("T")


class Line(msgspec.Struct, Generic[T], gc=False):
    """A line whose payload has a known shape."""

    timestamp: Any = None
    ordinal: Any = None
    payload: T | None = None


class Envelope(msgspec.Struct, gc=False):
    """All that shows what a record is; its payload is not decoded."""

    timestamp: Any = None
    ordinal: Any = None
    type: Any = None
    payload: msgspec.Raw = msgspec.Raw(b"")
    record_type: Any = None
    id: Any = None


class Completed(msgspec.Struct, gc=False):
    item: rollout.Item


Add = Callable[[Rollout, Any], None]


class Route(NamedTuple):
    """How a record is read; `add` is None for records that make no event."""

    name: str  # the native type as the skip list spells it
    decode: Callable[[bytes], Line[Any]]
    add: Add | None
    twin_name: str | None = None  # how it is skipped in a paginated log, whose items hold the same


_decode_envelope: Callable[[bytes], Any] = msgspec.json.Decoder(Envelope).decode
_decode_completed = msgspec.json.Decoder(Line[Completed]).decode
_decode_any: Callable[[bytes], Any] = msgspec.json.Decoder(Line[Any]).decode

# Every version writes these fields first. What begins otherwise is looked at field by field, in `find_route`.
parse_head = re.compile(
    rb'\{"timestamp":"[^"\\]*",(?:"ordinal":\d+,)?"type":"(\w+)","payload":\{(?:"type":"(\w+)")?'
).match


def find_route(raw: bytes) -> Route:
    """The route of a record in any generation. Raises Unreadable for what is no record."""
    line = _decode_envelope(raw)
    payload, kind = bytes(line.payload), line.type
    if payload and payload[:1] != b"{":
        raise Unreadable("payload is not an object")
    if kind == "response_item" or kind == "event_msg":
        inner = _decode_envelope(payload or raw).type
        return _route(f"{kind}/{inner if isinstance(inner, str) else None}", not payload)
    if payload:
        return _route(kind[:100] if isinstance(kind, str) else "None", False)
    if isinstance(kind, str):
        return _route(f"response_item/{kind}", True)
    if line.record_type is not None:
        return _route(f"record_type={line.record_type}"[:100], True)
    if isinstance(line.id, str):
        return _route("meta", True)
    raise Unreadable("not a rollout record")


@lru_cache(maxsize=256)
def _route(name: str, is_bare: bool) -> Route:
    if name in SKIPPED:
        return Route(name, _decode_envelope, None)
    add = _READERS.get(name)
    shape: Any = _SHAPES.get(name, rollout.Item) if add else Any
    decode = _decode_item if shape is Completed else msgspec.json.Decoder(Line[shape]).decode
    twin_name = f"{name} (twin)" if name in PAGINATED_TWINS else None
    return Route(name, _bare(shape) if is_bare else decode, add or _other(name), twin_name)


def _bare(shape: Any) -> Callable[[bytes], Line[Any]]:
    """A decoder of lines that are their own payload."""
    decode = msgspec.json.Decoder(shape).decode

    def decode_bare(raw: bytes) -> Line[Any]:
        line = _decode_envelope(raw)
        return Line(line.timestamp, line.ordinal, decode(raw))

    return decode_bare


def _decode_item(raw: bytes) -> Line[Any]:
    """A line with an item: its fields, or all of it if the item's type is unknown."""
    line: Any = _decode_completed(raw)
    item = line.payload.item
    is_known = isinstance(item.type, str) and item.type in items.ITEMS
    line.payload = item if is_known else _decode_any(raw).payload["item"]
    return line  # type: ignore[no-any-return]


def _other(name: str) -> Add:
    def add(rollout: Rollout, payload: Any) -> None:
        rollout.add(OTHER, {"native": {"type": name, "payload": storable(payload)}}, summarise(name))

    return add


def _item(rollout: Rollout, item: Any) -> None:
    if isinstance(item, dict):
        name, native_id = item.get("type"), rollout.native_id(item.get("id"))
        summary = summarise(f"item {name if isinstance(name, str) else ''}")
        rollout.add(OTHER, {"native": storable(item)}, summary, native_id=native_id)
    elif item.type in items.CLASSIC_TWINS and not rollout.state.is_paginated:
        rollout.skip(f"item/{item.type} (twin)")
    else:
        items.ITEMS[item.type](rollout, item)


_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call", "image_generation_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output")
_READERS: dict[str, Add] = {
    "meta": rollout.add_first_line,
    "session_meta": rollout.add_meta,
    "turn_context": rollout.add_context,
    "world_state": rollout.add_world_state,
    "token_usage_record": rollout.add_record,
    "compacted": partial(messages.add_notice, name="compacted"),
    **{f"event_msg/{name}": partial(messages.add_notice, name=name) for name in messages.NOTICES},
    **{f"response_item/{name}": partial(calls.add_call, default_name=name.removesuffix("_call")) for name in _CALLS},
    **{f"response_item/{name}": partial(calls.add_output, native_type=f"response_item/{name}") for name in _OUTPUTS},
    "response_item/message": messages.add_message,
    "response_item/agent_message": messages.add_agent_message,
    "response_item/reasoning": messages.add_reasoning,
    "response_item/web_search_call": items.add_web_search,
    "event_msg/user_message": messages.add_user_event,
    "event_msg/token_count": rollout.add_totals,
    "event_msg/thread_name_updated": messages.add_title,
    "event_msg/item_completed": _item,
    "event_msg/exec_command_end": items.add_command,
    "event_msg/patch_apply_end": items.add_file_change,
    "event_msg/mcp_tool_call_end": items.add_mcp_call,
    "event_msg/web_search_end": items.add_search_results,
    "event_msg/collab_agent_spawn_end": items.add_spawn_end,
}
_SHAPES = {"meta": rollout.Meta, "session_meta": rollout.Meta, "event_msg/item_completed": Completed}
# By the two types that `parse_head` finds.
ROUTES: dict[tuple[bytes | Any, ...], Route] = {
    tuple(part.encode() for part in name.split("/")) if "/" in name else (name.encode(), None): _route(name, False)
    for name in (*_READERS, *SKIPPED)
    if name != "meta"
}
