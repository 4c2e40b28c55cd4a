"""Prompts typed while Claude Code works. They wait in a queue, and most come again as a record of their own.

Some do not: up to about 2.1.40 a prompt sent to the model within a turn left no other record, and one that still waited
when the program ended never does. Only those become events. Why a prompt left the queue is not clear from the log:
`remove` is written for delivered and for withdrawn prompts, with or without the text.
"""

from collections.abc import Iterable

from recollect.agentkit.protocol import EventRecord
from recollect.kinds import may_tell_queued


class Queue:
    """Prompts queued since the last checkpoint that have no record of their own yet.

    Nothing of it is kept over a cursor: if the record comes after the checkpoint, the store drops the queued one.
    """

    def __init__(self) -> None:
        self._waiting: list[EventRecord] = []

    def add(self, prompt: EventRecord) -> None:
        self._waiting.append(prompt)

    def settle(self, events: Iterable[EventRecord]) -> None:
        """Drop the prompts that came as these events."""
        if self._waiting:
            for event in events:
                self._waiting = [prompt for prompt in self._waiting if not _is_delivered(prompt, event)]

    def drain(self) -> list[EventRecord]:
        waiting, self._waiting = self._waiting, []
        return waiting


def _is_delivered(prompt: EventRecord, event: EventRecord) -> bool:
    if prompt.retry_key != event.retry_key or prompt.native_session_id != event.native_session_id:
        return False
    return may_tell_queued(event.ts_ms, prompt.ts_ms)
