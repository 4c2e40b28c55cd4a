"""The tree of entries: what an entry follows from, and the branch that a session would go on from.

Entries are linked by `parentUuid`. Calls made at once fan out: each result hangs on the entry of its own call and the
next entry on one of them, so a walk from the end to the root misses the other calls. They are put back where the
answer that made them stands on the branch.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recollect.agents.claude.native.lines import Entry

LINKED = ("user", "assistant", "system", "attachment", "progress")
MESSAGES = ("user", "assistant")


def linked(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that are part of the tree."""
    return [entry for entry in entries if entry.get("type") in LINKED and isinstance(entry.get("uuid"), str)]


def ancestry(entries: Iterable[Entry], uuid: str) -> list[Entry]:
    """An entry and all that it follows from, the root first; compaction is a root. Raises KeyError if there is none."""
    by_uuid = {entry["uuid"]: entry for entry in linked(entries)}
    return _walk(by_uuid, by_uuid[uuid])


def _walk(by_uuid: Mapping[str, Entry], entry: Entry | None) -> list[Entry]:
    path: dict[str, Entry] = {}
    while entry is not None and entry["uuid"] not in path:
        path[entry["uuid"]] = entry
        entry = by_uuid.get(entry.get("parentUuid") or "")
    return list(reversed(path.values()))


def live_branch(entries: Iterable[Entry]) -> list[Entry]:
    """The entries of the branch that was continued last, in reading order, calls made at once all included.

    It begins at the last compaction, if there was one. Branches that were rewound are not part of it.
    """
    tree = linked(entries)
    leaf = find_leaf(tree)
    if leaf is None:
        return []
    by_uuid = {entry["uuid"]: entry for entry in tree}
    return _with_parallel_calls(_walk(by_uuid, leaf), by_uuid)


def find_leaf(tree: Sequence[Entry]) -> Entry | None:
    """The last message that nothing but notices follows, of the main conversation if there is one."""
    by_uuid = {entry["uuid"]: entry for entry in tree}
    order = {entry["uuid"]: number for number, entry in enumerate(tree)}
    parents = {entry.get("parentUuid") for entry in tree}
    ends = (_nearest_message(by_uuid, entry) for entry in tree if entry["uuid"] not in parents)
    leaves = [leaf for leaf in ends if leaf is not None]
    main = [leaf for leaf in leaves if not any(leaf.get(mark) for mark in ("isSidechain", "teamName", "isMeta"))]
    return max(main or leaves, key=lambda leaf: order[leaf["uuid"]], default=None)


def _nearest_message(by_uuid: Mapping[str, Entry], entry: Entry | None) -> Entry | None:
    seen: set[str] = set()
    while entry is not None and entry["type"] not in MESSAGES and entry["uuid"] not in seen:
        seen.add(entry["uuid"])
        entry = by_uuid.get(entry.get("parentUuid") or "")
    return entry if entry is not None and entry["type"] in MESSAGES else None


def _with_parallel_calls(path: list[Entry], by_uuid: Mapping[str, Entry]) -> list[Entry]:
    seen = {entry["uuid"] for entry in path}
    answers, results = _answers(by_uuid.values()), _results(by_uuid.values())
    last_of = {message: entry["uuid"] for entry in path if (message := _message_id(entry))}
    answered = {call for entry in path for call in block_ids(entry, "tool_result", "tool_use_id")}
    added: dict[str, list[Entry]] = {}
    for message, last in last_of.items():
        members = answers[message]
        calls = [call for entry in members for call in block_ids(entry, "tool_use", "id") if call not in answered]
        unseen_results = {
            result["uuid"]: result
            for key in (*(entry["uuid"] for entry in members), *calls)
            for result in results[key]
            if result["uuid"] not in seen
        }
        missing = [entry for entry in members if entry["uuid"] not in seen]
        added[last] = sorted(missing, key=_time) + sorted(unseen_results.values(), key=_time)
        seen |= {entry["uuid"] for entry in added[last]}
    return [entry for step in path for entry in (step, *added.get(step["uuid"], ()))]


def _results(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The results of tools by the entry that each hangs on, and by the calls that it answers."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        answered = block_ids(entry, "tool_result", "tool_use_id") if entry["type"] == "user" else []
        for key in (entry.get("parentUuid"), *answered) if answered else ():
            found[str(key)].append(entry)
    return found


def _answers(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The entries of each of the model's answers, which is written one block to an entry."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if message := _message_id(entry):
            found[message].append(entry)
    return found


def _message_id(entry: Entry) -> str | None:
    message = entry.get("message")
    name = message.get("id") if entry["type"] == "assistant" and isinstance(message, dict) else None
    return name if isinstance(name, str) and name else None


def block_ids(entry: Entry, kind: str, field: str) -> list[str]:
    """A field of each of an entry's blocks of one kind."""
    return [block[field] for block in blocks(entry) if block.get("type") == kind and isinstance(block.get(field), str)]


def blocks(entry: Entry) -> list[dict[str, Any]]:
    """The content of an entry's message as blocks."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _time(entry: Entry) -> str:
    moment = entry.get("timestamp")
    return moment if isinstance(moment, str) else ""
