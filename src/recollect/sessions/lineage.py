"""Which events are copies: agents copy records when a session is resumed, forked or compacted.

Copies stay in each session, so that a fork is whole; they are marked with the original they were made
from, so that tokens, money and search count them once. The rule looks only at what is stored, so that
the order in which files were read does not matter: the original is the declared parent's, else the earliest
by timestamp, else of the file begun first, else the one with the smallest uid. Responses, which are counted
once too, have no uid: the smallest name of a session decides last.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from recollect.kinds import SessionKey
from recollect.sessions.relations import Relations
from recollect.store import Candidate, SharedResponse, Store

Holding = TypeVar("Holding", Candidate, SharedResponse)  # something of which several sessions may hold a copy

_NEVER_MS = 1 << 62


def mark_copies(store: Store) -> None:
    """Bring the copy marks of all dirty sessions, and of those they share records with, up to date."""
    candidates = store.streams.copy_candidates()
    relations = Relations(store, {*store.streams.dirty(), *(event.key for event in candidates)})
    changes: list[tuple[bytes | None, bytes]] = []
    for group in _groups(candidates):
        owner = min(_roots(group, relations), key=lambda event: (*_age(event, relations), event.event_uid))
        for event in group:
            original = None if event.key == owner.key else owner.event_uid
            if original != event.copy_of:
                changes.append((original, event.event_uid))
    if changes:
        store.streams.set_copies(changes)
        relations = Relations(store, store.streams.dirty())
    _mark_usage(store, relations)


def _groups(candidates: Iterable[Candidate]) -> Iterable[list[Candidate]]:
    """Events with one key that also say the same: short ids of weak providers may coincide."""
    groups: dict[tuple[int, str, str], list[Candidate]] = defaultdict(list)
    for event in candidates:
        groups[event.copy_key, event.base_kind, event.summary].append(event)
    return groups.values()


def _roots(group: list[Holding], relations: Relations) -> list[Holding]:
    keys = {holding.key for holding in group}
    roots = [holding for holding in group if not relations.ancestors(holding.key) & keys]
    return roots or group  # two sessions that each claim the other as parent


def _age(holding: Candidate | SharedResponse, relations: Relations) -> tuple[int, int]:
    born_ms = relations.origin(holding.key).born_ms
    return _NEVER_MS if holding.ts_ms is None else holding.ts_ms, _NEVER_MS if born_ms is None else born_ms


def _mark_usage(store: Store, relations: Relations) -> None:
    """A response copied into another session is paid once: only sessions that share records are compared."""
    holders: dict[str, list[SharedResponse]] = defaultdict(list)
    for response in store.streams.shared_responses(relations.family(store.streams.dirty())):
        holders[response.usage_id].append(response)
    marks: list[tuple[bool, SessionKey, str]] = []
    for group in (group for held in holders.values() for group in _connected(held, relations)):
        owner = min(_roots(group, relations), key=lambda response: (*_age(response, relations), response.key.native_id))
        # A source that is read later may turn a relation round, so marks are taken back as well as set.
        marks += [(one is not owner, one.key, one.usage_id) for one in group if (one is not owner) != one.is_copy]
    if marks:
        store.streams.set_usage_copies(marks)


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
