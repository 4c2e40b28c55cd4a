"""Prompts typed while Claude Code works. They wait in a queue, and most come again as a record of their own.

Some do not: up to about 2.1.40 one that went to the model within a turn left no other record, and one that waited
when the program ended never does. Only those become events. What leaves the queue, and why, is told too unclearly to
be of use: `remove` is written for what was delivered and for what was taken out, with or without the text.
"""

from collections.abc import Iterable

from recollect.adapters.protocol import EventRecord
from recollect.kinds import may_tell_queued


class Queue:
    """Prompts queued since the last checkpoint that no record has told yet.

    Nothing of it is kept over a cursor: if the record comes after the checkpoint, the store lets the queued one go.
    """

    def __init__(self) -> None:
        self._waiting: list[EventRecord] = []

    def add(self, prompt: EventRecord) -> None:
        self._waiting.append(prompt)

    def settle(self, told: Iterable[EventRecord]) -> None:
        """Let go of prompts that these events tell."""
        if self._waiting:
            for event in told:
                self._waiting = [prompt for prompt in self._waiting if not _is_told(prompt, event)]

    def drain(self) -> list[EventRecord]:
        waiting, self._waiting = self._waiting, []
        return waiting


def _is_told(prompt: EventRecord, event: EventRecord) -> bool:
    if prompt.retry_key != event.retry_key or prompt.native_session_id != event.native_session_id:
        return False
    return may_tell_queued(event.ts_ms, prompt.ts_ms)
