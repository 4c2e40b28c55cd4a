"""The server for an agent in a sandbox that has neither store nor network: it asks the host by files.

Snapshots are read, everything else is a request file that the host's `recollect group serve` answers with a file.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recollect.groups import ask
from recollect.mcp.door import (
    CLEARED,
    GROUP_TOOLS,
    INSTRUCTIONS,
    RESUMED,
    TOOLS,
    BadArguments,
    Door,
    Page,
    Scope,
    Tool,
    check,
    error_text,
    shown,
)
from recollect.model.errors import RecollectError
from recollect.model.shared_folder import HISTORY_NAME, open_shared
from recollect.model.text import cut_short
from recollect.recall import AGENT, TOOL, USER, Recalled

_PATIENCE_S = 30
_MOST_BYTES = 4_000_000
_SNIPPET_CHARS = 400
_QUERY = {
    "query": {"type": "string", "description": "Words, a path, a command or an error text."},
    "limit": {"type": "integer", "minimum": 1, "maximum": 20, "description": "Maximum number of sessions (5)."},
}


def _tools() -> Iterator[Tool]:
    """What the host answers, with the arguments that its requests take."""
    for tool in (*TOOLS, *GROUP_TOOLS):
        if tool.name == "session_search":
            yield tool._replace(properties=_QUERY, required=("query",))
        elif tool.name == "list_sessions":
            yield tool._replace(properties={})
        elif tool in GROUP_TOOLS:
            yield tool


class SandboxDoor(Door):
    """The tools of a group whose agent shares only the folder `ipc` with the host."""

    def __init__(self, ipc: Path) -> None:
        super().__init__(Scope(Path.cwd(), has_wall=True))
        self._ipc = ipc
        self._tools = {tool.name: tool for tool in _tools()}

    def call(self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> tuple[str, bool]:
        try:
            check(self._tools[name], arguments)
            return shown(self._page(name, arguments)), False
        except BadArguments as error:
            return str(error), True
        except RecollectError as error:
            return error_text(error), True
        except (OSError, LookupError, TypeError, ValueError):
            return "The shared folder is unusable or has unexpected content", True

    def instructions(self, client: str) -> str:
        return INSTRUCTIONS

    def resources(self) -> list[dict[str, Any]]:
        return []

    def read(self, uri: str) -> str | None:
        return None

    def _page(self, name: str, arguments: Mapping[str, Any]) -> Page:
        if name == "list_sessions":
            return self._history()
        if name == "session_search":
            return _found(self._ask("search", arguments)["answer"]["hits"])
        if name == "clear_session":
            done, lead = self._ask("clear", arguments), CLEARED
        else:
            names = {"history_id": "target", "save_as": "save_as"}
            done, lead = self._ask("resume", {names[key]: value for key, value in arguments.items()}), RESUMED
        return Page(lead, [Recalled(USER, f"session {done['session_uid']}", done["name"])])

    def _history(self) -> Page:
        with open_shared(self._ipc) as folder:
            snapshot = json.loads(folder.read(HISTORY_NAME, _MOST_BYTES))
        active = f"active: {snapshot['active'] or 'none, the next prompt begins a session'}"
        marks = [
            Recalled(USER, f"bookmark {mark['id']} · {mark['session_uid']}", mark["name"])
            for mark in snapshot["bookmarks"]
        ]
        return Page("The group's active session and its bookmarks.", [Recalled(TOOL, active, ""), *marks])

    def _ask(self, action: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return ask(self._ipc, action, fields, _PATIENCE_S)


def _found(hits: list[dict[str, Any]]) -> Page:
    records = []
    for hit in hits:
        lines = [f"title: {cut_short(hit['title'], 200)}"] if hit["title"] else []
        lines += [
            f"#{match['seq']} {match['kind']}: {cut_short(' '.join(match['snippet'].split()), _SNIPPET_CHARS)}"
            for match in hit["matches"]
        ]
        heading = f"session {hit['session_uid']} · began {hit['started_at']}"
        records.append(Recalled(f"{USER}, {AGENT}, {TOOL}", heading, "\n".join(lines), repo=hit["repo"]))
    return Page(f"{len(hits)} earlier sessions match." if hits else "No earlier session matches.", records)
