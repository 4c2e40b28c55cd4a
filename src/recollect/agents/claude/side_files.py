"""Claude Code's files beside the transcripts: typed prompts, titles, sub-agents, to-do lists, big outputs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from recollect.agentkit.log import NOTHING, Log, bad_document, parse_document
from recollect.agentkit.protocol import EventRecord, Record, SessionInfo, Skipped, Source
from recollect.agentkit.values import as_id, as_mapping, as_text, call_key, remember, storable, summarise
from recollect.agents.claude.discover import folder_session, todo_session
from recollect.agents.claude.events import describe_result
from recollect.agents.claude.prompts import SLASH_COMMAND, USER_SHELL
from recollect.model.kinds import FILES_LANE, HISTORY_LANE, LIFECYCLE, PROMPTS_ONLY, TOOL_CALL, TOOL_RESULT, USER_MSG

TOOL_RESULT_BYTES = 8 * 1024 * 1024
KEPT_TIMES = 300
_LAST_MS = 253_402_300_800_000  # the year 10000
_PASTED = re.compile(r"\[Pasted text #(\d+)[^\]]*\]")


class Prompt(msgspec.Struct, gc=False):
    """One line of history.jsonl."""

    display: Any = None
    pastedContents: Any = None
    timestamp: Any = None
    project: Any = None
    sessionId: Any = None


_decode_prompt = msgspec.json.Decoder(Prompt).decode


class History(Log):
    """Every prompt typed at the terminal: all that is left of a session whose transcript is gone.

    It counts prompts of the same millisecond, to keep them apart.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        super().__init__()
        self._times: dict[str, int] = dict(state.get("times") or ())
        self._known: set[tuple[str, Any]] = set()

    def dump(self) -> Mapping[str, Any]:
        return {"times": [list(pair) for pair in self._times.items()]} if self._times else {}

    def read(self, offset: int, raw: bytes, is_lossy: bool = False) -> Sequence[Record]:
        prompt = _decode_prompt(raw)
        session, text = as_id(prompt.sessionId), as_text(prompt.display)
        if session is None:
            self.skip("history without session")
            return NOTHING
        if text is None or not text.strip():
            self.skip("empty")
            return NOTHING
        event = self._event(session, prompt, text)
        project = as_text(prompt.project)
        if (session, project) in self._known:
            return [event]
        self._known.add((session, project))
        return [SessionInfo(session, session_class=PROMPTS_ONLY, cwd=project), event]

    def _event(self, session: str, prompt: Prompt, text: str) -> EventRecord:
        ts_ms = prompt.timestamp
        ts_ms = ts_ms if isinstance(ts_ms, int) and 0 < ts_ms < _LAST_MS else None
        count = self._count(session, ts_ms)
        event = EventRecord(
            session,
            f"history:{ts_ms or 0}:{count}",
            ((ts_ms or 0) << 8) + min(count, 255),  # by time: the prompts of a session may be in several histories
            ts_ms,
            USER_MSG,
            {"text": _with_pasted(text, as_mapping(prompt.pastedContents)), "native": {"display": text}},
            summarise(text),
            lane=HISTORY_LANE,
            role="user",
        )
        return _as_typed(event, text)

    def _count(self, session: str, ts_ms: int | None) -> int:
        """How many earlier prompts of this session have the same time."""
        key = f"{session[:40]}:{ts_ms or 0}"
        count = self._times.get(key, -1) + 1
        if key.isascii() and key.isprintable():
            remember(self._times, key, count, KEPT_TIMES)
        return count


def _as_typed(event: EventRecord, text: str) -> EventRecord:
    """A slash command is no turn, and `! ls` is the user's own shell."""
    if text.startswith("!") and text[1:].strip():
        arguments = {"command": text[1:].strip()}
        event.kind, event.tool, event.payload = TOOL_CALL, USER_SHELL, {"input": arguments}
        event.retry_key = call_key(USER_SHELL, arguments)[1]
        event.summary = summarise(f"ran {arguments['command']}")
    elif SLASH_COMMAND.match(text):
        event.kind, event.role = LIFECYCLE, "system"
    return event


def _with_pasted(text: str, pasted: Mapping[str, Any]) -> str:
    if not pasted:
        return text

    def content(match: re.Match[str]) -> str:
        text = as_mapping(pasted.get(match[1])).get("content")
        return text if isinstance(text, str) else match[0]

    return _PASTED.sub(content, text)


def read_agent_meta(source: Source, content: bytes) -> Iterator[Record]:
    """What a sub-agent was started for, and the call that started it."""
    meta = as_mapping(parse_document(content))
    session = folder_session(source.root, source.path)
    if not meta:
        yield bad_document(content)
    elif session is None:
        yield Skipped("agent meta without session")
    else:
        agent_id = source.path.name.removeprefix("agent-").removesuffix(".meta.json")
        names = (("description", "description"), ("agent_type", "agentType"), ("depth", "spawnDepth"))
        metadata = {ours: storable(meta[theirs]) for ours, theirs in names if meta.get(theirs) is not None}
        yield SessionInfo(
            f"{session}/{agent_id}",
            parent_native_id=session,
            root_native_id=session,
            spawn_call_id=as_id(meta.get("toolUseId")),
            metadata=metadata or None,
        )


def read_title(source: Source, content: bytes) -> Iterator[Record]:
    """The name the user gave a session."""
    document = parse_document(content)
    title = as_text(as_mapping(document).get("customTitle"))
    if not isinstance(document, dict):
        yield bad_document(content)
    elif title is not None:
        yield SessionInfo(source.path.parent.name, title=title, title_rank=3)


def read_tool_result(source: Source, content: bytes) -> Iterator[Record]:
    """The full output of a call that was too big for the transcript."""
    metadata: dict[str, Any] = {"file": source.path.name}
    if len(content) > TOOL_RESULT_BYTES:
        metadata["cut_at_bytes"] = TOOL_RESULT_BYTES
    text = content[:TOOL_RESULT_BYTES].decode("utf-8", "replace")
    stem = source.path.stem
    yield EventRecord(
        source.path.parent.parent.name,
        f"tool-results/{source.path.name}",
        0,
        None,
        TOOL_RESULT,
        {"output": text},
        describe_result(text, 0),
        lane=FILES_LANE,
        role="tool",
        call_id=stem if stem.startswith("toolu_") else None,
        status="ok",
        is_provisional=True,
        metadata=metadata,
    )


def read_todos(source: Source, content: bytes) -> Iterator[Record]:
    """A session's current to-do list; the empty one that every session leaves is no event."""
    return _read_list(source, content, todo_session(source.path), "todos")


def read_task(source: Source, content: bytes) -> Iterator[Record]:
    """The current state of one task of a session."""
    return _read_list(source, content, source.path.parent.name, "tasks")


def _read_list(source: Source, content: bytes, session: str, folder: str) -> Iterator[Record]:
    document, name = parse_document(content), source.path.name
    if not isinstance(document, list | dict):
        yield bad_document(content, "not JSON")
        return
    items = document if isinstance(document, list) else [document]
    if not document:
        yield Skipped("empty")
        return
    fields = [as_mapping(item) for item in items]
    text = "\n".join(
        f"[{item.get('status') or 'open'}] {item.get('subject') or item.get('content') or ''}" for item in fields
    )
    number = name.partition(".")[0]
    yield EventRecord(
        session,
        f"{folder}/{name}",
        int(number) if number.isdecimal() and len(number) < 10 else 0,
        None,
        LIFECYCLE,
        {"text": text, "native": {"items": storable(items)}},
        summarise(text),
        lane=FILES_LANE,
        role="system",
        is_provisional=True,
        metadata={"file": name},
    )
