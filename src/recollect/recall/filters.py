"""What a list is narrowed to: one record for every command, its names looked up and its dates read in one place.

Options become the filters that a query has (`--repo shop` is `repo:shop`), so that both mean the same. The difference
is in what is wrong: an option that matches nothing is an error that names the nearest, in a query it is a note.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from recollect import sessions
from recollect.clock import moment_ms
from recollect.errors import Ambiguous, NotFound, UsageError
from recollect.kinds import KINDS, OUTCOMES, SESSION_CLASSES
from recollect.recall.query import Filter
from recollect.store import Store

_MOST_NAMED = 4  # of the nearest names
_PATH = r"\.{1,2}(?:/.*)?|~.*|/.*|[A-Za-z]:[\\/].*"
_NAMES = {"session_class": "class", "in_session": "session"}  # in a query, where they differ
_VALUES = {"outcome": OUTCOMES, "kind": KINDS, "session_class": SESSION_CLASSES}


class Filters(NamedTuple):
    """Conditions for a list; sessions must meet all of them. Dates as `recollect.clock.parse_moment` reads them."""

    agent: str | None = None
    repo: str | None = None  # a name, its end or a part of it, or a folder of its checkout: `.` is the current one
    branch: str | None = None
    model: str | None = None  # a part of its name
    outcome: str | None = None
    kind: str | None = None  # sessions with such an event; of a search or a file's history only such events
    session_class: str | None = None
    since: str | datetime | None = None
    before: str | datetime | None = None
    channel: str | None = None  # of a live host
    in_session: str | None = None  # an id, the beginning or end of one, or a title; its sub-agents count too
    tag: str | None = None
    is_starred: bool | None = None


NO_FILTERS = Filters()


def as_options(filters: Filters) -> tuple[Filter, ...]:
    """The filters as a query has them. Raises UsageError for a value or date that there cannot be."""
    for name, known in _VALUES.items():
        value = getattr(filters, name)
        if value is not None and value not in known:
            raise UsageError(f"Unknown {name.replace('_', ' ')}: {value}", f"known: {', '.join(known)}")
    moments = {name: moment_ms(f"--{name}", getattr(filters, name)) for name in ("since", "before")}
    since_ms, before_ms = moments["since"], moments["before"]
    if since_ms is not None and before_ms is not None and since_ms >= before_ms:
        raise UsageError(f"`--since` is not before `--before`: {filters.since}, {filters.before}", "swap them")
    values = {_NAMES.get(name, name): value for name, value in filters._asdict().items()}
    values["is"] = "starred" if values.pop("is_starred") else None
    values |= {
        name: None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
        for name, ms in moments.items()
    }
    return tuple(Filter(name, value, is_option=True) for name, value in values.items() if value is not None)


def names_for(store: Store, name: str, value: str) -> list[str]:
    """What a filter's value stands for; raises NotFound or Ambiguous if there is nothing, or no single thing.

    A store in which no session has such a name answers with nothing, not with an error.
    """
    if name == "repo":
        return repos_for(store, value)
    if name not in ("agent", "branch", "model"):
        return [value]
    known = store.sessions.names(name)
    folded = value.casefold()
    if not known or any(
        folded in other.casefold() if name == "model" else folded == other.casefold() for other in known
    ):
        return [value]
    raise NotFound(f"No sessions of the {name} `{value}`", _nearest(value, known))


def repos_for(store: Store, value: str) -> list[str]:
    """The repositories that match a name, part of one, or a folder."""
    known = store.sessions.names("repo")
    if not known:
        return [value]
    if ended := [repo for repo in known if f"/{repo}".casefold().endswith(f"/{value.strip('/')}".casefold())]:
        return ended
    if re.fullmatch(_PATH, value):
        if inside := sorted(_repos_in(store, Path(value).expanduser().absolute())):
            return inside
        raise NotFound(
            f"No session worked in this folder: {Path(value).expanduser().absolute()}",
            _listing(list(dict.fromkeys(map(last_name, known)))),
        )
    for matching in _by_part(known, value.strip("/").casefold()):
        names = {last_name(repo).casefold() for repo in matching}
        if len(names) == 1:
            return matching
        if matching:
            raise Ambiguous(f"Several repositories match `{value}`: {_joined(matching)}", "give more of the name")
    raise NotFound(f"No repository matches `{value}`", _nearest(value, list(dict.fromkeys(map(last_name, known)))))


def _by_part(known: Sequence[str], value: str) -> Iterator[list[str]]:
    """Repositories whose last name begins so, then those whose last name has it inside, then whose whole name has."""
    yield [repo for repo in known if last_name(repo).casefold().startswith(value)]
    yield [repo for repo in known if value in last_name(repo).casefold()]
    yield [repo for repo in known if value in repo.casefold()]


def last_name(repo: str) -> str:
    """A repository's name without its host and owner, or the folders above it."""
    return repo.rstrip("/").rpartition("/")[2] or repo


def _repos_in(store: Store, folder: Path) -> set[str]:
    """The repositories of a folder: by its checkout's remote, and by the sessions that worked in the checkout."""
    root = sessions.find_checkout(folder) or folder
    remote = sessions.normal_remote(sessions.remote_of(folder))
    by_remote = {repo for repo in store.sessions.names("repo") if repo == remote}
    return by_remote | {repo for path, repo in store.sessions.folders() if Path(path).is_relative_to(root)}


def _nearest(value: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches  # only where something was mistyped

    # `calk` is near `calc-demo`, too: by a part of the name.
    parts = {part: name for name in known for part in re.split(r"[-_./ ]", name.casefold()) if part}
    names = parts | {name.casefold(): name for name in known}
    near = get_close_matches(value.strip("/").casefold(), names, _MOST_NAMED, 0.6)
    return f"nearest: {', '.join(dict.fromkeys(names[name] for name in near))}" if near else _listing(known)


def _listing(known: Sequence[str]) -> str:
    return f"known: {_joined(known)}" if known else "no session has one"


def _joined(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
