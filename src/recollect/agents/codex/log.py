"""Reading Codex's rollouts, and the single JSON document of its first generation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from recollect.agentkit.lines import LineReader
from recollect.agentkit.log import (
    MALFORMED,
    bad_document,
    parse_document,
    read_log,
    read_rewritten,
)
from recollect.agentkit.packed import PackedLineReader
from recollect.agentkit.protocol import BadLine, Cursor, Record, Source
from recollect.agentkit.values import as_list, as_mapping
from recollect.agents.codex import discover
from recollect.agents.codex.events import ROUTES, find_route, parse_head
from recollect.agents.codex.rollout import Rollout, State
from recollect.agents.codex.side_files import Prompts, Titles
from recollect.errors import SourceUnreadable

# An item of a document may hold several records: each gets a position of its own.
_ITEM_SPAN = 64


class RolloutLog(Rollout):
    """The records of one rollout, of any generation (see `events`)."""

    def read(self, offset: int, raw: bytes, is_lossy: bool = False) -> Sequence[Record]:
        head = parse_head(raw)
        route = ROUTES.get(head.groups()) if head is not None else None
        if route is None:
            route = find_route(raw)
        line = route.decode(raw)
        self.out, skipped = [], self.skipped  # of a line that could not be read, something may be left
        self.move_to(offset, line.ordinal, line.timestamp)
        self.is_lossy = is_lossy
        if route.add is None:
            self.skip(route.name)
        elif route.twin_name and (self.state.is_paginated or line.ordinal is not None):
            self.skip(route.twin_name)
        else:
            route.add(self, line.payload)
        self.skip_without_event(route.name, self.out, skipped)
        return self.out


def _read_rollout(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    reader = PackedLineReader(source, cursor) if source.kind == discover.PACKED else LineReader(source, cursor)
    yield from read_log(reader, RolloutLog(_state(source, reader.state)))
    if reader.failure:
        yield reader.checkpoint({})  # this second checkpoint makes the writer store what came before the first
        raise SourceUnreadable(f"{reader.failure}: {reader.line:,} lines of it could be read")


def _state(source: Source, saved: Mapping[str, Any]) -> State:
    if saved:
        return msgspec.convert(saved, State)
    thread, segment, has_name = discover.parse_name(source.path)
    return State(thread=thread, unit=segment or thread, has_name=has_name)


def _read_document(source: Source, content: bytes) -> Iterator[Record]:
    """The items of a document; all are provisional, since Codex rewrites the file after each step."""
    document = as_mapping(parse_document(content))
    session, items = as_mapping(document.get("session")), document.get("items")
    if not isinstance(items, list):
        yield bad_document(content, "no session document")
        return
    rollout = RolloutLog(_state(source, {}))
    rollout.is_rewritten = True
    yield from _read_value(rollout, 0, {**session, "id": session.get("id") or rollout.state.thread})
    for index, item in enumerate(items):
        for number, record in enumerate(_records(as_mapping(item))):
            yield from _read_value(rollout, 1 + index * _ITEM_SPAN + min(number, _ITEM_SPAN - 1), record)
    yield from rollout.drain_skips()


def _read_value(rollout: RolloutLog, offset: int, record: Mapping[str, Any]) -> Sequence[Record]:
    try:
        return rollout.read(offset, msgspec.json.encode(record))
    except MALFORMED as error:
        return [BadLine(1, 0, str(error)[:200], repr(record)[:1000].encode("utf-8", "replace"))]


def _records(item: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """An item in the words of the later generations: some forks wrote chat-completion messages."""
    if isinstance(item.get("type"), str) or "role" not in item:
        yield item
        return
    role, content = item["role"], item.get("content")
    if item.get("reasoning"):
        yield {"type": "reasoning", "summary": item["reasoning"]}
    if role == "tool":
        yield {"type": "function_call_output", "call_id": item.get("tool_call_id"), "output": content}
    elif content or role == "user":
        yield {"type": "message", "role": role, "content": content}
    for call in map(as_mapping, as_list(item.get("tool_calls"))):
        function = as_mapping(call.get("function"))
        name, arguments = function.get("name"), function.get("arguments")
        yield {"type": "function_call", "call_id": call.get("id"), "name": name, "arguments": arguments}


READERS = {
    discover.ROLLOUT: _read_rollout,
    discover.PACKED: _read_rollout,
    discover.DOCUMENT: lambda source, cursor: read_rewritten(source, cursor, _read_document),
    discover.TITLES: lambda source, cursor: read_log(LineReader(source, cursor), Titles()),
    discover.HISTORY: lambda source, cursor: read_log(reader := LineReader(source, cursor), Prompts(reader.state)),
}
