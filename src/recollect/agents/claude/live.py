"""Which sessions of Claude Code run now: each process leaves a small file while it lives."""

import json
import os
from pathlib import Path

_MOST_BYTES = 64 * 1024


def live_sessions(home: Path) -> dict[str, tuple[int, str]]:
    """Process and state (`working`, `waiting`) by session id."""
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
