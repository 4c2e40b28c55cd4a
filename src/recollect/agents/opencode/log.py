"""One session of OpenCode's database, as events.

A message is a row that says who spoke; its parts are rows of their own: texts, thoughts, calls with their results.
Rows change in place until their message is complete. A reading covers what changed since the last one.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import apsw
import orjson

from recollect.agentkit.calls import error_line, shell_kind
from recollect.agentkit.files import Cursor, Source, open_beneath, read_database
from recollect.agentkit.log import KEPT_BAD_BYTES
from recollect.agentkit.protocol import BadLine, Checkpoint, EventRecord, Record, SessionInfo, Skipped, Usage
from recollect.agentkit.values import as_list, as_mapping, as_text, call_key, media_reference, positive_int, summarise
from recollect.agents.opencode import discover
from recollect.model import kinds
from recollect.model.errors import SourceUnreadable

_SESSION = (
    "SELECT s.parent_id, s.directory, s.title, s.version, s.time_created, p.worktree, p.vcs FROM session s"
    " LEFT JOIN project p ON p.id = s.project_id WHERE s.id = ?"
)
# Ids ascend with time. `rank` is a row's place in the whole session, `number` a part's place in its message.
# A damaged value may have any type: as bytes or as an integer each can at least be read.
_ROWS = (
    "WITH ranked AS (SELECT m.id AS message, p.id AS part,"
    " CAST(max(m.time_updated, coalesce(p.time_updated, 0)) AS INTEGER) AS updated,"
    " row_number() OVER (ORDER BY m.time_created, m.id, p.id) AS rank,"
    " row_number() OVER (PARTITION BY m.id ORDER BY p.id) AS number"
    " FROM message m LEFT JOIN part p ON p.message_id = m.id WHERE m.session_id = ?1)"
    " SELECT m.id, CAST(m.data AS BLOB), p.id, CAST(p.data AS BLOB), p.time_created, rank, number, coalesce(updated, 0)"
    " FROM ranked JOIN message m ON m.id = message LEFT JOIN part p ON p.id = part"
    " WHERE coalesce(updated, ?2) >= ?2 AND rank > ?3 ORDER BY rank LIMIT ?4"
)
_SPAWNING_CALL = (
    "SELECT data ->> '$.callID' FROM part WHERE session_id = ?1 AND instr(data, ?2)"
    " AND CASE WHEN json_valid(data) THEN data ->> '$.state.metadata.sessionId' END = ?2"
)
# Named in docs/formats/opencode.md.
_SKIPPED = frozenset({"step-start", "step-finish", "patch", "snapshot"})
_SAYINGS = frozenset({"text", "reasoning"})
_SHELL = "bash"
_QUESTION = "question"
_EDITS = frozenset({"edit", "write", "patch", "multiedit", "apply_patch"})
_PATHS = ("filePath", "path")
_VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    _SHELL: ("ran", ("command",)),
    "read": ("read", _PATHS),
    "list": ("listed", _PATHS),
    "glob": ("searched for", ("pattern",)),
    "grep": ("searched for", ("pattern",)),
    "webfetch": ("fetched", ("url",)),
    "websearch": ("searched the web for", ("query",)),
    "task": ("started a sub-agent:", ("description", "prompt")),
    "skill": ("read the skill", ("name",)),
    "todowrite": ("updated the todo list", ()),
    "todoread": ("read the todo list", ()),
}
# How the program words a call that the user did not allow.
_REFUSED = ("The user rejected permission", "The user has specified a rule which prevents you")
_INTERRUPTED = "Tool execution aborted"
_GENERATED_TITLES = ("New session - ", "Child session - ")
_OUTPUT_BYTES = 8 * 1024 * 1024
_SLOTS = 4  # positions of one part
_ROWS_AT_ONCE = 2_000


def read_session(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Yield what changed in a session since the cursor."""
    if cursor and cursor.head == source.stamp:
        yield Checkpoint(cursor, 0, 0)
        return
    since = _moment(cursor.state.get("updated_ms")) or 0 if cursor else 0
    reader = _Reader(source)
    latest = since
    rank: int | None = 0
    while rank is not None:
        # The session may change between two pieces: its stamp then differs, and the next sweep reads those rows.
        read = partial(_read, reader=reader, since=since, after=rank)
        records, seen, rank = read_database(source.root, source.path, discover.COLUMNS, read)
        latest = max(latest, seen)
        yield from records
    yield from (Skipped(name, count) for name, count in reader.skips.items())
    yield Checkpoint(Cursor(head=source.stamp, state={"updated_ms": latest}), reader.rows, reader.bytes)


READERS = {discover.SESSION: read_session}


def _read(
    connection: apsw.Connection, reader: "_Reader", since: int, after: int
) -> tuple[list[Record], int, int | None]:
    """The records of the next rows of a session, the time of their latest change, and the rank to go on from."""
    source = reader.source
    row = connection.execute(_SESSION, (source.unit,)).fetchone()
    if row is None:
        raise SourceUnreadable("was deleted while the database was read")
    records: list[Record] = [] if after else [_info(connection, source, row)]
    rows: list[tuple[Any, ...]] = connection.execute(_ROWS, (source.unit, since, after, _ROWS_AT_ONCE)).fetchall()
    for (native_id, data), parts in groupby(rows, key=itemgetter(0, 1)):
        records += reader.message(native_id, data, parts)
    is_last = len(rows) < _ROWS_AT_ONCE
    return records, max((row[-1] for row in rows), default=0), None if is_last else rows[-1][5]


def _info(connection: apsw.Connection, source: Source, row: tuple[Any, ...]) -> SessionInfo:
    parent, *texts, created_ms, worktree, vcs = row
    folder, title, version = map(as_text, texts)
    assert source.session is not None
    info = SessionInfo(source.session, born_ms=_moment(created_ms), cwd=folder, agent_version=version)
    info.git_root = as_text(worktree) if vcs == "git" else None
    if title and not title.startswith(_GENERATED_TITLES):
        info.title, info.title_rank = title, 2
    root, _, own = source.session.partition("/")
    if own:
        info.session_class = kinds.SUB_AGENT
        info.parent_native_id, info.root_native_id = root if parent == root else f"{root}/{parent}", root
        calls = connection.execute(_SPAWNING_CALL, (parent, own)).fetchone()
        info.spawn_call_id = as_text(calls[0]) if calls else None
    return info


def _moment(value: Any) -> int | None:
    """Milliseconds since 1970, if that is what it is."""
    return value if type(value) is int and 0 < value < 1 << 48 else None


def _bad_row(place: int, data: bytes | None) -> BadLine:
    return BadLine(place, place, "not a JSON object", (data or b"")[:KEPT_BAD_BYTES])


def _loads(data: bytes | None) -> dict[str, Any] | None:
    try:
        value = orjson.loads(data or b"")
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


class _Message:
    """What a message says of its parts."""

    def __init__(self, native_id: str, data: Mapping[str, Any]) -> None:
        time, model = as_mapping(data.get("time")), as_mapping(data.get("model"))
        self.native_id = native_id
        self.role = "user" if data.get("role") == "user" else "assistant"
        self.model = as_text(data.get("modelID")) or as_text(model.get("modelID"))
        self.provider = as_text(data.get("providerID")) or as_text(model.get("providerID"))
        self.created_ms = _moment(time.get("created"))
        self.is_summary = data.get("summary") is True
        self.error = as_mapping(data.get("error"))
        self.is_complete = self.role == "user" or bool(time.get("completed") or self.error)
        # A fork's copies have ids of their own, but the same times.
        self.copy_key = f"{self.role}:{self.created_ms}:{time.get('completed')}"


class _Reader:
    """Makes the events of one session."""

    def __init__(self, source: Source) -> None:
        assert source.session is not None
        self.source = source
        self._session = source.session
        self.skips: dict[str, int] = {}
        self.rows = self.bytes = 0

    def message(self, native_id: str, data: bytes | None, rows: Iterable[tuple[Any, ...]]) -> Iterator[Record]:
        """The records of a message: its tokens, its parts, and the error that ended it."""
        value = _loads(data)
        message = _Message(native_id, value or {})
        if value and message.role == "assistant":
            yield from self._usage(message, value)
        rank = 0
        for *_, part_id, part_data, created_ms, rank, number, _updated in rows:
            if value is None and number == 1:
                yield _bad_row(rank * _SLOTS, data)
            self.rows += 1
            if part_id is not None:
                self.bytes += len(part_data or b"")
                yield from self._part(message, part_id, part_data, created_ms, rank, number)
        if message.error:
            yield self._failure(message, rank)

    def _usage(self, message: _Message, data: Mapping[str, Any]) -> Iterator[Usage]:
        tokens = as_mapping(data.get("tokens"))
        cache = as_mapping(tokens.get("cache"))
        usage = Usage(self._session, message.copy_key, message.created_ms, message.model, message.provider)
        usage.input_tokens = positive_int(tokens.get("input"))
        usage.reasoning_tokens = positive_int(tokens.get("reasoning"))
        usage.output_tokens = positive_int(tokens.get("output")) + usage.reasoning_tokens
        usage.cache_read_tokens = positive_int(cache.get("read"))
        usage.cache_write_tokens = positive_int(cache.get("write"))
        usage.usd = cost if isinstance(cost := data.get("cost"), int | float) and cost > 0 else None
        if message.is_complete and (usage.input_tokens or usage.output_tokens or usage.cache_read_tokens):
            yield usage

    def _failure(self, message: _Message, rank: int) -> EventRecord:
        name = as_text(message.error.get("name")) or "error"
        text = as_text(as_mapping(message.error.get("data")).get("message")) or name
        is_stopped = name == "MessageAbortedError"
        kind = kinds.HUMAN_INTERVENTION if is_stopped else kinds.ERROR
        event = self._event(message, f"{message.native_id}:error", rank * _SLOTS + 3, message.created_ms, kind)
        event.payload = {"text": text, "native": {"error": name}}
        event.role, event.status = ("user", "interrupted") if is_stopped else ("assistant", "failed")
        event.is_error = not is_stopped
        event.summary = "interrupted the turn" if is_stopped else summarise(f"failed: {text}")
        event.copy_key = f"{message.copy_key}:error"
        return event

    def _part(
        self, message: _Message, native_id: str, data: bytes | None, created_ms: Any, rank: int, number: int
    ) -> Sequence[Record]:
        part = _loads(data)
        if part is None:
            return [_bad_row(rank * _SLOTS + 1, data)]
        name = as_text(part.get("type")) or ""
        started_ms = _moment(as_mapping(part.get("time")).get("start")) or _moment(created_ms)
        event = self._event(message, native_id, rank * _SLOTS, started_ms, kinds.OTHER)
        event.copy_key = f"{message.copy_key}:{number}"
        said = kinds.USER_MSG if message.role == "user" else kinds.ASSISTANT_MSG
        text = as_text(part.get("text"))
        if name in _SKIPPED or (name in _SAYINGS and text is None):
            name = name if name in _SKIPPED else f"empty {name}"
            self.skips[name] = self.skips.get(name, 0) + 1
            return ()
        if name == "tool":
            return self._call(event, part, message)
        event.payload, event.summary = {"native": part}, summarise(name) or "part"
        if name in _SAYINGS:
            event.kind = said if name == "text" else kinds.THINKING
            event.payload, event.summary = {"text": text}, summarise(text or "")
            if name == "text" and (message.is_summary or part.get("synthetic") is True or part.get("ignored") is True):
                event.kind, event.role = kinds.LIFECYCLE, "system"
                if message.is_summary:
                    event.summary = summarise(f"summary of the conversation so far: {text}")
        elif name == "file":
            file, url = as_text(part.get("filename")) or "a file", as_text(part.get("url")) or ""
            event.kind, event.summary = said, summarise(f"[attached {file}]")
            if url.startswith("data:"):
                event.payload = {"media": [media_reference("file", as_text(part.get("mime")), url, file)]}
        elif name == "compaction":
            event.kind, event.role, event.summary = kinds.LIFECYCLE, "system", "context compacted"
        return [event]

    def _event(self, message: _Message, native_id: str, position: int, ts_ms: int | None, kind: str) -> EventRecord:
        event = EventRecord(self._session, native_id, position, ts_ms, kind, {}, "")
        event.role, event.model, event.provider = message.role, message.model, message.provider
        event.is_provisional = not message.is_complete
        return event

    def _call(self, call: EventRecord, part: Mapping[str, Any], message: _Message) -> Sequence[Record]:
        state = as_mapping(part.get("state"))
        tool, given = as_text(part.get("tool")) or "tool", as_mapping(state.get("input"))
        arguments, call.retry_key = call_key(tool, dict(given))
        call.tool, call.call_id = tool, as_text(part.get("callID"))
        call.kind = _call_kind(tool, given)
        call.payload = {"input": arguments}
        call.summary = _call_summary(tool, call.kind, given)
        call.copy_key = call.call_id or call.copy_key
        if state.get("status") not in ("completed", "error"):
            call.is_provisional = True
            return [call]
        return [call, self._result(call, state, message)]

    def _result(self, call: EventRecord, state: Mapping[str, Any], message: _Message) -> EventRecord:
        metadata = as_mapping(state.get("metadata"))
        output = as_text(state.get("output")) or as_text(state.get("error")) or ""
        if metadata.get("truncated") is True:
            output = self._full_output(as_text(metadata.get("outputPath"))) or output
        ended_ms = _moment(as_mapping(state.get("time")).get("end")) or call.ts_ms
        event = self._event(message, call.native_id, call.position + 1, ended_ms, kinds.TOOL_RESULT)
        event.block, event.role, event.tool, event.call_id = 1, "tool", call.tool, call.call_id
        event.kind, event.status = _result_kind(call.tool or "", state, output)
        event.role = "user" if event.kind in (kinds.DECISION, kinds.HUMAN_INTERVENTION) else "tool"
        event.is_error = event.kind == kinds.ERROR
        event.is_provisional, event.copy_key = False, call.copy_key
        # The program repeats the output there.
        native = {name: value for name, value in metadata.items() if name not in ("output", "preview")}
        event.payload = {"output": output, "native": {"metadata": native, "status": state.get("status")}}
        event.summary = _result_summary(event.kind, state, output)
        return event

    def _full_output(self, path: str | None) -> str | None:
        """The file with the whole output of a call, if it is still there."""
        name = (path or "").rpartition("/")[2]
        try:
            fd = open_beneath(self.source.root, self.source.root / "tool-output" / name)
        except (SourceUnreadable, ValueError):
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read(_OUTPUT_BYTES).decode("utf-8", "replace") or None


def _call_kind(tool: str, arguments: Mapping[str, Any]) -> str:
    if tool in _EDITS:
        return kinds.EDIT
    return shell_kind(as_text(arguments.get("command")) or "") if tool == _SHELL else kinds.TOOL_CALL


def _call_summary(tool: str, kind: str, arguments: Mapping[str, Any]) -> str:
    if tool == _QUESTION:
        first = next(map(as_mapping, as_list(arguments.get("questions"))), {})
        return summarise(f"asked: {as_text(first.get('question')) or ''}")
    verb, keys = _VERBS.get(tool) or ("edited" if kind == kinds.EDIT else f"called {tool}", _PATHS)
    target = next((value for key in keys if (value := as_text(arguments.get(key)))), "")
    return summarise(f"{verb} {target}".rstrip())


def _result_kind(tool: str, state: Mapping[str, Any], output: str) -> tuple[str, str]:
    """The kind and the status of a finished call's result."""
    if state.get("status") == "error":
        if output.startswith(_REFUSED):
            return kinds.HUMAN_INTERVENTION, "denied"
        return kinds.ERROR, "interrupted" if output.startswith(_INTERRUPTED) else "failed"
    if tool == _QUESTION:
        return kinds.DECISION, "ok"
    is_failed = tool == _SHELL and as_mapping(state.get("metadata")).get("exit") not in (None, 0)
    return (kinds.ERROR, "failed") if is_failed else (kinds.TOOL_RESULT, "ok")


def _result_summary(kind: str, state: Mapping[str, Any], output: str) -> str:
    exit_code = as_mapping(state.get("metadata")).get("exit")
    if kind == kinds.ERROR:
        return summarise(f"exit {exit_code}: {error_line(output)}" if exit_code else f"failed: {output}")
    return summarise(output) or "done"
