"""The entries of a session's file, and the conversation in them: which branch is live, what a model's service takes.

An entry is one JSON object on a line; every key is kept, and a line is complete or absent.

Entries are linked by `parentUuid`. Calls made at once fan out: each result hangs on the entry of its own call and the
next entry on one of them, so a walk from the end to the root misses the other calls. They are put back where the
answer that made them stands on the branch.
"""

import json
import os
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.model.errors import NotFound, UsageError
from recollect.model.files import sync
from recollect.model.text import cut_short

Entry = dict[str, Any]


def iter_entries(path: Path) -> Iterator[Entry]:
    """The entries of a file in their order; a line that is damaged, or still being written, is left out."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    for line in content.split(b"\n"):  # never splitlines: texts hold other separators
        yield from _parse(line)


def _parse(line: bytes) -> Iterator[Entry]:
    """The objects of a line: a record after a torn write may share its line."""
    text, offset = line.decode("utf-8", "replace").strip(), 0
    while offset < len(text):
        try:
            value, offset = _DECODER.raw_decode(text, offset)
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict):
            yield value


_DECODER = json.JSONDecoder()


def dump(entry: Entry) -> bytes:
    """An entry as one line."""
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half of a pair of surrogates, which only an escape can express
        return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def append_entries(path: Path, entries: Iterable[Entry]) -> None:
    """Add entries to a file, made if need be, in one write that is on the disk when this returns."""
    content = b"".join(map(dump, entries))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "r+b", buffering=0) as file:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            content = b"\n" + content
        written = file.write(content)
        while written < len(content):  # if the disk is full, the next try fails
            written += file.write(content[written:])
        os.fsync(fd)


def replace(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old content or the new one."""
    _write_beside(path, content).replace(path)
    sync(path.parent)


def _write_beside(path: Path, content: bytes) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(
        os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb"
    ) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return beside


LINKED = ("user", "assistant", "system", "attachment", "progress")
MESSAGES = ("user", "assistant")


def linked(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that are part of the tree."""
    return [entry for entry in entries if entry.get("type") in LINKED and isinstance(entry.get("uuid"), str)]


def is_message(entry: Entry) -> bool:
    """Whether somebody said it: an entry of the program's own, such as a notice, has no message."""
    return entry.get("type") in MESSAGES or (entry.get("type") == "system" and isinstance(entry.get("message"), dict))


def find(entries: Iterable[Entry], uuid: str) -> Entry:
    """The entry with this uuid, the last one if there are several; raises NotFound."""
    found = {entry["uuid"]: entry for entry in linked(entries)}.get(uuid)
    if found is None:
        raise NotFound(f"No entry with this uuid: {uuid}", "`entries()` returns all of them")
    return found


def ancestry(entries: Iterable[Entry], uuid: str) -> list[Entry]:
    """An entry and all that it follows from, the root first; compaction is a root. Raises NotFound if there is none."""
    tree = linked(entries)
    return _walk({entry["uuid"]: entry for entry in tree}, find(tree, uuid))


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
    while entry is not None and not is_message(entry) and entry["uuid"] not in seen:
        seen.add(entry["uuid"])
        entry = by_uuid.get(entry.get("parentUuid") or "")
    return entry if entry is not None and is_message(entry) else None


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


Message = dict[str, Any]  # {"role": "user" | "assistant" | "system", "content": text or blocks, …}

_RESULT = "tool_result"
_SHOWN_CHARS = 80


def to_entries(message: Mapping[str, Any]) -> Iterator[Entry]:
    """The entries for a message, without what links them: one for each block of an answer, one for each result.

    What else the message holds (`id`, `model`, `usage`, `stop_reason`) is kept in each entry of an answer. A message of
    the system is a notice to Claude Code, which shows it and does not send it to the model.
    """
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system") or not isinstance(content, str | list):
        raise UsageError(
            f"Not a message: {cut_short(str(dict(message)), _SHOWN_CHARS)}",
            "it needs a `role` (user, assistant or system) and a `content` (a text or a list of blocks)",
        )
    if role == "assistant":
        yield from _answer_entries(message, content)
    elif role == "system":
        text = content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)
        notice = {"type": "system", "subtype": "informational", "content": text, "isMeta": False, "level": "info"}
        yield {**notice, "message": {"role": "system", "content": content}}
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
        if not is_message(entry) or entry.get("isMeta"):
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
