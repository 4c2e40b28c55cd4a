"""Which events are copies: agents copy records when a session is resumed, forked or compacted.

Copies stay in each session, so that a fork is whole; they are marked with the original they were made
from, so that tokens, money and search count them once. The rule looks only at what is stored, so that
the order in which files were read does not matter: the original is the declared parent's, else the earliest
by timestamp, else of the file begun first, else the one with the smallest uid.
"""

from collections import defaultdict
from collections.abc import Iterable

from recollect.store import Store
from recollect.store.streams import Candidate, UsageMark

_NEVER_MS = 1 << 62
_PARENT_FIELDS = ("base_native_id", "parent_native_id", "root_native_id")


def mark_copies(store: Store) -> None:
    """Bring the copy marks of all dirty sessions, and of those they share records with, up to date."""
    ancestry, births = _origins(store)
    changes: list[tuple[bytes | None, bytes]] = []
    for group in _groups(store.streams.copy_candidates()):
        owner = min(_roots(group, ancestry), key=lambda event: _age(event, births))
        changes += [
            (wanted, event.event_uid) for event in group if (wanted := _original(event, owner)) != event.copy_of
        ]
    if changes:
        store.streams.set_copies(changes)
    _mark_usage(store, ancestry, births)


def _origins(store: Store) -> tuple[dict[int, set[int]], dict[int, int]]:
    """For each session the sessions it says it comes from, and when its file was begun."""
    names = store.streams.names()
    parents: dict[int, set[int]] = defaultdict(set)
    births: dict[int, int] = {}
    for agent, native_id, first in store.streams.first_facts():
        stream = names.get((agent, native_id))
        if stream is None:
            continue
        told = {names.get((agent, first.get(field, ""))) for field in _PARENT_FIELDS}
        parents[stream] |= {parent for parent in told if parent is not None and parent != stream}
        if "born_ms" in first:
            births[stream] = min(first["born_ms"], births.get(stream, _NEVER_MS))
    return _closure(parents), births


def _groups(candidates: Iterable[Candidate]) -> Iterable[list[Candidate]]:
    """Events with one key that also say the same: short ids of weak providers may coincide."""
    groups: dict[tuple[int, str, str], list[Candidate]] = defaultdict(list)
    for event in candidates:
        groups[event.copy_key, event.base_kind, event.summary].append(event)
    return groups.values()


def _original(event: Candidate, owner: Candidate) -> bytes | None:
    return None if event.stream == owner.stream else owner.event_uid


def _roots(group: list[Candidate], ancestry: dict[int, set[int]]) -> list[Candidate]:
    streams = {event.stream for event in group}
    roots = [event for event in group if not ancestry.get(event.stream, set()) & streams]
    return roots or group  # two sessions that each claim the other as parent


def _age(event: Candidate, births: dict[int, int]) -> tuple[int, int, bytes]:
    return (
        event.ts_ms if event.ts_ms is not None else _NEVER_MS,
        births.get(event.stream, _NEVER_MS),
        event.event_uid,
    )


def _closure(parents: dict[int, set[int]]) -> dict[int, set[int]]:
    """All ancestors of each session; a cycle of claims ends."""
    closed: dict[int, set[int]] = {}
    for stream in parents:
        seen: set[int] = set()
        waiting = list(parents[stream])
        while waiting:
            parent = waiting.pop()
            if parent not in seen:
                seen.add(parent)
                waiting += parents.get(parent, ())
        closed[stream] = seen - {stream}
    return closed


def _mark_usage(store: Store, ancestry: dict[int, set[int]], births: dict[int, int]) -> None:
    """A response copied into another session is paid once: only sessions that share records are compared."""
    dirty = {stream.id for stream in store.streams.dirty()}
    declared = {(child, parent) for child, parents in ancestry.items() for parent in parents}
    marks: list[tuple[bool, int, str]] = []
    for child, parent in sorted(declared | store.streams.copy_links()):
        if child in dirty or parent in dirty:
            for left, right in store.streams.shared_usage(child, parent):
                marks += _usage_marks(left, right, ancestry, births)
    if marks:
        store.streams.set_usage_copies(marks)


def _usage_marks(
    left: UsageMark, right: UsageMark, ancestry: dict[int, set[int]], births: dict[int, int]
) -> list[tuple[bool, int, str]]:
    copy = left if _is_younger(left, right, ancestry, births) else right
    return [(True, copy.stream, copy.usage_id)] if not copy.is_copy else []


def _is_younger(left: UsageMark, right: UsageMark, ancestry: dict[int, set[int]], births: dict[int, int]) -> bool:
    if right.stream in ancestry.get(left.stream, ()):
        return True
    if left.stream in ancestry.get(right.stream, ()):
        return False

    def age(usage: UsageMark) -> tuple[int, int, int]:
        return (
            usage.ts_ms if usage.ts_ms is not None else _NEVER_MS,
            births.get(usage.stream, _NEVER_MS),
            usage.stream,
        )

    return age(left) > age(right)
