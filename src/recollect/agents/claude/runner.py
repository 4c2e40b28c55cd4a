"""Running Claude Code: one process per run, prompts and answers as lines of JSON; and which sessions run now."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from recollect.agentkit.optional import Ended, Heard, HomeSettings, Message, Said, Started, Task


class Dialogue:
    """`claude -p` with stream-json on both sides. It names its session in answer to the first prompt."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._session: str | None = None
        self.is_ready = True

    def command(self) -> list[str]:
        task = self._task
        options = {
            "--resume": task.session,
            "--resume-session-at": task.after_uuid,
            "--resume-drops-turn": task.drops,
            "--append-system-prompt-file": str(task.instructions) if task.instructions else None,
        }
        stream = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
        given = [word for name, value in options.items() if value for word in _given(name, value)]
        return ["claude", "-p", *stream, *given, *task.arguments]

    def opening(self) -> list[Message]:
        return []

    def prompt(self, text: str) -> Message:
        return {"type": "user", "message": {"role": "user", "content": text}}

    def receive(self, message: Message) -> Iterable[Heard]:
        session = message.get("session_id")
        if message.get("subtype") == "init" and session != self._session:
            self._session = session
            yield Started(str(session))
        elif message.get("type") == "assistant" and not message.get("parent_tool_use_id"):
            blocks = message.get("message", {}).get("content") or []
            text = "".join(block.get("text", "") for block in blocks if block.get("type") == "text")
            yield Said(text, message.get("uuid"))
        elif message.get("type") == "result":
            failures = message.get("errors") or [message.get("result") or message.get("subtype")]
            yield Ended("; ".join(map(str, failures)) if message.get("is_error") else None)


def prepare(home: Path, settings: HomeSettings) -> None:
    """Write the settings of a new home; one that has settings keeps them."""
    path = home / "settings.json"
    if path.exists():
        return
    content: dict[str, object] = {}
    if settings.agent_teams:
        content["env"] = {"CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS": "1"}
    if settings.directories:
        content["permissions"] = {"additionalDirectories": list(settings.directories)}
    if settings.auto_memory is not None:
        content["autoMemoryEnabled"] = settings.auto_memory
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


_MOST_BYTES = 64 * 1024


def live_sessions(home: Path) -> dict[str, tuple[int, str]]:
    """Process and state (`working`, `waiting`) by session id; each process leaves a small file while it lives."""
    sessions = {}
    for path in (home / "sessions").glob("[0-9]*.json"):
        try:
            facts = json.loads(path.read_bytes()[:_MOST_BYTES])
            pid = int(facts["pid"])
            os.kill(pid, 0)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it ended without taking its file along
        state = "working" if facts.get("status") == "busy" else "waiting"
        sessions[str(facts.get("sessionId"))] = (pid, state)
    return sessions


def _given(name: str, value: str) -> tuple[str, ...]:
    """An option with its value, which may begin as another option does."""
    return (f"{name}={value}",) if value.startswith("-") else (name, value)
