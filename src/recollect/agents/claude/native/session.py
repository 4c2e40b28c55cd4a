"""One session of Claude Code: its entries, read and written in the program's own format.

A `SessionSummary` for lists is made from the beginning and the end of the file: sessions may be large.
"""

import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from recollect.agentkit.values import parse_time_ms
from recollect.agents.claude.native import conversation
from recollect.agents.claude.native.conversation import (
    Entry,
    Message,
    append_entries,
    blocks,
    dump,
    iter_entries,
    linked,
    replace,
)
from recollect.model.clock import moment_ms
from recollect.model.errors import UsageError
from recollect.model.files import write_new

_WINDOW_BYTES = 64 * 1024
_PROMPT_CHARS = 200
_COMMAND = re.compile("<command-name>(.*?)</command-name>")
# What the program, not a person, put into a prompt.
_NO_PROMPT = re.compile(
    r"<local-command-stdout>|<session-start-hook>|<tick>|<goal>|\[Request interrupted by user[^\]]*\]"
    r"|\s*<ide_opened_file>.*</ide_opened_file>\s*$|\s*<ide_selection>.*</ide_selection>\s*$",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session of a project. `summary` is its title, else the last prompt, else the first. Times are in ms."""

    session_id: str
    path: str
    summary: str
    last_modified_ms: int
    bytes: int
    custom_title: str | None
    first_prompt: str | None
    git_branch: str | None
    cwd: str | None
    tag: str | None
    created_ms: int | None


def read_summary(path: Path, folder: str | None) -> SessionSummary | None:
    """A session as a list shows it; None for a sub-agent's, an empty one, or one without title and prompt."""
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        head = file.read(_WINDOW_BYTES).decode("utf-8", "replace")
        file.seek(max(0, stat.st_size - _WINDOW_BYTES))
        tail = file.read(_WINDOW_BYTES).decode("utf-8", "replace")
    if not head or re.search(r'"isSidechain": ?true', head.partition("\n")[0]):
        return None
    title = next(filter(None, (_last(text, key) for key in ("customTitle", "aiTitle") for text in (tail, head))), None)
    prompt = _first_prompt(head)
    summary = title or _last(tail, "lastPrompt") or _last(tail, "summary") or prompt
    if not summary:
        return None
    tags = [line for line in tail.split("\n") if line.startswith('{"type":"tag"')]
    return SessionSummary(
        session_id=path.stem,
        path=str(path),
        summary=summary,
        last_modified_ms=int(stat.st_mtime * 1000),
        bytes=stat.st_size,
        custom_title=title,
        first_prompt=prompt,
        git_branch=_last(tail, "gitBranch") or _first(head, "gitBranch"),
        cwd=_first(head, "cwd") or folder,
        tag=_last(tags[-1], "tag") if tags else None,
        created_ms=parse_time_ms(_first(head, "timestamp")),
    )


def _values(text: str, key: str) -> list[str]:
    """The texts that a key has, also in a line that is cut off."""
    return re.findall(rf'"{key}": ?"((?:[^"\\]|\\.)*)"', text, re.DOTALL)


def _first(text: str, key: str) -> str | None:
    return next((_unescaped(value) for value in _values(text, key)), None) or None


def _last(text: str, key: str) -> str | None:
    values = _values(text, key)
    return (_unescaped(values[-1]) or None) if values else None


def _unescaped(value: str) -> str:
    try:
        return str(json.loads(f'"{value}"'))
    except ValueError:
        return value


def _first_prompt(head: str) -> str | None:
    """What the user asked first, shortened; the first slash command if there is nothing else."""
    command = None
    for line in head.split("\n"):
        for text in _texts(line):
            prompt = text.replace("\n", " ").strip()
            if found := _COMMAND.search(prompt):
                command = command or found[1]
            elif prompt and not _NO_PROMPT.match(prompt):
                return prompt if len(prompt) <= _PROMPT_CHARS else f"{prompt[:_PROMPT_CHARS].rstrip()}…"
    return command or None


def _texts(line: str) -> list[str]:
    if '"user"' not in line or '"tool_result"' in line:
        return []
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError):
        return []
    if not isinstance(entry, dict) or entry.get("type") != "user":
        return []
    if entry.get("isMeta") is True or entry.get("isCompactSummary") is True:
        return []
    return [block["text"] for block in blocks(entry) if isinstance(block.get("text"), str)]


_OF_THE_SOURCE = ("teamName", "agentName", "slug", "sourceToolAssistantUUID")
_REPLACEMENTS = "content-replacement"
_T = TypeVar("_T")


def fork_entries(entries: Iterable[Entry], session_id: str, new_id: str, up_to: str | None, now: str) -> list[Entry]:
    """Copies of a session's entries under new ids, each naming its original; those up to one of them, if given.

    Sub-agents, progress notices and copies of files are left out. Raises NotFound if there is no entry `up_to`, and
    UsageError if there is nothing to copy.
    """
    entries = list(entries)
    tree = [entry for entry in linked(entries) if not entry.get("isSidechain")]
    if up_to is not None:
        conversation.find(tree, up_to)
        tree = tree[: [entry["uuid"] for entry in tree].index(up_to) + 1]
    by_uuid = {entry["uuid"]: entry for entry in tree}
    names = {old: str(uuid.uuid4()) for old in by_uuid}
    kept = [entry for entry in tree if entry["type"] != "progress"]
    if not kept:
        raise UsageError(f"Nothing to fork in session: {session_id}", "append a message first")
    copies = [_copy(entry, by_uuid, names, session_id, new_id, now) for entry in kept]
    copies[-1]["timestamp"] = now  # a session continues from its newest leaf
    return copies + _replacements(entries, session_id, new_id, now)


def _copy(
    entry: Entry, by_uuid: Mapping[str, Entry], names: Mapping[str, str], session_id: str, new_id: str, now: str
) -> Entry:
    parent = by_uuid.get(entry.get("parentUuid") or "")
    while parent is not None and parent["type"] == "progress":
        parent = by_uuid.get(parent.get("parentUuid") or "")
    logical = entry.get("logicalParentUuid")
    copy = {
        **entry,
        "uuid": names[entry["uuid"]],
        "parentUuid": names[parent["uuid"]] if parent else None,
        "logicalParentUuid": names.get(logical) if logical else logical,
        "sessionId": new_id,
        "timestamp": entry.get("timestamp", now),
        "isSidechain": False,
        "forkedFrom": {"sessionId": session_id, "messageUuid": entry["uuid"]},
    }
    return {key: value for key, value in copy.items() if key not in _OF_THE_SOURCE}


def _replacements(entries: Iterable[Entry], session_id: str, new_id: str, now: str) -> list[Entry]:
    """What Claude Code put in the place of large outputs."""
    replaced: list[Any] = []
    for entry in entries:
        if entry.get("type") == _REPLACEMENTS and entry.get("sessionId") == session_id:
            replaced += entry["replacements"] if isinstance(entry.get("replacements"), list) else []
    if not replaced:
        return []
    return [
        {
            "type": _REPLACEMENTS,
            "sessionId": new_id,
            "replacements": replaced,
            "uuid": str(uuid.uuid4()),
            "timestamp": now,
        }
    ]


_INHERITED = ("cwd", "gitBranch", "version", "entrypoint", "userType")
_USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of a file. Tokens count once for each answer of the model, however many entries it has."""

    entries: int
    user_messages: int
    assistant_messages: int
    tool_calls: int
    tool_results: int
    compactions: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    models: Mapping[str, int]
    first_at: str | None
    last_at: str | None


class NativeSession:
    """A transcript file. Nothing is cached: another program may be writing to it."""

    def __init__(self, path: Path, session_id: str | None = None, *, agent_id: str | None = None) -> None:
        self.path = path
        self.session_id = session_id or path.stem
        self.agent_id = agent_id

    def __repr__(self) -> str:
        return f"NativeSession({str(self.path)!r})"

    def entries(
        self,
        *types: str,
        since: datetime | str | None = None,
        before: datetime | str | None = None,
        with_tools: bool = True,
        limit: int | None = None,
    ) -> list[Entry]:
        """The entries in the order of the file; of these types only, of a period, without calls and results, the last.

        A period's ends may be texts, such as `2026-11-01` or `3 days ago`. An entry without a time of its own belongs
        to no period.
        """
        since_ms, before_ms = moment_ms("since", since), moment_ms("before", before)
        chosen = [
            entry
            for entry in iter_entries(self.path)
            if (not types or entry.get("type") in types)
            and ((since_ms is None and before_ms is None) or _is_within(entry, since_ms, before_ms))
            and (with_tools or not conversation.is_tool(entry))
        ]
        return _last_of(chosen, limit)

    def get(self, uuid: str) -> Entry:
        """The entry with this uuid; raises NotFound. Where there are several, the last one counts."""
        return conversation.find(iter_entries(self.path), uuid)

    def ancestry(self, uuid: str) -> list[Entry]:
        """An entry and all that it follows from, the root first. Raises NotFound."""
        return conversation.ancestry(iter_entries(self.path), uuid)

    def live_branch(self) -> list[Entry]:
        """The entries that the session would go on from: see `recollect.agents.claude.native.conversation`."""
        return conversation.live_branch(iter_entries(self.path))

    def visible(self) -> list[Entry]:
        """The messages of the live branch that the program shows; of a sub-agent's file, its own."""
        hidden = ("isMeta", "teamName") + (() if self.agent_id else ("isSidechain",))
        return [
            entry
            for entry in self.live_branch()
            if conversation.is_message(entry) and not any(entry.get(mark) for mark in hidden)
        ]

    def messages(self, limit: int | None = None) -> list[Message]:
        """The live branch as a model's service takes it: roles in turn, blocks joined; with `limit`, the last ones."""
        return _last_of(conversation.to_messages(self.visible()), limit)

    def message_count(self) -> int:
        """How many messages the live branch shows; an answer counts once, whatever its blocks."""
        return len(self.messages())

    def statistics(self) -> Statistics:
        """What the whole file adds up to, rewound branches included."""
        entries = self.entries()
        blocks = Counter(block.get("type") for entry in entries for block in conversation.blocks(entry))
        usage = list(conversation.usage_of(entries))
        times = [entry["timestamp"] for entry in entries if isinstance(entry.get("timestamp"), str)]
        tokens = {ours: sum(_count(used.get(theirs)) for _, used in usage) for ours, theirs in _USAGE.items()}
        return Statistics(
            entries=len(entries),
            user_messages=sum(entry.get("type") == "user" and not conversation.is_tool(entry) for entry in entries),
            assistant_messages=len(usage),
            tool_calls=blocks["tool_use"],
            tool_results=blocks["tool_result"],
            compactions=sum(entry.get("subtype") == "compact_boundary" for entry in entries),
            models=Counter(model for model, _ in usage),
            first_at=min(times, default=None),
            last_at=max(times, default=None),
            **tokens,
        )

    def append(self, *entries: Mapping[str, Any]) -> list[Entry]:
        """Add entries, each following the one before, the first the live branch; returns them as written.

        What an entry lacks is filled in: uuid, parentUuid, sessionId, timestamp, and the folder, branch and version of
        the entry before. What it has, known or not, is kept.
        """
        last, inherited = self._last(), self._inherited()
        written = []
        for given in entries:
            entry = self._filled(given, last, inherited)
            last = entry["uuid"]
            written.append(entry)
        append_entries(self.path, written)
        return written

    def append_message(self, message: Mapping[str, Any], **fields: Any) -> list[Entry]:
        """Add a message as a model's service has it, calls and results included; `fields` go into each entry."""
        return self.append(*({**entry, **fields} for entry in conversation.to_entries(message)))

    def compact(self, summary: str, *, trigger: str = "manual", tokens_before: int = 0) -> list[Entry]:
        """Let the session go on from a summary: nothing is removed, but the live branch begins here."""
        boundary = {
            "parentUuid": None,
            "logicalParentUuid": self._last(),
            "type": "system",
            "subtype": "compact_boundary",
            "content": "Conversation compacted",
            "isMeta": False,
            "level": "info",
            "compactMetadata": {"trigger": trigger, "preTokens": tokens_before},
        }
        said = {"role": "user", "content": summary}
        return self.append(
            boundary, {"type": "user", "message": said, "isCompactSummary": True, "isVisibleInTranscriptOnly": True}
        )

    def fork(self, up_to: str | None = None, *, title: str | None = None, new_id: str | None = None) -> "NativeSession":
        """A new session beside this one with a copy of it, or of what comes before and with the entry `up_to`.

        Raises NotFound if there is no such entry, UsageError if there is nothing to copy.
        """
        target, now = new_id or str(uuid.uuid4()), _now()
        copies = fork_entries(iter_entries(self.path), self.session_id, target, up_to, now)
        summary = read_summary(self.path, None)
        derived = (summary.custom_title or summary.first_prompt) if summary else None
        name = (title or "").strip() or f"{derived or 'Forked session'} (fork)"
        ending = {"type": "custom-title", "sessionId": target, "customTitle": name, "uuid": str(uuid.uuid4())}
        forked = NativeSession(self.path.with_name(f"{target}.jsonl"))
        write_new(forked.path, b"".join(map(dump, [*copies, ending | {"timestamp": now}])))
        return forked

    def rewrite(self, entries: list[Entry]) -> None:
        """Replace the file's entries by these, complete or not at all; not while the program has the session open."""
        replace(self.path, b"".join(map(dump, entries)))

    def sub_agents(self) -> list["NativeSession"]:
        """The files of its sub-agents, in the layout of any version."""
        nested = sorted((self.path.parent / self.session_id / "subagents").rglob("agent-*.jsonl"))
        flat = (path for path in sorted(self.path.parent.glob("agent-*.jsonl")) if _belongs_to(path, self.session_id))
        return [self._sub_agent(path) for path in (*nested, *flat)]

    def sub_agent(self, agent_id: str, *, flat: bool = False) -> "NativeSession":
        """The file of a sub-agent to read or to write; `flat` is the layout of versions before 2.1.2."""
        folder = self.path.parent if flat else self.path.parent / self.session_id / "subagents"
        return self._sub_agent(folder / f"agent-{agent_file_id(agent_id)}.jsonl")

    def _sub_agent(self, path: Path) -> "NativeSession":
        return NativeSession(path, self.session_id, agent_id=path.stem.removeprefix("agent-"))

    def _last(self) -> str | None:
        tree = conversation.linked(iter_entries(self.path))
        if self.agent_id is None:
            tree = [entry for entry in tree if not entry.get("isSidechain")]
        return tree[-1]["uuid"] if tree else None

    def _inherited(self) -> Entry:
        """The folder, branch and version of the last entry that has them."""
        known: Entry = {"userType": "external"}
        for entry in iter_entries(self.path):
            known |= {key: entry[key] for key in _INHERITED if entry.get(key) is not None}
        return known

    def _filled(self, given: Mapping[str, Any], last: str | None, inherited: Entry) -> Entry:
        agent = {"agentId": self.agent_id} if self.agent_id else {}
        return {
            "parentUuid": last,
            "isSidechain": self.agent_id is not None,
            **agent,
            **inherited,
            "sessionId": self.session_id,
            "uuid": str(uuid.uuid4()),
            "timestamp": _now(),
            **given,
        }


def _is_within(entry: Entry, since_ms: int | None, before_ms: int | None) -> bool:
    ms = parse_time_ms(entry.get("timestamp"))
    return ms is not None and (since_ms is None or ms >= since_ms) and (before_ms is None or ms < before_ms)


def _last_of(items: list[_T], limit: int | None) -> list[_T]:
    return items if limit is None else items[max(0, len(items) - limit) :]


def agent_file_id(agent_id: str) -> str:
    """A sub-agent's id as a part of a file's name; raises UsageError if it cannot be one."""
    if not re.fullmatch(r"\w[\w.-]{0,127}", agent_id):
        raise UsageError(f"Not the id of a sub-agent: {agent_id}", "use letters, digits, `-` and `_`, such as a753668")
    return agent_id


def _belongs_to(path: Path, session_id: str) -> bool:
    first: Iterator[Entry] = iter_entries(path)
    return next((entry.get("sessionId") for entry in first), None) == session_id


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
