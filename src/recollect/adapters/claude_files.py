"""Claude Code's files beside the transcripts: typed prompts, titles, sub-agents, to-do lists, big outputs."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from recollect.adapters import claude_words as words
from recollect.adapters.claude_prompts import SLASH_COMMAND, USER_SHELL
from recollect.adapters.claude_records import REFUSED, as_id, as_text, plain
from recollect.adapters.commands import as_mapping, retry_key, summarise
from recollect.adapters.jsonl import KEPT_BAD_BYTES, LineReader, read_rewritten, salvage
from recollect.adapters.protocol import (
    BadLine,
    Cursor,
    EventRecord,
    Record,
    SessionInfo,
    Skipped,
    Source,
)
from recollect.schema import (
    FILES_LANE,
    HISTORY_LANE,
    LIFECYCLE,
    PROMPTS_ONLY,
    TOOL_CALL,
    TOOL_RESULT,
    USER_MSG,
)

TOOL_RESULT_BYTES = 8 * 1024 * 1024
KEPT_TIMES = 300
_LAST_MS = 253_402_300_800_000  # the year 10000
_TODO_FILE = re.compile(r"(?P<session>[0-9A-Za-z-]+?)-agent-(?P<agent>[0-9A-Za-z_-]+)")
_PASTED = re.compile(r"\[Pasted text #(\d+)[^\]]*\]")


class Prompt(msgspec.Struct, gc=False):
    """One line of history.jsonl."""

    display: Any = None
    pastedContents: Any = None
    timestamp: Any = None
    project: Any = None
    sessionId: Any = None


_decode_prompt = msgspec.json.Decoder(Prompt).decode


def read_history(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Yield every prompt typed at the terminal: all that is left of a session whose transcript is gone."""
    reader = LineReader(source, cursor)
    history = History(reader.state)
    for number, offset, raw in reader:
        yield from history.read_line(number, offset, raw)
        if reader.is_due:
            yield from history.drain_skips()
            yield reader.checkpoint(history.dump())
    yield from reader.too_long
    yield from history.drain_skips()
    yield reader.checkpoint(history.dump())


class History:
    """The lines of history.jsonl. It counts prompts of the same millisecond, to tell them apart."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._times: dict[str, int] = dict(state.get("times") or ())
        self._told: set[tuple[str, Any]] = set()
        self._skips: dict[str, int] = {}

    def dump(self) -> dict[str, Any]:
        return {"times": [list(pair) for pair in self._times.items()]} if self._times else {}

    def drain_skips(self) -> Iterator[Skipped]:
        for name, count in self._skips.items():
            yield Skipped(name, count)
        self._skips = {}

    def read_line(self, number: int, offset: int, raw: bytes) -> Iterator[Record]:
        try:
            yield from self._prompt(_decode_prompt(raw), offset)
        except REFUSED:
            yield from self._rescue(number, offset, raw)

    def _rescue(self, number: int, offset: int, raw: bytes) -> Iterator[Record]:
        salvaged = salvage(raw)
        prompts = [record for record in salvaged.records if isinstance(record, dict)]
        bad = salvaged.bad or (None if len(prompts) == len(salvaged.records) else "not an object")
        if bad:
            yield BadLine(number, offset, bad, raw[:KEPT_BAD_BYTES])
        for shift, told in enumerate(prompts):
            fields = {name: told.get(name) for name in Prompt.__struct_fields__}
            yield from self._prompt(Prompt(**fields), offset + shift)

    def _prompt(self, prompt: Prompt, offset: int) -> list[Record]:
        session, text = as_id(prompt.sessionId), as_text(prompt.display)
        if session is None:
            return self._skip("history without session")
        if text is None or not text.strip():
            return self._skip("empty")
        project = as_text(prompt.project)
        records: list[Record] = []
        if (session, project) not in self._told:
            self._told.add((session, project))
            records.append(SessionInfo(session, session_class=PROMPTS_ONLY, cwd=project))
        return [*records, self._event(session, prompt, text, offset)]

    def _skip(self, name: str) -> list[Record]:
        self._skips[name] = self._skips.get(name, 0) + 1
        return []

    def _event(self, session: str, prompt: Prompt, text: str, offset: int) -> EventRecord:
        ts_ms = prompt.timestamp
        ts_ms = ts_ms if isinstance(ts_ms, int) and 0 < ts_ms < _LAST_MS else None
        event = EventRecord(
            session,
            f"history:{ts_ms or 0}:{self._count(session, ts_ms)}",
            offset * 256,
            ts_ms,
            USER_MSG,
            {"text": _with_pasted(text, as_mapping(prompt.pastedContents)), "native": {"display": text}},
            summarise(text),
            lane=HISTORY_LANE,
            role="user",
        )
        return _as_typed(event, text)

    def _count(self, session: str, ts_ms: int | None) -> int:
        """How many prompts of this session had this time before; told apart without looking at their text."""
        key = f"{session[:40]}:{ts_ms or 0}"
        count = self._times.get(key, -1) + 1
        if key.isascii() and key.isprintable():
            self._times[key] = count
        if len(self._times) > KEPT_TIMES:
            del self._times[next(iter(self._times))]
        return count


def _as_typed(event: EventRecord, text: str) -> EventRecord:
    """A slash command is no turn, and `! ls` is the user's own shell."""
    if text.startswith("!") and text[1:].strip():
        arguments = {"command": text[1:].strip()}
        event.kind, event.tool, event.payload = TOOL_CALL, USER_SHELL, {"input": arguments}
        event.retry_key = retry_key(USER_SHELL, arguments)
        event.summary = summarise(f"ran {arguments['command']}")
    elif SLASH_COMMAND.match(text):
        event.kind, event.role = LIFECYCLE, "system"
    return event


def _with_pasted(text: str, pasted: Mapping[str, Any]) -> str:
    if not pasted:
        return text

    def content(match: re.Match[str]) -> str:
        told = as_mapping(pasted.get(match[1])).get("content")
        return told if isinstance(told, str) else match[0]

    return _PASTED.sub(content, text)


def read_agent_meta(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Yield what a sub-agent was started for, by the call that started it."""
    found = read_rewritten(source, cursor)
    if found is None:
        return
    content, checkpoint = found
    meta = as_mapping(_parse(content))
    session = _folder_of(source, "subagents")
    if not meta:
        yield BadLine(1, 0, "not a JSON object", content[:KEPT_BAD_BYTES])
    elif session is None:
        yield Skipped("agent meta without session")
    else:
        agent_id = source.path.name.removeprefix("agent-").removesuffix(".meta.json")
        names = (("description", "description"), ("agent_type", "agentType"), ("depth", "spawnDepth"))
        told = {ours: plain(meta[theirs]) for ours, theirs in names if meta.get(theirs) is not None}
        yield SessionInfo(
            f"{session}/{agent_id}",
            parent_native_id=session,
            root_native_id=session,
            spawn_call_id=as_id(meta.get("toolUseId")),
            metadata=told or None,
        )
    yield checkpoint


def read_title(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Yield the name the user gave a session."""
    found = read_rewritten(source, cursor)
    if found is None:
        return
    content, checkpoint = found
    told = _parse(content)
    title = as_text(as_mapping(told).get("customTitle"))
    if not isinstance(told, dict):
        yield BadLine(1, 0, "not a JSON object", content[:KEPT_BAD_BYTES])
    elif title is not None:
        yield SessionInfo(source.path.parent.name, title=title, title_rank=3)
    yield checkpoint


def read_tool_result(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Yield the full output of a call that was too big for the transcript."""
    found = read_rewritten(source, cursor, TOOL_RESULT_BYTES + 1)
    if found is None:
        return
    content, checkpoint = found
    name = source.path.name
    metadata: dict[str, Any] = {"file": name}
    if len(content) > TOOL_RESULT_BYTES:
        metadata["cut_at_bytes"] = TOOL_RESULT_BYTES
    text = content[:TOOL_RESULT_BYTES].decode("utf-8", "replace")
    stem = source.path.stem
    yield EventRecord(
        source.path.parent.parent.name,
        f"tool-results/{name}",
        0,
        None,
        TOOL_RESULT,
        {"output": text},
        words.describe_result(text, 0),
        lane=FILES_LANE,
        role="tool",
        call_id=stem if stem.startswith("toolu_") else None,
        status="ok",
        is_provisional=True,
        metadata=metadata,
    )
    yield checkpoint


def read_todos(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Yield a session's to-do list as it stands; the empty one that every session leaves is no event."""
    yield from _read_list(source, cursor, session_of_todos(source.path), "todos")


def session_of_todos(path: Path) -> str:
    """The session, or its sub-agent, that a to-do list is named after."""
    match = _TODO_FILE.fullmatch(path.stem)
    session = path.stem if match is None else match["session"]
    return f"{session}/{match['agent']}" if match is not None and match["agent"] != session else session


def read_task(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Yield one task of a session as it stands."""
    yield from _read_list(source, cursor, source.path.parent.name, "tasks")


def _read_list(source: Source, cursor: Cursor | None, session: str, folder: str) -> Iterator[Record]:
    found = read_rewritten(source, cursor)
    if found is None:
        return
    content, checkpoint = found
    told = _parse(content)
    items = told if isinstance(told, list) else [told] if isinstance(told, dict) and told else []
    if not isinstance(told, list | dict):
        yield BadLine(1, 0, "not JSON", content[:KEPT_BAD_BYTES])
    elif not items:
        yield Skipped("empty")
    else:
        yield _list_event(session, folder, source.path.name, items)
    yield checkpoint


def _list_event(session: str, folder: str, name: str, items: list[Any]) -> EventRecord:
    text = "\n".join(_item(as_mapping(item)) for item in items)
    number = name.partition(".")[0]
    return EventRecord(
        session,
        f"{folder}/{name}",
        int(number) if number.isdecimal() and len(number) < 10 else 0,
        None,
        LIFECYCLE,
        {"text": text, "native": {"items": plain(items)}},
        summarise(text),
        lane=FILES_LANE,
        role="system",
        is_provisional=True,
        metadata={"file": name},
    )


def _item(item: Mapping[str, Any]) -> str:
    return f"[{item.get('status') or 'open'}] {item.get('subject') or item.get('content') or ''}"


def _parse(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except REFUSED:
        return None


def _folder_of(source: Source, below: str) -> str | None:
    """The name of the folder that holds the folder `below`, on the way to a source."""
    parts = source.path.relative_to(source.root).parts
    return parts[parts.index(below) - 1] if below in parts[1:] else None
