"""Which sessions come from which: spawned by, forked from, sharing records with."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from recollect.kinds import SessionKey, session_uid
from recollect.store import Ancestry, Store, StoredRow
from recollect.uids import name_half

_T = TypeVar("_T")

_NOTHING = Ancestry()
_NOBODY: frozenset[SessionKey] = frozenset()
_DEEPEST = 32  # logs may name two sessions as each other's parent


def all_reached(begin: Iterable[_T], near: Callable[[_T], Iterable[_T]]) -> set[_T]:
    """These, what is near to each of them, what is near to that, and so on."""
    reached = set(begin)
    waiting = list(reached)
    while waiting:
        new = set(near(waiting.pop())) - reached
        reached |= new
        waiting += new
    return reached


class Relations:
    """How some sessions are related to all others, as the store has it when this is made.

    Read in rounds: each asks for all that the last one met, so that the cost is that of the families met.
    """

    def __init__(self, store: Store, keys: Iterable[SessionKey]) -> None:
        self._origins: dict[SessionKey, Ancestry] = {}
        self._copied_from: dict[SessionKey, set[SessionKey]] = defaultdict(set)
        self._copied_by: dict[SessionKey, set[SessionKey]] = defaultdict(set)
        known, new = set[SessionKey](), set(keys)
        while new:
            known |= new
            new = self._read(store, new) - known
        self._held = store.streams.held(known)
        self._above = {key: (self._named_by(key) - {key}) & self._held for key in known}
        self._below: dict[SessionKey, set[SessionKey]] = defaultdict(set)
        self._spawned: dict[SessionKey, set[SessionKey]] = defaultdict(set)
        for key, origin in self._origins.items():
            for above in self._above[key]:
                self._below[above].add(key)
            if origin.parent:
                self._spawned[SessionKey(key.agent, origin.parent)].add(key)
        self._ancestors: dict[SessionKey, set[SessionKey]] = {}

    def _read(self, store: Store, keys: set[SessionKey]) -> set[SessionKey]:
        """Take down what is known of these; return whom it names."""
        self._origins |= store.streams.origins(keys)
        links = store.streams.copy_links(keys)
        for key, owner in links:
            if key != owner:
                self._copied_from[key].add(owner)
                self._copied_by[owner].add(key)
        named = {name for key in keys for name in self._named_by(key)}
        return named | store.streams.derived(keys) | {key for link in links for key in link}

    def _named_by(self, key: SessionKey) -> set[SessionKey]:
        return {SessionKey(key.agent, name) for name in self.origin(key)[:3] if name}

    def origin(self, key: SessionKey) -> Ancestry:
        return self._origins.get(key, _NOTHING)

    def root(self, key: SessionKey) -> SessionKey:
        """The session at the top: named, or reached by climbing; a cycle of claims ends."""
        current = key
        for _ in range(_DEEPEST):
            origin = self.origin(current)
            above = origin.root or origin.parent
            if above is None or above == current.native_id:
                break
            current = SessionKey(key.agent, above)
        return current

    def uid(self, key: SessionKey) -> str:
        root = self.root(key).native_id
        is_named_after_root = key.native_id == root or key.native_id.startswith(f"{root}/")
        return session_uid(key.agent, key.native_id if is_named_after_root else f"{root}/{key.native_id}")

    def spawned(self, key: SessionKey) -> set[SessionKey]:
        """The sessions this one spawned itself, as far as any of their events are held."""
        return self._spawned.get(key, set()) & self._held

    def above(self, key: SessionKey) -> set[SessionKey]:
        """The session's root and parent: their money and digests have a part of its own."""
        parent = self.origin(key).parent
        names = {self.root(key), SessionKey(key.agent, parent)} if parent else {self.root(key)}
        return (names - {key}) & self._held

    def all_spawned(self, key: SessionKey) -> set[SessionKey]:
        """All sessions that this one spawned, directly or not: their names follow from its own."""
        if key not in self._spawned:
            return set()
        return (all_reached([key], lambda above: self._spawned.get(above, ())) - {key}) & self._held

    def is_named_as(self, key: SessionKey, row: StoredRow) -> bool:
        """Whether a row has the names that follow from the relations."""
        parent = self.origin(key).parent
        parent_uid = self.uid(SessionKey(key.agent, parent)) if parent else None
        uids = row.session_uid, row.root_session_uid, row.parent_session_uid
        return uids == (self.uid(key), self.uid(self.root(key)), parent_uid)

    def originals(self, key: SessionKey) -> set[SessionKey]:
        """Sessions whose running totals this one may have taken over."""
        base = self.origin(key).base
        bases = {SessionKey(key.agent, base)} & self._held if base else set()
        return self._copied_from.get(key, set()) | bases

    def base(self, key: SessionKey, originals: Iterable[bytes]) -> SessionKey | None:
        """The session that this one goes on from: as it says, else the one its last copied event is from.

        `originals` are the halves of uids that name the sessions it copied from, the last one first.
        """
        origin = self.origin(key)
        if origin.base or origin.parent:
            return SessionKey(key.agent, origin.base) if origin.base else None
        owners = {
            name_half(*owner): owner for owner in self._copied_from.get(key, ()) if not self._is_older(key, owner)
        }
        if not owners:
            return None
        return next((owners[half] for half in originals if half in owners), None)

    def _is_older(self, key: SessionKey, other: SessionKey) -> bool:
        born_ms, other_ms = self.origin(key).born_ms, self.origin(other).born_ms
        return born_ms is not None and other_ms is not None and born_ms < other_ms

    def ancestors(self, key: SessionKey) -> set[SessionKey]:
        """All sessions this one says it comes from; a cycle of claims ends."""
        if key not in self._ancestors:
            self._ancestors[key] = all_reached(self._near_above(key), self._near_above) - {key}
        return self._ancestors[key]

    def _near_above(self, key: SessionKey) -> Iterable[SessionKey]:
        return self._above.get(key, ())

    def are_sharing(self, key: SessionKey, other: SessionKey) -> bool:
        """Whether one says it comes from the other, or holds copies of its records, or both hold a third one's."""
        copied, others = self._copied_from.get(key, _NOBODY), self._copied_from.get(other, _NOBODY)
        if other in copied or key in others or copied & others:
            return True
        return other in self.ancestors(key) or key in self.ancestors(other)

    def family(self, keys: Iterable[SessionKey]) -> set[SessionKey]:
        """These sessions and all that are related to them, be it through others."""
        links: tuple[Mapping[SessionKey, set[SessionKey]], ...] = (
            self._copied_from,
            self._copied_by,
            self._above,
            self._below,
        )
        return all_reached(keys, lambda key: {near for link in links for near in link.get(key, ())})
