"""What reading Grok's updates.jsonl must remember from one line to the next, and from one sweep to the next.

Everything here goes into a cursor's state, so every collection is bounded and every text in it was
checked by `safe_id`: the state stays below 64 KiB whatever the file holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RECENT = 16
PROMPTS = 200
CALLS = 48
NUMBERS = 4096  # event numbers told apart within one millisecond

Place = tuple[int, str]  # position, native id


@dataclass(slots=True)
class Call:
    """An open tool call: what its result needs to know of it."""

    tool: str
    tool_kind: str | None = None
    is_user: bool = False
    place: Place = (0, "")
    parent: str | None = None
    ts_ms: int | None = None
    lacks_input: bool = False

    def as_list(self) -> list[Any]:
        return [
            self.tool,
            self.tool_kind,
            self.is_user,
            *self.place,
            self.parent,
            self.ts_ms,
            self.lacks_input,
        ]

    @classmethod
    def from_list(cls, told: list[Any]) -> "Call":
        tool, tool_kind, is_user, position, native_id, parent, ts_ms, lacks_input = told
        return cls(tool, tool_kind, is_user, (position, native_id), parent, ts_ms, lacks_input)


@dataclass(slots=True)
class Lineage:
    """Parents, prompts, open calls and the model in use. Collections are replaced, never changed,
    so that a snapshot costs nothing but a copy of this object."""

    session: str | None = None
    model: str | None = None
    top: int = 0
    has_failed: bool = False
    recent: tuple[Place, ...] = ()
    prompts: Mapping[int, tuple[int, str | None]] = field(default_factory=dict)
    calls: Mapping[str, Call] = field(default_factory=dict)

    def follow(self, position: int, native_id: str) -> str | None:
        """Take an event into the line and return its parent: of the last ones read, the one before it.

        Lines are written out of order, so that is not always the one read last; after a clock was
        set back it is, since then none comes before.
        """
        place = (position, native_id)
        recent = [known for known in self.recent if known != place]
        earlier = [known for known in recent if known[0] < position]
        parent = max(earlier)[1] if earlier else recent[-1][1] if recent else None
        self.recent = (*recent[1 - RECENT :], place)
        self.top = max(self.top, position)
        return parent

    def add_prompt(self, index: Any, position: int, parent: str | None) -> None:
        if isinstance(index, int) and 0 <= index < 2**53:
            kept = list(self.prompts.items())[-(PROMPTS - 1) :]
            self.prompts = {**dict(kept), index: (position, parent)}

    def rewind(self, target: Any) -> int | None:
        """Go back to before a prompt; return the position of that prompt, None if it is not known."""
        if not isinstance(target, int):
            return None
        left = {index: place for index, place in self.prompts.items() if index >= target}
        if not left:
            return None
        position, parent = left[min(left)]
        self.prompts = {index: place for index, place in self.prompts.items() if index < target}
        self.recent = ((position - 1, parent),) if parent else ()
        return position

    def add_call(self, call_id: str, call: Call) -> None:
        kept = [item for item in self.calls.items() if item[0] != call_id]
        self.calls = {**dict(kept[-(CALLS - 1) :]), call_id: call}

    def snapshot(self) -> "Lineage":
        return Lineage(self.session, self.model, self.top, self.has_failed, self.recent, self.prompts, self.calls)

    def as_state(self) -> dict[str, Any]:
        return {
            "session": self.session,
            "model": self.model,
            "top": self.top,
            "has_failed": self.has_failed,
            "recent": [list(place) for place in self.recent],
            "prompts": [[index, *place] for index, place in self.prompts.items()],
            "calls": [[call_id, *call.as_list()] for call_id, call in self.calls.items()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Lineage":
        if not state:
            return cls()
        return cls(
            state["session"],
            state["model"],
            state["top"],
            state["has_failed"],
            tuple((position, native_id) for position, native_id in state["recent"]),
            {index: (position, parent) for index, position, parent in state["prompts"]},
            {call_id: Call.from_list(call) for call_id, *call in state["calls"]},
        )
