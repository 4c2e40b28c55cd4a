"""Running Grok: the agent client protocol, which keeps a session over many prompts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recollect.agentkit.optional import Calls, Ended, Heard, HomeSettings, Message, Reply, Said, Started, Task, error_of


class Dialogue:
    """`grok agent stdio`."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._calls = Calls()
        self._session = task.session or ""
        self._said = ""
        self.is_ready = False

    def command(self) -> list[str]:
        return ["grok", "agent", *self._task.arguments, "stdio"]

    def opening(self) -> list[Message]:
        return [self._calls.make("initialize", {"protocolVersion": 1, "clientCapabilities": {}})]

    def _begin(self) -> Message:
        """Not before it has answered the first call: until then it knows of no key."""
        where: dict[str, Any] = {"cwd": str(self._task.cwd), "mcpServers": []}
        if self._task.instructions:  # `--rules` has no effect on this protocol; this is what it stands for
            rules = self._task.instructions.read_text(encoding="utf-8", errors="replace")
            where["_meta"] = {"rules": rules}
        begin = ("session/load", {"sessionId": self._session} | where) if self._session else ("session/new", where)
        return self._calls.make(*begin)

    def prompt(self, text: str) -> Message:
        self._said = ""
        asked = {"sessionId": self._session, "prompt": [{"type": "text", "text": text}]}
        return self._calls.make("session/prompt", asked)

    def receive(self, message: Message) -> Iterable[Heard]:
        answered, update = self._calls.answered(message), (message.get("params") or {}).get("update") or {}
        if answered and (error := error_of(message)):
            yield Ended(error)
        elif answered == "initialize":
            yield Reply(self._begin())
        elif answered in ("session/new", "session/load"):
            self._session = (message.get("result") or {}).get("sessionId") or self._session
            self.is_ready = True
            yield Started(self._session)
        elif answered == "session/prompt":
            yield Said(self._said)
            yield Ended()
        elif update.get("sessionUpdate") == "agent_message_chunk" and self.is_ready:
            self._said += (update.get("content") or {}).get("text") or ""
        elif message.get("method") == "session/request_permission":
            # Nobody is there to ask: whoever runs it passes `--always-approve` or not.
            yield Reply({"jsonrpc": "2.0", "id": message.get("id"), "result": {"outcome": {"outcome": "cancelled"}}})


def prepare(home: Path, settings: HomeSettings) -> None:
    """A new home needs nothing: Grok has no such settings."""
