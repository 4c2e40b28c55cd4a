"""Forgetting: `plan` says what would go and changes nothing, `apply` removes it for good."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from recollect.admission import held_although_excluded
from recollect.clock import rfc3339
from recollect.config import Settings
from recollect.distill import distil_pending
from recollect.errors import Busy, NeedsAnswer, StoreUnwritable, UsageError
from recollect.kinship import all_reached
from recollect.matching import Found, find_text
from recollect.progress import Progress, silent
from recollect.removal import FINISHES_FORGETTING, drop
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
    excluded_by: Sequence[str] | None = None  # the user's patterns, where only what they leave out is meant


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
class ForgottenLine:
    """A line that could not be read, of a file that tells of several sessions; `key` is all that stays of it."""

    agent: str
    path: str
    line: int | None
    key: str


@dataclass(frozen=True, slots=True)
class UnreachableCopy:
    """A backup or export that may hold what is forgotten here: its owner has to see to it."""

    kind: str
    path: str
    made_at: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan answers, and the state of the store that it was made from."""

    wanted: Wanted
    with_forks: bool
    commits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """What goes, and what stays although it holds the same text.

    `files` are the agents' own logs, which are never changed: what they hold, they go on holding. `lines` could not be
    read and lie in files that tell of several sessions, or of none.
    """

    sessions: tuple[ForgottenSession, ...]
    lines: tuple[ForgottenLine, ...]
    forks: tuple[ForgottenSession, ...]
    files: tuple[str, ...]
    copies: tuple[UnreachableCopy, ...]
    asked: Asked

    @property
    def names(self) -> set[Name]:
        """What gets a tombstone, but for sub-agents that turn up later."""
        sessions = {(one.agent, one.native_session_id) for one in self.sessions}
        return sessions | {(line.agent, line.key) for line in self.lines}

    @property
    def events(self) -> int:
        return sum(session.events for session in self.sessions)

    @property
    def payload_bytes(self) -> int:
        return sum(session.payload_bytes for session in self.sessions)


def plan(store: Store, wanted: Wanted, progress: Progress, *, with_forks: bool = False) -> ForgetPlan:
    """What would go. `with_forks` takes along every session that shares text with one that goes, and so on."""
    asked = Asked(wanted, with_forks, store.commits())  # before it is looked at: what comes meanwhile is news
    rows = _Rows(store)
    found = _chosen(store, wanted, progress)
    chosen = rows.with_sub_agents(found.sessions)
    sharing = store.remains.sharing(chosen)
    while with_forks and sharing:
        chosen |= rows.with_sub_agents(sharing)
        sharing = store.remains.sharing(chosen)
    held = {name: store.remains.held(name) for name in sorted(chosen)}
    files = {path for one in held.values() for path in one.files} | {line.path for line in found.lines}
    return ForgetPlan(
        sessions=tuple(rows.described(name, one) for name, one in held.items()),
        lines=tuple(ForgottenLine(line.agent, line.path, line.line, line.name[1]) for line in found.lines),
        forks=tuple(rows.described(name, store.remains.held(name), shared) for name, shared in sharing.items()),
        files=tuple(sorted(files)),
        copies=tuple(map(_copy, store.remains.copies())) if chosen or found.lines else (),
        asked=asked,
    )


def apply(
    store: Store, settings: Settings, planned: ForgetPlan, *, keep_forks: bool = False, also_new: bool = False
) -> ForgetPlan:
    """Forget what a plan names and return it; raises NeedsAnswer if forks share the text and may not keep it.

    What was stored since then and fits too raises Busy, or goes with it if `also_new`.
    The tombstones are on the disk before anything is deleted, so whatever stops this is gone on with later.
    """
    _require_answer(planned, keep_forks)
    with alone(store):
        planned = _as_of_now(store, planned, also_new)
        _require_answer(planned, keep_forks)
        names = _Rows(store).with_sub_agents(planned.names)
        store.tombstones.add(_tombstones(store, names, planned.forks))
        with _says_that_it_was_begun():
            _remove(store, settings, names)
    return planned


def _remove(store: Store, settings: Settings, names: set[Name]) -> None:
    drop(store, names)
    account_for_changes(store, settings, SweepReport(), silent)
    name_repos(store, settings.domains)
    distil_pending(store, lambda done, total: None)  # a root's digest has a line for each of its sub-agents
    store.remains.scrub()
    store.tombstones.finish(names)
    store.checkpoint()


@contextmanager
def _says_that_it_was_begun() -> Iterator[None]:
    try:
        yield
    except (StoreUnwritable, Busy) as error:
        raise type(error)(f"Forgetting was begun but not finished: {error.message}", FINISHES_FORGETTING) from error


def _require_answer(planned: ForgetPlan, keep_forks: bool) -> None:
    if planned.forks and not keep_forks:
        raise NeedsAnswer(
            f"Other sessions hold the same text: {', '.join(fork.session_uid for fork in planned.forks[:3])}",
            "--with-forks forgets them too, --keep-forks leaves them their copies",
        )


def _as_of_now(store: Store, planned: ForgetPlan, also_new: bool) -> ForgetPlan:
    """The plan as it is with what a sweep stored since it was made."""
    asked = planned.asked
    if store.commits() == asked.commits:
        return planned
    now = plan(store, asked.wanted, silent, with_forks=asked.with_forks)
    new = now.names - planned.names
    if new and not also_new and not asked.wanted.sessions:
        count = "1 more fits" if len(new) == 1 else f"{len(new)} more fit"
        raise Busy(f"A sweep stored something since this was planned, and {count}", "look at the plan again")
    return now


@contextmanager
def alone(store: Store) -> Iterator[None]:
    """Hold the sweep's lock: what is being read meanwhile would come back."""
    with ExitStack() as stack:
        try:
            stack.enter_context(sweep_lock(store.folder))
        except Busy:
            raise Busy("A sweep is running, so nothing can be forgotten now", "try again when it has ended") from None
        yield


def _tombstones(store: Store, names: Iterable[Name], forks: Iterable[ForgottenSession]) -> list[Tombstone]:
    """What a kept fork holds too does not go from the store, so nobody else has to do without it either."""
    keeping = [(fork.agent, fork.native_session_id) for fork in forks]
    kept = tuple(native_id for _, native_id in keeping)
    return [Tombstone(*name, store.remains.event_keys(name, keeping), kept) for name in sorted(names)]


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


def _chosen(store: Store, wanted: Wanted, progress: Progress) -> Found:
    for option, text in (("--match", wanted.match), ("--repo", wanted.repo)):
        if text is not None and not text.strip():
            raise UsageError(f"`{option}` is empty, which would fit everything", "say which text or repository")
    if wanted.sessions:
        return Found({_name(session) for session in wanted.sessions}, [])
    has_conditions = any(given is not None for given in (wanted.repo, wanted.before_ms, wanted.excluded_by))
    names = _fitting(store, wanted) if has_conditions else store.remains.names()
    if wanted.match is None:
        return Found(set(names), [])
    found = find_text(store, names, wanted.match, progress)
    return found._replace(lines=[]) if has_conditions else found  # a line has neither repository nor end


def _fitting(store: Store, wanted: Wanted) -> list[Name]:
    before = rfc3339(wanted.before_ms)
    found = store.sessions.find(SessionFilter(repo=wanted.repo))
    names = [_name(session) for session in found if before is None or (session.ended_at or "~") < before]
    if wanted.excluded_by is None:
        return names
    left_out = {place[:2] for place in held_although_excluded(store, wanted.excluded_by)}
    return [name for name in names if name in left_out]
