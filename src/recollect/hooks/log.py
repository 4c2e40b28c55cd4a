"""The log of hooks: what they added to sessions and when, one JSON object per line."""

import json
import os
import time

from recollect.home import HOOK_LOG_NAME

TYPE_CHECKING = False  # `typing` takes as long to load as the rest of a hook
if TYPE_CHECKING:
    from recollect.hooks.event import HookEvent

ERRORS_NAME = "hooks-error.log"
_MOST_BYTES = 8_000_000


def note_failure(store_folder: str) -> None:
    """Log why the last hook failed, if possible."""
    import traceback  # seldom needed
    from contextlib import suppress

    with suppress(OSError), open(f"{store_folder}/{ERRORS_NAME}", "w", encoding="utf-8", errors="replace") as file:
        file.write(traceback.format_exc())


def add(store_folder: str, event: "HookEvent", text: str, error: str) -> None:
    """Add a line, with the fingerprint of the error it is about; a log that grew too large is started over."""
    path = f"{store_folder}/{HOOK_LOG_NAME}"
    line = {
        "at_ms": time.time_ns() // 1_000_000,
        "agent": event.hooks.agent,
        "session": event.session,
        "event": event.name,
        "turn": event.turn,
        "error": error,
        "text": text,
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        if os.fstat(descriptor).st_size > _MOST_BYTES:
            os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)
