"""Reading what a sweep prepared for an agent's start. Loads next to nothing: the agent waits for it."""

import json
import os
from zlib import crc32

from recollect.model.home import PREPARED_NAME, SWITCHES_NAME, is_in_group

TYPE_CHECKING = False  # `typing` takes as long to load as the rest of a hook
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

BRIEF, FIXES, PROMPTS, EDITS = "brief", "fixes", "prompts", "edits"  # what an agent gets without asking
HOOK_DEFAULTS: "dict[str, bool | list[str]]" = {BRIEF: True, FIXES: True, PROMPTS: False, EDITS: True}
MOST_CHARS = 1_900  # of a brief: one agent cuts a server's instructions at 2,048 characters
_LEAD = (
    "Recollect remembers earlier sessions in this repository. Before the first edit of a task, search with"
    " `session_search` for what they decided, tried or fixed about it; `recall_error` shows what fixed an error,"
    " `recall_decisions` why something is the way it is."
)


def brief_path(store_folder: str, folder: str) -> str:
    """Where the brief for a folder is."""
    return f"{store_folder}/{PREPARED_NAME}/briefs/{crc32(os.fsencode(folder)):08x}.json"


def fixes_path(store_folder: str, signature: str) -> str:
    """Where the fix of an error is, with those of others."""
    return f"{store_folder}/{PREPARED_NAME}/fixes/{crc32(signature.encode('utf-8', 'replace')) % 256:02x}.json"


def requests_path(store_folder: str, repo: str) -> str:
    """Where the first requests of a repository's sessions are."""
    return f"{store_folder}/{PREPARED_NAME}/requests/{crc32(repo.encode('utf-8', 'replace')):08x}.json"


def files_path(store_folder: str, repo: str) -> str:
    """Where the file with what was settled about files of a repository is."""
    return f"{store_folder}/{PREPARED_NAME}/files/{crc32(repo.encode('utf-8', 'replace')):08x}.json"


def switches_path(store_folder: str) -> str:
    """Where the settings of hooks are, for those who have no time to read the settings file."""
    return f"{store_folder}/{SWITCHES_NAME}"


def is_on(store_folder: str, kind: str, folder: str) -> bool:
    """Whether the user wants agents in this folder to get this."""
    try:
        with open(switches_path(store_folder), encoding="utf-8") as file:
            wanted = json.load(file).get(kind, HOOK_DEFAULTS[kind])
    except FileNotFoundError:
        wanted = HOOK_DEFAULTS[kind]
    except (OSError, ValueError, AttributeError):
        return False  # damaged: better add nothing
    if isinstance(wanted, bool):
        return wanted
    below = os.path.realpath(folder) + "/"
    return any(below.startswith(project.rstrip("/") + "/") for project in wanted)


def read_brief(store_folder: str, folder: str) -> str:
    """What an agent that starts in this folder should know, as fenced text; empty if there is nothing."""
    if is_in_group():
        return ""  # briefs are made of everybody's sessions
    records = _records(store_folder, os.path.realpath(folder))
    if not records:
        return ""
    from recollect.recall.fence import Recalled, fenced  # its patterns take a while to compile, and most find nothing

    recalled = [
        Recalled(item["origin"], item["heading"], item["text"], item["at_ms"], item["repo"]) for item in records
    ]
    return f"{_LEAD}\n{fenced(recalled, MOST_CHARS - len(_LEAD) - 1)[0]}"


def read_requests(store_folder: str, folder: str) -> "list[dict[str, Any]]":
    """What sessions in the repository of this folder were asked first, the latest last."""
    return list(_of_repo(store_folder, folder, requests_path).values())


def read_settled(store_folder: str, folder: str, path: str) -> "dict[str, Any] | None":
    """What was settled last about a file in the repository of this folder."""
    settled = _of_repo(store_folder, folder, files_path)
    return next((record for name, record in settled.items() if path.endswith(f"/{name}")), None)


def _of_repo(store_folder: str, folder: str, path_of: "Callable[[str, str], str]") -> "dict[str, dict[str, Any]]":
    repo = next((record["repo"] for record in _records(store_folder, os.path.realpath(folder)) if record["repo"]), "")
    try:
        with open(path_of(store_folder, repo), encoding="utf-8") as file:
            records = json.load(file).items()
        return {key: record for key, record in records if record["repo"] == repo}  # names are short, and may meet
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _records(store_folder: str, folder: str) -> "list[dict[str, Any]]":
    """Of the folder, or of one above it in the same checkout."""
    while True:
        try:
            with open(brief_path(store_folder, folder), encoding="utf-8") as file:
                brief = json.load(file)
            if brief["folder"] == folder:  # names are short, and may meet
                records: list[dict[str, Any]] = brief["records"]
                return records
        except (OSError, ValueError, LookupError, TypeError):
            pass
        if os.path.lexists(f"{folder}/.git") or folder in ("/", ""):
            return []
        folder = os.path.dirname(folder)
