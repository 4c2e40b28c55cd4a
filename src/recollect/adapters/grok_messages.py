"""A message of a Grok session, put together from the lines it was streamed in."""

from dataclasses import dataclass
from typing import Any

from recollect.adapters.commands import as_mapping, summarise
from recollect.adapters.grok_records import Content, Record
from recollect.adapters.grok_tools import media_of
from recollect.adapters.protocol import EventRecord
from recollect.schema import ASSISTANT_MSG, THINKING, USER_MSG

USER_CHUNK = "user_message_chunk"
CHUNKS = {
    USER_CHUNK: (USER_MSG, "user"),
    "agent_message_chunk": (ASSISTANT_MSG, "assistant"),
    "agent_thought_chunk": (THINKING, "assistant"),
}

Piece = tuple[int, str, str]  # position, native id, text


@dataclass(slots=True)
class Message:
    """A message whose pieces are still being read."""

    key: tuple[Any, ...]
    event: EventRecord
    pieces: list[Piece]
    media: list[dict[str, Any]]

    def add(self, piece: Piece, media: list[dict[str, Any]], is_lossy: bool) -> None:
        if piece == self.pieces[-1]:  # the same line written twice
            return
        self.pieces.append(piece)
        self.media.extend(media)
        if is_lossy:
            self.event.metadata = {"lossy": True}

    def joined(self) -> EventRecord:
        """The message as one event, its pieces in the order of their moments."""
        self.pieces.sort(key=lambda piece: piece[0])
        text = "".join(text for _, _, text in self.pieces)
        media = {"media": self.media} if self.media else {}
        self.event.payload = {"text": text, **media, **self.event.payload}
        self.event.summary = summarise(text or (f"sent {self.media[0]['kind']}" if media else ""))
        return self.event


def message_key(record: Record) -> tuple[Any, ...]:
    """Pieces with the same key are one message: same speaker, same prompt, same model response."""
    if record.kind == USER_CHUNK:
        facts = record.update.facts
        return (USER_CHUNK, facts.promptIndex, facts.hideFromScrollback)
    return (record.kind, record.meta.promptId, record.meta.streamStartMs)


def content_of(content: Content) -> tuple[str, list[dict[str, Any]]]:
    if isinstance(content.text, str):
        return content.text, []
    if isinstance(content.data, str):
        return "", [media_of(content)]
    resource = as_mapping(content.resource)
    named = resource.get("text") or resource.get("uri") or content.uri
    return (named if isinstance(named, str) else ""), []
