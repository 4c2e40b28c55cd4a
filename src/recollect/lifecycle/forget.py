"""Forgetting: `plan_forgetting` says what would go and changes nothing, `apply_plan` removes it for good.

Sessions are chosen by name, by filters, or by a text that they hold.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

import orjson

from recollect.ingest import held_although_excluded
from recollect.lifecycle.erase import FINISHES_FORGETTING, count_answers, drop, leave_no_byte
from recollect.model.clock import AsDatetime, rfc3339
from recollect.model.errors import Busy, NeedsAnswer, StoreUnwritable, UsageError
from recollect.model.kinds import SessionKey, session_uid
from recollect.model.schema import Session
from recollect.model.text import Progress, silent
from recollect.sessions import AccountRules, all_reached
from recollect.store import SessionFilter, Store, Tombstone, UnreadLine, sweep_lock

_SHORTEST_ID = 8  # a shorter text is part of some id in every large store by chance


# Sessions that hold a text, and lines that do and belong to no single session: a history's, say.
Matches = tuple[set[SessionKey], list[UnreadLine]]


class _Needle:
    """A text to look for in any case, as it is and as it looks inside JSON."""

    def __init__(self, text: str) -> None:
        self.in_json = orjson.dumps(text).decode()[1:-1].casefold()
        self._forms = {text.casefold(), self.in_json}
        self.may_be_id = len(text) >= _SHORTEST_ID

    def is_in(self, *texts: str) -> bool:
        return any(form in text.casefold() for text in texts for form in self._forms)


def find_text(store: Store, keys: Sequence[SessionKey], text: str, progress: Progress) -> Matches:
    """Look into all that is held of these sessions, and into lines that could not be read."""
    needle = _Needle(text)
    by_file, lines = _in_files(store, set(keys), needle)
    sessions = set(by_file)
    for done, key in enumerate(keys, start=1):
        if key in by_file or _holds(store, key, needle):
            sessions.add(key)
        progress("searching", done, len(keys))
    return sessions, lines


def _in_files(store: Store, keys: Collection[SessionKey], needle: _Needle) -> Matches:
    """Find sessions whose files have the text in their path or in an unread line, and unread lines of nobody's."""
    owners = store.texts.owners()
    files = {source for source, text in store.texts.of_sources() if needle.is_in(text, unquote(text))}
    sessions = {owner for source in files if (owner := owners.get(source))}
    roots = {SessionKey(agent, native_id.partition("/")[0]) for agent, native_id in keys}
    unowned = (line for line in store.texts.unread_lines() if owners.get(line.source) is None)
    return sessions & {*keys, *roots}, [line for line in unowned if needle.is_in(line.raw.decode("utf-8", "replace"))]


def _holds(store: Store, key: SessionKey, needle: _Needle) -> bool:
    if any(needle.is_in(text) for text in store.texts.of_session(key)):
        return True
    if needle.may_be_id and any(needle.is_in(text) for text in store.texts.ids(key)):
        return True
    # Not payload by payload: what was replaced or dropped since belongs to no event, but its bytes are still there.
    before = b""
    for content in store.payloads.iter_content(key):
        if needle.in_json in (before + content).decode("utf-8", "replace").casefold():
            return True
        before = content[-4 * len(needle.in_json) :]
    return False


_LEAST_ID = 6  # characters that tell sessions apart


@dataclass(frozen=True, slots=True)
class Selection:
    """Chooses what to forget: these sessions, or all that meet every other condition given."""

    sessions: Sequence[Session] = ()
    repo: str | None = None
    before_ms: int | None = None
    match: str | None = None
    excluded_by: Sequence[str] | None = None  # the user's patterns, where only what they leave out is meant


@dataclass(frozen=True, slots=True)
class ForgottenSession:
    """A session to delete, or a fork that shares `shared_events` records with one."""

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
    """A line that could not be read, of a file that holds several sessions; only `key`, a hash, stays of it."""

    agent: str
    path: str
    line: int | None
    key: str


@dataclass(frozen=True, slots=True)
class UnreachableCopy:
    """A backup or export that may hold forgotten text; only its owner can change it."""

    kind: str
    path: str
    made_at: str | None

    made = AsDatetime("made_at")


@dataclass(frozen=True, slots=True)
class ForgetPlan:
    """Lists what would be deleted, and what stays although it holds the same text.

    `files` are the agents' own logs, which are never changed. `lines` could not be read, and their files hold several
    sessions or none. `answers` counts those that groups' sandboxes were given: they quote any session, so all go.
    The last three are the question that the plan answers, and the state of the store that it was made from.
    """

    sessions: tuple[ForgottenSession, ...]
    lines: tuple[ForgottenLine, ...]
    forks: tuple[ForgottenSession, ...]
    files: tuple[str, ...]
    copies: tuple[UnreachableCopy, ...]
    answers: int
    selection: Selection
    with_forks: bool
    commits: tuple[int, ...]

    @property
    def keys(self) -> set[SessionKey]:
        """Return what gets a tombstone, except sub-agents that turn up later."""
        sessions = {SessionKey(session.agent, session.native_session_id) for session in self.sessions}
        return sessions | {SessionKey(line.agent, line.key) for line in self.lines}

    @property
    def events(self) -> int:
        return sum(session.events for session in self.sessions)

    @property
    def payload_bytes(self) -> int:
        return sum(session.payload_bytes for session in self.sessions)

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self) | {"events": self.events, "payload_bytes": self.payload_bytes}
        return {name: value for name, value in fields.items() if name not in ("selection", "with_forks", "commits")}


def plan_forgetting(store: Store, selection: Selection, progress: Progress, *, with_forks: bool = False) -> ForgetPlan:
    """Plan what would go. `with_forks` takes along every session that shares text with one that goes, and so on."""
    commits = store.commits()  # first: whatever is stored from here on is news
    rows = _Rows(store)
    sessions, lines = _matches(store, selection, progress)
    chosen = rows.with_sub_agents(sessions)
    sharing = store.erasure.sharing(chosen)
    while with_forks and sharing:
        chosen |= rows.with_sub_agents(sharing)
        sharing = store.erasure.sharing(chosen)
    files = {path for key in chosen for path in store.erasure.files(key)} | {line.path for line in lines}
    copies = store.copies.all() if chosen or lines else []
    return ForgetPlan(
        sessions=tuple(map(rows.describe, sorted(chosen))),
        lines=tuple(ForgottenLine(line.agent, line.path, line.line, line.key.native_id) for line in lines),
        forks=tuple(rows.describe(key, shared) for key, shared in sharing.items()),
        files=tuple(sorted(files)),
        copies=(
            *(UnreachableCopy(copy.kind, copy.path, rfc3339(copy.made_ms)) for copy in copies),
            *(UnreachableCopy("archive", row.path, rfc3339(row.made_ms)) for row in store.archives.of(sorted(chosen))),
        ),
        answers=count_answers(store) if chosen or lines else 0,
        selection=selection,
        with_forks=with_forks,
        commits=commits,
    )


def apply_plan(
    store: Store,
    rules: AccountRules,
    domains: Mapping[str, str],
    planned: ForgetPlan,
    *,
    keep_forks: bool = False,
    also_new: bool = False,
) -> ForgetPlan:
    """Forget what a plan names and return it; raises NeedsAnswer if forks share the text and may not keep it.

    A match that was stored since the plan raises Busy, or goes too if `also_new`. The tombstones are on the disk
    before anything is deleted, so that whatever stops this, a later sweep finishes it.
    """
    _require_answer(planned, keep_forks)
    with without_sweeps(store):
        planned = _as_of_now(store, planned, also_new)
        _require_answer(planned, keep_forks)
        keys = _Rows(store).with_sub_agents(planned.keys)
        # What a kept fork holds stays in the store, so nobody else has to do without it either.
        keeping = [SessionKey(fork.agent, fork.native_session_id) for fork in planned.forks]
        kept = tuple(fork.native_id for fork in keeping)
        store.tombstones.add([Tombstone(*key, store.erasure.event_keys(key, keeping), kept) for key in sorted(keys)])
        _erase(store, rules, domains, keys)
    return planned


def finish_interrupted(store: Store, rules: AccountRules, domains: Mapping[str, str]) -> int:
    """Finish what an interrupted call of `apply_plan` began; return how many sessions and lines that was about."""
    begun = store.tombstones.unfinished()
    if begun:
        with without_sweeps(store):
            _erase(store, rules, domains, begun)
    return len(begun)


def is_forgotten(store: Store, name: str) -> bool:
    """Return True if a session was forgotten that has this id, or one that begins or ends with it."""
    is_part = len(name) >= _LEAST_ID
    return any(
        name in (key.native_id, session_uid(*key))
        or (is_part and (key.native_id.startswith(name) or key.native_id.endswith(name)))
        for key in store.tombstones.names()
    )


def _erase(store: Store, rules: AccountRules, domains: Mapping[str, str], keys: Collection[SessionKey]) -> None:
    """Delete sessions that have tombstones; says what is left of them if that cannot end."""
    try:
        drop(store, keys)
        leave_no_byte(store, rules, domains, keys)
        store.checkpoint()
    except (StoreUnwritable, Busy) as error:
        held, left = len(store.erasure.existing(keys)), "rows are not deleted yet"
        if held == 0:
            left = "all rows are deleted, but words may remain in the index and in unused parts of the databases"
        elif len(keys) > 1:
            left = f"{held} of {len(keys)} sessions are not deleted yet"
        message = f"Forgetting started but could not finish: {left} ({error.message})"
        raise type(error)(message, FINISHES_FORGETTING) from error


def _require_answer(planned: ForgetPlan, keep_forks: bool) -> None:
    if planned.forks and not keep_forks:
        raise NeedsAnswer(
            f"Other sessions share this text: {', '.join(fork.session_uid for fork in planned.forks[:3])}",
            "--with-forks deletes them too, --keep-forks keeps them with their copies",
        )


def _as_of_now(store: Store, planned: ForgetPlan, also_new: bool) -> ForgetPlan:
    """Plan again if a sweep stored anything since the plan was made."""
    if store.commits() == planned.commits:
        return planned
    now = plan_forgetting(store, planned.selection, silent, with_forks=planned.with_forks)
    new = now.keys - planned.keys
    if new and not also_new and not planned.selection.sessions:
        count = "1 more matches" if len(new) == 1 else f"{len(new)} more match"
        raise Busy(f"A sweep stored new events since the plan, and {count}", "review the new plan")
    return now


@contextmanager
def without_sweeps(store: Store) -> Iterator[None]:
    """Hold the sweep's lock: what is being read meanwhile would come back."""
    with ExitStack() as stack:
        try:
            stack.enter_context(sweep_lock(store.folder))
        except Busy:
            raise Busy("Cannot forget while a sweep is running", "try again when it has finished") from None
        yield


class _Rows:
    """Finds the rows of sessions, each once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[SessionKey, Session | None] = {}

    def find(self, key: SessionKey) -> Session | None:
        if key not in self._rows:
            self._rows[key] = self._store.sessions.find_named(key)
        return self._rows[key]

    def with_sub_agents(self, keys: Iterable[SessionKey]) -> set[SessionKey]:
        """Add all that the sessions spawned, directly or not, and forks that hold nothing of their own."""
        return all_reached(keys, self._below)

    def _below(self, key: SessionKey) -> set[SessionKey]:
        session = self.find(key)
        parent = session.session_uid if session else session_uid(*key)
        spawned = {SessionKey(key.agent, child) for child in self._store.streams.spawned(*key)}
        erasure = self._store.erasure
        return spawned.union(
            self._store.session_rows.spawned(parent), erasure.named_after(key), erasure.empty_forks(key)
        )

    def describe(self, key: SessionKey, shared_events: int = 0) -> ForgottenSession:
        session = self.find(key)
        events, payload_bytes = self._store.erasure.size(key)
        return ForgottenSession(
            session_uid=session.session_uid if session else session_uid(*key),
            agent=key.agent,
            native_session_id=key.native_id,
            title=session.title if session else None,
            is_sub_agent=session is not None and session.parent_session_uid is not None,
            events=events,
            payload_bytes=payload_bytes,
            shared_events=shared_events,
        )


def _key(session: Session) -> SessionKey:
    return SessionKey(session.agent, session.native_session_id)


def _matches(store: Store, selection: Selection, progress: Progress) -> Matches:
    for option, text in (("--match", selection.match), ("--repo", selection.repo)):
        if text is not None and not text.strip():
            raise UsageError(f"Empty `{option}` would match everything", "name a text or a repository")
    if selection.sessions:
        return {_key(session) for session in selection.sessions}, []
    has_conditions = any(given is not None for given in (selection.repo, selection.before_ms, selection.excluded_by))
    keys = _matching_rows(store, selection) if has_conditions else store.erasure.keys()
    if selection.match is None:
        return set(keys), []
    found, lines = find_text(store, keys, selection.match, progress)
    return found, [] if has_conditions else lines  # a line has neither repository nor end


def _matching_rows(store: Store, selection: Selection) -> list[SessionKey]:
    before = rfc3339(selection.before_ms)
    chosen = (("repo ending", (selection.repo,)),) if selection.repo is not None else ()
    sessions = store.sessions.find(SessionFilter(chosen))
    keys = [_key(session) for session in sessions if before is None or (session.ended_at or "~") < before]
    if selection.excluded_by is None:
        return keys
    excluded = {row[:2] for row in held_although_excluded(store, selection.excluded_by)}
    return [key for key in keys if key in excluded]
