"""Which sessions come from which: spawned by, forked from, sharing records with."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from recollect.schema import session_uid
from recollect.store import Store
from recollect.store.streams import Relations, StreamName

_T = TypeVar("_T")
Name = tuple[str, str]  # agent, native id

_MANY = 100  # from this many changed sessions on, reading all relations at once is cheaper than asking for each


def all_reached(begin: Iterable[_T], near: Callable[[_T], set[_T]]) -> set[_T]:
    """These, what is near to each of them, what is near to that, and so on."""
    found = set(begin)
    waiting = list(found)
    while waiting:
        new = near(waiting.pop()) - found
        found |= new
        waiting += new
    return found


class Kinship:
    """Relations between the sessions of a store, asked for as needed. Made anew for each step of a sweep."""

    def __init__(self, store: Store) -> None:
        self._streams = store.streams
        self._relations: dict[Name, Relations] = {}
        self._spawned: dict[Name, list[str]] | None = None
        self._ids: dict[Name, int] = {}
        self._names: dict[int, Name] = {}
        self._ancestors: dict[int, set[int]] = {}
        self._descendants: dict[int, set[int]] | None = None
        self._has_all = len(store.streams.dirty()) >= _MANY
        if self._has_all:
            self._read_all()
        self._copied_from: dict[int, set[int]] = defaultdict(set)
        self._copied_by: dict[int, set[int]] = defaultdict(set)
        for stream, owner in store.streams.copy_links():
            self._copied_from[stream].add(owner)
            self._copied_by[owner].add(stream)

    def _read_all(self) -> None:
        self._ids = self._streams.names()
        self._names = {stream: name for name, stream in self._ids.items()}
        self._relations = self._streams.all_relations()
        self._spawned = defaultdict(list)
        for (agent, native_id), told in self._relations.items():
            if told.parent:
                self._spawned[agent, told.parent].append(native_id)

    def relations(self, agent: str, native_id: str) -> Relations:
        name = (agent, native_id)
        if name not in self._relations:
            nothing = Relations(None, None, None, None)
            self._relations[name] = nothing if self._has_all else self._streams.relations(agent, native_id)
        return self._relations[name]

    def find(self, agent: str, native_id: str | None) -> int | None:
        """The stream of a session, if any of its events are held."""
        if native_id is None:
            return None
        if self._has_all:
            return self._ids.get((agent, native_id))
        return self._streams.find(agent, native_id)

    def name(self, stream: int) -> Name:
        if stream not in self._names:
            self._names[stream] = self._streams.name(stream)
        return self._names[stream]

    def root(self, agent: str, native_id: str) -> str:
        """The session at the top: told, or found by climbing; a cycle of claims ends."""
        current = native_id
        for _ in range(32):
            told = self.relations(agent, current)
            above = told.root or told.parent
            if above is None or above == current:
                break
            current = above
        return current

    def uid(self, agent: str, native_id: str) -> str:
        root = self.root(agent, native_id)
        is_named_after_root = native_id == root or native_id.startswith(f"{root}/")
        return session_uid(agent, native_id if is_named_after_root else f"{root}/{native_id}")

    def _children(self, agent: str, native_id: str) -> list[str]:
        if self._spawned is not None:
            return self._spawned.get((agent, native_id), [])
        return self._streams.spawned(agent, native_id)

    def spawned(self, stream: StreamName) -> list[int]:
        """The sessions this one spawned itself."""
        found = (self.find(stream.agent, child) for child in self._children(stream.agent, stream.native_id))
        return [child for child in found if child is not None]

    def household(self, stream: StreamName) -> set[int]:
        """The session's root and parent, and all it spawned, directly or not: they share names and money."""
        agent, native_id = stream.agent, stream.native_id
        names = {self.root(agent, native_id), self.relations(agent, native_id).parent or native_id}
        waiting = [native_id]
        while waiting:
            below = set(self._children(agent, waiting.pop())) - names
            names |= below
            waiting += below
        return self._held(agent, names) - {stream.id}

    def _held(self, agent: str, names: set[str]) -> set[int]:
        return {stream for name in names if (stream := self.find(agent, name)) is not None}

    def originals(self, stream: StreamName) -> set[int]:
        """Sessions whose running totals this one may have taken over."""
        base = self.find(stream.agent, self.relations(stream.agent, stream.native_id).base)
        return self._copied_from.get(stream.id, set()) | ({base} if base is not None else set())

    def born_ms(self, stream: int) -> int | None:
        """When the session's file was begun."""
        return self.relations(*self.name(stream)).born_ms

    def ancestors(self, stream: int) -> set[int]:
        """All sessions this one says it comes from; a cycle of claims ends."""
        if stream not in self._ancestors:
            seen: set[int] = set()
            waiting = list(self._above(stream))
            while waiting:
                parent = waiting.pop()
                if parent not in seen:
                    seen.add(parent)
                    waiting += self._above(parent)
            self._ancestors[stream] = seen - {stream}
        return self._ancestors[stream]

    def _above(self, stream: int) -> set[int]:
        agent, native_id = self.name(stream)
        told = self.relations(agent, native_id)
        return self._held(agent, {name for name in told[:3] if name}) - {stream}

    def are_sharing(self, one: int, other: int) -> bool:
        """Whether one says it comes from the other, or holds copies of its records."""
        copied = self._copied_from.get(one, ()), self._copied_by.get(one, ())
        return any(other in streams for streams in copied) or (
            other in self.ancestors(one) or one in self.ancestors(other)
        )

    def family(self, streams: Iterable[int]) -> set[int]:
        """These sessions and all that are related to them, be it through others."""
        return all_reached(streams, self._near)

    def _near(self, stream: int) -> set[int]:
        copies = self._copied_from.get(stream, set()) | self._copied_by.get(stream, set())
        return copies | self._above(stream) | self._below(stream)

    def _below(self, stream: int) -> set[int]:
        """The sessions that say they come from this one."""
        if not self._has_all:
            return set(self._streams.descendants(*self.name(stream)))
        if self._descendants is None:
            self._descendants = defaultdict(set)
            for below in self._names:
                for above in self._above(below):
                    self._descendants[above].add(below)
        return self._descendants.get(stream, set())
