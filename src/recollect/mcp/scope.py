"""What a call may see: the repository or group of its server, and the page of an answer."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from recollect.clock import moment_ms
from recollect.errors import NotFound, UsageError
from recollect.mcp.door import BadArguments, Call, Page
from recollect.recall import Filters

if TYPE_CHECKING:
    from recollect.schema import Session

_NO_SESSION = "No session here has this id; `list_sessions` and `session_search` show ids"
_NOTHING_HERE = "Nothing about this repository is stored yet."
UID_CHARS = 12  # of an event's id, from its end, as digests cite it: enough for `at`
WIDER = 'Pass "everywhere": true to search all repositories.'


def session_of(call: Call, name: str) -> "Session":
    """The session of an id; raises BadArguments if there is none, or none on this side of the wall."""
    try:
        session = call.memory.session(name)
    except NotFound:
        raise BadArguments(_NO_SESSION) from None
    if call.scope.has_wall and call.scope.group is None and session.repo not in repos_of(call):
        raise BadArguments(_NO_SESSION)
    return session


def filters_of(call: Call, everywhere: bool, filters: dict[str, Any]) -> Filters | None:
    """The filters of a call, within its scope; None if nothing is known of the repository that it is in."""
    if everywhere and call.scope.has_wall:
        raise BadArguments("This server is limited to one repository or group: leave out `everywhere`")
    for name in ("since", "before"):
        try:
            moment_ms(name, filters.get(name))
        except UsageError:
            raise BadArguments(f"`{name}` must be a date such as 2026-11-01, 7d, yesterday or last week") from None
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
        raise BadArguments("`cursor` must be the number at the end of an earlier answer")
    return int(cursor)


def ms_of(when: str | None) -> int | None:
    return round(datetime.fromisoformat(when).timestamp() * 1000) if when else None
