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

from recollect.kinship import Kinship
from recollect.store import Store
from recollect.store.streams import Candidate, UsageMark

Holding = TypeVar("Holding", Candidate, UsageMark)  # something of which several sessions may hold a copy

_NEVER_MS = 1 << 62


def mark_copies(store: Store) -> None:
    """Bring the copy marks of all dirty sessions, and of those they share records with, up to date."""
    kinship = Kinship(store)
    changes: list[tuple[bytes | None, bytes]] = []
    for group in _groups(store.streams.copy_candidates()):
        owner = min(_roots(group, kinship), key=lambda event: _age(event, kinship))
        wanted = [(_original(event, owner), event) for event in group]
        changes += [(original, event.event_uid) for original, event in wanted if original != event.copy_of]
    if changes:
        store.streams.set_copies(changes)
    _mark_usage(store, Kinship(store) if changes else kinship)


def _groups(candidates: Iterable[Candidate]) -> Iterable[list[Candidate]]:
    """Events with one key that also say the same: short ids of weak providers may coincide."""
    groups: dict[tuple[int, str, str], list[Candidate]] = defaultdict(list)
    for event in candidates:
        groups[event.copy_key, event.base_kind, event.summary].append(event)
    return groups.values()


def _original(event: Candidate, owner: Candidate) -> bytes | None:
    return None if event.stream == owner.stream else owner.event_uid


def _roots(group: list[Holding], kinship: Kinship) -> list[Holding]:
    streams = {holding.stream for holding in group}
    roots = [holding for holding in group if not kinship.ancestors(holding.stream) & streams]
    return roots or group  # two sessions that each claim the other as parent


def _age(event: Candidate, kinship: Kinship) -> tuple[int, int, bytes]:
    return _or_never(event.ts_ms), _or_never(kinship.born_ms(event.stream)), event.event_uid


def _or_never(ms: int | None) -> int:
    return _NEVER_MS if ms is None else ms


def _mark_usage(store: Store, kinship: Kinship) -> None:
    """A response copied into another session is paid once: only sessions that share records are compared."""
    holders: dict[str, list[UsageMark]] = defaultdict(list)
    for usage in store.streams.shared_usage(kinship.family(stream.id for stream in store.streams.dirty())):
        holders[usage.usage_id].append(usage)
    marks = []
    for group in (group for held in holders.values() for group in _connected(held, kinship)):
        owner = min(_roots(group, kinship), key=lambda usage: _usage_age(usage, kinship))
        wanted = [(usage is not owner, usage) for usage in group]
        # A later telling may turn a relation round, so marks are taken back as well as set.
        marks += [(is_copy, *usage[:2]) for is_copy, usage in wanted if is_copy != usage.is_copy]
    if marks:
        store.streams.set_usage_copies(marks)


def _connected(held: list[UsageMark], kinship: Kinship) -> Iterator[list[UsageMark]]:
    """Cut the holders of one id into those that share records, be it through another of them."""
    others = held
    while others:
        group, others = [others[0]], others[1:]
        for member in group:  # grows on the way
            near = [usage for usage in others if kinship.are_sharing(member.stream, usage.stream)]
            group += near
            others = [usage for usage in others if usage not in near]
        yield group


def _usage_age(usage: UsageMark, kinship: Kinship) -> tuple[int, int, str]:
    return _or_never(usage.ts_ms), _or_never(kinship.born_ms(usage.stream)), kinship.name(usage.stream)[1]
