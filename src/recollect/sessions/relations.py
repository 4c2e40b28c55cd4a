"""Which sessions come from which, and which events are copies: agents copy records when they resume, fork or compact.

Copies stay in each session, so that a fork is whole; they are marked with the original they were made
from, so that tokens, money and search count them once. The rule looks only at what is stored, so that
the order in which files were read does not matter: the original is the declared parent's, else the earliest
by timestamp, else of the file begun first, else of the session that first did something of its own, else the
one with the smallest uid. Responses, which are counted once too, have no uid: the smallest name of a session
decides last.

A session belongs to the group whose home of an agent it was found in, else to that of the folder it worked in.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from recollect.agents import adapters
from recollect.model.kinds import SessionKey, name_half, session_uid
from recollect.store import HALF_BYTES, MAIN_GROUP, Ancestry, Candidate, GroupRow, SharedResponse, Store, path_key

_T = TypeVar("_T")

_NOTHING = Ancestry()
_NOBODY: frozenset[SessionKey] = frozenset()
_DEEPEST = 32  # logs may name two sessions as each other's parent or base


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
        self._held = set(store.events.streams(known))
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
        links = store.lineage.copy_links(keys)
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

    def names(self, key: SessionKey) -> dict[str, Any]:
        """Return the columns of a row that name the session, its root and its parent."""
        parent = self.origin(key).parent
        return {
            "session_uid": self.uid(key),
            "root_session_uid": self.uid(self.root(key)),
            "parent_session_uid": self.uid(SessionKey(key.agent, parent)) if parent else None,
        }

    def originals(self, key: SessionKey) -> set[SessionKey]:
        """Sessions whose running totals this one may have taken over."""
        base = self.origin(key).base
        bases = {SessionKey(key.agent, base)} & self._held if base else set()
        return self._copied_from.get(key, set()) | bases

    def base(self, key: SessionKey, originals: Iterable[bytes]) -> SessionKey | None:
        """The session that this one continues: as it says, else the one its last copied event is from.

        `originals` are the halves of uids that name the sessions it copied from, the last one first.
        """
        origin = self.origin(key)
        if origin.base or origin.parent:
            return SessionKey(key.agent, origin.base) if origin.base else None
        owners: dict[bytes, SessionKey] = {}
        for owner in self._copied_from.get(key, ()):
            owner_ms = self.origin(owner).born_ms
            if origin.born_ms is None or owner_ms is None or origin.born_ms >= owner_ms:
                owners[name_half(*owner)] = owner
        return next((owners[half] for half in originals if half in owners), None)

    def ancestors(self, key: SessionKey) -> set[SessionKey]:
        """All sessions this one says it comes from; a cycle of claims ends."""
        if key not in self._ancestors:
            self._ancestors[key] = all_reached(self._above.get(key, ()), lambda near: self._above.get(near, ())) - {key}
        return self._ancestors[key]

    def are_sharing(self, key: SessionKey, other: SessionKey) -> bool:
        """Whether one says it comes from the other, or holds copies of its records, or both hold a third one's."""
        copied, others = self._copied_from.get(key, _NOBODY), self._copied_from.get(other, _NOBODY)
        if other in copied or key in others or copied & others:
            return True
        return other in self.ancestors(key) or key in self.ancestors(other)

    def family(self, keys: Iterable[SessionKey]) -> set[SessionKey]:
        """These sessions and all that are related to them, be it through others."""
        links = self._copied_from, self._copied_by, self._above, self._below
        return all_reached(keys, lambda key: {near for link in links for near in link.get(key, ())})


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
    # Events with one key that also hold the same: short ids of weak providers may coincide.
    groups: dict[tuple[int | None, str, str], list[Candidate]] = defaultdict(list)
    for event in candidates:
        groups[event.copy_key, event.base_kind, event.content].append(event)
    for group in groups.values():
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
        self._last: dict[SessionKey, int] = {}  # the position of the last recognised copy
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


def _owner(
    group: list[Holding],
    relations: Relations,
    first_own_ms: Callable[[SessionKey], int],
    name: Callable[[Holding], bytes | str],
) -> Holding:
    keys = {holding.key for holding in group}
    roots = [holding for holding in group if not relations.ancestors(holding.key) & keys]
    ages: dict[tuple[int, int], list[Holding]] = defaultdict(list)
    for holding in roots or group:  # none, if two sessions each claim the other as parent
        born_ms = relations.origin(holding.key).born_ms
        begun_ms = _NEVER_MS if holding.ts_ms is None else holding.ts_ms
        ages[begun_ms, _NEVER_MS if born_ms is None else born_ms].append(holding)
    oldest = ages[min(ages)]
    if len({holding.key for holding in oldest}) == 1:
        return min(oldest, key=name)
    return min(oldest, key=lambda holding: (first_own_ms(holding.key), name(holding)))


def _mark_usage(store: Store, relations: Relations, first_own_ms: Callable[[SessionKey], int]) -> None:
    """A response copied into another session is paid once: only sessions that share records are compared.

    The largest figures count: a log may hold only what was known when the response began, and a copy all of it.
    """
    holders: dict[str, list[SharedResponse]] = defaultdict(list)
    for response in store.lineage.shared_responses(relations.family(store.streams.dirty())):
        holders[response.usage_id].append(response)
    marks: list[tuple[tuple[int, ...], SessionKey, str]] = []
    figures: list[tuple[tuple[int, ...], SessionKey, str]] = []
    for group in (group for held in holders.values() for group in _connected(held, relations)):
        owner = _owner(group, relations, first_own_ms, lambda response: response.key.native_id)
        # A source that is read later may turn a relation round, so marks are taken back as well as set.
        marks += [
            ((int(held is not owner),), held.key, held.usage_id)
            for held in group
            if (held is not owner) != held.is_copy
        ]
        largest = tuple(map(max, zip(*(held.figures for held in group), strict=True)))
        if owner.figures != largest:
            figures.append((largest, owner.key, owner.usage_id))
    if marks:
        store.lineage.set_usage(marks, ("is_copy",))
    if figures:
        store.lineage.set_usage(figures)


def _connected(held: list[SharedResponse], relations: Relations) -> Iterator[list[SharedResponse]]:
    """Group the holders of one id by the records they share, directly or through another holder."""
    others = held
    while others:
        group, others = [others[0]], others[1:]
        for member in group:  # grows on the way
            near = [response for response in others if relations.are_sharing(member.key, response.key)]
            group += near
            others = [response for response in others if response not in near]
        yield group


GROUPS_FOLDER = "groups"


def group_folder(store_folder: Path, name: str) -> Path:
    """Where the store keeps what belongs to a group: the homes of its agents, its IPC folder."""
    return store_folder / GROUPS_FOLDER / name


def homes_of(store_folder: Path, group: GroupRow) -> dict[str, Path]:
    """The home of each agent in a group: as it was given, else one in the group's folder of the store."""
    folder = group_folder(store_folder, group.name)
    homes = {agent: folder / Path(adapter.home).name for agent, adapter in adapters().items()}
    return homes | ({group.agent: Path(group.home)} if group.home else {})


def with_group_homes(store: Store, roots: Mapping[str, tuple[Path, ...]]) -> dict[str, tuple[Path, ...]]:
    """The agents' homes that a sweep reads, those of the groups included as far as they exist."""
    homes = dict(roots)
    groups = {group.name: group for group in store.groups.all()}
    if not groups and not (store.folder / GROUPS_FOLDER).exists():
        return homes  # most stores have none, and looking at every agent's home takes longer than a sweep without news
    main = GroupRow(MAIN_GROUP, "", "", None, 0)
    for group in ({MAIN_GROUP: main} | groups).values():
        for agent, home in homes_of(store.folder, group).items():
            if agent in homes and home not in homes[agent] and home.is_dir():
                homes[agent] = (*homes[agent], home)
    return homes


def assign_groups(store: Store) -> int:
    """Put every session into its group, and return how many changed theirs.

    Sub-agents and forks belong where the session they come from does.
    """
    groups = store.groups.all()
    if not groups and not store.session_rows.has_groups():
        return 0
    members = store.session_rows.places()
    by_home = _by_home(store, groups)
    by_uid = {member.session_uid: member for member in members}
    changes: dict[SessionKey, tuple[str]] = {}
    for member in members:
        origin = member  # the session that this one comes from in the end, of those that are stored
        for _ in range(_DEEPEST):
            is_root = origin.root_session_uid == origin.session_uid
            source = by_uid.get((origin.base_session_uid if is_root else origin.root_session_uid) or "")
            if source is None:
                break
            origin = source
        group = origin.group if origin.key is not None else by_home.get(origin.session) or _by_path(groups, origin.cwd)
        if group != member.group:
            changes[member.session] = (group,)
    store.session_rows.set(("group",), changes)
    return len(changes)


def _by_home(store: Store, groups: list[GroupRow]) -> dict[SessionKey, str]:
    # Sweeps read a home where a link to it leads.
    homes = [
        (path_key(home.resolve()), group.name) for group in groups for home in homes_of(store.folder, group).values()
    ]
    homes.sort(key=lambda home: len(home[0]))  # of homes within homes the inner one counts
    return {key: name for home, name in homes for key in store.session_rows.below(home)}


def _by_path(groups: list[GroupRow], cwd: str | None) -> str:
    inside = [group for group in groups if cwd and Path(cwd).is_relative_to(group.path)]
    return max(inside, key=lambda group: len(group.path)).name if inside else MAIN_GROUP
