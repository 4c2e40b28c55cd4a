"""Forgetting: `plan` says what would go and changes nothing, `apply` removes it for good."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import orjson

from recollect.clock import rfc3339
from recollect.config import Settings
from recollect.distill import distil_pending
from recollect.errors import Busy, NeedsAnswer, UsageError
from recollect.kinship import all_reached
from recollect.progress import Progress, silent
from recollect.removal import drop
from recollect.repos import name_repos
from recollect.schema import Session, session_uid
from recollect.store import Store
from recollect.store.copies import Copy
from recollect.store.locks import sweep_lock
from recollect.store.remains import Held
from recollect.store.sessions import SessionFilter
from recollect.store.tombstones import Name, Tombstone
from recollect.sweep import SweepReport, account_for_changes


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be forgotten: these sessions, or all that fit every other condition given."""

    sessions: Sequence[Session] = ()
    repo: str | None = None
    before_ms: int | None = None
    match: str | None = None


@dataclass(frozen=True, slots=True)
class ForgottenSession:
    """A session that goes, or a fork that shares `shared_events` records with one that goes."""

    session_uid: str
    agent: str
    native_session_id: str
    title: str | None
    is_sub_agent: bool
    events: int
    payload_bytes: int
    shared_events: int = 0


@dataclass(frozen=True, slots=True)
class UnreachableCopy:
    """A backup or export that may hold what is forgotten here: its owner has to see to it."""

    kind: str
    path: str
    made_at: str | None


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """What goes, and what stays although it holds the same text.

    `files` are the agents' own logs, which are never changed: what they hold, they go on holding.
    """

    sessions: tuple[ForgottenSession, ...]
    forks: tuple[ForgottenSession, ...]
    files: tuple[str, ...]
    copies: tuple[UnreachableCopy, ...]

    @property
    def events(self) -> int:
        return sum(session.events for session in self.sessions)

    @property
    def payload_bytes(self) -> int:
        return sum(session.payload_bytes for session in self.sessions)


def plan(store: Store, wanted: Wanted, progress: Progress, *, with_forks: bool = False) -> ForgetPlan:
    """What would go. `with_forks` takes along every session that shares text with one that goes, and so on."""
    rows = _Rows(store)
    chosen = rows.with_sub_agents(_chosen(store, wanted, progress))
    sharing = store.remains.sharing(chosen)
    while with_forks and sharing:
        chosen |= rows.with_sub_agents(sharing)
        sharing = store.remains.sharing(chosen)
    held = {name: store.remains.held(name) for name in sorted(chosen)}
    return ForgetPlan(
        sessions=tuple(rows.described(name, one) for name, one in held.items()),
        forks=tuple(rows.described(name, store.remains.held(name), shared) for name, shared in sharing.items()),
        files=tuple(sorted({path for one in held.values() for path in one.files})),
        copies=tuple(map(_copy, store.remains.copies())) if chosen else (),
    )


def apply(store: Store, settings: Settings, planned: ForgetPlan, *, keep_forks: bool = False) -> ForgetPlan:
    """Forget the sessions of a plan and return it; raises NeedsAnswer if forks share their text and may not keep it.

    The tombstones are on the disk before anything is deleted, so whatever stops this is gone on with later.
    """
    if planned.forks and not keep_forks:
        raise NeedsAnswer(
            f"Other sessions hold the same text: {', '.join(fork.session_uid for fork in planned.forks[:3])}",
            "--with-forks forgets them too, --keep-forks leaves them their copies",
        )
    with _alone(store):
        names = _Rows(store).with_sub_agents((one.agent, one.native_session_id) for one in planned.sessions)
        store.tombstones.add(_tombstones(store, names, planned.forks))
        drop(store, names)
        account_for_changes(store, settings, SweepReport(), silent)
        name_repos(store, settings.domains)
        distil_pending(store, lambda done, total: None)  # a root's digest has a line for each of its sub-agents
        store.remains.scrub()
        store.tombstones.finish(names)
        store.checkpoint()
    return planned


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    """Hold the sweep's lock: what is being read meanwhile would come back."""
    with ExitStack() as stack:
        try:
            stack.enter_context(sweep_lock(store.folder))
        except Busy:
            raise Busy("A sweep is running, so nothing can be forgotten now", "try again when it has ended") from None
        yield


def _tombstones(store: Store, names: Iterable[Name], forks: Iterable[ForgottenSession]) -> list[Tombstone]:
    kept = tuple(fork.native_session_id for fork in forks)
    return [Tombstone(*name, store.remains.event_keys(name), kept) for name in sorted(names)]


def _copy(copy: Copy) -> UnreachableCopy:
    return UnreachableCopy(copy.kind, copy.path, rfc3339(copy.made_ms))


class _Rows:
    """Sessions by name, as far as there are rows of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[Name, Session | None] = {}

    def find(self, name: Name) -> Session | None:
        if name not in self._rows:
            self._rows[name] = self._store.sessions.find_named(*name)
        return self._rows[name]

    def with_sub_agents(self, names: Iterable[Name]) -> set[Name]:
        """The sessions and all that they spawned, directly or not, and forks that hold nothing of their own."""
        return all_reached(names, self._below)

    def _below(self, name: Name) -> set[Name]:
        agent, native_id = name
        spawned = {(agent, child) for child in self._store.streams.spawned(agent, native_id)}
        session = self.find(name)
        parent = session.session_uid if session else session_uid(*name)
        remains = self._store.remains
        named = remains.named_after(name) | remains.empty_forks(name)
        return spawned | set(self._store.sessions.spawned(parent)) | named

    def described(self, name: Name, held: Held, shared_events: int = 0) -> ForgottenSession:
        session = self.find(name)
        return ForgottenSession(
            session_uid=session.session_uid if session else session_uid(*name),
            agent=name[0],
            native_session_id=name[1],
            title=session.title if session else None,
            is_sub_agent=session is not None and session.parent_session_uid is not None,
            events=held.events,
            payload_bytes=held.payload_bytes,
            shared_events=shared_events,
        )


def _name(session: Session) -> Name:
    return session.agent, session.native_session_id


def _chosen(store: Store, wanted: Wanted, progress: Progress) -> set[Name]:
    for option, text in (("--match", wanted.match), ("--repo", wanted.repo)):
        if text is not None and not text.strip():
            raise UsageError(f"`{option}` is empty, which would fit everything", "say which text or repository")
    if wanted.sessions:
        return {_name(session) for session in wanted.sessions}
    if wanted.repo is None and wanted.before_ms is None:
        names = store.remains.names()
    else:
        before = rfc3339(wanted.before_ms)
        found = store.sessions.find(SessionFilter(repo=wanted.repo))
        names = [_name(session) for session in found if before is None or (session.ended_at or "~") < before]
    return set(names) if wanted.match is None else _matching(store, names, wanted.match, progress)


def _matching(store: Store, names: Sequence[Name], text: str, progress: Progress) -> set[Name]:
    """Sessions in which the text stands, whatever its case."""
    needle = orjson.dumps(text).decode()[1:-1].casefold()  # as it looks inside of JSON
    found = set()
    for done, name in enumerate(names, start=1):
        if _holds(store, name, needle):
            found.add(name)
        progress("searching", done, len(names))
    return found


def _holds(store: Store, name: Name, needle: str) -> bool:
    if any(needle in text.casefold() for text in store.remains.texts(name)):
        return True
    # Not payload by payload: what was replaced or dropped since is no event any more, but its bytes are still there.
    before = b""
    for content in store.events.iter_content(*name):
        if needle in (before + content).decode("utf-8", "replace").casefold():
            return True
        before = content[-4 * len(needle) :]
    return False
