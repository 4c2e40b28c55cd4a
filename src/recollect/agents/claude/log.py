"""Reading a Claude Code transcript or sub-agent file line by line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from recollect.agentkit.log import NOTHING, LineReader, Unreadable, read_log, read_rewritten
from recollect.agentkit.protocol import CostTotal, Cursor, EventRecord, Record, SessionInfo, Source, Usage
from recollect.agentkit.values import (
    as_id,
    as_list,
    as_mapping,
    as_text,
    parse_time_ms,
    positive_int,
    short_hash,
    summarise,
    text_in,
    texts_in,
)
from recollect.agents.claude import discover, prompts, side_files
from recollect.agents.claude.events import SYNTHETIC, Place, assistant_events, blocks_of
from recollect.agents.claude.transcript import (
    Attachment,
    Entry,
    Message,
    Progress,
    Queue,
    ResultFacts,
    Transcript,
    decode_entry,
    join_spread_text,
    message_of,
    parse_usage,
    parse_whole,
)
from recollect.model.kinds import (
    ASSISTANT_MSG,
    AUTOMATION,
    HUMAN,
    MAIN_LANE,
    STAND_IN_LANE,
    SUB_AGENT,
    TOOL_RESULT,
    WARM_UP,
)

# Entries outside the lane: copies of what the lane holds, or state of the program.
SKIPPED_TYPES = frozenset(
    """
    agent-color agent-name agent-setting api-request api-request-blob api-request-shape artifact-link atis-latch
    attribution-snapshot bridge-session content-replacement continued-in data-flow-incomplete data-flow-records
    derived-from dev-mods ended-by-model file-history-delta file-history-snapshot fork-context-ref frame-link
    history-suppression isolation-latch last-prompt memory-mode mode observer-ref permission-mode progress
    relocated resume-head-vouch session-owner tag teleported-from tools-used worktree-state
    """.split()  # noqa: SIM905 - a list would take a page
)
# Context handed to the model. `queued_command` and reports of hooks are events, `instructions` holds facts.
SKIPPED_ATTACHMENTS = frozenset(
    """
    agent_listing_delta agent_mention already_read_file auto_mode auto_mode_exit command_permissions
    compact_file_reference companion_intro date date_change deferred_tools_delta deferred_tools_record diagnostics
    directory edited_image_file edited_text_file environment file invoked_skills mcp_instructions_delta mcp_resource
    model nested_memory opened_file_in_ide output_style pdf_reference plan_file_reference plan_mode plan_mode_exit
    plan_mode_reentry prompt_snapshot read_truncation_notice relevant_memories remote_session_change
    selected_lines_in_ide session_context silent_turn_reminder skill_listing structured_output task_reminder
    task_status todo todo_reminder token_usage total_tokens_reminder ultra_effort_enter ultra_effort_exit
    """.split()  # noqa: SIM905 - a list would take a page
)
QUEUE = "queue-operation"
_LANE = frozenset({"user", "assistant", "system", "attachment"})
_TITLES = {"custom-title": ("customTitle", 3), "ai-title": ("aiTitle", 2)}
_NO_SUMMARY = ("Invalid API key", "API Error")
_SUB = "sub:"  # before the id of a record that a parent's log holds of a sub-agent
_WARM_UP_PROMPT = "Warmup"
# What the harness adds to a sub-agent's answer.
_TRAILER = re.compile(r"(?:^|\n)agentId: \w+(?: \([^\n]*)?(?:\n<usage>.*)?\s*\Z", re.DOTALL)


class TranscriptLog(Transcript):
    """The entries of one file. Beside its state it only knows what it has already yielded."""

    def __init__(self, source: Source, state: Mapping[str, Any]) -> None:
        super().__init__(state)
        self._file_session, self._agent_id = discover.parse_name(source.root, source.path)
        self._facts: dict[str, tuple[Any, ...]] = {}
        self._models: dict[str, str] = {}
        self._bases: set[str] = set()
        self._last_answer: tuple[Any, ...] | None = None
        self._last_id: str | None = None
        self._queue = Queue()

    def settle(self, reader: LineReader) -> Iterator[Record]:
        """First the queued prompts that have no entry of their own."""
        yield from self._queue.drain()
        yield from super().settle(reader)

    def read(self, offset: int, raw: bytes, is_lossy: bool = False) -> Sequence[Record]:
        entry = decode_entry(raw)
        kind = entry.type
        if kind.__class__ is not str:
            raise Unreadable("record without a type")
        skipped = self.skipped
        records = self._read_entry(entry, offset, raw, is_lossy)
        if kind != QUEUE:  # what is queued waits for its record
            self.skip_without_event(kind, records, skipped)
        return records

    def _read_entry(self, entry: Entry, offset: int, raw: bytes, is_lossy: bool) -> Sequence[Record]:
        kind = entry.type
        if self.session is None:
            self.session = as_id(entry.sessionId)
        if entry.timestamp.__class__ is str and len(entry.timestamp) <= prompts.TIME_CHARS:
            self.last_time = entry.timestamp
            if self.first_time is None:
                self.first_time = entry.timestamp
        if kind in _LANE:
            return self._lane(entry, offset, raw, is_lossy)
        if kind in SKIPPED_TYPES:
            if entry.uuid is not None:
                self.pass_over(as_id(entry.uuid), as_id(entry.parentUuid))
            if isinstance(entry.data, Progress) and entry.data.type == "agent_progress":
                return self._of_sub_agent(entry, entry.data, offset, is_lossy)
            self.skip(kind)
            return NOTHING
        if kind in _TITLES:
            field, rank = _TITLES[kind]
            title = as_text(getattr(entry, field))
            return [SessionInfo(self._session(entry), title=title, title_rank=rank)] if title else NOTHING
        if kind == "summary":
            return self._summary(entry)
        if kind == "cost-state":
            return self._cost(entry)
        if kind == QUEUE:
            return self._enqueue(entry, offset, raw, is_lossy)
        if kind == "pr-link":
            return prompts.pull_request_event(self._place(entry, offset, is_lossy), raw)
        return [prompts.other_event(self._place(entry, offset, is_lossy), raw, kind)]

    def _of_sub_agent(self, outer: Entry, progress: Progress, offset: int, is_lossy: bool) -> Sequence[Record]:
        """Read a sub-agent's message from its parent's log. The sub-agent's own log, once read, replaces it."""
        agent_id, raw = as_id(progress.agentId), bytes(progress.message)
        if agent_id is None or raw[:1] != b"{":
            return NOTHING
        entry = decode_entry(raw)
        if entry.type not in ("user", "assistant"):
            return NOTHING
        entry.sessionId, entry.agentId, entry.isSidechain = outer.sessionId, agent_id, True
        entry.cwd, entry.gitBranch, entry.version = outer.cwd, outer.gitBranch, outer.version
        entry.uuid = f"{_SUB}{as_id(entry.uuid) or offset}"  # its own log has the same uuid: two events for a while
        entry.parentUuid = self.follow(f"{self._session(outer)}/{agent_id}", entry.uuid)
        records = self._lane(entry, offset, raw, is_lossy, outer.timestamp)
        for record in records:
            if isinstance(record, EventRecord):
                record.lane = STAND_IN_LANE
            elif isinstance(record, SessionInfo):
                record.spawn_call_id = as_id(outer.parentToolUseID)
        return records

    def _session(self, entry: Entry) -> str:
        if entry.sessionId == self.session and self.session is not None:
            return self.session
        return as_id(entry.sessionId) or self.session or self._file_session

    def _place(self, entry: Entry, offset: int, is_lossy: bool, written: Any = None) -> Place:
        """`written`: when, if that is another time than the record's own."""
        session = self._session(entry)
        native_id = as_id(entry.uuid) or f"{session}:{offset}"
        parent = self._parent_id(entry)
        ts_ms = parse_time_ms(entry.timestamp)
        position, back_ms = self.next_position(ts_ms if written is None else parse_time_ms(written))
        if back_ms and self._file_session == self.session and not entry.isSidechain:
            # Resumes of 1.0.80 copy a conversation under a new id and time, but leave its prompts those they had.
            session = self._file_session
        self._last_id = native_id
        if self._agent_id is not None:
            lane = as_id(entry.agentId) or self._agent_id
        elif entry.isSidechain is not True:
            lane = MAIN_LANE
        else:
            lane = as_id(entry.agentId) or self.chain(native_id, self.resolve(parent))
        return Place(
            f"{session}/{lane}" if lane else session,
            lane,
            native_id,
            position,
            None if parent == native_id else self.resolve(parent),
            ts_ms,
            lane != MAIN_LANE,
            is_lossy,
            back_ms,
        )

    def _parent_id(self, entry: Entry) -> str | None:
        if entry.logicalParentUuid is not None and (logical := as_id(entry.logicalParentUuid)):
            return logical
        return self._last_id if entry.parentUuid == self._last_id else as_id(entry.parentUuid)

    def _lane(self, entry: Entry, offset: int, raw: bytes, is_lossy: bool, written: Any = None) -> list[Record]:
        if entry.message.__class__ is Message and not entry.message.content:
            join_spread_text(entry, raw)
        place = self._place(entry, offset, is_lossy, written)
        records: list[Record]
        if entry.type == "assistant":
            events = assistant_events(entry, place, self)
            records = self._info(entry, place) + self._answer(entry, place)
        elif entry.type == "user":
            events = prompts.user_events(entry, place, self)
            records = self._info(entry, place) + self._spawned(entry, place, events)
        elif entry.type == "attachment":
            events, records = self._attachment(entry, place, raw)
        else:
            events, records = prompts.system_events(entry, place, raw), self._info(entry, place)
        if not events and _has_unknown_shape(entry):
            events = [prompts.other_event(place, raw, entry.type)]
        if events:
            self.remember(place.native_id, place.session)
            self._queue.settle(events)
            self.note_delivered(events[-1].retry_key, place.ts_ms)
        else:
            self.pass_over(as_id(entry.uuid), place.parent)
        records += events
        return records

    def _attachment(self, entry: Entry, place: Place, raw: bytes) -> tuple[list[EventRecord], list[Record]]:
        attachment = entry.attachment if isinstance(entry.attachment, Attachment) else Attachment()
        kind = attachment.type
        if kind == "queued_command":
            return prompts.queued_event(entry, place, self, attachment), self._info(entry, place)
        if isinstance(kind, str) and kind.startswith(("hook_", "async_hook_")):
            return prompts.hook_event(place, as_mapping(parse_whole(raw)).get("attachment")), self._info(entry, place)
        if kind == "instructions":
            return [], _instructions(place, attachment)
        if kind in SKIPPED_ATTACHMENTS:
            self.skip(f"attachment/{kind}")
            return [], []
        return [prompts.other_event(place, raw, f"attachment/{kind}")], []

    def _info(self, entry: Entry, place: Place) -> list[Record]:
        """Facts about the session, whenever one of them changes."""
        forks = self._fork(entry, place) if entry.forkedFrom is not None or self.fork is not None else []
        session_class = self._session_class(entry, place)
        facts = (entry.cwd, entry.gitBranch, entry.version, session_class)
        if self._facts.get(place.session) == facts:
            return forks
        info = SessionInfo(
            place.session,
            # An inline sidechain has no file of its own.
            born_ms=None if self._agent_id is None and place.is_sub_agent else parse_time_ms(self.first_time),
            session_class=session_class,
            cwd=as_text(entry.cwd),
            git_branch=None if entry.gitBranch == "HEAD" else as_text(entry.gitBranch),
            agent_version=as_text(entry.version),
        )
        if place.is_sub_agent:
            self._add_parent(info, entry, place)
        self._facts[place.session] = facts
        return [info, *forks]

    def _session_class(self, entry: Entry, place: Place) -> str:
        if not place.is_sub_agent:
            is_scripted = isinstance(entry.entrypoint, str) and entry.entrypoint.startswith("sdk")
            return AUTOMATION if is_scripted else HUMAN
        if self._agent_id is None:
            if place.lane == place.native_id and _is_warm_up(entry):
                self.note_warm_up(place.lane)
            return WARM_UP if self.is_warm_up_lane(place.lane) else SUB_AGENT
        # Runs that warm the prompt cache ask `Warmup`; some versions write no request and only the answer.
        self.is_warm_up = self.is_warm_up or (entry.parentUuid is None and _is_warm_up(entry))
        is_calling = any(as_mapping(block).get("type") == "tool_use" for block in blocks_of(message_of(entry)))
        self.has_worked = self.has_worked or entry.type == "user" or is_calling
        return WARM_UP if self.is_warm_up or not self.has_worked else SUB_AGENT

    def _add_parent(self, info: SessionInfo, entry: Entry, place: Place) -> None:
        info.parent_native_id = info.root_native_id = self._session(entry)
        # Inline sidechains are not named anywhere: the call that has their prompt spawned them.
        request = _request(entry)
        if self._agent_id is None and place.lane == place.native_id and request is not None:
            info.spawn_call_id = self.find_spawn(short_hash(request))

    def _fork(self, entry: Entry, place: Place) -> list[Record]:
        """Where a copied part begins and ends; the first entry that is no copy ends it."""
        copied = as_mapping(entry.forkedFrom)
        base, end = as_id(copied.get("sessionId")), as_id(copied.get("messageUuid"))
        if base and end:
            self.fork = [place.session, end]
            is_known = place.session in self._bases
            self._bases.add(place.session)
            return [] if is_known else [SessionInfo(place.session, base_native_id=base)]
        if self.fork is None or self.fork[0] != place.session:
            return []
        info = SessionInfo(place.session, base_end=self.fork[1])
        self.fork = None
        return [info]

    def _spawned(self, entry: Entry, place: Place, events: list[EventRecord]) -> list[Record]:
        """The link to a sub-agent from the result of the call that spawned it; or what a web search used."""
        facts = entry.toolUseResult
        if isinstance(facts, ResultFacts) and facts.durationSeconds is not None and events:
            return self._searched(facts, place, events[0])
        if not isinstance(facts, ResultFacts) or facts.agentId is None or place.is_sub_agent:
            return []
        agent_id = as_id(facts.agentId)
        if agent_id is None or not events or events[0].call_id is None:
            return []
        session = f"{self._session(entry)}/{agent_id}"
        link = SessionInfo(session, spawn_call_id=events[0].call_id)
        last = self.last_of(session)
        texts = texts_in(events[0].payload.get("output")) if last and facts.status in (None, "completed") else []
        answer = _TRAILER.sub("", "\n".join(texts)).strip()
        if not answer or events[0].kind != TOOL_RESULT:
            return [link]
        # The last words of a sub-agent without a log of its own are in no progress record.
        name, words = f"{_SUB}{place.native_id}", {"text": answer}
        said = EventRecord(session, name, place.position, place.ts_ms, ASSISTANT_MSG, words, summarise(answer))
        said.lane, said.role, said.parent_native_id = STAND_IN_LANE, "assistant", last
        return [link, said]

    def _searched(self, facts: ResultFacts, place: Place, result: EventRecord) -> list[Record]:
        """Web searches, each with a price. A request of its own makes them, of which the log has no tokens."""
        model = self.last_model
        count = 1 if facts.searchCount is None else positive_int(facts.searchCount)  # 2.0 does not count them
        if model is None or result.call_id is None or not count:
            return []
        usage_id = f"search:{result.call_id}"
        return [Usage(place.session, usage_id, place.ts_ms, model, _provider(model), web_searches=count)]

    def _answer(self, entry: Entry, place: Place) -> list[Record]:
        """Model and tokens of an answer, unless the harness wrote it, or the block before had the same."""
        message = message_of(entry)
        raw = bytes(message.usage)
        last, self._last_answer = self._last_answer, (place.session, message.id, message.model, raw)
        if last == self._last_answer:
            return []
        model = as_text(message.model)
        if model is None or model == SYNTHETIC:
            return []
        records: list[Record] = []
        self.last_model = as_id(model)
        if self._models.get(place.session) != model:
            self._models[place.session] = model
            records.append(SessionInfo(place.session, model=model, provider=_provider(model)))
        usage = parse_usage(raw)
        if usage:
            records.append(_usage(place, as_id(message.id) or place.native_id, model, usage))
        return records

    def _summary(self, entry: Entry) -> list[Record]:
        """A summary is about the session that holds its leaf, which is seldom this file's."""
        session = self.find_leaf(as_id(entry.leafUuid))
        title = as_text(entry.summary)
        if session is None or title is None or title.startswith(_NO_SUMMARY):
            self.skip("summary")
            return []
        return [SessionInfo(session, title=title, title_rank=1)]

    def _enqueue(self, entry: Entry, offset: int, raw: bytes, is_lossy: bool) -> Sequence[Record]:
        operation = as_mapping(parse_whole(raw))
        text = text_in(operation.get("content")) if operation.get("operation") == "enqueue" else None
        prompt = prompts.waiting_event(entry, self._place(entry, offset, is_lossy), self, text) if text else None
        if prompt is None or self.is_queued_again(prompt.retry_key, prompt.ts_ms):
            self.skip(QUEUE)
        else:
            self._queue.add(prompt)
        return NOTHING

    def _cost(self, entry: Entry) -> list[Record]:
        usd = entry.totalCostUSD
        if isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd < 1e12:
            self.skip("cost-state")
            return []
        ts_ms = parse_time_ms(self.last_time)
        return [CostTotal(self._session(entry), str(entry.startTime)[:40], ts_ms, float(usd))]


def _usage(place: Place, usage_id: str, model: str, usage: Mapping[str, Any]) -> Usage:
    get = usage.get
    details = as_mapping(get("output_tokens_details"))
    written = positive_int(get("cache_creation_input_tokens"))
    figures = (
        positive_int(get("input_tokens")),
        positive_int(get("output_tokens")),
        positive_int(get("cache_read_input_tokens")),
        written,
        positive_int(details.get("thinking_tokens")),
    )
    record = Usage(place.session, usage_id, place.ts_ms, model, _provider(model), *figures)
    for_an_hour = positive_int(as_mapping(get("cache_creation")).get("ephemeral_1h_input_tokens"))
    record.cache_write_1h_tokens = min(written, for_an_hour)
    record.web_searches = positive_int(as_mapping(get("server_tool_use")).get("web_search_requests"))
    return record


def _has_unknown_shape(entry: Entry) -> bool:
    """Whether a message holds something that no block can be read from: such an entry is kept whole."""
    message = entry.message
    if not isinstance(message, Message):
        return bool(message)
    return bool(message.content) and not isinstance(message.content, str | list)


def _is_warm_up(entry: Entry) -> bool:
    return entry.type == "user" and _request(entry) == _WARM_UP_PROMPT


def _request(entry: Entry) -> str | None:
    """The text of a message that is nothing but one text."""
    content = message_of(entry).content
    if isinstance(content, list) and len(content) == 1:
        content = as_mapping(content[0]).get("text")
    return as_text(content)


def _provider(model: str) -> str | None:
    return "anthropic" if model.startswith("claude") else None


def _instructions(place: Place, attachment: Attachment) -> list[Record]:
    instructions = []
    for file in map(as_mapping, as_list(attachment.files)):
        path, content = as_text(file.get("path")), file.get("content")
        if path is not None and isinstance(content, str):
            instructions.append({"name": path, "sha256": sha256(content.encode("utf-8", "replace")).hexdigest()})
    return [SessionInfo(place.session, instructions=tuple(instructions))] if instructions else []


def _read_transcript(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    reader = LineReader(source, cursor)
    return read_log(reader, TranscriptLog(source, reader.state))


READERS = {
    discover.TRANSCRIPT: _read_transcript,
    discover.AGENT: _read_transcript,
    discover.HISTORY: lambda source, cursor: read_log(
        reader := LineReader(source, cursor), side_files.History(reader.state)
    ),
    discover.TOOL_RESULT: lambda source, cursor: read_rewritten(
        source, cursor, side_files.read_tool_result, side_files.TOOL_RESULT_BYTES + 1
    ),
    discover.AGENT_META: lambda source, cursor: read_rewritten(source, cursor, side_files.read_agent_meta),
    discover.TITLE: lambda source, cursor: read_rewritten(source, cursor, side_files.read_title),
    discover.TODOS: lambda source, cursor: read_rewritten(source, cursor, side_files.read_todos),
    discover.TASK: lambda source, cursor: read_rewritten(source, cursor, side_files.read_task),
}
