"""The answer to each event of an agent."""

import os
import re
import time

from recollect import __version__
from recollect.home import IPC_VARIABLE, environment, is_in_group
from recollect.hooks import claims, log, spool
from recollect.hooks.event import CHECK, PRE_COMPACT, HookEvent
from recollect.recall import BRIEF, EDITS, FIXES, PROMPTS, is_on, read_brief, read_settled

TYPE_CHECKING = False  # `typing` takes as long to load as the rest of a hook
if TYPE_CHECKING:
    from typing import Any

_PACKET_BYTES = 2_000
MOST_CHARS = 9_500  # agents cut what is added at 10,000, or put a short preview in its place
SWEEP_LOG = "hooks.log"
_PATIENCE_S = 8  # for the host; the agent waits for ten seconds
NEWS = ("Stop", "SessionEnd", PRE_COMPACT)
# Whether it is worth looking: most of what commands print has no word of failure in it.
_FAILURE = re.compile(
    r"(?i)error|fail|fatal|panic|exception|cannot|can't|no such|not |denied|refused|time.?out|unable|undefined"
    r"|undeclared|unresolved|expected|unknown|invalid|missing|mismatch|conflict|unsupported|deadlock|overflow"
)
_BEGINNINGS = ("startup", "new", "clear", "")
_COMPACTED = (
    "Recollect keeps everything from before this compaction: its tool `get_session` reads session {} from any"
    " event on, `session_search` finds the place."
)
_SETTLED = "Recollect: earlier sessions settled something about this file; `recall_file` and `get_session` show more."


def answer(event: HookEvent, store_folder: str) -> "dict[str, Any] | None":
    """The JSON that the agent gets; None if there is nothing to add."""
    if not event.session or not os.path.isdir(store_folder):
        if event.session and event.name == PRE_COMPACT and (ipc := environment().get(IPC_VARIABLE)):
            from recollect.groups import ask  # in a sandbox, where the host has the store

            ask(ipc, "archive", {"session": event.session}, _PATIENCE_S)
        return None
    if event.name == CHECK:
        return {"recollect": __version__}
    if event.name == "SessionStart":
        return _added(event, store_folder, _start(event, store_folder), "")
    if event.prompt and event.hooks.hears_prompt and is_on(store_folder, PROMPTS, event.folder):
        return _added(event, store_folder, *_reminder(event, store_folder))
    if event.edited and is_on(store_folder, EDITS, event.folder):
        return _added(event, store_folder, _settled(event, store_folder), "")
    if event.failure and is_on(store_folder, FIXES, event.folder):
        return _added(event, store_folder, *_fix(event, store_folder))
    if event.name in NEWS and event.transcript:
        # One event may reach us by a plugin and by settings.
        if not claims.claim(store_folder, event.hooks.agent, event.session, event.name, event.turn):
            return None
        try:
            if event.name == PRE_COMPACT:
                from recollect.api import rescue  # loads the store and the rules of redaction

                rescue(event.transcript)  # what the agent may drop from its log as soon as this returns
        finally:
            spool.leave(store_folder, event)
            spool.start_sweep(f"{store_folder}/{SWEEP_LOG}")
    return None


def _fix(event: HookEvent, store_folder: str) -> tuple[str, str]:
    """What fixed the error of a failed call, once for a session, and the error's fingerprint."""
    if event.failure.isascii() and not _FAILURE.search(event.failure):
        return "", ""
    from recollect.hooks.fixes import find_fix  # its patterns take longer to compile than all else here

    signature, text = find_fix(store_folder, event.failure, event.session)
    is_first = text and claims.claim(store_folder, event.hooks.agent, event.session, "fix", signature)
    return (text, signature) if is_first else ("", "")


def _settled(event: HookEvent, store_folder: str) -> str:
    """What earlier sessions settled about a file that is about to be edited, once for a session."""
    for path in event.edited if not is_in_group() else ():
        record = read_settled(store_folder, event.folder, path)
        if record is None or record["session"].endswith(event.session):
            continue  # a session knows what it settled itself
        is_old = record["until_ms"] is not None and time.time_ns() > record["until_ms"] * 1_000_000
        if is_old or not any(name in event.edit for name in record["names"]):
            continue  # the edit is about something else in the file, or the name is gone
        if claims.claim(store_folder, event.hooks.agent, event.session, "file", record["text"]):
            from recollect.recall import USER, Recalled, fenced  # its patterns take a while, and most files are new

            heading = f"settled in session {record['session']}:"
            recalled = Recalled(USER, heading, record["text"], record["at_ms"], record["repo"])
            return f"{_SETTLED}\n{fenced([recalled], MOST_CHARS)[0]}"
    return ""


def _reminder(event: HookEvent, store_folder: str) -> tuple[str, str]:
    """What an earlier session has to do with a prompt, and the fingerprint of an error that the prompt shows."""
    from recollect.hooks.reminders import find_reminder  # its patterns take a while to compile

    about, signature, text = find_reminder(store_folder, event)
    is_first = text and claims.claim(store_folder, event.hooks.agent, event.session, "fix", about)
    return (text, signature) if is_first else ("", "")


def _start(event: HookEvent, store_folder: str) -> str:
    mark_answering(store_folder, event.hooks.agent)
    if not event.hooks.hears_start or not is_on(store_folder, BRIEF, event.folder):
        return ""
    if event.source == "compact":
        return _packet(store_folder, f"{event.hooks.agent}:{event.session}")
    if event.source not in _BEGINNINGS:
        return ""  # a session that goes on has its brief
    text = read_brief(store_folder, event.folder)
    if not text or not claims.claim(store_folder, event.hooks.agent, event.session, event.name, event.source):
        return ""
    # One that cleared its conversation has lost the brief of its start.
    return text if event.source == "clear" or claim_brief(store_folder) else ""


def _packet(store_folder: str, session: str) -> str:
    """Where to read what a compaction left out, and what of it is needed most, as far as the store has it by now."""
    lead = _COMPACTED.format(session)
    if is_in_group():
        return lead
    from recollect.api import open_memory  # loads the store: a compaction takes longer than that
    from recollect.errors import RecollectError
    from recollect.recall import fenced

    try:
        with open_memory(store_folder, create=False, read_only=True) as memory:
            records = memory.packet(memory.session(session))
    except (RecollectError, OSError):  # not stored yet, or not to be read now
        return lead
    return f"{lead}\n{fenced(records, _PACKET_BYTES - len(lead))[0]}" if records else lead


def claim_brief(store_folder: str) -> bool:
    """Whether the agent that started this process has not got the brief yet, from any hook or server."""
    return claims.claim(store_folder, "brief", claims.agent_process())


def mark_answering(store_folder: str, agent: str) -> None:
    """Note that this agent runs our hook at its start, so that no server repeats the brief."""
    if not is_answering(store_folder, agent):
        os.makedirs(f"{store_folder}/answering", 0o700, exist_ok=True)
        os.close(os.open(f"{store_folder}/answering/{agent}", os.O_CREAT | os.O_WRONLY, 0o600))


def is_answering(store_folder: str, agent: str) -> bool:
    return os.path.exists(f"{store_folder}/answering/{agent}")


def _added(event: HookEvent, store_folder: str, text: str, error: str) -> "dict[str, Any] | None":
    if not text:
        return None
    text = text[:MOST_CHARS]
    log.add(store_folder, event, text, error)
    return {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": text}}
