"""What a host gets back: sessions, messages, references to media."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.clock import AsDatetime

PRESENT, MOVED, CHANGED, MISSING = "present", "moved", "changed", "missing"  # what became of an attached file


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a session. `content` is as it was appended, but for secrets, which are replaced by marks."""

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
    """A file that was attached. `state` is present, moved (`found_path` says where to), changed or missing."""

    kind: str
    path: str
    mime: str | None
    sha256: str
    bytes: int
    state: str = PRESENT
    found_path: str | None = None
