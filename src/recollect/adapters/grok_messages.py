"""A message of a Grok session, put together from the lines it was streamed in."""

from dataclasses import dataclass, field
from typing import Any

from recollect.adapters.commands import as_mapping
from recollect.adapters.grok_lineage import Lineage
from recollect.adapters.grok_records import Record
from recollect.adapters.grok_tools import brief, media_of
from recollect.adapters.protocol import EventRecord
from recollect.schema import ASSISTANT_MSG, THINKING, USER_MSG

# After Esc the last piece of a message may follow its cancelled turn; not more than this much later.
LATE_LINES = 200
USER_CHUNK = "user_message_chunk"
CHUNKS = {
    USER_CHUNK: (USER_MSG, "user"),
    "agent_message_chunk": (ASSISTANT_MSG, "assistant"),
    "agent_thought_chunk": (THINKING, "assistant"),
}


@dataclass(slots=True)
class Message:
    """A message whose pieces are still being read."""

    key: tuple[Any, ...]
    event: EventRecord
    at: tuple[int, int]
    before: Lineage
    last_line: int
    pieces: list[tuple[int, str]] = field(default_factory=list)
    media: list[dict[str, Any]] = field(default_factory=list)

    def is_over(self, line: int, kind: str) -> bool:
        """A prompt ends with the next line of another kind; an answer may be followed by its last piece."""
        return line - self.last_line > LATE_LINES or (self.key[0] == USER_CHUNK and kind != USER_CHUNK)

    def add(self, position: int, text: str, media: list[dict[str, Any]], line: int) -> None:
        if text:
            self.pieces.append((position, text))
        self.media.extend(media)
        self.last_line = line

    def joined(self, is_provisional: bool) -> EventRecord:
        self.pieces.sort(key=lambda piece: piece[0])
        text = "".join(piece for _, piece in self.pieces)
        event = self.event
        event.payload = {"text": text, **({"media": self.media} if self.media else {}), **event.payload}
        event.summary = brief(text[:260] or (f"sent {self.media[0]['kind']}" if self.media else ""))
        event.is_provisional = is_provisional
        return event


def message_key(record: Record, kind: str) -> tuple[Any, ...]:
    """Pieces with the same key are one message: same speaker, same prompt, same model response."""
    if kind == USER_CHUNK:
        facts = as_mapping(record.update.meta)
        return (kind, facts.get("promptIndex"), facts.get("hideFromScrollback"))
    return (kind, record.meta.promptId, record.meta.streamStartMs)


def content_of(content: Any) -> tuple[str, list[dict[str, Any]]]:
    text = content.get("text")
    if isinstance(text, str):
        return text, []
    if isinstance(content.get("data"), str):
        return "", [media_of(content)]
    resource = as_mapping(content.get("resource")) or content
    named = resource.get("text") or resource.get("uri")
    return (named if isinstance(named, str) else ""), []
