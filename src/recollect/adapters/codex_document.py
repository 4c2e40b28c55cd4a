"""The single JSON document of Codex's first generation, rewritten as a whole after each step."""

from collections.abc import Iterator
from typing import Any

import orjson

from recollect.adapters.codex_fold import MALFORMED, Fold, State
from recollect.adapters.codex_rollout import Unreadable, read_record
from recollect.adapters.commands import as_mapping
from recollect.adapters.jsonl import KEPT_BAD_BYTES, read_rewritten, salvage
from recollect.adapters.protocol import BadLine, Cursor, Record, Skipped, Source

# An item may hold several records: each gets a place of its own.
PLACES = 64


def read_document(source: Source, cursor: Cursor | None, state: State) -> Iterator[Record]:
    """Yield the document's items; all are provisional, since the file is replaced."""
    found = read_rewritten(source, cursor)
    if found is None:
        return
    content, checkpoint = found
    document = as_mapping(next(iter(salvage(content).records), None))
    session, items = as_mapping(document.get("session")), document.get("items")
    if not isinstance(items, list):
        yield BadLine(1, 0, "no session document", content[:KEPT_BAD_BYTES])
        yield checkpoint
        return
    fold = Fold(state)
    fold.is_rewritten = True
    _read(fold, 0, {**session, "id": session.get("id") or state.thread})
    for index, item in enumerate(items):
        for place, record in enumerate(_records(as_mapping(item))):
            _read(fold, 1 + index * PLACES + min(place, PLACES - 1), record)
    yield from fold.out
    yield from (Skipped(name, count) for name, count in fold.skipped.items())
    yield checkpoint


def _read(fold: Fold, place: int, record: dict[str, Any]) -> None:
    try:
        read_record(fold, place, orjson.dumps(record))
    except (*MALFORMED, Unreadable, orjson.JSONEncodeError) as error:
        fold.out.append(BadLine(1, 0, str(error)[:200], repr(record)[:1000].encode("utf-8", "replace")))


def _records(item: Any) -> Iterator[dict[str, Any]]:
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
    calls = item.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = as_mapping(as_mapping(call).get("function"))
        yield {
            "type": "function_call",
            "call_id": as_mapping(call).get("id"),
            "name": function.get("name"),
            "arguments": function.get("arguments"),
        }
