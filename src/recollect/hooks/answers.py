"""One call of a hook, the same for all agents, and the answer to it."""

import json
import os
import re
import time
from importlib import import_module

from recollect import __version__
from recollect.agents import BUILT_IN
from recollect.hooks import spool
from recollect.model.home import IPC_VARIABLE, environment, is_in_group
from recollect.recall import BRIEF, EDITS, FIXES, PROMPTS, is_on, read_brief, read_settled

TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from recollect.agentkit.adapter import AgentHooks

PRE_COMPACT = "PreCompact"
CHECK = "RecollectCheck"  # asked by `recollect doctor`, to see that a hook answers
_FILE_KEYS, _PATCH_KEYS = ("file_path", "notebook_path", "target_file", "path"), ("command", "input", "patch")
_PATCHED = "*** Update File: "
_ALIASES = {"transcript_path": "transcriptPath", "tool_use_id": "toolUseId"}  # of an agent that leaves out the first


class HookEvent:
    """What an agent passes to a hook. What it leaves out is empty."""

    def __init__(self, hooks: "AgentHooks", payload: "Mapping[str, Any]") -> None:
        self.hooks = hooks
        self.name = _text(payload, "hook_event_name")
        self.session = _text(payload, "session_id")
        self.folder = _text(payload, "cwd") or os.getcwd()
        self.transcript = _text(payload, "transcript_path")
        self.source = _text(payload, "source")
        self.prompt = _text(payload, "prompt") if self.name == "UserPromptSubmit" else ""
        turn = (_text(payload, key) for key in ("tool_use_id", "prompt_id", "turn_id"))
        self.turn = next(filter(None, turn), "")
        self.edited = _edited(hooks, payload) if self.name == "PreToolUse" else []
        self.edit = json.dumps(payload.get("tool_input", payload.get("toolInput"))) if self.edited else ""
        self.failure = hooks.failure(payload) if self.name.startswith("PostToolUse") else ""


def _text(payload: "Mapping[str, Any]", key: str) -> str:
    value = payload.get(key, payload.get(_ALIASES.get(key, key)))
    return value if isinstance(value, str) else ""


def _edited(hooks: "AgentHooks", payload: "Mapping[str, Any]") -> "list[str]":
    """The files that a tool is about to change, in full."""
    given = payload.get("tool_input", payload.get("toolInput"))
    if not isinstance(given, dict) or payload.get("tool_name", payload.get("toolName")) not in hooks.edit_tools:
        return []
    texts = {key: text for key, text in given.items() if isinstance(text, str)}
    names = [texts[key] for key in _FILE_KEYS if key in texts]
    for line in "\n".join(texts[key] for key in _PATCH_KEYS if key in texts).splitlines():
        names += [line.removeprefix(_PATCHED)] if line.startswith(_PATCHED) else []
    return [os.path.join(_text(payload, "cwd") or os.getcwd(), name) for name in names]


def all_hooks() -> "list[AgentHooks]":
    """Of every agent of this package that has hooks."""
    packages = [import_module(f"recollect.agents.{agent}") for agent in BUILT_IN]
    with_hooks = [package.__name__ for package in packages if os.path.exists(f"{package.__path__[0]}/hooks.py")]
    return [import_module(f"{name}.hooks").HOOKS for name in with_hooks]


def hooks_of(payload: "Mapping[str, Any]", variables: "Mapping[str, str]") -> "AgentHooks":
    """Whose hook this is. By the session that the environment names: agents also run hooks meant for others.

    One that names none in the environment is left when no other fits.
    """
    session, known = payload.get("session_id"), all_hooks()
    for hooks in known:
        if hooks.session_variable and session and variables.get(hooks.session_variable) == session:
            return hooks
    return next(hooks for hooks in known if not hooks.session_variable)


def hooks_of_agent(agent: str) -> "AgentHooks | None":
    """The hooks of an agent by its name."""
    return next((hooks for hooks in all_hooks() if hooks.agent == agent), None)


def hooks_of_client(name: str) -> "AgentHooks | None":
    """The agent that introduces itself to a server by this name."""
    return next((hooks for hooks in all_hooks() if name.lower().startswith(hooks.client)), None)


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
        return _added(event, store_folder, *_brought_to_mind(event, store_folder))
    if event.edited and is_on(store_folder, EDITS, event.folder):
        return _added(event, store_folder, _settled(event, store_folder), "")
    if event.failure and is_on(store_folder, FIXES, event.folder):
        return _added(event, store_folder, *_brought_to_mind(event, store_folder))
    if event.name in NEWS and event.transcript:
        # One event may reach us by a plugin and by settings.
        if not spool.claim(store_folder, event.hooks.agent, event.session, event.name, event.turn):
            return None
        try:
            if event.name == PRE_COMPACT:
                from recollect.api import rescue  # loads the store and the rules of redaction

                rescue(event.transcript)  # what the agent may drop from its log as soon as this returns
        finally:
            spool.leave(store_folder, event)
            spool.start_sweep(f"{store_folder}/{SWEEP_LOG}")
    return None


def _brought_to_mind(event: HookEvent, store_folder: str) -> tuple[str, str]:
    """What fixed the error of a failed call, or an earlier session has to do with a prompt, once for a session.

    With it the fingerprint of the error, if there is one.
    """
    if event.failure.isascii() and not event.prompt and not _FAILURE.search(event.failure):
        return "", ""
    from recollect.hooks.fixes import find_fix, find_reminder  # their patterns take longer to compile than all else

    if event.prompt:
        about, signature, text = find_reminder(store_folder, event)
    else:
        signature, text = find_fix(store_folder, event.failure, event.session)
        about = signature
    is_first = text and spool.claim(store_folder, event.hooks.agent, event.session, "fix", about)
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
        if spool.claim(store_folder, event.hooks.agent, event.session, "file", record["text"]):
            from recollect.recall import USER, Recalled, fenced  # its patterns take a while, and most files are new

            heading = f"settled in session {record['session']}:"
            recalled = Recalled(USER, heading, record["text"], record["at_ms"], record["repo"])
            return f"{_SETTLED}\n{fenced([recalled], MOST_CHARS)[0]}"
    return ""


def _start(event: HookEvent, store_folder: str) -> str:
    mark_answering(store_folder, event.hooks.agent)
    if not event.hooks.hears_start or not is_on(store_folder, BRIEF, event.folder):
        return ""
    if event.source == "compact":
        return _packet(store_folder, f"{event.hooks.agent}:{event.session}")
    if event.source not in _BEGINNINGS:
        return ""  # a session that goes on has its brief
    text = read_brief(store_folder, event.folder)
    if not text or not spool.claim(store_folder, event.hooks.agent, event.session, event.name, event.source):
        return ""
    # One that cleared its conversation has lost the brief of its start.
    return text if event.source == "clear" or claim_brief(store_folder) else ""


def _packet(store_folder: str, session: str) -> str:
    """Where to read what a compaction left out, and what of it is needed most, as far as the store has it by now."""
    lead = _COMPACTED.format(session)
    if is_in_group():
        return lead
    from recollect.api import open_memory  # loads the store: a compaction takes longer than that
    from recollect.model.errors import RecollectError
    from recollect.recall import fenced

    try:
        with open_memory(store_folder, create=False, read_only=True) as memory:
            records = memory.packet(memory.session(session))
    except (RecollectError, OSError):  # not stored yet, or not to be read now
        return lead
    return f"{lead}\n{fenced(records, _PACKET_BYTES - len(lead))[0]}" if records else lead


def claim_brief(store_folder: str) -> bool:
    """Whether the agent that started this process has not got the brief yet, from any hook or server."""
    return spool.claim(store_folder, "brief", spool.agent_process())


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
    spool.add_to_log(store_folder, event, text, error)
    return {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": text}}
