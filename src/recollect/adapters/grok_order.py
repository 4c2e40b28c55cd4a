"""Putting the events of a Grok session in the order they happened in, while its log is being read.

Messages, calls and results wait in a queue of the agent before they are written; everything else (retries,
compactions, sub-agents) is written past that queue and so may stand before what happened earlier. Those events are
held until the queue has got as far as they are. A message streamed in several lines is open until something ends it.

While anything is open or held the cursor stays before its line. What was read after that is read again
by the next sweep, to the same result.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from recollect.adapters.grok_lineage import Lineage
from recollect.adapters.grok_messages import USER_CHUNK, Message, Piece
from recollect.adapters.grok_records import Record
from recollect.adapters.jsonl import LineReader
from recollect.adapters.protocol import EventRecord, Skipped
from recollect.adapters.protocol import Record as Told

# A message's last piece, or what a held event waits for, may be late; but not more lines than this.
LATE_LINES = 200


class Order:
    """What is ready to be told, what waits, and from where to read again if it still waits at the end."""

    def __init__(self, lineage: Lineage) -> None:
        self.lineage = lineage
        self.told: list[Told] = []
        self.open: Message | None = None
        self._held: list[EventRecord] = []
        self.since: tuple[tuple[int, int], dict[str, Any]] | None = None  # line and offset, lineage there
        self._last_line = 0
        self._skips: Counter[str] = Counter()
        self._skips_since: Counter[str] = Counter()

    def expire(self, record: Record) -> None:
        """End waiting that the next record shows to be in vain."""
        if record.number - self._last_line > LATE_LINES:
            self.settle()
        # A prompt ends with the next line of another kind; an answer may be followed by its last piece.
        elif self.open and self.open.key[0] == USER_CHUNK and record.kind != USER_CHUNK:
            self.close()

    def skip(self, name: str) -> None:
        (self._skips if self.since is None else self._skips_since)[name] += 1

    def put(self, event: EventRecord) -> None:
        """Take the next event of the queue."""
        self.close()
        self._release(event.position)
        self._follow(event)
        self.lineage.is_busy = True

    def hold(self, record: Record, event: EventRecord) -> None:
        """Take an event written past the queue; between turns the queue is empty."""
        if self.lineage.is_busy:
            self._wait(record)
            self._held.append(event)
            self.lineage.top = max(self.lineage.top, event.position)
        else:
            self._follow(event)

    def begin(self, record: Record, message: Message) -> None:
        """Take the first piece of a message, the next event of the queue."""
        self.close()
        self._release(message.event.position)
        self._wait(record)
        self.lineage.follow(message.event)
        self.lineage.is_busy = True
        self.open = message

    def add(self, record: Record, piece: Piece, media: list[dict[str, Any]]) -> None:
        """Take a piece of the open message."""
        assert self.open is not None
        self.open.add(piece, media, record.is_lossy)
        self._last_line = record.number

    def close(self) -> None:
        if self.open:
            self.told.append(self.open.joined())
            self.open = None
            self._rest()

    def end(self, event: EventRecord) -> None:
        """Take an event that nothing earlier can follow: the queue is empty."""
        self.settle()
        self._follow(event)
        self.lineage.is_busy = False

    def settle(self) -> None:
        """End all waiting."""
        self.close()
        self._release(None)

    def _release(self, position: int | None) -> None:
        """Let go of what was held and happened before a position."""
        if self._held:
            self._held.sort(key=lambda event: event.position)
            while self._held and (position is None or self._held[0].position < position):
                self._follow(self._held.pop(0))
            self._rest()

    def _follow(self, event: EventRecord) -> None:
        self.lineage.follow(event)
        self.told.append(event)

    def _wait(self, record: Record) -> None:
        if self.since is None:
            self.since = (record.number - 1, record.offset), self.lineage.mark()
            self._last_line = record.number

    def _rest(self) -> None:
        if self.open is None and not self._held:
            self.since = None
            self._skips += self._skips_since
            self._skips_since.clear()

    def take_skips(self) -> Iterator[Skipped]:
        yield from (Skipped(name, count) for name, count in sorted(self._skips.items()))
        self._skips.clear()

    def finish(self, reader: LineReader) -> Iterator[Told]:
        """Tell what still waits as it stands, and leave the cursor before it."""
        yield from self.take_skips()
        if self.since is None:
            yield reader.checkpoint(self.lineage.as_state())
            return
        at, mark = self.since
        self.settle()
        for event in self.told:
            assert isinstance(event, EventRecord)
            event.is_provisional = True
        yield from self.told
        yield reader.checkpoint(self.lineage.as_state() | mark, at=at)
