"""The order in which the events of a Grok session happened, found while its log is read.

Messages, calls and results wait in a queue of the agent before they are written; everything else (retries,
compactions, sub-agents) bypasses that queue and so may come before what happened earlier. Those events are held until
the queue has caught up. A message streamed in several lines is open until something ends it.

While anything is open or held the cursor stays before its line. What was read after that is read again by the next
sweep, with the same result.
"""

from collections.abc import Sequence
from typing import Any

from recollect.agentkit.log import NOTHING
from recollect.agentkit.protocol import EventRecord, Record
from recollect.agents.grok.events import USER_CHUNK, OpenMessage, Piece, State
from recollect.agents.grok.records import UpdateRecord

# A message's last piece, or what a held event waits for, may be late; but not more lines than this.
LATE_LINES = 200


class Order:
    """What is ready to be yielded, what waits, and from where to read again if it still waits at the end."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.ready: list[Record] = []
        self.open: OpenMessage | None = None
        self._held: list[EventRecord] = []
        self.since: tuple[tuple[int, int], dict[str, Any]] | None = None  # line and offset, state there
        self._last_line = 0
        self.skips: list[str] = []  # of lines that are not read again
        self._skips_since: list[str] = []

    def expire(self, record: UpdateRecord) -> None:
        """End waits that the next record shows to be in vain."""
        if record.number - self._last_line > LATE_LINES:
            self.settle()
        # A prompt ends with the next line of another kind; an answer may be followed by its last piece.
        elif self.open and self.open.key[0] == USER_CHUNK and record.kind != USER_CHUNK:
            self.close()

    def skip(self, name: str) -> None:
        (self.skips if self.since is None else self._skips_since).append(name)

    def put(self, event: EventRecord) -> None:
        """Take the next event of the queue."""
        self.close()
        self._release(event.position)
        self._follow(event)
        self.state.is_busy = True

    def hold(self, record: UpdateRecord, event: EventRecord) -> None:
        """Take an event that bypassed the queue; between turns the queue is empty."""
        if self.state.is_busy:
            self._wait(record)
            self._held.append(event)
            self.state.top = max(self.state.top, event.position)
        else:
            self._follow(event)

    def begin(self, record: UpdateRecord, message: OpenMessage) -> None:
        """Take the first piece of a message, the next event of the queue."""
        self.close()
        self._release(message.event.position)
        self._wait(record)
        self.state.follow(message.event)
        self.state.is_busy = True
        self.open = message

    def add(self, record: UpdateRecord, piece: Piece, media: list[dict[str, Any]]) -> None:
        """Take a piece of the open message."""
        assert self.open is not None
        self.open.add(piece, media, record.is_lossy)
        self._last_line = record.number

    def close(self) -> None:
        if self.open:
            self.ready.append(self.open.joined())
            self.open = None
            self._rest()

    def end(self, event: EventRecord) -> None:
        """Take an event that nothing earlier can follow: the queue is empty."""
        self.settle()
        self._follow(event)
        self.state.is_busy = False

    def settle(self) -> None:
        """End all waits."""
        self.close()
        self._release(None)

    def _release(self, position: int | None) -> None:
        """Release what was held and happened before a position."""
        if self._held:
            self._held.sort(key=lambda event: event.position)
            while self._held and (position is None or self._held[0].position < position):
                self._follow(self._held.pop(0))
            self._rest()

    def _follow(self, event: EventRecord) -> None:
        self.state.follow(event)
        self.ready.append(event)

    def _wait(self, record: UpdateRecord) -> None:
        if self.since is None:
            self.since = (record.number - 1, record.offset), self.state.mark()
            self._last_line = record.number

    def _rest(self) -> None:
        if self.open is None and not self._held:
            self.since = None
            self.skips += self._skips_since
            self._skips_since.clear()

    def take(self) -> Sequence[Record]:
        """What is ready, once."""
        if not self.ready:
            return NOTHING
        ready, self.ready = self.ready, []
        return ready
