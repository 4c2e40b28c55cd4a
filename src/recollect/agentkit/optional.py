"""The contracts of modules that an agent may have: `runner` to be run, `writeback` to have sessions written for it.

`runner` has a class `Dialogue`, which leads the agent over its standard input and output, and a function `prepare`.
Whoever writes a draft of `writeback` has shown the user what it is, and asked.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from recollect.model.kinds import ASSISTANT_MSG, FILES_LANE, HISTORY_LANE, KIND_FAMILY, TOOL_CALL, USER_MSG
from recollect.model.schema import Event, Session
from recollect.model.text import plural

Message = Mapping[str, Any]  # a line of JSON


@dataclass(frozen=True, slots=True)
class Task:
    """What to start an agent with. `instructions` is a file whose text reaches the model in every session.

    `after_uuid` cuts a resumed session after that message; `drops` names the prompt whose turn that leaves out.
    """

    cwd: Path
    session: str | None = None
    instructions: Path | None = None
    after_uuid: str | None = None
    drops: str | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HomeSettings:
    """Settings of a new home, if its agent supports them."""

    agent_teams: bool = False
    directories: tuple[str, ...] = ()
    auto_memory: bool | None = None


class Started(NamedTuple):
    """The agent names the session it is in; from here on it takes prompts."""

    session: str


class Said(NamedTuple):
    """The agent answers; `uuid` is its name for the message, if it has one."""

    text: str
    uuid: str | None = None


class Ended(NamedTuple):
    """A turn is over, and how it failed, if it did."""

    error: str | None = None


class Reply(NamedTuple):
    """What the agent is owed for something it asked."""

    message: Message


Heard = Started | Said | Ended | Reply


class Dialogue(Protocol):
    """One run of an agent. It takes one prompt at a time: the next when the turn has ended."""

    is_ready: bool  # to take a prompt

    def __init__(self, task: Task) -> None: ...

    def command(self) -> Sequence[str]:
        """The program and its arguments."""
        ...

    def opening(self) -> Sequence[Message]:
        """What to send first."""
        ...

    def prompt(self, text: str) -> Message:
        """A prompt as the agent takes it."""
        ...

    def receive(self, message: Message) -> Iterable[Heard]:
        """What a line of the agent says."""
        ...


class Calls:
    """Numbered calls of a protocol that answers by number."""

    def __init__(self) -> None:
        self._sent: dict[int, str] = {}

    def make(self, method: str, params: Message) -> Message:
        number = len(self._sent) + 1
        self._sent[number] = method
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def answered(self, message: Message) -> str | None:
        """The method that a message answers; None for a notice or a question."""
        return None if "method" in message else self._sent.get(message.get("id") or 0)


def error_of(message: Message) -> str | None:
    """How a call failed; None if it did not."""
    error = message.get("error")
    return str(error.get("message") or error) if isinstance(error, dict) else None


Item = tuple[Event, dict[str, Any]]  # an event and its payload

NO_RESULT = "[no result is stored]"


class Draft(NamedTuple):
    """Files of a session to be written, the main one first. `losses` say what an agent's own files had besides."""

    native_session_id: str
    files: tuple[tuple[Path, bytes], ...]
    losses: tuple[str, ...] = ()


class Action(NamedTuple):
    """A message, or a call of a tool with its result, if one is stored."""

    event: Event
    payload: dict[str, Any]
    result: Item | None = None

    @property
    def is_call(self) -> bool:
        return self.event.kind in KIND_FAMILY[TOOL_CALL]

    @property
    def text(self) -> str:
        """What was said; of a call, nothing."""
        text = self.payload.get("text")
        return text if isinstance(text, str) and not self.is_call else ""

    @property
    def output(self) -> str:
        """What a call answered, as text."""
        if self.result is None:
            return NO_RESULT
        output = self.result[1].get("output", self.result[1].get("text"))
        if isinstance(output, list):
            parts = (part.get("text") for part in output if isinstance(part, dict))
            return "\n".join(part for part in parts if isinstance(part, str))
        return output if isinstance(output, str) else str(output or "")

    @property
    def uids(self) -> list[str]:
        """Its events."""
        return [event.event_uid for event, _ in ((self.event, {}), *([self.result] if self.result else ()))]


def actions_of(items: Sequence[Item]) -> list[Action]:
    """The conversation of a session: what was said, and each call with its result. Rewound parts are left out."""
    live = [item for item in items if not item[0].is_abandoned]
    results: dict[str | None, Item] = {
        event.call_id: (event, payload) for event, payload in live if event.role != "assistant" and event.call_id
    }
    messages = (USER_MSG, *KIND_FAMILY[ASSISTANT_MSG])
    return [
        Action(event, payload, None if event.kind in messages else results.get(event.call_id))
        for event, payload in live
        if (event.kind in messages and isinstance(payload.get("text"), str) and payload["text"].strip())
        or (event.kind in KIND_FAMILY[TOOL_CALL] and event.role == "assistant" and event.call_id)
    ]


def losses_of(items: Sequence[Item], written: Collection[str]) -> tuple[str, ...]:
    """What a file lacks of a session's events, given the uids of those it has."""
    lanes, kinds = (FILES_LANE, HISTORY_LANE), Counter[str]()
    for event, _ in items:
        if event.event_uid not in written and event.lane not in lanes:
            kinds["rewound" if event.is_abandoned else event.kind] += 1
    return tuple(f"{plural(count, 'event')} ({kind})" for kind, count in sorted(kinds.items()))


class Writeback(Protocol):
    """Writes sessions in an agent's own format. Each raises Unsupported if the agent gives no means for it."""

    def fork(self, source: Path, at: str) -> str:
        """A new session beside the file `source` with all up to the entry of this native id; returns its native id.

        Raises NotFound if the file has no such entry.
        """
        ...

    def locate(self, session: Session, home: Path, sources: Sequence[Path]) -> Path:
        """Where the agent looks for a session of its own: one of the files it was read from, if they are known."""
        ...

    def rebuild(self, session: Session, items: Sequence[Item], path: Path) -> Draft:
        """The agent's own session, whose file is gone, from what is stored of it."""
        ...

    def compose(self, session: Session, items: Sequence[Item], home: Path, introduction: str) -> Draft:
        """A new session of this agent that continues another agent's; `introduction` comes first."""
        ...
