"""Which events are copies: agents copy records when a session is resumed, forked or compacted.

Copies stay in each session, so that a fork is whole; they are marked with the original they were made
from, so that tokens, money and search count them once. The rule looks only at what is stored, so that
the order in which files were read does not matter: the original is the declared parent's, else the earliest
by timestamp, else of the file begun first, else the one with the smallest uid.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import product

from recollect.store import Store
from recollect.store.streams import Candidate, Relations, UsageMark

_NEVER_MS = 1 << 62


def mark_copies(store: Store) -> None:
    """Bring the copy marks of all dirty sessions, and of those they share records with, up to date."""
    origins = _Origins(store)
    changes: list[tuple[bytes | None, bytes]] = []
    for group in _groups(store.streams.copy_candidates()):
        owner = min(_roots(group, origins), key=lambda event: _age(event, origins))
        wanted = [(_original(event, owner), event) for event in group]
        changes += [(original, event.event_uid) for original, event in wanted if original != event.copy_of]
    if changes:
        store.streams.set_copies(changes)
    _mark_usage(store, origins)


class _Origins:
    """For each session asked about, those it says it comes from, and when its file was begun."""

    def __init__(self, store: Store) -> None:
        self._streams = store.streams
        self._relations: dict[int, tuple[str, Relations]] = {}
        self._ancestors: dict[int, set[int]] = {}
        self._relatives: dict[int, set[int]] = {}

    def _told(self, stream: int) -> tuple[str, Relations]:
        if stream not in self._relations:
            agent, native_id = self._streams.name(stream)
            self._relations[stream] = (agent, self._streams.relations(agent, native_id))
        return self._relations[stream]

    def native_id(self, stream: int) -> str:
        return self._streams.name(stream)[1]

    def born_ms(self, stream: int) -> int:
        born_ms = self._told(stream)[1].born_ms
        return _NEVER_MS if born_ms is None else born_ms

    def ancestors(self, stream: int) -> set[int]:
        """All sessions above a session; a cycle of claims ends."""
        if stream not in self._ancestors:
            seen: set[int] = set()
            waiting = list(self._parents(stream))
            while waiting:
                parent = waiting.pop()
                if parent not in seen:
                    seen.add(parent)
                    waiting += self._parents(parent)
            self._ancestors[stream] = seen - {stream}
        return self._ancestors[stream]

    def _parents(self, stream: int) -> set[int]:
        agent, told = self._told(stream)
        found = {self._streams.find(agent, name) for name in (told.parent, told.root, told.base) if name}
        return {parent for parent in found if parent is not None and parent != stream}

    def relatives(self, stream: int) -> set[int]:
        """Every session that may share responses with this one."""
        if stream not in self._relatives:
            agent, native_id = self._streams.name(stream)
            below = {self._streams.find(agent, name) for name in self._streams.descendants(agent, native_id)}
            copies = self._streams.copied_from(stream) | self._streams.copied_by(stream)
            found = self.ancestors(stream) | {relative for relative in below if relative is not None} | copies
            self._relatives[stream] = found - {stream}
        return self._relatives[stream]


def _groups(candidates: Iterable[Candidate]) -> Iterable[list[Candidate]]:
    """Events with one key that also say the same: short ids of weak providers may coincide."""
    groups: dict[tuple[int, str, str], list[Candidate]] = defaultdict(list)
    for event in candidates:
        groups[event.copy_key, event.base_kind, event.summary].append(event)
    return groups.values()


def _original(event: Candidate, owner: Candidate) -> bytes | None:
    return None if event.stream == owner.stream else owner.event_uid


def _roots(group: list[Candidate], origins: _Origins) -> list[Candidate]:
    streams = {event.stream for event in group}
    roots = [event for event in group if not origins.ancestors(event.stream) & streams]
    return roots or group  # two sessions that each claim the other as parent


def _age(event: Candidate, origins: _Origins) -> tuple[int, int, bytes]:
    ts_ms = event.ts_ms if event.ts_ms is not None else _NEVER_MS
    return ts_ms, origins.born_ms(event.stream), event.event_uid


def _mark_usage(store: Store, origins: _Origins) -> None:
    """A response copied into another session is paid once: only sessions that share records are compared."""
    known: dict[tuple[int, str], UsageMark] = {}
    copies: set[tuple[int, str]] = set()
    for left_stream, right_stream in _pairs(store, origins):
        for left, right in store.streams.shared_usage(left_stream, right_stream):
            known |= {(mark.stream, mark.usage_id): mark for mark in (left, right)}
            copy = left if _is_younger(left, right, origins) else right
            copies.add((copy.stream, copy.usage_id))
    # A later telling may turn a relation round, so marks are taken back as well as set.
    marks = [(key in copies, *key) for key, mark in known.items() if mark.is_copy != (key in copies)]
    if marks:
        store.streams.set_usage_copies(marks)


def _pairs(store: Store, origins: _Origins) -> list[tuple[int, int]]:
    """Pairs of related sessions, all within the families of sessions that changed."""
    family = {stream.id for stream in store.streams.dirty()}
    family |= {relative for stream in family for relative in origins.relatives(stream)}
    pairs = {(min(pair), max(pair)) for stream in family for pair in product((stream,), origins.relatives(stream))}
    return sorted(pairs)


def _is_younger(left: UsageMark, right: UsageMark, origins: _Origins) -> bool:
    if right.stream in origins.ancestors(left.stream):
        return True
    if left.stream in origins.ancestors(right.stream):
        return False

    def age(usage: UsageMark) -> tuple[int, int, str]:
        ts_ms = usage.ts_ms if usage.ts_ms is not None else _NEVER_MS
        return ts_ms, origins.born_ms(usage.stream), origins.native_id(usage.stream)

    return age(left) > age(right)
