"""Messages as a model's service takes them, and the entries that Claude Code writes for them."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from recollect.agents.claude.native.branch import MESSAGES, blocks
from recollect.agents.claude.native.lines import Entry

Message = dict[str, Any]  # {"role": "user" | "assistant", "content": text or blocks, …}

_RESULT = "tool_result"


def to_entries(message: Mapping[str, Any]) -> Iterator[Entry]:
    """The entries for a message, without what links them: one for each block of an answer, one for each result.

    What else the message holds (`id`, `model`, `usage`, `stop_reason`) is kept in each entry of an answer.
    """
    content = message["content"]
    if message["role"] == "assistant":
        yield from _answer_entries(message, content)
    elif isinstance(content, str):
        yield _user_entry(content)
    else:
        results = [block for block in content if block.get("type") == _RESULT]
        rest = [block for block in content if block.get("type") != _RESULT]
        yield from (_user_entry([block]) for block in results)
        if rest:
            yield _user_entry(rest)


def _user_entry(content: Any) -> Entry:
    return {"type": "user", "message": {"role": "user", "content": content}}


def _answer_entries(message: Mapping[str, Any], content: Any) -> Iterator[Entry]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    shared = {
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "type": "message",
        "model": "<synthetic>",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
        **message,
    }
    yield from ({"type": "assistant", "message": {**shared, "content": [part]}} for part in parts)


def to_messages(entries: Iterable[Entry]) -> list[Message]:
    """Entries of a branch as a conversation: an answer's blocks in one message, neighbours of one role joined."""
    conversation: list[Message] = []
    for entry in entries:
        if entry.get("type") not in MESSAGES or entry.get("isMeta"):
            continue
        message = entry.get("message")
        name = message.get("id") if isinstance(message, dict) else None
        last = conversation[-1] if conversation else None
        if last is None or last["role"] != entry["type"] or last.get("id") != name:
            conversation.append({"role": entry["type"], "content": []} | ({"id": name} if name else {}))
        conversation[-1]["content"] += blocks(entry)
    return conversation


def is_tool(entry: Entry) -> bool:
    """Whether an entry holds nothing but calls of tools or their results."""
    kinds = {block.get("type") for block in blocks(entry)}
    return bool(kinds) and kinds <= {"tool_use", _RESULT, "server_tool_use"}


def usage_of(entries: Sequence[Entry]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The model and tokens of each answer once: its entries repeat them, and the last has the most."""
    answers: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for number, entry in enumerate(entries):
        message = entry.get("message") if entry.get("type") == "assistant" else None
        if isinstance(message, dict) and isinstance(message.get("usage"), dict):
            answers[str(message.get("id") or number)] = str(message.get("model")), message["usage"]
    yield from answers.values()
