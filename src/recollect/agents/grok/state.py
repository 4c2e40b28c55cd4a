"""What is remembered of Grok's updates.jsonl from line to line, and from sweep to sweep.

Everything here goes into a cursor's state, so every collection is bounded and every text in it is short: the state
stays below 64 KiB whatever the file holds.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from recollect.agentkit.protocol import EventRecord
from recollect.agentkit.values import remember

PROMPTS = 200
CALLS = 48
NUMBERS = 4096  # event numbers kept apart within one millisecond


class Call(Struct, array_like=True):
    """A tool call: what its result needs of it.

    `unfinished` (native id, position, moment, parent) is set while its arguments are unknown.
    """

    tool: str
    tool_kind: str | None = None
    is_user: bool = False
    unfinished: tuple[str, int, int | None, str | None] | None = None


class State(Struct):
    """The end of the line of events, the model in use, prompts to go back to and recent calls."""

    session: str | None = None
    model: str | None = None
    top: int = 0  # highest position so far
    tip: str | None = None  # the event that the next one follows
    is_busy: bool = False  # between a turn's first update and its end
    prompts: dict[int, tuple[int, str | None]] = field(default_factory=dict)  # position and parent, by index
    calls: dict[str, Call] = field(default_factory=dict)

    def follow(self, event: EventRecord) -> None:
        """Put an event at the end of the line."""
        event.parent_native_id = self.tip
        self.tip = event.native_id
        self.top = max(self.top, event.position)

    def add_prompt(self, index: Any, position: int, parent: str | None) -> None:
        if type(index) is int and 0 <= index < 2**53:
            remember(self.prompts, index, (position, parent), PROMPTS)

    def rewind(self, target: Any) -> int | None:
        """Go back to before a prompt; return the position of that prompt, None if it is unknown."""
        left = [index for index in self.prompts if isinstance(target, int) and index >= target]
        if not left:
            return None
        position, self.tip = self.prompts[min(left)]
        for index in left:
            del self.prompts[index]
        return position

    def add_call(self, call_id: str, call: Call) -> None:
        remember(self.calls, call_id, call, CALLS)

    def mark(self) -> dict[str, Any]:
        """What must be as it was when lines are read again; prompts and calls may be added twice."""
        return {"model": self.model, "top": self.top, "tip": self.tip, "is_busy": self.is_busy}

    def dump(self) -> dict[str, Any]:
        state: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return state

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "State":
        return msgspec.convert(dict(state), cls, str_keys=True)
