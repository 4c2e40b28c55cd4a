"""Running Codex: its app-server, which keeps a thread over many turns."""

import json
from collections.abc import Iterable
from pathlib import Path

from recollect.agentkit.optional import Calls, Ended, Heard, HomeSettings, Message, Said, Started, Task, error_of


class Dialogue:
    """`codex app-server` over standard input and output."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._calls = Calls()
        self._thread = ""
        self.is_ready = False

    def command(self) -> list[str]:
        instructions = self._task.instructions
        text = json.dumps(instructions.read_text(encoding="utf-8", errors="replace")) if instructions else ""
        given = ["-c", f"developer_instructions={text}"] if instructions else []
        return ["codex", "app-server", *given, *self._task.arguments]

    def opening(self) -> list[Message]:
        client = {"clientInfo": {"name": "recollect", "title": "Recollect", "version": "1"}}
        cwd, thread = str(self._task.cwd), self._task.session
        begin = ("thread/resume", {"threadId": thread, "cwd": cwd}) if thread else ("thread/start", {"cwd": cwd})
        return [self._calls.make("initialize", client), {"method": "initialized"}, self._calls.make(*begin)]

    def prompt(self, text: str) -> Message:
        asked = {"threadId": self._thread, "input": [{"type": "text", "text": text}]}
        return self._calls.make("turn/start", asked)

    def receive(self, message: Message) -> Iterable[Heard]:
        answered, params = self._calls.answered(message), message.get("params") or {}
        if answered and (error := error_of(message)):
            yield Ended(error)
        elif answered in ("thread/start", "thread/resume"):
            self._thread = message["result"]["thread"]["id"]
            self.is_ready = True
            yield Started(self._thread)
        elif message.get("method") == "item/completed" and params["item"].get("type") == "agentMessage":
            yield Said(params["item"].get("text") or "")
        elif message.get("method") == "turn/completed" and params.get("threadId") == self._thread:
            failure = params.get("turn", {}).get("error")
            yield Ended(str(failure.get("message") or failure) if failure else None)


def prepare(home: Path, settings: HomeSettings) -> None:
    """A new home needs nothing: Codex has no such settings."""
