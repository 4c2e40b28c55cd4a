"""Reading a Claude Code transcript or sub-agent file line by line."""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from recollect.adapters.claude_events import SYNTHETIC, Place, assistant_events, prompt_key
from recollect.adapters.claude_memory import Memory
from recollect.adapters.claude_prompts import (
    TIME_CHARS,
    hook_event,
    other_event,
    queued_event,
    system_events,
    user_events,
    waiting_event,
)
from recollect.adapters.claude_queue import Queue
from recollect.adapters.claude_records import (
    REFUSED,
    Attachment,
    Line,
    Message,
    ResultFacts,
    as_id,
    as_text,
    decode_line,
    join_spread_text,
    message_of,
    parse_usage,
    parse_whole,
    rescue_line,
)
from recollect.adapters.commands import as_mapping, parse_time_ms, positive_int
from recollect.adapters.jsonl import KEPT_BAD_BYTES, LineReader
from recollect.adapters.protocol import (
    BadLine,
    CostTotal,
    Cursor,
    EventRecord,
    Record,
    SessionInfo,
    Skipped,
    Source,
    Usage,
)
from recollect.schema import AUTOMATION, HUMAN, MAIN_LANE, SUB_AGENT, WARM_UP

# Records outside the lane: copies of what the lane holds, or state of the program.
SKIPPED_TYPES = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "api-request",
        "api-request-blob",
        "api-request-shape",
        "artifact-link",
        "atis-latch",
        "attribution-snapshot",
        "bridge-session",
        "content-replacement",
        "continued-in",
        "data-flow-incomplete",
        "data-flow-records",
        "derived-from",
        "dev-mods",
        "ended-by-model",
        "file-history-delta",
        "file-history-snapshot",
        "fork-context-ref",
        "frame-link",
        "history-suppression",
        "isolation-latch",
        "last-prompt",
        "memory-mode",
        "mode",
        "observer-ref",
        "permission-mode",
        "pr-link",
        "progress",
        "relocated",
        "resume-head-vouch",
        "session-owner",
        "tag",
        "teleported-from",
        "tools-used",
        "worktree-state",
    }
)
# Context handed to the model. `queued_command` and hooks' reports are events, `instructions` tells facts.
SKIPPED_ATTACHMENTS = frozenset(
    {
        "agent_listing_delta",
        "agent_mention",
        "already_read_file",
        "auto_mode",
        "auto_mode_exit",
        "command_permissions",
        "compact_file_reference",
        "companion_intro",
        "date",
        "date_change",
        "deferred_tools_delta",
        "diagnostics",
        "directory",
        "edited_image_file",
        "edited_text_file",
        "environment",
        "file",
        "invoked_skills",
        "mcp_instructions_delta",
        "mcp_resource",
        "model",
        "nested_memory",
        "opened_file_in_ide",
        "output_style",
        "pdf_reference",
        "plan_file_reference",
        "plan_mode",
        "plan_mode_exit",
        "plan_mode_reentry",
        "prompt_snapshot",
        "read_truncation_notice",
        "relevant_memories",
        "remote_session_change",
        "selected_lines_in_ide",
        "session_context",
        "skill_listing",
        "structured_output",
        "task_reminder",
        "task_status",
        "todo",
        "todo_reminder",
        "token_usage",
        "ultra_effort_enter",
        "ultra_effort_exit",
    }
)
QUEUE = "queue-operation"
_TITLES = {"custom-title": ("customTitle", 3), "ai-title": ("aiTitle", 2)}
_NO_SUMMARY = ("Invalid API key", "API Error")
_BLOCK_ROOM = 256
_AGENT_FILE = re.compile(r"agent-(.+)\.jsonl")
_WARM_UP_PROMPT = "Warmup"


def read_transcript(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Yield what a transcript tells from `cursor` on."""
    reader = LineReader(source, cursor)
    transcript = Transcript(source, Memory(reader.state))
    for number, offset, raw in reader:
        try:
            line = decode_line(raw)
        except REFUSED:
            yield from transcript.rescue(number, offset, raw)
        else:
            yield from transcript.read_line(number, offset, raw, line)
            del line
        del raw  # both may be large, and what is yielded next is worked on before the next line is read
        if reader.is_due:
            yield from transcript.drain()
            yield reader.checkpoint(transcript.memory.dump())
    yield from reader.too_long
    yield from transcript.drain()
    yield reader.checkpoint(transcript.memory.dump())


class Transcript:
    """The records of one file. Beside its memory it only knows what it has already said."""

    def __init__(self, source: Source, memory: Memory) -> None:
        self.memory = memory
        self._file_session, self._agent_id = file_names(source.root, source.path)
        self._facts: dict[str, tuple[Any, ...]] = {}
        self._models: dict[str, str] = {}
        self._bases: set[str] = set()
        self._last_answer: tuple[Any, ...] | None = None
        self._queue = Queue()

    def drain(self) -> Iterator[Record]:
        """What is told at a checkpoint only: prompts that no record told, and what was left out."""
        yield from self._queue.drain()
        for name, count in self.memory.skips.items():
            yield Skipped(name, count)
        self.memory.skips = {}

    def rescue(self, number: int, offset: int, raw: bytes) -> Iterator[Record]:
        """What can be read of a damaged line; records glued together count as a byte apart."""
        rescued = rescue_line(raw)
        if rescued.bad:
            yield BadLine(number, offset, rescued.bad, raw[:KEPT_BAD_BYTES])
        for shift, (line, clean) in enumerate(rescued.records):
            yield from self.read_line(number, offset + shift, clean, line, is_lossy=rescued.is_lossy)

    def read_line(self, number: int, offset: int, raw: bytes, line: Line, *, is_lossy: bool = False) -> list[Record]:
        kind = line.type
        if not isinstance(kind, str):
            return [BadLine(number, offset, "record without a type", raw[:KEPT_BAD_BYTES])]
        memory = self.memory
        if memory.session is None:
            memory.session = as_id(line.sessionId)
        if line.timestamp.__class__ is str and len(line.timestamp) <= TIME_CHARS:
            memory.last_time = line.timestamp
            if memory.first_time is None:
                memory.first_time = line.timestamp
        if kind in _LANE:
            return self._lane(line, offset, raw, is_lossy)
        if kind in SKIPPED_TYPES:
            memory.skip(kind)
            if line.uuid is not None:
                memory.pass_over(as_id(line.uuid), as_id(line.parentUuid))
            return _NOTHING
        return self._beside(kind, line, offset, raw, is_lossy)

    def _beside(self, kind: str, line: Line, offset: int, raw: bytes, is_lossy: bool) -> list[Record]:
        if kind in _TITLES:
            return self._title(line, *_TITLES[kind])
        if kind == "summary":
            return self._summary(line)
        if kind == "cost-state":
            return self._cost(line)
        if kind == QUEUE:
            return self._enqueue(line, offset, raw, is_lossy)
        return [other_event(self._place(line, offset, is_lossy), raw, kind)]

    def _session(self, line: Line) -> str:
        if line.sessionId == self.memory.session and self.memory.session is not None:
            return self.memory.session
        return as_id(line.sessionId) or self.memory.session or self._file_session

    def _place(self, line: Line, offset: int, is_lossy: bool) -> Place:
        session = self._session(line)
        native_id = as_id(line.uuid) or f"{session}:{offset}"
        parent = _parent_id(line)
        lane = self._lane_name(line, native_id, parent)
        return Place(
            f"{session}/{lane}" if lane else session,
            lane,
            native_id,
            offset * _BLOCK_ROOM,
            None if parent == native_id else self.memory.resolve(parent),
            parse_time_ms(line.timestamp),
            lane != MAIN_LANE,
            is_lossy,
        )

    def _lane_name(self, line: Line, native_id: str, parent: str | None) -> str:
        if self._agent_id is not None:
            return as_id(line.agentId) or self._agent_id
        if line.isSidechain is not True:
            return MAIN_LANE
        return as_id(line.agentId) or self.memory.chain(native_id, self.memory.resolve(parent))

    def _lane(self, line: Line, offset: int, raw: bytes, is_lossy: bool) -> list[Record]:
        if isinstance(line.message, Message) and line.message.content is None:
            join_spread_text(line, raw)
        place = self._place(line, offset, is_lossy)
        events, records = self._told(line, place, raw)
        if events:
            self.memory.remember(place.native_id, place.session)
            self._queue.settle(events)
        else:
            self.memory.pass_over(as_id(line.uuid), _parent_id(line))
        records += events
        return records

    def _told(self, line: Line, place: Place, raw: bytes) -> tuple[list[EventRecord], list[Record]]:
        """The events of a record of the lane, and the facts it tells of its session."""
        if line.type == "attachment":
            return self._attachment(line, place, raw)
        if line.type == "user":
            events = user_events(line, place, self.memory)
            return events, self._info(line, place) + self._spawned(line, place, events)
        if line.type == "assistant":
            events = assistant_events(line, place, self.memory)
            return events, self._info(line, place) + self._answer(line, place)
        return system_events(line, place, raw), self._info(line, place)

    def _attachment(self, line: Line, place: Place, raw: bytes) -> tuple[list[EventRecord], list[Record]]:
        attachment = line.attachment if isinstance(line.attachment, Attachment) else Attachment()
        kind = attachment.type
        if kind == "queued_command":
            return queued_event(line, place, self.memory, attachment), self._info(line, place)
        if isinstance(kind, str) and kind.startswith(("hook_", "async_hook_")):
            return hook_event(place, as_mapping(parse_whole(raw)).get("attachment")), self._info(line, place)
        if kind == "instructions":
            return [], _instructions(place, attachment)
        if kind in SKIPPED_ATTACHMENTS:
            self.memory.skip(f"attachment/{kind}")
            return [], []
        return [other_event(place, raw, f"attachment/{kind}")], []

    def _info(self, line: Line, place: Place) -> list[Record]:
        """Facts about the session, whenever one of them changes."""
        forks = self._fork(line, place) if line.forkedFrom is not None or self.memory.fork is not None else []
        session_class = self._session_class(line, place)
        facts = (line.cwd, line.gitBranch, line.version, session_class)
        if self._facts.get(place.session) == facts:
            return forks
        info = SessionInfo(
            place.session,
            # An inline sidechain has no file of its own.
            born_ms=None if self._agent_id is None and place.is_sub_agent else parse_time_ms(self.memory.first_time),
            session_class=session_class,
            cwd=as_text(line.cwd),
            git_branch=None if line.gitBranch == "HEAD" else as_text(line.gitBranch),
            agent_version=as_text(line.version),
        )
        if place.is_sub_agent:
            self._add_parent(info, line, place)
        self._facts[place.session] = facts
        return [info, *forks]

    def _session_class(self, line: Line, place: Place) -> str:
        if not place.is_sub_agent:
            is_scripted = isinstance(line.entrypoint, str) and line.entrypoint.startswith("sdk")
            return AUTOMATION if is_scripted else HUMAN
        if self._agent_id is None:
            if place.lane == place.native_id and _is_warm_up(line):
                self.memory.note_warm_up(place.lane)
            return WARM_UP if self.memory.is_warm_up_lane(place.lane) else SUB_AGENT
        # Runs that warm the prompt cache ask `Warmup`; some versions write no request and only the answer.
        memory = self.memory
        memory.is_warm_up = memory.is_warm_up or (line.parentUuid is None and _is_warm_up(line))
        memory.has_worked = memory.has_worked or line.type == "user" or _is_calling(line)
        return WARM_UP if memory.is_warm_up or not memory.has_worked else SUB_AGENT

    def _add_parent(self, info: SessionInfo, line: Line, place: Place) -> None:
        info.parent_native_id = info.root_native_id = self._session(line)
        # Inline sidechains are not named anywhere: the call that has their prompt spawned them.
        request = _request(line)
        if self._agent_id is None and place.lane == place.native_id and request is not None:
            info.spawn_call_id = self.memory.find_spawn(prompt_key(request))

    def _fork(self, line: Line, place: Place) -> list[Record]:
        """Where a copied part begins and ends; the end is told by the first record that is no copy."""
        copied = as_mapping(line.forkedFrom)
        base, end = as_id(copied.get("sessionId")), as_id(copied.get("messageUuid"))
        if base and end:
            self.memory.fork = [place.session, end]
            is_known = place.session in self._bases
            self._bases.add(place.session)
            return [] if is_known else [SessionInfo(place.session, base_native_id=base)]
        if self.memory.fork is None or self.memory.fork[0] != place.session:
            return []
        info = SessionInfo(place.session, base_end=self.memory.fork[1])
        self.memory.fork = None
        return [info]

    def _spawned(self, line: Line, place: Place, events: list[EventRecord]) -> list[Record]:
        """The link to a sub-agent from the result of the call that spawned it."""
        facts = line.toolUseResult
        if not isinstance(facts, ResultFacts) or facts.agentId is None or place.is_sub_agent:
            return []
        agent_id = as_id(facts.agentId)
        if agent_id is None or not events or events[0].call_id is None:
            return []
        return [SessionInfo(f"{self._session(line)}/{agent_id}", spawn_call_id=events[0].call_id)]

    def _answer(self, line: Line, place: Place) -> list[Record]:
        """Model and tokens of an answer, unless the harness wrote it, or the block before told the same."""
        message = message_of(line)
        raw = bytes(message.usage)
        last, self._last_answer = self._last_answer, (place.session, message.id, message.model, raw)
        if last == self._last_answer:
            return []
        model = as_text(message.model)
        if model is None or model == SYNTHETIC:
            return []
        records: list[Record] = []
        if self._models.get(place.session) != model:
            self._models[place.session] = model
            records.append(SessionInfo(place.session, model=model, provider=_provider(model)))
        told = parse_usage(raw)
        return records + _usage(place, as_id(message.id) or place.native_id, model, told) if told else records

    def _title(self, line: Line, field: str, rank: int) -> list[Record]:
        title = as_text(getattr(line, field))
        return [] if title is None else [SessionInfo(self._session(line), title=title, title_rank=rank)]

    def _summary(self, line: Line) -> list[Record]:
        """A summary is about the session that holds its leaf, which is seldom this file's."""
        session = self.memory.find_leaf(as_id(line.leafUuid))
        title = as_text(line.summary)
        if session is None or title is None or title.startswith(_NO_SUMMARY):
            self.memory.skip("summary")
            return []
        return [SessionInfo(session, title=title, title_rank=1)]

    def _enqueue(self, line: Line, offset: int, raw: bytes, is_lossy: bool) -> list[Record]:
        told = as_mapping(parse_whole(raw))
        text = as_text(told.get("content")) if told.get("operation") == "enqueue" else None
        prompt = waiting_event(line, self._place(line, offset, is_lossy), self.memory, text) if text else None
        if prompt is None:
            self.memory.skip(QUEUE)
        else:
            self._queue.add(prompt)
        return _NOTHING

    def _cost(self, line: Line) -> list[Record]:
        usd = line.totalCostUSD
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd < 1e12:
            self.memory.skip("cost-state")
            return []
        ts_ms = parse_time_ms(self.memory.last_time)
        return [CostTotal(self._session(line), str(line.startTime)[:40], ts_ms, float(usd))]


_NOTHING: list[Record] = []
_LANE = frozenset({"user", "assistant", "system", "attachment"})


def _parent_id(line: Line) -> str | None:
    if line.logicalParentUuid is not None and (logical := as_id(line.logicalParentUuid)):
        return logical
    return as_id(line.parentUuid)


def file_names(root: Path, path: Path) -> tuple[str, str | None]:
    """The session a file is named after, and the sub-agent it belongs to."""
    match = _AGENT_FILE.fullmatch(path.name)
    if match is None:
        return path.stem, None
    parts = path.relative_to(root).parts
    session = parts[parts.index("subagents") - 1] if "subagents" in parts[1:] else path.stem
    return session, match[1]


def _usage(place: Place, usage_id: str, model: str, told: Mapping[str, Any]) -> list[Record]:
    details = as_mapping(told.get("output_tokens_details"))
    figures = (
        positive_int(told.get("input_tokens")),
        positive_int(told.get("output_tokens")),
        positive_int(told.get("cache_read_input_tokens")),
        positive_int(told.get("cache_creation_input_tokens")),
        positive_int(details.get("thinking_tokens")),
    )
    return [Usage(place.session, usage_id, place.ts_ms, model, _provider(model), *figures)]


def _is_warm_up(line: Line) -> bool:
    return line.type == "user" and _request(line) == _WARM_UP_PROMPT


def _is_calling(line: Line) -> bool:
    content = message_of(line).content
    return isinstance(content, list) and any(as_mapping(block).get("type") == "tool_use" for block in content)


def _request(line: Line) -> str | None:
    """The text of a message that is nothing but one text."""
    content = message_of(line).content
    if isinstance(content, list) and len(content) == 1:
        content = as_mapping(content[0]).get("text")
    return as_text(content)


def _provider(model: str) -> str | None:
    return "anthropic" if model.startswith("claude") else None


def _instructions(place: Place, attachment: Attachment) -> list[Record]:
    files = attachment.files if isinstance(attachment.files, list) else []
    told = []
    for file in map(as_mapping, files):
        path, content = as_text(file.get("path")), file.get("content")
        if path is not None and isinstance(content, str):
            told.append({"name": path, "sha256": sha256(content.encode("utf-8", "replace")).hexdigest()})
    return [SessionInfo(place.session, instructions=tuple(told))] if told else []
