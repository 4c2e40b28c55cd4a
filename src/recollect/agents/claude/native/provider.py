"""A home as the storage provider of a chat host: messages in, conversations out, by project path and session id."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.agents.claude.native.home import NativeHome
from recollect.agents.claude.native.lines import iter_entries


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message as it was said: a text, or the blocks of a model's service."""

    role: str
    content: str | list[dict[str, Any]]


class ClaudeStorageProvider:
    """Logs conversations so that Claude Code can resume them, and reads its own. Every method is awaited."""

    def __init__(self, base_dir: str | os.PathLike[str]) -> None:
        self.home = NativeHome(base_dir)

    async def log_message(
        self,
        project_path: str | os.PathLike[str],
        message: ChatMessage | Mapping[str, Any],
        session_id: str,
        agent_id: str | None = None,
    ) -> None:
        """Add a message to a session, which begins with its first one; with `agent_id`, to the file of a sub-agent.

        Beside the first message of a sub-agent its to-do list is made, empty.
        """
        await asyncio.to_thread(self._log, project_path, message, session_id, agent_id)

    def _log(
        self, path: str | os.PathLike[str], message: ChatMessage | Mapping[str, Any], session_id: str, agent: str | None
    ) -> None:
        session = self.home.create(path, session_id)
        said = message if isinstance(message, Mapping) else {"role": message.role, "content": message.content}
        target = session if agent is None else session.sub_agent(agent)
        is_new = next(iter_entries(target.path), None) is None
        target.append_message(said, **({"cwd": str(Path(path).expanduser())} if is_new else {}))
        if agent is not None and is_new:
            self.home.write_todos(session_id, self.home.todos(session_id, agent_id=agent), agent_id=agent)

    async def get_sessions(self, project_path: str | os.PathLike[str]) -> list[dict[str, Any]]:
        """The sessions of a project, the last changed first."""
        summaries = await asyncio.to_thread(self.home.sessions, project_path)
        return [
            {"sessionId": found.session_id, "summary": found.summary, "lastModified": found.last_modified_ms}
            for found in summaries
        ]

    async def get_session_messages(
        self,
        project_path: str | os.PathLike[str],
        session_id: str,
        limit: int | None = None,
        agent_id: str | None = None,
    ) -> list[ChatMessage]:
        """The last messages of a session or of one of its sub-agents, oldest first."""
        session = self.home.session(session_id, project_path)
        chosen = session if agent_id is None else session.sub_agent(agent_id)
        messages = await asyncio.to_thread(chosen.messages, limit)
        return [ChatMessage(message["role"], _content(message["content"])) for message in messages]


def _content(blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """A single text as such."""
    return blocks[0]["text"] if [block.get("type") for block in blocks] == ["text"] else blocks
