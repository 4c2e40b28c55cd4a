"""Which events are copies: agents copy records when a session is resumed, forked or compacted.

Copies stay in each session, so that a fork is whole; they are marked with the original they were made
from, so that tokens, money and search count them once. The rule looks only at what is stored, so that
the order in which files were read does not matter: the original is the declared parent's, else the earliest
by timestamp, else of the file begun first, else of the session that first did something of its own, else the
one with the smallest uid. Responses, which are counted once too, have no uid: the smallest name of a session
decides last.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from typing import TypeVar

from recollect.kinds import SessionKey
from recollect.sessions.relations import Relations
from recollect.store import HALF_BYTES, Candidate, SharedResponse, Store
from recollect.uids import name_half

Holding = TypeVar("Holding", Candidate, SharedResponse)  # something of which several sessions may hold a copy

_NEVER_MS = 1 << 62


def mark_copies(store: Store) -> None:
    """Bring the copy marks of all dirty sessions, and of those they share records with, up to date."""
    candidates = store.lineage.copy_candidates()
    # What is shared is judged by all that two sessions hold, however little of it is new.
    if store.kept.drop({event.key for event in candidates}):
        candidates = store.lineage.copy_candidates()
    relations = Relations(store, {*store.streams.dirty(), *(event.key for event in candidates)})
    first_own_ms = cache(store.lineage.first_own_ms)
    changes: list[tuple[bytes | None, bytes]] = []
    renamed = _Renamed()
    for group in _groups(candidates):
        owner = _owner(group, relations, first_own_ms, lambda event: event.event_uid)
        for event in group:
            original = None if event.key == owner.key else owner.event_uid
            if original is not None and event.native_id != owner.native_id:
                renamed.add(event, owner)
            if original != event.copy_of:
                changes.append((original, event.event_uid))
    changes += renamed.changes(store, {event.event_uid for event in candidates})
    if changes:
        store.lineage.set_copies(changes)
        relations = Relations(store, store.streams.dirty())
    _mark_usage(store, relations, first_own_ms)


class _Renamed:
    """Sessions that took over records under new ids.

    Messages and calls have ids of the model's service and are recognised by them; prompts and notices have none. What
    says the same, and stands before the last record that was recognised, is a copy too.
    """

    def __init__(self) -> None:
        self._last: dict[SessionKey, int] = {}  # where the last recognised copy stands
        self._originals: dict[SessionKey, set[SessionKey]] = defaultdict(set)

    def add(self, copy: Candidate, owner: Candidate) -> None:
        self._last[copy.key] = max(copy.position, self._last.get(copy.key, 0))
        self._originals[copy.key].add(owner.key)

    def changes(self, store: Store, recognised: Collection[bytes]) -> Iterator[tuple[bytes | None, bytes]]:
        """(original, copy) of all whose mark is another; those of a session that turned out to be the original go."""
        partners: dict[SessionKey, set[SessionKey]] = defaultdict(set)
        for key, originals in self._originals.items():
            for original in originals:
                partners[key].add(original)
                partners[original].add(key)
        for key in sorted(partners):
            halves = {name_half(*partner) for partner in partners[key]}
            known = self._known_by_content(store, key, recognised)
            for event in store.lineage.main_line(key):
                is_of_others = event.copy_of is not None and event.copy_of[:HALF_BYTES] not in halves
                if event.event_uid in recognised or is_of_others:
                    continue
                same = known[event.base_kind, event.content] if event.position < self._last.get(key, 0) else []
                uid = same.pop() if same else None
                if uid != event.copy_of:
                    yield uid, event.event_uid

    def _known_by_content(
        self, store: Store, key: SessionKey, recognised: Collection[bytes]
    ) -> dict[tuple[str, str], list[bytes]]:
        """The events of a session's originals that are recognised by what they hold, the last ones first."""
        known: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        for original in sorted(self._originals.get(key, ())):
            for event in reversed(store.lineage.main_line(original)):
                if event.event_uid not in recognised:
                    known[event.base_kind, event.content].append(event.event_uid)
        return known


def _groups(candidates: Iterable[Candidate]) -> Iterable[list[Candidate]]:
    """Events with one key that also hold the same: short ids of weak providers may coincide."""
    groups: dict[tuple[int, str, str], list[Candidate]] = defaultdict(list)
    for event in candidates:
        groups[event.copy_key, event.base_kind, event.content].append(event)
    return groups.values()


def _roots(group: list[Holding], relations: Relations) -> list[Holding]:
    keys = {holding.key for holding in group}
    roots = [holding for holding in group if not relations.ancestors(holding.key) & keys]
    return roots or group  # two sessions that each claim the other as parent


def _owner(
    group: list[Holding],
    relations: Relations,
    first_own_ms: Callable[[SessionKey], int],
    name: Callable[[Holding], bytes | str],
) -> Holding:
    roots = _roots(group, relations)
    ages = [_age(holding, relations) for holding in roots]
    oldest = [holding for holding, age in zip(roots, ages, strict=True) if age == min(ages)]
    if len({holding.key for holding in oldest}) == 1:
        return min(oldest, key=name)
    return min(oldest, key=lambda holding: (first_own_ms(holding.key), name(holding)))


def _age(holding: Candidate | SharedResponse, relations: Relations) -> tuple[int, int]:
    born_ms = relations.origin(holding.key).born_ms
    return _NEVER_MS if holding.ts_ms is None else holding.ts_ms, _NEVER_MS if born_ms is None else born_ms


def _mark_usage(store: Store, relations: Relations, first_own_ms: Callable[[SessionKey], int]) -> None:
    """A response copied into another session is paid once: only sessions that share records are compared.

    The largest figures count: a log may hold only what was known when the response began, and a copy all of it.
    """
    holders: dict[str, list[SharedResponse]] = defaultdict(list)
    for response in store.lineage.shared_responses(relations.family(store.streams.dirty())):
        holders[response.usage_id].append(response)
    marks: list[tuple[bool, SessionKey, str]] = []
    figures: list[tuple[tuple[int, ...], SessionKey, str]] = []
    for group in (group for held in holders.values() for group in _connected(held, relations)):
        owner = _owner(group, relations, first_own_ms, lambda response: response.key.native_id)
        # A source that is read later may turn a relation round, so marks are taken back as well as set.
        marks += [(held is not owner, held.key, held.usage_id) for held in group if (held is not owner) != held.is_copy]
        largest = tuple(map(max, zip(*(held.figures for held in group), strict=True)))
        if owner.figures != largest:
            figures.append((largest, owner.key, owner.usage_id))
    if marks:
        store.lineage.set_usage_copies(marks)
    if figures:
        store.lineage.set_figures(figures)


def _connected(held: list[SharedResponse], relations: Relations) -> Iterator[list[SharedResponse]]:
    """Cut the holders of one id into those that share records, be it through another of them."""
    others = held
    while others:
        group, others = [others[0]], others[1:]
        for member in group:  # grows on the way
            near = [response for response in others if relations.are_sharing(member.key, response.key)]
            group += near
            others = [response for response in others if response not in near]
        yield group
