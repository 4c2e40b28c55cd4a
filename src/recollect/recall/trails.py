"""What happened to a file: which sessions touched or discussed it, and whose edits wrote it."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recollect.clock import rfc3339
from recollect.kinds import EDIT, TOOL_CALL
from recollect.recall.edits import Change, absolute, called_before, changes, is_same, renames, slashed
from recollect.recall.hits import Hits
from recollect.recall.paths import MENTION, PathMeetings, base_name, by_session, events_with
from recollect.recall.texts import Texts
from recollect.store import Store
from recollect.store.cards import Card
from recollect.store.excerpts import EventCard

_MOST_NAMES = 20  # a file may have been renamed


@dataclass(frozen=True, slots=True)
class FileVisit:
    """A session (with its sub-agents) and how it met a path."""

    session_uid: str
    title: str | None
    agent: str
    repo: str | None
    last_at: str | None
    edits: int  # that did not fail
    calls: int  # other calls that name it
    mentions: int  # in messages and results
    evicted: bool = False  # of its raw detail, or a part of it, only what its digest tells of the path is counted


@dataclass(frozen=True, slots=True)
class FileEdit:
    """An edit that wrote a file, and the request it was made for."""

    session_uid: str
    title: str | None
    agent: str
    ts: str | None
    event_uid: str
    seq: int
    path: str  # as it was called then
    renamed_from: str | None
    summary: str
    request: str | None
    request_seq: int | None


def files(store: Store, path: str, limit: int | None = None, repo: str | None = None) -> list[FileVisit]:
    """Sessions that touched or discussed the path, newest first; evicted ones by their digests."""
    hits = Hits(store, 0, 0)
    counts: dict[str, Counter[str]] = defaultdict(Counter)  # by session
    last: dict[str, int] = {}
    cards: dict[str, Card] = {}
    paths = PathMeetings(store, path)
    for event, how in paths.all():
        card = hits.card(hits.roots({event.stream})[event.stream])
        cards[card.session_uid] = card
        counts[card.session_uid][how] += 1
        last[card.session_uid] = max(last.get(card.session_uid, 0), event.ts_ms or 0)
    told = list(paths.remembered())
    roots = store.cards.named({one.card.root_session_uid for one in told})
    for one in told:
        card = roots.get(one.card.root_session_uid, one.card)
        cards[card.session_uid] = card
        counts[card.session_uid].update({EDIT: one.edits, TOOL_CALL: one.calls, MENTION: one.mentions})
    visits = [_visit(card, counts[uid], last.get(uid)) for uid, card in cards.items() if card.is_of_repo(repo)]
    return sorted(visits, key=lambda visit: (visit.last_at or "", visit.session_uid), reverse=True)[:limit]


def _visit(card: Card, counts: Counter[str], last_ms: int | None) -> FileVisit:
    return FileVisit(
        session_uid=card.session_uid,
        title=card.title,
        agent=card.agent,
        repo=card.repo,
        last_at=rfc3339(last_ms or card.ended_ms),
        edits=counts[EDIT],
        calls=counts[TOOL_CALL],
        mentions=counts[MENTION],
        evicted=card.evicted_ms is not None,
    )


@dataclass(frozen=True, slots=True)
class _Step:
    event: EventCard
    change: Change
    is_edit: bool


def blame(store: Store, path: str, limit: int | None = None, repo: str | None = None) -> list[FileEdit]:
    """Every edit that went into the file, newest first, those under its earlier names included.

    A rename is followed from the moment it was made: what was done later to another file of the old name is not told.
    """
    steps = _Trail(store).steps(path)
    hits = Hits(store, 0, 0)
    hits.roots({step.event.stream for step in steps})
    wanted = [step for step in steps if hits.card(step.event.stream).is_of_repo(repo)]
    return [_edit(store, hits, step) for step in wanted[:limit]]


def _edit(store: Store, hits: Hits, step: _Step) -> FileEdit:
    event = step.event
    request = store.excerpts.request_of(event)
    card = hits.card(event.stream)
    return FileEdit(
        session_uid=card.session_uid,
        title=card.title,
        agent=card.agent,
        ts=rfc3339(event.ts_ms),
        event_uid=event.event_uid.hex(),
        seq=event.seq,
        path=step.change.path,
        renamed_from=step.change.renamed_from,
        summary=event.summary,
        request=request.summary if request else None,
        request_seq=request.seq if request else None,
    )


def evicted_edits(store: Store, path: str) -> int:
    """How many sessions are known by their digests to have edited the file, their edits not held any more."""
    return sum(one.edits > 0 for one in PathMeetings(store, path).remembered())


class _Trail:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._texts = Texts(store)

    def steps(self, path: str) -> list[_Step]:
        """The edits of a file and of those it was before, newest first."""
        found: dict[tuple[int, str], _Step] = {}
        waiting: list[tuple[str, int | None]] = [(slashed(path), None)]
        for name, until_ms in waiting:  # grows on the way
            for step in self._named(name):
                if until_ms is not None and (step.event.ts_ms or 0) > until_ms:
                    continue
                if step.is_edit:
                    found[step.event.id, step.change.path] = step
                earlier = step.change.renamed_from
                if earlier and len(waiting) < _MOST_NAMES and earlier not in (name for name, _ in waiting):
                    waiting.append((earlier, step.event.ts_ms))
        return sorted(found.values(), key=lambda step: (step.event.ts_ms or 0, step.event.id), reverse=True)

    def _named(self, path: str) -> Iterator[_Step]:
        """Changes whose file, as it is called afterwards, is this one."""
        events = events_with(self._store, base_name(path), columns=("did",))
        for folder in path.split("/")[:-1]:
            events += events_with(self._store, folder, "mv", columns=("did",)) if folder else []
        for cards, cwd in by_session(self._store, events):
            for card, payload in zip(cards, self._texts.payloads(cards), strict=True):
                found = list(_changes_of(card, payload, path, cwd))
                if found and not self._store.excerpts.has_failed(card):
                    yield from found


def _changes_of(card: EventCard, payload: Mapping[str, Any], path: str, cwd: str | None) -> Iterator[_Step]:
    """What a call did to the file that is called so afterwards."""
    if card.kind == EDIT:
        whole = [_whole(change, cwd) for change in changes(payload)]
        yield from (_Step(card, change, is_edit=True) for change in whole if is_same(change.path, path))
        return
    for change in renames(payload):
        if earlier := called_before(_whole(change, cwd), path):
            yield _Step(card, Change(path, earlier), is_edit=False)


def _whole(change: Change, cwd: str | None) -> Change:
    earlier = absolute(change.renamed_from, cwd) if change.renamed_from else None
    return Change(absolute(change.path, cwd), earlier)
