"""Whether what was installed into agents works, by a round trip through each piece."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recollect.agents import find_plugin_host, get_adapter
from recollect.care.install import RECORD_NAME
from recollect.care.plugin import hook_command, server_command
from recollect.config import Settings

_PATIENCE_S = 30
_ASKED = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n'
_EVENT = json.dumps({"hook_event_name": "RecollectCheck", "session_id": "doctor"}).encode()


def installed_agents(settings: Settings) -> Mapping[str, Any]:
    """The agents that `recollect install` was run for."""
    try:
        record: Mapping[str, Any] = json.loads((settings.folder / RECORD_NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return record


def broken_pieces(settings: Settings) -> Iterator[tuple[str, str]]:
    """(agent, what does not answer) of everything that was installed."""
    agents = installed_agents(settings)
    if not agents:
        return
    if b'"session_search"' not in _output(server_command(), _ASKED):
        yield "", "the MCP server"
    if b'"recollect"' not in _output(["/bin/sh", "-c", hook_command(str(settings.folder))], _EVENT):
        yield "", "the hook"
    for agent, record in agents.items():
        host = find_plugin_host(agent)
        if host is None:
            continue
        listing = host.listing if record["with_plugin"] else ("mcp", "list")
        if b"recollect" not in _output([host.program, *listing], b""):
            yield agent, f"{get_adapter(agent).profile.display_name} does not list it"


def _output(command: Sequence[str], given: bytes) -> bytes:
    try:
        return subprocess.run(command, input=given, capture_output=True, timeout=_PATIENCE_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        return b""
