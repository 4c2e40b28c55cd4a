"""A second reader of the agents' logs, to count what must not be lost.

It shares nothing with the adapters: plain `json`, `os.walk`, whole files in memory, and no attention to speed,
cursors or damage beyond what a log needs to be counted. It tells who said what, which calls were made and how they
ended; `tests/test_lossless.py` looks for each of these in a store.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

USER, ASSISTANT, THINKING, CALL, RESULT, NOTICE = "user", "assistant", "thinking", "call", "result", "notice"


class Told(NamedTuple):
    """One thing a log tells. `key` is its id where the log gives one, else its words without white space."""

    session: str
    what: str
    key: str


@dataclass
class Count:
    """All that the logs below one root tell."""

    told: Counter[Told] = field(default_factory=Counter)
    contents: dict[Told, set[str]] = field(default_factory=dict)  # what may stand as content of a call or result
    places: set[tuple[str, str]] = field(default_factory=set)  # (session, id or position) of every record
    elsewhere: set[tuple[str, str]] = field(default_factory=set)  # words another record of the session must hold
    prompts: Counter[tuple[str, str]] = field(default_factory=Counter)  # of a prompt history: session, words
    types: dict[tuple[str, str], str] = field(default_factory=dict)  # the record type of a place
    beside: Counter[Told] = field(default_factory=Counter)  # may be left out under a name: told elsewhere
    empty: int = 0
    bad_lines: int = 0

    def add(self, session: str, what: str, key: str, *contents: str) -> None:
        told = Told(session, what, key)
        self.told[told] += 1
        self.contents.setdefault(told, set()).update(normal(content) for content in contents)

    def merge_twins(self, session: str, what: str, *lanes: Counter[str]) -> None:
        """Add words that several lanes tell: as often as the lane that tells them most often."""
        for words in {words for lane in lanes for words in lane}:
            self.told[Told(session, what, words)] += max(lane[words] for lane in lanes)


def normal(content: Any) -> str:
    """Words, or a JSON value, in a form that does not depend on white space or the order of keys."""
    text = content if isinstance(content, str) else json.dumps(content, sort_keys=True, ensure_ascii=False)
    return re.sub(r"\s+", "", text.encode("utf-8", "replace").decode())


class Record(NamedTuple):
    offset: int
    value: dict[str, Any]


def read_records(path: Path, count: Count) -> list[Record]:
    """The records of all lines. A last line without its end counts if it is whole: exports are written so."""
    *lines, last = path.read_bytes().split(b"\n")
    records: list[Record] = []
    offset = 0
    for line in lines:
        records += [Record(offset, value) for value in _parse_line(line, count)]
        offset += len(line) + 1
    return records + [Record(offset, value) for value in _parse_line(last, Count())]


def _parse_line(line: bytes, count: Count) -> list[dict[str, Any]]:
    text = line.decode("utf-8", "replace").strip()
    values: list[dict[str, Any]] = []
    while text:
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except ValueError:
            count.bad_lines += 1
            break
        values += [value] if isinstance(value, dict) else []
        text = text[end:].lstrip()
    return values


def iter_paths(root: Path) -> Iterator[Path]:
    for folder, _, names in sorted(os.walk(root)):
        yield from (Path(folder) / name for name in sorted(names))


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(parts: Any) -> list[str]:
    """The text of each part of a message or an output, however it is wrapped."""
    if isinstance(parts, str):
        return [parts]
    found = [part if isinstance(part, str) else _object(part).get("text") for part in _list(parts)]
    return [text for text in found if isinstance(text, str)]


# Claude Code


def count_claude(root: Path) -> Count:
    count = Count()
    base = root / "projects" if (root / "projects").is_dir() else root
    for path in iter_paths(base):
        if path.parent.name == "tool-results":
            count.places.add((path.parent.parent.name, f"tool-results/{path.name}"))
        elif path.suffix == ".jsonl":
            _count_transcript(path, count)
    for path in [*iter_paths(root / "todos"), *iter_paths(root / "tasks")]:
        _count_list(path, count)
    if (root / "history.jsonl").is_file():
        for _, value in read_records(root / "history.jsonl", count):
            count.prompts[value["sessionId"], normal(value["display"])] += 1
    return count


def _count_list(path: Path, count: Count) -> None:
    """A to-do list is named after its session, a task stands in its session's folder."""
    if path.suffix == ".json":
        lane = "todos" if path.parent.name == "todos" else "tasks"
        session = path.name.partition("-agent-")[0] if lane == "todos" else path.parent.name
        count.places.add((session, f"{lane}/{path.name}"))
        count.empty += lane == "todos" and not json.loads(path.read_text())


def _count_transcript(path: Path, count: Count) -> None:
    records = read_records(path, count)
    agent = re.fullmatch(r"agent-(.+)\.jsonl", path.name)
    named = next((value["sessionId"] for _, value in records if value.get("sessionId")), path.stem)
    chains = _sidechains([value for _, value in records])
    lost = _lost_in_the_queue([value for _, value in records])
    for offset, value in records:
        session = value.get("sessionId") or named
        if value in lost:
            key = f"{session}:{value['timestamp']}"
            count.places.add((session, key))
            count.types[session, key] = "user"
            count.add(session, USER, key, value["content"])
        key = value.get("uuid") or f"{session}:{value.get('prUrl') or offset}"
        lane = value.get("agentId") or agent[1] if agent else _inline_lane(value, key, chains)
        _count_claude_record(value, f"{session}/{lane}" if lane else session, key, count)


def _lost_in_the_queue(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Prompts put into the queue whose words stand in no record of a user after that."""
    lost = []
    for number, value in enumerate(values):
        if value.get("type") == "queue-operation" and value.get("operation") == "enqueue" and value.get("content"):
            later = [one for one in values[number:] if one.get("type") in ("user", "attachment")]
            words = value["content"].split()[0] if value["content"].startswith("/") else value["content"]
            written = normal(json.dumps(words, ensure_ascii=False)[1:-1])
            if not any(written in normal(json.dumps(one, ensure_ascii=False)) for one in later):
                lost.append(value)
    return lost


def _inline_lane(value: dict[str, Any], key: str, chains: dict[str, str]) -> str | None:
    if value.get("isSidechain") is not True:
        return None
    return value.get("agentId") or chains.get(key, key)


def _sidechains(values: list[dict[str, Any]]) -> dict[str, str]:
    """For each record of an inline sidechain the first record of its chain."""
    firsts: dict[str, str] = {}
    for value in values:
        if value.get("isSidechain") is True and value.get("uuid"):
            firsts[value["uuid"]] = firsts.get(value.get("parentUuid") or "", value["uuid"])
    return firsts


def _count_claude_record(value: dict[str, Any], session: str, key: str, count: Count) -> None:
    kind = str(value.get("type"))
    if (session, key) in count.types:
        return  # told again, as happens when a session is resumed
    count.places.add((session, key))
    count.types[session, key] = kind
    attachment = _object(value.get("attachment"))
    if kind == "user":
        _count_user(_blocks(value), session, key, count)
    elif kind == "assistant":
        for block in _blocks(value):
            _count_answer(_object(block), session, key, count)
    elif kind in ("system", "pr-link"):
        count.add(session, NOTICE, key)
    elif attachment.get("type") == "queued_command":
        _count_user(_list(attachment.get("prompt")) or [attachment.get("prompt")], session, key, count)
        count.types[session, key] = "user"
    elif str(attachment.get("type")).startswith(("hook_", "async_hook_")):
        count.add(session, NOTICE, key)


def _blocks(value: dict[str, Any]) -> list[Any]:
    message = _object(value.get("message"))
    content = message.get("content")
    if content is None and "0" in message:  # a text spread over numbered keys
        content = "".join(str(message[name]) for name in message if name.isdecimal())
    return content if isinstance(content, list) else [content] if content is not None else []


def _count_user(blocks: list[Any], session: str, key: str, count: Count) -> None:
    results = [block for block in blocks if "tool_use_id" in _object(block)]
    for block in results:
        _count_claude_result(block, session, key, count)
    others = [block for block in blocks if block not in results]
    text = "\n".join(_texts(others))
    if not others and results:
        return
    if not text.strip() and not any(_object(block).get("type") not in ("text", None) for block in others):
        count.empty += 1
    elif text.startswith("<bash-input>"):
        count.add(session, CALL, f"{key}/{key}", json.dumps({"command": _inner(text, "bash-input").strip()}))
    elif text.startswith(("<bash-stdout>", "<bash-stderr>")):
        count.add(session, RESULT, key, _inner(text, "bash-stdout") + _inner(text, "bash-stderr"))
    elif text.startswith("<command-message>"):
        count.add(session, USER, key, f"{_inner(text, 'command-name')} {_inner(text, 'command-args')}")
    else:  # without what an editor puts beside it, if there is anything else
        count.add(session, USER, key, re.sub(r"(?s)^(?:<(ide_\w+)>.*?</\1>\s*)+", "", text) or text)


def _inner(text: str, tag: str) -> str:
    return text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]


def _count_claude_result(block: dict[str, Any], session: str, key: str, count: Count) -> None:
    count.add(session, RESULT, f"{key}/{block['tool_use_id']}", "".join(_texts(block.get("content"))))


def _count_answer(block: dict[str, Any], session: str, key: str, count: Count) -> None:
    kind = block.get("type")
    words = block.get("thinking") if kind == "thinking" else block.get("text")
    if "tool_use_id" in block:
        _count_claude_result(block, session, key, count)
    elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        count.add(session, CALL, f"{key}/{block.get('id')}", normal(block.get("input")))
    elif kind not in ("text", "thinking"):
        count.empty += kind == "redacted_thinking"
    elif isinstance(words, str) and words.strip():
        count.add(session, THINKING if kind == "thinking" else ASSISTANT, key, words)
    else:
        count.empty += 1


# Codex

_USER_SHELL = "<user_shell_command>"
_IMAGE_MARK = re.compile(r"\s*</?image\b[^>]*>\s*")
_OUTPUT_EVENTS = ("exec_command_end", "patch_apply_end", "mcp_tool_call_end")


@dataclass
class _Thread:
    """What the files of one Codex thread tell, lane by lane."""

    is_paginated: bool = False
    prompt_events: Counter[str] = field(default_factory=Counter)
    prompt_items: Counter[str] = field(default_factory=Counter)
    prompt_records: Counter[str] = field(default_factory=Counter)
    answers: dict[bool, Counter[str]] = field(default_factory=lambda: {True: Counter(), False: Counter()})
    thoughts: dict[bool, Counter[str]] = field(default_factory=lambda: {True: Counter(), False: Counter()})
    notes: Counter[str] = field(default_factory=Counter)
    calls: list[tuple[str, str]] = field(default_factory=list)
    outputs: list[tuple[str, str]] = field(default_factory=list)
    items: list[tuple[str, str]] = field(default_factory=list)
    compactions: set[str] = field(default_factory=set)
    empty: int = 0


def count_codex(root: Path) -> Count:
    count = Count()
    threads: dict[str, _Thread] = {}
    homes = [root / name for name in ("sessions", "archived_sessions") if (root / name).is_dir()]
    for path in (path for home in homes or [root] for path in iter_paths(home)):
        if path.name.startswith("rollout-") and path.suffix in (".jsonl", ".json"):
            _count_rollout(path, threads, count)
    for session, thread in threads.items():
        _settle_thread(session, thread, count)
    for path in iter_paths(root):
        if path.name == "history.jsonl" and path.parent == root:
            for _, value in read_records(path, count):
                count.prompts[value["session_id"], normal(value["text"])] += 1
    return count


def _count_rollout(path: Path, threads: dict[str, _Thread], count: Count) -> None:
    records = _document(path) if path.suffix == ".json" else read_records(path, count)
    if not records:
        return
    first = _object(records[0].value.get("payload")) or records[0].value
    session = str(first.get("id"))
    thread = threads.setdefault(session, _Thread())
    for offset, value in records:
        thread.is_paginated = thread.is_paginated or "ordinal" in value
        place = value.get("ordinal", offset)
        count.places.add((session, str(place)))
        kind = value.get("type")
        if kind == "event_msg":
            _read_notice(thread, _object(value.get("payload")))
        elif kind == "compacted":
            thread.compactions.add(normal(str(_object(value.get("payload")).get("message"))))
        else:
            _read_item(thread, _object(value.get("payload")) or value, str(place))


def _document(path: Path) -> list[Record]:
    """The items of the oldest generation's document, chat messages taken apart; places as 1 + 64 per item."""
    document = json.loads(path.read_bytes())
    records = [Record(0, {"payload": document["session"]})]
    for index, item in enumerate(document["items"]):
        parts = [item] if "role" not in item or "type" in item else list(_chat_parts(item))
        records += [Record(1 + index * 64 + number, part) for number, part in enumerate(parts)]
    return records


def _chat_parts(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if item.get("reasoning"):
        yield {"type": "reasoning", "summary": [item["reasoning"]]}
    if item["role"] == "tool":
        yield {"type": "function_call_output", "call_id": item.get("tool_call_id"), "output": item.get("content")}
    elif item.get("content") or item["role"] == "user":
        yield {"type": "message", "role": item["role"], "content": item.get("content")}
    for call in _list(item.get("tool_calls")):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _read_notice(thread: _Thread, payload: dict[str, Any]) -> None:
    kind = payload.get("type")
    if kind == "user_message":
        thread.prompt_events[normal(payload["message"])] += 1
    elif kind == "item_completed":
        _read_finished(thread, _object(payload.get("item")))
    elif kind in _OUTPUT_EVENTS:
        thread.items.append((str(payload["call_id"]), _item_output(payload)))


def _read_item(thread: _Thread, item: dict[str, Any], place: str) -> None:
    """A `response_item`, or the bare item of the first line-wise generation."""
    kind = str(item.get("type"))
    if kind == "message":
        _read_message(thread, item, place)
    elif kind == "agent_message":
        thread.notes[normal("".join(_texts(item.get("content"))))] += 1
    elif kind == "reasoning":
        words = normal("".join(_texts(item.get("summary"))) or "".join(_texts(item.get("content"))))
        thread.thoughts[False][words] += 1
        thread.empty += not words and not thread.is_paginated
    elif kind == "web_search_call" and not thread.is_paginated:
        thread.calls.append((f"{item.get('id') or place}", "{}"))
    elif kind.endswith("_call") and kind != "web_search_call":
        arguments: Any = next(
            (item[name] for name in ("arguments", "input", "action") if item.get(name) is not None), {}
        )
        thread.calls.append((str(item.get("call_id") or item.get("id")), normal(_parsed(arguments, kind))))
    elif kind.endswith("_call_output"):
        thread.outputs.append((str(item["call_id"]), _output_words(item.get("output"))))


def _parsed(arguments: Any, kind: str) -> Any:
    if kind == "function_call" and isinstance(arguments, str) and arguments[:1] in ("{", "["):
        try:
            return json.loads(arguments)
        except ValueError:
            return arguments
    return arguments


def _output_words(output: Any) -> str:
    if isinstance(output, str) and output.startswith('{"output":'):
        return normal(json.loads(output)["output"])
    return normal("".join(_texts(output)))


def _read_message(thread: _Thread, item: dict[str, Any], place: str) -> None:
    parts = [part for part in _texts(item.get("content")) if not _IMAGE_MARK.fullmatch(part)]
    words = normal("".join(parts))
    if item.get("role") == "user" and words.startswith(normal(_USER_SHELL)):
        if not thread.is_paginated:
            thread.calls.append((place, "{}"))
            thread.outputs.append((place, words))
    elif item.get("role") == "user":
        thread.prompt_records[words] += 1
    elif item.get("role") == "assistant":
        thread.answers[False][words] += 1


def _read_finished(thread: _Thread, item: dict[str, Any]) -> None:
    """An item of `item_completed`."""
    kind, own_id = item.get("type"), str(item.get("id"))
    if kind == "UserMessage":
        parts = [part for part in _texts(item.get("content")) if not _IMAGE_MARK.fullmatch(part)]
        thread.prompt_items[normal("".join(parts))] += 1
    elif kind in ("AgentMessage", "Plan"):
        thread.answers[True][normal("".join(_texts(item.get("content") or item.get("text"))))] += 1
    elif kind == "Reasoning":
        words = normal("".join(_texts(item.get("summary_text")) or _texts(item.get("raw_content"))))
        thread.thoughts[True][words] += 1
        thread.empty += not words
    elif kind in ("CommandExecution", "FileChange", "McpToolCall"):
        if own_id.startswith("exec-") or item.get("source") == "user_shell":
            thread.calls.append((own_id, _item_input(item)))
        thread.items.append((own_id, _item_output(item)))


def _item_input(item: dict[str, Any]) -> str:
    """What a call inside a script was given; the script itself is another call."""
    if item["type"] == "CommandExecution":
        return normal({"command": item["command"], "cwd": item["cwd"]})
    return normal({"changes": item["changes"]} if item["type"] == "FileChange" else item["arguments"])


def _item_output(item: dict[str, Any]) -> str:
    if item.get("type") in ("CommandExecution", "exec_command_end"):
        return normal(item.get("aggregated_output") or "")
    if item.get("type") in ("FileChange", "patch_apply_end"):
        return normal((item.get("stdout") or "") + (item.get("stderr") or ""))
    result = _object(item.get("result"))
    answer = _object(result.get("Ok", result))
    return normal(str(item.get("error") or result.get("Err") or "") or "".join(_texts(answer.get("content"))))


def _settle_thread(session: str, thread: _Thread, count: Count) -> None:
    """Of each thing that is told two or three times, one."""
    lane = thread.is_paginated
    count.merge_twins(session, USER, thread.prompt_records, thread.prompt_items, thread.prompt_events)
    if lane:  # the items are the lane; what else the model was sent in the user's name stands beside it
        context = thread.prompt_records - thread.prompt_items
        count.beside.update({Told(session, USER, words): number for words, number in context.items()})
    count.merge_twins(session, USER, thread.notes)
    for what, lanes in ((ASSISTANT, thread.answers), (THINKING, thread.thoughts)):
        count.merge_twins(session, what, lanes[lane])
        if lane and what == ASSISTANT:  # what the other lane tells must be told by this one, or by a compaction
            count.elsewhere |= {(session, words) for words in lanes[False] if words}
    for call_id, arguments in thread.calls:
        count.add(session, CALL, call_id, arguments)
    answered = dict(thread.items)
    for call_id in {*dict(thread.outputs), *answered}:
        outputs = [words for known, words in thread.outputs if known == call_id]
        count.add(session, RESULT, call_id, *outputs, answered.get(call_id, ""))
        count.told[Told(session, RESULT, call_id)] += max(0, len(outputs) - 1)
    count.empty += thread.empty
    for told in [told for told in count.told if not told.key]:
        del count.told[told]  # nothing was said


# Grok

_CHUNKS = {"user_message_chunk": USER, "agent_message_chunk": ASSISTANT, "agent_thought_chunk": THINKING}
_NOTICES = ("turn_completed", "retry_state", "rewind_marker", "subagent_spawned", "subagent_finished")


def count_grok(root: Path) -> Count:
    count = Count()
    for path in iter_paths(root / "sessions" if (root / "sessions").is_dir() else root):
        if path.name == "updates.jsonl":
            _count_updates(path, count)
        elif path.name == "events.jsonl":
            records = read_records(path, count)
            count.places |= {(path.parent.name, f"events:{path.parent.name}:{offset}") for offset, _ in records}
        elif path.name == "prompt_history.jsonl":
            for _, value in read_records(path, count):
                count.prompts[value["session_id"], normal(value["prompt"])] += 1
    return count


def _count_updates(path: Path, count: Count) -> None:
    session = path.parent.name
    message: tuple[Any, ...] | None = None
    pieces: list[tuple[int, int, str]] = []
    for _, value in read_records(path, count):
        params = _object(value.get("params"))
        update, meta = _object(params.get("update")), _object(params.get("_meta"))
        kind = str(update.get("sessionUpdate"))
        count.places.add((session, f"{meta.get('eventId')}@{meta.get('agentTimestampMs')}"))
        chunk = _chunk_key(kind, update, meta)
        if pieces and message is not None and (kind == "tool_call" or (chunk and chunk != message)):
            _close_message(session, message, pieces, count)
            pieces = []
        if chunk:
            message = chunk
            number = int(str(meta.get("eventId")).rpartition("-")[2])
            pieces.append((meta["agentTimestampMs"], number, _object(update["content"]).get("text") or ""))
        else:
            _count_update(session, path.parent, kind, update, meta, count)
    if pieces and message is not None:
        _close_message(session, message, pieces, count)


def _chunk_key(kind: str, update: dict[str, Any], meta: dict[str, Any]) -> tuple[Any, ...] | None:
    """What the pieces of one message have in common; None for what is no piece of a message."""
    content = _object(update.get("content"))
    if kind not in _CHUNKS or "bash_command" in _object(content.get("_meta")):
        return None  # the user's own command is told by its call
    if kind == "user_message_chunk":
        return kind, _object(update.get("_meta")).get("promptIndex"), meta.get("promptId")
    return kind, meta.get("promptId"), meta.get("streamStartMs")


def _close_message(session: str, message: tuple[Any, ...], pieces: list[tuple[int, int, str]], count: Count) -> None:
    words = normal("".join(text for _, _, text in sorted(pieces)))
    if words:
        count.told[Told(session, _CHUNKS[message[0]], words)] += 1


def _count_update(
    session: str, folder: Path, kind: str, update: dict[str, Any], meta: dict[str, Any], count: Count
) -> None:
    call_id = str(update.get("toolCallId"))
    if kind == "tool_call":
        count.add(session, CALL, call_id, normal(update.get("rawInput") or {}))
    elif kind == "tool_call_update" and update.get("rawInput"):
        told = Told(session, CALL, call_id)
        count.contents.setdefault(told, set()).add(normal(update["rawInput"]))
    if kind == "tool_call_update" and update.get("status") in ("completed", "failed"):
        log = folder / "terminal" / f"{call_id}.log"
        texts = [*_all_texts(update.get("content")), *_all_texts(update.get("rawOutput")), "\n".join(_shown(update))]
        count.add(session, RESULT, call_id, *texts, log.read_text(errors="replace") if log.is_file() else "")
    if kind in _NOTICES:
        told = Told(session, NOTICE, f"{meta.get('eventId')}@{meta.get('agentTimestampMs')}")
        count.told[told] += 1
        count.beside[told] += update.get("type") == "failed"  # the end of the turn tells of it, too


def _shown(update: dict[str, Any]) -> list[str]:
    return _texts([_object(_object(item).get("content")) for item in _list(update.get("content"))])


def _all_texts(value: Any) -> Iterator[str]:
    """Every text inside a value, also where it is written as a list of byte values, and every object whole."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and value and all(isinstance(one, int) for one in value):
        yield bytes(value).decode("utf-8", "replace")
    elif isinstance(value, list | dict):
        yield normal(value)
        for one in value.values() if isinstance(value, dict) else value:
            yield from _all_texts(one)


COUNTERS = {"claude": count_claude, "codex": count_codex, "grok": count_grok}
