"""What a list is narrowed to: one record for every command, its names looked up and its dates read in one place.

Options become the filters that a query has (`--repo shop` is `repo:shop`), so that both mean the same. The difference
is in what is wrong: an option that matches nothing is an error that names the nearest, in a query it is a note.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from recollect import sessions
from recollect.model.clock import moment_ms
from recollect.model.errors import Ambiguous, NotFound, RecollectError, UsageError
from recollect.model.kinds import DECISION, FAIL, KIND_FAMILY, KINDS, OUTCOMES, SESSION_CLASSES, SUCCESS, SessionKey
from recollect.recall.query import OF_SESSIONS, Filter, Query, time_ms
from recollect.store import Choice, EventFilter, SessionFilter, Store

_MOST_NAMED = 4  # of the nearest names
_PATH = r"\.{1,2}(?:/.*)?|~.*|/.*|[A-Za-z]:[\\/].*"
_NAMES = {"session_class": "class", "in_session": "session"}  # in a query, where they differ
_VALUES = {"outcome": OUTCOMES, "kind": KINDS, "session_class": SESSION_CLASSES}


class Filters(NamedTuple):
    """Conditions for a list; sessions must meet all of them. Dates as `model.clock.parse_moment` reads them."""

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


NO_FILTERS: Filters = Filters()


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


class Scope(NamedTuple):
    """What the filters say about sessions, held or evicted, and about events."""

    headers: SessionFilter
    events: EventFilter

    @property
    def timed(self) -> SessionFilter:
        """The sessions, active in the time that the filters name."""
        return self.headers._replace(since_ms=self.events.since_ms, before_ms=self.events.before_ms)


def sessions_of(store: Store, filters: Filters) -> SessionFilter:
    """Which sessions a list without a query is narrowed to; of a kind of events, those that have one."""
    scope = _scope(store, Query("", filters=as_options(filters)), datetime.now().astimezone(), (), [])
    if not scope.events.choices:
        return scope.timed
    streams = store.words.sessions_with(None, _with_streams(store, scope).events)
    having = store.sessions.trees(store.events.keys(streams).values())
    return scope.timed._replace(uids=frozenset(having))


def scope_of(store: Store, query: Query, now: datetime, exclude: Collection[str], notes: list[str]) -> Scope:
    """What a query's filters ask for, names looked up. `exclude` are ids of sessions to leave out."""
    return _with_streams(store, _scope(store, query, now, exclude, notes))


def sessions_in_scope(store: Store, query: Query, now: datetime, exclude: Collection[str]) -> SessionFilter:
    """Return which sessions a query's filters let through, active in the time that they name."""
    return _scope(store, query, now, exclude, []).timed


def _scope(store: Store, query: Query, now: datetime, exclude: Collection[str], notes: list[str]) -> Scope:
    """A scope whose events may still be of any session: to look up all that its headers let through takes long."""
    query = query._replace(filters=tuple(_named(store, query.filters, notes)))
    chosen = _chosen_sessions(store, query, notes, is_excluded=False)
    excluded = [_households(store, exclude, None), *_chosen_sessions(store, query, None, is_excluded=True)]
    headers = _header_filter(query)._replace(
        uids=frozenset(set.intersection(*chosen)) if chosen else None, excluded_uids=frozenset().union(*excluded)
    )
    return Scope(headers, _event_filter(query, now))


def _with_streams(store: Store, scope: Scope) -> Scope:
    headers = scope.headers
    is_any = headers._replace(excluded_uids=frozenset()) == SessionFilter()
    left_out = [header.key for header in store.sessions.named(headers.excluded_uids).values()]
    streams = None if is_any else _streams(store, store.sessions.keys(headers))
    return Scope(headers, scope.events._replace(streams=streams, excluded_streams=_streams(store, left_out)))


def _header_filter(query: Query) -> SessionFilter:
    """What the filters say about sessions' rows."""
    chosen, excluded = (
        [(name, tuple(values)) for name in OF_SESSIONS if (values := query.values(name, is_excluded=is_excluded))]
        for is_excluded in (False, True)
    )
    if "open" in query.values("is"):
        excluded.append(("outcome", (SUCCESS, FAIL)))
    if "open" in query.values("is", is_excluded=True):
        chosen.append(("outcome", (SUCCESS, FAIL)))
    return SessionFilter(tuple(chosen), tuple(excluded))


def _event_filter(query: Query, now: datetime) -> EventFilter:
    """What the filters say about events, of whatever session."""
    since, before = (
        [time_ms(value, now) for value in query.values(name) + query.values(opposite, is_excluded=True)]
        for name, opposite in (("since", "before"), ("before", "since"))
    )
    refused = query.values("is", is_excluded=True)
    return EventFilter(
        choices=tuple(_choices(query)),
        since_ms=max(since, default=None),
        before_ms=min(before, default=None),
        is_error=True if "error" in query.values("is") else False if "error" in refused else None,
        with_copies=bool(query.values("session")),  # who asks for a fork wants all of it
    )


def _choices(query: Query) -> Iterable[Choice]:
    for is_excluded in (False, True):
        kinds = query.values("kind", is_excluded=is_excluded)
        family = [member for kind in kinds for member in KIND_FAMILY.get(kind, (kind,))]
        if "decision" in query.values("is", is_excluded=is_excluded):
            family.append(DECISION)
        columns = (
            ("kind", family),
            ("tool", query.values("tool", is_excluded=is_excluded)),
            ("role", query.values("role", is_excluded=is_excluded)),
        )
        yield from (Choice(column, tuple(values), is_excluded) for column, values in columns if values)


def _streams(store: Store, keys: Collection[SessionKey]) -> tuple[int, ...]:
    return tuple(sorted(store.events.streams(keys).values())) if keys else ()


def _chosen_sessions(store: Store, query: Query, notes: list[str] | None, *, is_excluded: bool) -> list[set[str]]:
    """For each filter about what happened in a session: those that it lets through, with all that belong to them."""
    found: list[set[str]] = []
    if names := query.values("session", is_excluded=is_excluded):
        found.append(_households(store, names, notes))
    if paths := query.values("file", is_excluded=is_excluded):
        found.append(store.sessions.trees(_touching(store, paths)))
    if tags := query.values("tag", is_excluded=is_excluded):
        found.append(store.sessions.trees(store.annotations.having("tag", tags)))
    if "starred" in query.values("is", is_excluded=is_excluded):
        found.append(store.sessions.trees(store.annotations.having("star")))
    if "edit" in query.values("has", is_excluded=is_excluded):
        held = store.events.keys(store.events.with_edits()).values()
        found.append(store.sessions.trees({*held, *store.digests.evicted_with_edits()}))
    return found


def _households(store: Store, names: Collection[str], notes: list[str] | None) -> set[str]:
    """Sessions by id, beginning or end of one, or title, each with its sub-agents."""
    uids: set[str] = set()
    for name in names:
        matches = store.sessions.named_like(name)
        uids |= {match.session_uid for match in matches}
        if not matches and notes is not None:
            notes.append(f"No session with this id or title: {name}")
    keys = store.sessions.households(uids) if uids else []
    return {header.session_uid for header in store.sessions.of(keys).values()} if keys else set()


def _touching(store: Store, paths: Collection[str]) -> set[SessionKey]:
    """Sessions with a call that names one of these paths, held or not."""
    from recollect.recall.file_history import sessions_calling  # slow to load, and few searches need it

    return {key for path in paths for key in sessions_calling(store, path)}


def _named(store: Store, filters: Iterable[Filter], notes: list[str]) -> Iterator[Filter]:
    """The filters with the names they stand for; one that stands for nothing finds nothing, and is noted."""
    for item in filters:
        try:
            names = names_for(store, item.name, item.value)
        except RecollectError as error:
            if item.is_option:
                raise
            names = [item.value]
            notes.append(f"{error.message}; {error.hint}")
        yield from (item._replace(value=name) for name in names)
