"""The lasting row of a session: what its sources say, and what its events add up to.

`settle_sessions` makes the rows of all that changed: which events are copies, what they add up to, where they worked.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from recollect.model.clock import now_ms
from recollect.model.kinds import SessionKey
from recollect.model.schema import (
    HUMAN,
    OUTPUT,
    PROMPTS_ONLY,
    SCHEMA_VERSION,
    SUB_AGENT,
    UNKNOWN,
    UNRECORDED,
    USER_MSG,
    WARM_UP,
)
from recollect.model.text import Progress, cut_short
from recollect.sessions import AccountRules, is_settled
from recollect.sessions.marks import apply, derive
from recollect.sessions.parts import (
    Parts,
    Totals,
    boundary_of,
    content_hash,
    cuts_ms,
    decode_totals,
    encode_totals,
    read_in_pieces,
    split,
    until,
)
from recollect.sessions.pricing import Payments, add_up, main_model
from recollect.sessions.relations import Relations, assign_groups, mark_copies
from recollect.sessions.repos import name_repos
from recollect.sessions.titles import Task, find_task, heading, project_of
from recollect.store import ACCOUNT, DIGEST, Base, KeptState, Request, SessionRow, Step, Store, StoredSession

TITLE_CHARS = 80
_SHORT_BYTES, _MOST_BYTES_OF_TOKEN = 2_000, 20  # a payload has fields besides its text: 4 to 12 bytes a token are usual
_SESSIONS_AT_ONCE, _EVENTS_AT_ONCE = 500, 5_000  # in memory, and in one transaction


Then = Callable[[Sequence[StoredSession]], Sequence[KeptState]]


def account_for(
    store: Store,
    rules: AccountRules,
    advance: Callable[[int, int], None],
    then: Then | None = None,
) -> tuple[list[SessionKey], set[SessionKey]]:
    """Bring the rows of dirty sessions up to date; return those that hold nothing, and those without their beginning.

    `then` gets them with their events marked, some at a time, and returns what it keeps of them; sub-agents come
    before the sessions that spawned them.
    With `then`, those that are settled are no longer dirty. Without events, without its beginning, or with a task that
    another session must confirm, a session stays so: that is for the caller to decide.
    """
    dirty = store.streams.dirty()
    relations = Relations(store, dirty)
    _mark_copies_of_evicted(store, relations, dirty)
    keys = _with_relatives(store, relations, dirty)
    keys.sort(key=lambda key: relations.origin(key).parent is None)
    empty, torn, guesses, done = list[SessionKey](), set[SessionKey](), dict[SessionKey, str](), 0
    groups = store.steps.groups(keys, _SESSIONS_AT_ONCE, _EVENTS_AT_ONCE)
    pieces = (piece for group in groups for piece in read_in_pieces(store, group, store.evictions.among(group)))
    with _garbage_left():
        for read, is_all in pieces:
            sums, rows, guessed, without_begin = _accounts(store, relations, rules, read)
            store.streams.set_marks([step for one in sums for step in one.changed])
            store.session_rows.put([(row, one.session.sources) for row, one in zip(rows, sums, strict=True)])
            distilled = then([one.session for one in sums]) if then is not None else ()
            # Together: a session can be gone on with only where both are at the same place.
            summed = [one.kept for one in sums if one.kept is not None]
            store.kept.put({ACCOUNT: summed, DIGEST: distilled})
            if not is_all:
                continue
            settled = {one.session.key for one in sums}
            empty += {session.key for session in read} - settled
            torn |= without_begin
            guesses |= guessed
            if then is not None:
                store.streams.set_dirty(settled - torn - guesses.keys(), False)
            done += len(read)
            advance(done, len(keys))
    _confirm_tasks(store, guesses)
    return empty, torn


def _accounts(
    store: Store, relations: Relations, rules: AccountRules, read: Sequence[StoredSession]
) -> tuple[list["_Sum"], list[SessionRow], dict[SessionKey, str], set[SessionKey]]:
    """Return the sums and rows of the sessions that hold anything, tasks they may have worked on, and the torn ones.

    Torn are those that go on from what nobody holds. A task counts if another session knows its project.
    """
    bases = {key: store.evictions.base(key) for key in store.evictions.among([session.key for session in read])}
    sums = [_sum(session, bases.get(session.key)) for session in read if session.key in bases or session.is_held]
    before_first = _before_first(relations, sums)
    requests = store.lineage.requests(before_first) if before_first else {}
    payments = Payments(store, relations, [(one.session, one.totals.used) for one in sums])
    rows, guesses = list[SessionRow](), dict[SessionKey, str]()
    for one in sums:
        (first, last), totals = _facts(one.session.infos), one.totals
        money = payments.money(one.session, totals.used, totals.span.started_ms)
        row = _session_row(relations, one, first, last, money, requests.get(one.session.key))
        task = _task(rules, last.get("git_branch"), totals.commits, totals.first_prompt)
        if task is not None and not task.is_guess:
            row = row._replace(task_ref=task.ref)
        if one.base is not None:
            row = _extended(one.base, row, last["title"])
        if task is not None and row.task_ref is None:
            guesses[one.session.key] = task.ref
        rows.append(row)
    return sums, rows, guesses, before_first.keys() - requests.keys()


def _confirm_tasks(store: Store, guesses: Mapping[SessionKey, str]) -> None:
    """A key that only looks like a task's is one if some other session knows its project."""
    if not guesses:
        return
    guessed = Counter(map(project_of, guesses.values()))
    projects = {project_of(ref) for ref in store.session_rows.task_refs()}
    projects |= {project for project, sessions in guessed.items() if sessions > 1}
    refs = {key: (ref,) for key, ref in guesses.items() if project_of(ref) in projects}
    store.session_rows.set(("task_ref",), refs)


def _before_first(relations: Relations, sums: Sequence["_Sum"]) -> dict[SessionKey, bytes]:
    """The event that each session's first one follows. Some versions of an agent put a request into one session and
    the answer into the next."""
    firsts = ((one.session.key, one.totals.first_parent) for one in sums)
    return {key: uid for key, uid in firsts if uid is not None and relations.origin(key).parent is None}


@contextmanager
def _garbage_left() -> Iterator[None]:
    """Collect no garbage: events by the ten thousand hold no cycles, and looking for some takes a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _with_relatives(store: Store, relations: Relations, dirty: Sequence[SessionKey]) -> list[SessionKey]:
    """Dirty sessions with their roots and parents, whose money and digests have a part of them, and with those of
    their sub-agents that are named otherwise now."""
    above = {relative for key in dirty for relative in relations.above(key)}
    below = {relative for key in dirty for relative in relations.all_spawned(key)} - set(dirty)
    if below:
        for row in store.session_rows.places(below):
            names = relations.names(row.session)
            below -= {row.session} if all(getattr(row, name) == uid for name, uid in names.items()) else set()
    related = (above | below) - set(dirty)
    if related:
        store.streams.set_dirty(related, True)
    return [*dirty, *sorted(related)]


def _mark_copies_of_evicted(store: Store, relations: Relations, dirty: Sequence[SessionKey]) -> None:
    """What a fork has copied from a session whose events are gone was counted there."""
    origins = {key: relations.origin(key) for key in dirty}
    owners = {
        key: {SessionKey(key.agent, name) for name in (origin.parent, origin.base) if name}
        for key, origin in origins.items()
    }
    evicted = store.evictions.among({owner for named in owners.values() for owner in named})
    for key, named in owners.items() if evicted else ():
        for owner in named & evicted - {key}:
            store.evictions.mark_copies(key, owner)


def _facts(infos: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Merge what the sources said, first and last; a prompt history only fills what nobody else says."""
    full = [info for info in infos if info["last"].get("session_class") != PROMPTS_ONLY]
    aside = [info for info in infos if info["last"].get("session_class") == PROMPTS_ONLY]
    first: dict[str, Any] = {}
    for info in reversed([*full, *aside]):
        first.update(info["first"])
    last: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for info in [*aside, *full]:
        last.update(info["last"])
        metadata.update(info["last"].get("metadata") or {})
    title = next((title for rank in (3, 2, 1) if (title := last.get(f"title_{rank}"))), None)
    return first, last | {"metadata": metadata, "title": title}


class _Sum(NamedTuple):
    """A session with its events marked, those whose marks must be written, and what they add up to.

    `kept` is what need not be read again: the sum up to a place.
    """

    session: StoredSession
    changed: list[Step]
    totals: Totals
    base: Base | None
    kept: KeptState | None


def _sum(session: StoredSession, base: Base | None) -> _Sum:
    totals, cut_ms = Totals(), 0
    if session.kept is not None:
        totals, cut_ms = decode_totals(session.kept.states[ACCOUNT]), session.kept.boundary.cut_ms
    parts = split(session.steps) if base is None else Parts((), session.steps)
    marks = derive(session.steps, [*parts.closed, parts.open], totals.rewinds, totals.asked)
    marked, changed = apply(session.steps, marks)
    responses = session.responses
    for part, part_ms in zip(parts.closed, cuts_ms(parts, cut_ms), strict=True):
        early, responses = until(part_ms, responses)
        totals.add(part, marks)
        totals.used = add_up(early, totals.used)
    boundary = boundary_of(parts, cut_ms) if totals.own_events else None
    kept = None if boundary is None else (session.key, boundary, encode_totals(totals))
    events = parts.open
    if base is not None:  # an import may bring back what was dropped: it is counted already
        events = [event for event in events if not base.keys.hold(event.event_uid, event.payload_hash)]
    totals.add(events, marks)
    totals.used = add_up(responses, totals.used)
    return _Sum(session._replace(steps=marked), changed, totals, base, kept)


def _extended(base: Base, row: SessionRow, title: str | None) -> SessionRow:
    """The row of a session that was evicted once: as it was then, and what it did since."""
    old = base.row
    started, ended = _least(old.started_ms, row.started_ms), _most(old.ended_ms, row.ended_ms)
    absent = [name for name in SessionRow._fields if name != "usd" and getattr(row, name) is None]
    row = row._replace(**{name: getattr(old, name) for name in absent})
    return row._replace(
        **({} if base.is_usage_held else _spent(old, row)),
        outcome=old.outcome,
        title=title or old.title or row.title,
        task_ref=old.task_ref or row.task_ref,
        started_ms=started,
        ended_ms=ended,
        updated_ms=_most(old.updated_ms, row.updated_ms),
        wall_clock_ms=ended - started if started is not None and ended is not None else None,
        turns=old.turns + row.turns,
        retries=old.retries + row.retries,
        message_count=old.message_count + row.message_count,
        event_count=old.event_count + row.event_count,
        # Of what is held and what was: the old one cannot be made again.
        content_hash=blake2b(f"{old.content_hash}{row.content_hash}".encode(), digest_size=16).hexdigest()
        if row.event_count
        else old.content_hash,
        discovered_ms=_least(old.discovered_ms, row.discovered_ms),
        ingested_ms=row.ingested_ms if row.event_count else old.ingested_ms,
    )


def _spent(old: SessionRow, row: SessionRow) -> dict[str, Any]:
    """Tokens and money where it is not known whether all responses are held: never less than they were."""
    names = [name for name in SessionRow._fields if name.endswith("_tokens")]
    is_more = (row.usd or 0.0) >= (old.usd or 0.0)
    usd, is_estimate = (row.usd, row.usd_is_estimate) if is_more else (old.usd, old.usd_is_estimate)
    return {name: max(getattr(old, name), getattr(row, name)) for name in names} | {
        "usd": usd,
        "usd_is_estimate": is_estimate,
    }


def _least(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _most(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _session_row(
    relations: Relations,
    held: _Sum,
    first: dict[str, Any],
    last: dict[str, Any],
    money: dict[str, Any],
    request: Request | None,
) -> SessionRow:
    key, sources, totals = held.session.key, held.session.sources, held.totals
    started, ended = totals.span.started_ms, totals.span.ended_ms
    parent, base = relations.origin(key).parent, relations.base(key, totals.originals)
    prompt = totals.title
    if base is None and request is not None:
        base = request.key
    if prompt is None and request is not None and request.base_kind == USER_MSG:
        prompt = request.summary
    return SessionRow(
        agent=key.agent,
        native_session_id=key.native_id,
        **relations.names(key),
        base_session_uid=relations.uid(base) if base else None,
        base_end=first.get("base_end"),
        session_class=_session_class(first, last, parent),
        group="main",
        host=sources[0].host if sources else None,
        repo=None,
        domain=None,
        cwd=first.get("cwd"),
        git_root=last.get("git_root"),
        git_remote=last.get("git_remote"),
        git_branch=last.get("git_branch"),
        model=main_model(totals.used) or totals.span.model or last.get("model"),
        provider=last.get("provider"),
        agent_version=last.get("agent_version"),
        title=last["title"] or (cut_short(heading(prompt), TITLE_CHARS) if prompt else None),
        instructions=orjson.dumps(last.get("instructions") or []).decode(),
        started_ms=started,
        ended_ms=ended,
        updated_ms=totals.all.ended_ms,
        outcome=UNKNOWN,
        **money,
        wall_clock_ms=ended - started if started is not None and ended is not None else None,
        turns=totals.turns,
        retries=totals.retries,
        message_count=totals.messages,
        event_count=totals.events,
        task_ref=None,
        content_hash=totals.content or content_hash(()),
        spawn_call_id=first.get("spawn_call_id"),
        schema_version=SCHEMA_VERSION,
        discovered_ms=held.session.discovered_ms,
        ingested_ms=now_ms(),
        metadata=orjson.dumps(last["metadata"] | _unrecorded(totals)).decode(),
        key=last.get("key"),
        channel=last.get("channel"),
        chat_id=last.get("chat_id"),
        user_id=last.get("user_id"),
        character_id=last.get("character_id"),
    )


def _unrecorded(totals: Totals) -> dict[str, str]:
    """Some logs have no tokens of answers, or numbers from before the answer was written: far below its length."""
    output = sum(one.output_tokens for one in totals.used)
    most_bytes = max(_SHORT_BYTES, output * _MOST_BYTES_OF_TOKEN) if totals.used else 0
    return {OUTPUT: UNRECORDED} if totals.answered_bytes > most_bytes else {}


def _session_class(first: dict[str, Any], last: dict[str, Any], parent: str | None) -> str:
    """As the log has it; but what a call spawned did its work, however little it wrote."""
    stated = last.get("session_class") or (SUB_AGENT if parent else HUMAN)
    return SUB_AGENT if stated == WARM_UP and first.get("spawn_call_id") else stated


def _task(rules: AccountRules, branch: str | None, commits: Sequence[str], prompt: str | None) -> Task | None:
    """The task named by the branch, else by a commit message the session wrote, else by the first prompt."""
    if not rules.task_patterns:
        return find_task(branch, commits, prompt)
    for text in (branch, *commits, prompt):
        for pattern in rules.task_patterns:
            if text and (match := pattern.search(text)):
                return Task(match[0])
    return None


def settle_sessions(
    store: Store,
    rules: AccountRules,
    domains: Mapping[str, str],
    progress: Progress,
    then: Then = lambda sessions: (),
    *,
    is_all_read: bool = True,
) -> int:
    """Make the rows of sessions that changed, or of all if the user's rules did.

    Safe to interrupt at any time: each session that was settled stays settled. `then` gets the sessions whose rows are
    stored, some at a time, so that nobody has to read their events again, and returns what it keeps of them.
    Returns how many events were dropped because they only stood in for others that are held by now.
    """
    if store.rules.text() != rules.text(domains):
        store.streams.set_all_dirty()
        store.rules.set(rules.text(domains), is_named=False)
    if is_settled(store, rules, domains):
        return 0
    dropped = store.drop_stand_ins()
    mark_copies(store)
    empty, torn = account_for(store, rules, lambda done, total: progress("sessions", done, total), then)
    emptied = store.streams.emptied(empty)
    if is_all_read:
        store.session_rows.drop(emptied)
    if has_moved := store.rules.has_moved():
        name_repos(store, domains)
    if has_moved or store.groups.all():  # a session's file may have been read in a group's home for the first time
        assign_groups(store)
    if has_moved:
        store.rules.set(rules.text(domains), is_named=True)
    # A session without events, or without its beginning, stays dirty until all is read: another file may hold it.
    unread = set() if is_all_read else {*emptied, *torn}
    store.streams.set_dirty(set(store.streams.dirty()) - unread, False)
    return dropped
