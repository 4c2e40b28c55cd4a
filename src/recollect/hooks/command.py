"""What agents run as a hook, with the event as JSON on standard input.

Not by `-m`, which takes another ten milliseconds.

Whatever goes wrong here must not reach the agent: it gets no answer, and exit code 0.
"""

import json
import os
import sys

from recollect.model.home import environment, store_folder_path

_MOST_CHARS = 16_000_000


def run() -> None:
    folder = store_folder_path()
    try:
        os.umask(0o077)
        from recollect.hooks.answers import HookEvent, answer, hooks_of  # a failure here is noted, too

        payload = json.loads(sys.stdin.buffer.read(_MOST_CHARS))
        said = answer(HookEvent(hooks_of(payload, environment()), payload), folder)
        if said is not None:
            os.write(1, json.dumps(said).encode() + b"\n")
    except Exception:  # the top of a door: an agent goes on without its memory rather than fail
        from recollect.hooks.spool import note_failure  # hardly ever needed

        note_failure(folder)
    os._exit(0)  # at once: taking down modules takes as long as loading them
