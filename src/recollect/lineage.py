"""Which events are copies: agents copy records when a session is resumed, forked or compacted.

Copies stay in each session, so that a fork is whole; they are marked with the original they were made
from, so that tokens, money and search count them once. The rule looks only at what is stored, so that
the order in which files were read does not matter: the original is the declared parent's, else the earliest
by timestamp, else of the file begun first, else the one with the smallest uid.
"""

from collections import defaultdict
from collections.abc import Iterable

from recollect.kinship import Kinship
from recollect.store import Store
from recollect.store.streams import Candidate, UsageMark

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


def _roots(group: list[Candidate], kinship: Kinship) -> list[Candidate]:
    streams = {event.stream for event in group}
    roots = [event for event in group if not kinship.ancestors(event.stream) & streams]
    return roots or group  # two sessions that each claim the other as parent


def _age(event: Candidate, kinship: Kinship) -> tuple[int, int, bytes]:
    return _or_never(event.ts_ms), _or_never(kinship.born_ms(event.stream)), event.event_uid


def _or_never(ms: int | None) -> int:
    return _NEVER_MS if ms is None else ms


def _mark_usage(store: Store, kinship: Kinship) -> None:
    """A response copied into another session is paid once: only sessions that share records are compared."""
    known: dict[tuple[int, str], UsageMark] = {}
    copies: set[tuple[int, str]] = set()
    for left_stream, right_stream in _pairs(store, kinship):
        for left, right in store.streams.shared_usage(left_stream, right_stream):
            known |= {(mark.stream, mark.usage_id): mark for mark in (left, right)}
            copy = left if _is_younger(left, right, kinship) else right
            copies.add((copy.stream, copy.usage_id))
    # A later telling may turn a relation round, so marks are taken back as well as set.
    marks = [(key in copies, *key) for key, mark in known.items() if mark.is_copy != (key in copies)]
    if marks:
        store.streams.set_usage_copies(marks)


def _pairs(store: Store, kinship: Kinship) -> list[tuple[int, int]]:
    """Pairs of sessions that may share responses, all within the families of those that changed."""
    dirty = store.streams.dirty()
    family = {stream.id for stream in dirty}
    for stream in dirty:
        family |= kinship.sharing(stream.id)
        family |= set(store.streams.descendants(stream.agent, stream.native_id))
    return sorted({(min(a, b), max(a, b)) for a in family for b in kinship.sharing(a)})


def _is_younger(left: UsageMark, right: UsageMark, kinship: Kinship) -> bool:
    if right.stream in kinship.ancestors(left.stream):
        return True
    if left.stream in kinship.ancestors(right.stream):
        return False

    def age(usage: UsageMark) -> tuple[int, int, str]:
        return _or_never(usage.ts_ms), _or_never(kinship.born_ms(usage.stream)), kinship.name(usage.stream)[1]

    return age(left) > age(right)
