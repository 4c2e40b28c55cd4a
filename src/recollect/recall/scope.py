"""Which events a query's filters let through."""

from collections.abc import Collection, Iterable
from datetime import datetime

from recollect.kinds import DECISION, FAIL, KIND_FAMILY, SUCCESS
from recollect.recall.query import Query, moment_ms
from recollect.store import Store
from recollect.store.cards import CardFilter
from recollect.store.fulltext_search import Choice, EventFilter, Term, Wanted

OF_SESSIONS = ("agent", "repo", "branch", "model", "outcome", "group", "channel", "user", "domain", "task")


def card_filter(query: Query) -> CardFilter:
    """What the filters say about sessions' rows."""
    chosen, excluded = (
        [(name, tuple(values)) for name in OF_SESSIONS if (values := query.values(name, is_excluded=is_excluded))]
        for is_excluded in (False, True)
    )
    if "open" in query.values("is"):
        excluded.append(("outcome", (SUCCESS, FAIL)))
    if "open" in query.values("is", is_excluded=True):
        chosen.append(("outcome", (SUCCESS, FAIL)))
    return CardFilter(tuple(chosen), tuple(excluded))


def event_filter(store: Store, query: Query, now: datetime, exclude: Collection[str], notes: list[str]) -> EventFilter:
    """What the filters say about events, their sessions looked up. `exclude` are ids of sessions to leave out."""
    excluded = _streams(store, [*exclude, *query.values("session", is_excluded=True)], None)
    excluded |= _touching(store, query.values("file", is_excluded=True))
    sessions = query.values("session")
    return EventFilter(
        streams=_chosen_streams(store, query, notes),
        excluded_streams=tuple(sorted(excluded)),
        choices=tuple(_choices(query)),
        since_ms=_latest(query.values("since") + query.values("before", is_excluded=True), now),
        before_ms=_earliest(query.values("before") + query.values("since", is_excluded=True), now),
        is_error=_told(query, "is", "error"),
        has_edit=_told(query, "has", "edit"),
        with_copies=bool(sessions),  # who asks for a fork wants all of it
    )


def _told(query: Query, name: str, value: str) -> bool | None:
    if value in query.values(name):
        return True
    return False if value in query.values(name, is_excluded=True) else None


def _latest(values: Iterable[str], now: datetime) -> int | None:
    return max((moment_ms(value, now) for value in values), default=None)


def _earliest(values: Iterable[str], now: datetime) -> int | None:
    return min((moment_ms(value, now) for value in values), default=None)


def _choices(query: Query) -> Iterable[Choice]:
    for is_excluded in (False, True):
        kinds = query.values("kind", is_excluded=is_excluded)
        family = [member for kind in kinds for member in KIND_FAMILY.get(kind, (kind,))]
        if "decision" in query.values("is", is_excluded=is_excluded):
            family.append(DECISION)
        told = (
            ("kind", family),
            ("tool", query.values("tool", is_excluded=is_excluded)),
            ("role", query.values("role", is_excluded=is_excluded)),
        )
        yield from (Choice(column, tuple(values), is_excluded) for column, values in told if values)


def _chosen_streams(store: Store, query: Query, notes: list[str]) -> tuple[int, ...] | None:
    """The sessions that all filters about sessions let through; None if there is no such filter."""
    found: list[set[int]] = []
    wanted = card_filter(query)
    if wanted != CardFilter():
        found.append(set(store.excerpts.streams(store.cards.matching(wanted)).values()))
    if sessions := query.values("session"):
        found.append(_streams(store, sessions, notes))
    if files := query.values("file"):
        found.append(_touching(store, files))
    return tuple(sorted(set.intersection(*found))) if found else None


def _streams(store: Store, names: Collection[str], notes: list[str] | None) -> set[int]:
    """Sessions by id, beginning or end of one, or title, each with its sub-agents."""
    uids: set[str] = set()
    for name in names:
        matches = store.sessions.matching(name)
        uids |= {match.session_uid for match in matches}
        if not matches and notes is not None:
            notes.append(f"no session has the id or title `{name}`")
    return set(store.excerpts.streams(store.cards.households(uids)).values()) if uids else set()


def _touching(store: Store, paths: Collection[str]) -> set[int]:
    """Sessions with a call that names one of these paths."""
    if not paths:
        return set()
    wanted = Wanted((tuple(Term(path) for path in paths),), columns=("did",))
    return store.fulltext_search.streams_with(wanted)
