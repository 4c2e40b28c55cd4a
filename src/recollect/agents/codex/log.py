"""Reading Codex's rollouts, the single JSON document of its first generation, and the files of titles and prompts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from recollect.agentkit.log import (
    MALFORMED,
    NOTHING,
    LineReader,
    Log,
    PackedLineReader,
    Unreadable,
    bad_document,
    parse_document,
    read_log,
    read_rewritten,
)
from recollect.agentkit.protocol import BadLine, Cursor, EventRecord, Record, SessionInfo, Source
from recollect.agentkit.values import as_list, as_mapping, remember, summarise
from recollect.agents.codex import discover
from recollect.agents.codex.events import ROUTES, find_route, parse_head
from recollect.agents.codex.rollout import Rollout, State
from recollect.model.errors import SourceUnreadable
from recollect.model.kinds import HISTORY_LANE, PROMPTS_ONLY, USER_MSG
from recollect.model.text import cut_short

KEPT_SESSIONS = 200
TITLE_CHARS = 500


class Title(msgspec.Struct, gc=False):
    id: str
    thread_name: str


class Prompt(msgspec.Struct, gc=False):
    session_id: str
    text: str
    ts: int


_decode_title = msgspec.json.Decoder(Title).decode
_decode_prompt = msgspec.json.Decoder(Prompt).decode


class Titles(Log):
    """Names of threads; the last one of a thread holds."""

    def read(self, offset: int, raw: bytes, is_lossy: bool = False) -> Sequence[Record]:
        title = _decode_title(raw)
        name = title.thread_name.strip()
        if not title.id or not name:
            self.skip("empty")
            return NOTHING
        self.skip("session_index (no event)")
        return [SessionInfo(title.id, title=cut_short(name, TITLE_CHARS), title_rank=2)]


class Prompts(Log):
    """Prompts typed in the terminal, which Codex keeps longer than the rollouts.

    Codex may cut the file's old end off, so no prompt is named by its offset.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        super().__init__()
        # Per session the second of its last prompt, and how many came in that second before it.
        self._last: dict[str, list[int]] = dict(state.get("last", {}))

    def dump(self) -> Mapping[str, Any]:
        return {"last": dict(self._last)}

    def read(self, offset: int, raw: bytes, is_lossy: bool = False) -> Sequence[Record]:
        prompt = _decode_prompt(raw)
        session, ts = prompt.session_id, prompt.ts
        if not prompt.text.strip():
            self.skip("empty")
            return NOTHING
        if not 0 < ts < 2**38 or len(session) > 128:
            raise Unreadable("not a prompt")
        before = self._last.get(session)
        number = before[1] + 1 if before and before[0] == ts else 0
        remember(self._last, session, [ts, number], KEPT_SESSIONS)
        event = EventRecord(
            session,
            f"history:{ts}:{number}",
            ts * 256 + min(number, 255),
            ts * 1000,
            USER_MSG,
            {"text": prompt.text},
            summarise(prompt.text),
            lane=HISTORY_LANE,
            role="user",
        )
        return [event] if before else [SessionInfo(session, session_class=PROMPTS_ONLY), event]


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
        raise SourceUnreadable(f"{reader.failure}: {reader.line:,} lines could be read")


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
