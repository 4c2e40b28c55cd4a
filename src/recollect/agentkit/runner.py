"""What running an agent needs of it: how it is started and led over its standard input and output.

Each agent that can be run has a module `runner` in its folder with a class `Dialogue` and a function `prepare`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
