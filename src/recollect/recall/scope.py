"""Which sessions and events a query's filters let through."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from recollect.errors import RecollectError
from recollect.kinds import DECISION, FAIL, KIND_FAMILY, SUCCESS, SessionKey
from recollect.recall.filters import Filters, as_options, names_for
from recollect.recall.query import Filter, Query, time_ms
from recollect.store import Choice, EventFilter, SessionFilter, Store

OF_SESSIONS = ("agent", "repo", "branch", "model", "outcome", "class", "group", "channel", "user", "domain", "task")


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
