"""What a host gets back: sessions, messages, references to media, and how it stands with all of them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.model.clock import AsDatetime, rfc3339
from recollect.store import LiveRow

PRESENT, MOVED, CHANGED, MISSING = "present", "moved", "changed", "missing"  # what became of an attached file


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a session. `content` is as it was appended, except that marks replace secrets.

    `extra` are other fields that it came with, such as `tool_calls` or `tool_call_id`.
    """

    id: str
    event_uid: str
    role: str
    content: Any
    content_type: str
    ts: str | None
    model: str | None = None
    provider: str | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    at = AsDatetime("ts")


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A session of a host as lists show it, up to its last message."""

    session_uid: str
    key: str
    channel: str | None
    chat_id: str | None
    user_id: str | None
    character_id: str | None
    parent_session_uid: str | None
    title: str | None
    metadata: Mapping[str, Any]
    created_at: str | None
    updated_at: str | None
    archived_at: str | None
    message_count: int
    tool_calls: int
    media: int
    tokens: int
    usd: float | None = None
    usd_is_estimate: bool = False
    last_message: Message | None = None

    created = AsDatetime("created_at")
    updated = AsDatetime("updated_at")
    archived = AsDatetime("archived_at")


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append stored. `is_new` is False where a message with this id was stored before."""

    session_uid: str
    id: str
    event_uid: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Media:
    """A file that was attached. `state` is present, moved (to `found_path`), changed or missing."""

    kind: str
    path: str
    mime: str | None
    sha256: str
    bytes: int
    state: str = PRESENT
    found_path: str | None = None


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file beside its session: how many messages each has, and how many only one of them has."""

    path: str
    key: str
    state: str
    in_file: int
    in_store: int
    only_in_file: int
    only_in_store: int
    bad_lines: int


@dataclass(slots=True)
class ImportReport:
    """What an import stored, or would store. `skipped` names each line that it left: path, number, reason."""

    is_dry_run: bool
    files: int = 0
    sessions_new: int = 0
    messages_new: int = 0
    messages_known: int = 0
    bad_lines: int = 0
    skipped: list[tuple[str, int, str]] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    channel: str | None
    sessions: int
    messages: int
    updated_at: str | None


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """Live sessions by channel, and the JSONL files that were looked at."""

    sessions: int
    archived: int
    messages: int
    channels: tuple[ChannelStatus, ...]
    files: tuple[FileStatus, ...] = ()


def make_status(rows: list[LiveRow], files: tuple[FileStatus, ...]) -> LiveStatus:
    by_channel: dict[str | None, list[LiveRow]] = defaultdict(list)
    for row in rows:
        by_channel[row.channel].append(row)
    channels = [
        ChannelStatus(
            channel,
            len(found),
            sum(row.messages for row in found),
            rfc3339(max(row.updated_ms for row in found)),
        )
        for channel, found in by_channel.items()
    ]
    return LiveStatus(
        sessions=sum(row.archived_ms is None for row in rows),
        archived=sum(row.archived_ms is not None for row in rows),
        messages=sum(row.messages for row in rows),
        channels=tuple(sorted(channels, key=lambda channel: -channel.messages)),
        files=files,
    )
