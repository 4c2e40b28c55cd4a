"""A new session with what another one holds, up to any of its messages."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from recollect.agents.claude.native.branch import linked
from recollect.agents.claude.native.lines import Entry

_OF_THE_SOURCE = ("teamName", "agentName", "slug", "sourceToolAssistantUUID")
_REPLACEMENTS = "content-replacement"


def fork_entries(entries: Iterable[Entry], session_id: str, new_id: str, up_to: str | None, now: str) -> list[Entry]:
    """Copies of a session's entries under new ids, each naming its original; those up to one of them, if given.

    Sub-agents, progress notices and copies of files are left out. Raises KeyError if there is no entry `up_to`, and
    ValueError if there is nothing to copy.
    """
    entries = list(entries)
    tree = [entry for entry in linked(entries) if not entry.get("isSidechain")]
    if up_to is not None:
        uuids = [entry["uuid"] for entry in tree]
        if up_to not in uuids:
            raise KeyError(up_to)
        tree = tree[: uuids.index(up_to) + 1]
    by_uuid = {entry["uuid"]: entry for entry in tree}
    names = {old: str(uuid.uuid4()) for old in by_uuid}
    kept = [entry for entry in tree if entry["type"] != "progress"]
    if not kept:
        raise ValueError(f"Nothing to fork in session {session_id}")
    copies = [_copy(entry, by_uuid, names, session_id, new_id, now) for entry in kept]
    copies[-1]["timestamp"] = now  # the newest leaf is the one a session goes on from
    return copies + _replacements(entries, session_id, new_id, now)


def _copy(
    entry: Entry, by_uuid: Mapping[str, Entry], names: Mapping[str, str], session_id: str, new_id: str, now: str
) -> Entry:
    parent = by_uuid.get(entry.get("parentUuid") or "")
    while parent is not None and parent["type"] == "progress":
        parent = by_uuid.get(parent.get("parentUuid") or "")
    logical = entry.get("logicalParentUuid")
    copy = {
        **entry,
        "uuid": names[entry["uuid"]],
        "parentUuid": names[parent["uuid"]] if parent else None,
        "logicalParentUuid": names.get(logical) if logical else logical,
        "sessionId": new_id,
        "timestamp": entry.get("timestamp", now),
        "isSidechain": False,
        "forkedFrom": {"sessionId": session_id, "messageUuid": entry["uuid"]},
    }
    return {key: value for key, value in copy.items() if key not in _OF_THE_SOURCE}


def _replacements(entries: Iterable[Entry], session_id: str, new_id: str, now: str) -> list[Entry]:
    """What Claude Code put in the place of large outputs."""
    replaced: list[Any] = []
    for entry in entries:
        if entry.get("type") == _REPLACEMENTS and entry.get("sessionId") == session_id:
            replaced += entry["replacements"] if isinstance(entry.get("replacements"), list) else []
    if not replaced:
        return []
    return [
        {
            "type": _REPLACEMENTS,
            "sessionId": new_id,
            "replacements": replaced,
            "uuid": str(uuid.uuid4()),
            "timestamp": now,
        }
    ]
