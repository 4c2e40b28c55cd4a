"""What a call may see: the repository or group that its server stands in, and how far into an answer it is."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recollect.errors import NotFound, UsageError
from recollect.mcp.door import Call, Page
from recollect.recall import Filters

if TYPE_CHECKING:
    from recollect.schema import Session

_NOTHING_HERE = "Nothing is remembered of this repository yet."
WIDER = 'Pass "everywhere": true to look in all repositories.'


def session_of(call: Call, name: str) -> "Session":
    """The session of an id; raises NotFound for one behind the wall."""
    found = call.memory.session(name)
    if call.scope.has_wall and call.scope.group is None and found.repo not in repos_of(call):
        raise NotFound("No session has this id here")
    return found


def filters_of(call: Call, everywhere: bool, filters: dict[str, Any]) -> Filters | None:
    """The filters of a call, within its scope; None if nothing is known of the repository that it is in."""
    if everywhere and call.scope.has_wall:
        raise UsageError("This server is limited to one repository or group")
    if everywhere or call.scope.group is not None:  # a memory of a group has nothing else
        return Filters(**filters)
    return Filters(repo=str(call.scope.folder), **filters) if repos_of(call) else None


def repos_of(call: Call) -> Sequence[str]:
    try:
        return call.memory.repos_named(str(call.scope.folder))
    except NotFound:
        return []


def nothing_here(call: Call) -> Page:
    return Page(_NOTHING_HERE if call.scope.has_wall else f"{_NOTHING_HERE} {WIDER}", [])


def offset_of(cursor: str) -> int:
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > 9:
        raise UsageError("A cursor is the number at the end of an earlier answer")
    return int(cursor)


def ms_of(when: str | None) -> int | None:
    return round(datetime.fromisoformat(when).timestamp() * 1000) if when else None
