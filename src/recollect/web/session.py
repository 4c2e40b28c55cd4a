"""The pages of one session, a page of its transcript at a time, and what a page can change.

Where the pages of a session begin is worked out once; contents are read for what is shown. Each change is a POST with
the token; with `--read-only` there are none.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple

from recollect.api import Annotations, Memory, make_room, open_memory
from recollect.archive import Exchange, Step, SubAgent, diffs_by_event, files_changed, read_exchanges
from recollect.model import kinds
from recollect.model.errors import NeedsAnswer, NotFound
from recollect.model.schema import Digest, Event, Session
from recollect.model.text import payload_text
from recollect.sessions import TranscriptItem
from recollect.web import pages
from recollect.web.pages import Params, Records, agents

_EXCHANGES = 50
_WEIGHT = 110  # of a page: about 3,000 elements
_MESSAGE_WEIGHT, _STEP_WEIGHT, _SHOWN_STEPS = 1.0, 0.4, 6
_READ_AT_ONCE = 2_000  # events that are looked into
_KEPT = 50  # outlines of sessions
_MOST_FOUND = 100
_SPOKEN = (kinds.USER_MSG, kinds.ASSISTANT_MSG, kinds.COMPLETION)


@dataclass(frozen=True, slots=True)
class Outline:
    """How many events a session has, and where its pages begin."""

    session: Session
    count: int
    starts: Sequence[int]
    numbers: Sequence[int]  # of the last request before each page
    sub_agents: Sequence[Session]

    def find(self, memory: Memory, name: str) -> tuple[Event, int]:
        """The event with this end of a uid, or this seq, and its page; of a result its call, which shows it.

        Raises NotFound.
        """
        place = memory.event_place(self.session, name)
        if place is None:
            raise NotFound(f"No event of this session: {name}", "its raw detail may have been evicted")
        (event,) = memory.events(self.session, with_copies=True, span=range(place, place + 1))
        return event, bisect_right(self.starts, place) - 1

    def events(self, memory: Memory, page: int) -> list[Event]:
        end = self.starts[page + 1] if page + 1 < len(self.starts) else self.count
        return memory.events(self.session, with_copies=True, span=range(self.starts[page], end))

    def requests(self, memory: Memory) -> list[dict[str, Any]]:
        """The table of contents: every request, in order."""
        listed = memory.events(self.session, kinds.USER_MSG, with_copies=True)
        asked = (event for event in listed if event.kind == kinds.USER_MSG)
        return [
            {"number": number, "event_uid": event.event_uid, "ts": event.ts, "text": event.summary}
            for number, event in enumerate(asked, 1)
        ]


class Outlines:
    """The outlines of the sessions read last. One is made anew when its session has grown."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int, str | None], Outline] = OrderedDict()
        self._lock = Lock()

    def of(self, memory: Memory, session: Session) -> Outline:
        key = (session.session_uid, session.event_count, session.updated_at)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        outline = _outline(session, memory.event_kinds(session), memory.sub_agents(session))
        with self._lock:
            self._kept[key] = outline
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return outline


def _outline(session: Session, found: Sequence[str], sub_agents: Sequence[Session]) -> Outline:
    starts, numbers = [0], [0]
    requests, requests_on_page, weight, run = 0, 0, 0.0, 0
    for index, kind in enumerate(found):
        is_spoken, is_request = kind in _SPOKEN, kind == kinds.USER_MSG
        is_full = weight >= _WEIGHT or (is_request and requests_on_page >= _EXCHANGES)
        if is_full and is_spoken and index > starts[-1]:
            starts.append(index)
            numbers.append(requests)
            requests_on_page, weight = 0, 0.0
        run = 0 if is_spoken else run + 1
        weight += _MESSAGE_WEIGHT if is_spoken else _STEP_WEIGHT * (run <= 2 * _SHOWN_STEPS)
        requests, requests_on_page = requests + is_request, requests_on_page + is_request
    return Outline(session, len(found), starts, numbers, sub_agents)


def read_page(memory: Memory, outline: Outline, page: int) -> list[Exchange]:
    """The exchanges of one page; a session that was cut between requests goes on without one."""
    if not 0 <= page < len(outline.starts):
        raise NotFound(f"No such page of this session: {page}", "reload the session")
    events, number = outline.events(memory, page), outline.numbers[page]
    items = list(_items(memory, outline.session, events))
    exchanges = read_exchanges(outline.session, items, number=number, sub_agents=outline.sub_agents)
    unplaced = [child for child in outline.sub_agents if not child.spawn_call_id]
    if unplaced and exchanges and page == len(outline.starts) - 1:
        exchanges[-1].parts += [SubAgent(child) for child in unplaced]
    return exchanges


def _items(memory: Memory, session: Session, events: Sequence[Event]) -> Iterator[TranscriptItem]:
    for event, payload in zip(events, memory.payloads(session, events), strict=True):
        yield TranscriptItem(session, event, payload, 0)


def read_steps(memory: Memory, outline: Outline, event: str, count: int) -> list[Step]:
    """So many steps, from the one whose event has this end of a uid."""
    asked, page = outline.find(memory, event)
    for part in (part for exchange in read_page(memory, outline, page) for part in exchange.parts):
        steps: list[Step] = getattr(part, "steps", [])
        for index, step in enumerate(steps):
            if step.item.event.event_uid == asked.event_uid:
                return steps[index : index + count]
    raise NotFound(f"No step of this session: {event}", "reload the session")


def find_in(memory: Memory, outline: Outline, text: str) -> list[dict[str, Any]]:
    """The events of a session and its sub-agents that have a text in them, in any case; at most a hundred."""
    wanted = text.casefold()
    items = (item for item in _all_items(memory, outline) if wanted in _content(item).casefold())
    return [_match(item, wanted) for item in islice(items, _MOST_FOUND)]


def _all_items(memory: Memory, outline: Outline) -> Iterator[TranscriptItem]:
    for session in (outline.session, *outline.sub_agents):
        start = 0
        while events := memory.events(session, with_copies=True, span=range(start, start + _READ_AT_ONCE)):
            yield from _items(memory, session, events)
            start += len(events)


def _content(item: TranscriptItem) -> str:
    return payload_text(item.event.kind, item.payload) or item.event.summary


def _match(item: TranscriptItem, wanted: str) -> dict[str, Any]:
    content, event = _content(item), item.event
    place = content.casefold().find(wanted)
    begin = content.find(" ", place - 60, place) + 1 if place > 60 else 0  # at a word
    snippet = ("… " if begin else "") + " ".join(content[begin or max(0, place - 60) : place + 160].split())
    return {
        "session_uid": item.session.session_uid,
        "event_uid": event.event_uid,
        "kind": event.kind,
        "ts": event.ts,
        "snippet": snippet,
    }


VIEWS = ("transcript", "summary", "changes", "cost", "related")
_CURVE_POINTS = 2_000
_OUTLINES = Outlines()


def _session(memory: Memory, params: Params) -> Session:
    return memory.session(params.path["uid"])


def _digest(memory: Memory, session: Session) -> Digest | None:
    try:
        return memory.digest(session)
    except NotFound:
        return None


def session(memory: Memory, params: Params) -> Records:
    """A session in one of its views: transcript, summary, changes, cost, related."""
    chosen = _session(memory, params)
    view = params.text("view", "transcript")
    reader = _READERS.get(view)
    if reader is None:
        raise NotFound(f"No such view of a session: {view}", f"known: {', '.join(VIEWS)}")
    parent = memory.session(chosen.parent_session_uid) if chosen.parent_session_uid else None
    records = {"session": chosen, "view": view, "parent": parent, "annotations": memory.annotations.of(chosen)}
    records["other_agents"] = [agent for agent in agents(memory) if agent != chosen.agent]
    return records | reader(memory, chosen, params)


def _transcript(memory: Memory, chosen: Session, params: Params) -> Records:
    outline = _OUTLINES.of(memory, chosen)
    find = params.text("find")
    asked, page = None, min(params.number("page"), len(outline.starts) - 1)
    if params.text("at"):
        try:
            asked, page = outline.find(memory, params.text("at"))
        except NotFound:
            if chosen.evicted_at is None:  # what an evicted session taught still links to its events
                raise
    last = (
        memory.events(chosen, with_copies=True, span=range(outline.count - 1, outline.count)) if outline.count else []
    )
    return {
        "page": page,
        "pages": len(outline.starts),
        "at": asked.event_uid[-12:] if asked else "",
        "last": last[0].event_uid[-12:] if last else "",
        "requests": outline.requests(memory),
        "found": find_in(memory, outline, find) if find else None,
        "find": find,
        "exchanges": read_page(memory, outline, page) if outline.count else [],
        "digest": None if outline.count else _digest(memory, chosen),
    }


def _summary(memory: Memory, chosen: Session, params: Params) -> Records:
    return {"digest": _digest(memory, chosen), "signals": memory.signals(chosen, limit=30)}


def _changes(memory: Memory, chosen: Session, params: Params) -> Records:
    diff = memory.diff(chosen, params.text("path") or None)
    return {"diff": diff, "files": files_changed(diff)}


def _cost(memory: Memory, chosen: Session, params: Params) -> Records:
    return {
        "models": memory.breakdown("model", session=chosen),
        "tree": memory.stats("session", session=chosen),
        "tools": memory.breakdown("tool", session=chosen),
        "curve": memory.token_curve(chosen, _CURVE_POINTS),
    }


def _related(memory: Memory, chosen: Session, params: Params) -> Records:
    return {"related": memory.related(chosen, limit=20), "sub_agents": memory.sub_agents(chosen)}


_READERS = {
    "transcript": _transcript,
    "summary": _summary,
    "changes": _changes,
    "cost": _cost,
    "related": _related,
}


def transcript_page(memory: Memory, params: Params) -> Records:
    """One page of a transcript, for a reader who scrolls."""
    chosen = _session(memory, params)
    outline, page = _OUTLINES.of(memory, chosen), int(params.path["page"])
    return {
        "session": chosen,
        "page": page,
        "pages": len(outline.starts),
        "is_earlier": params.text("earlier") == "1",
        "exchanges": read_page(memory, outline, page),
    }


def steps(memory: Memory, params: Params) -> Records:
    """The steps of a folded run."""
    chosen = _session(memory, params)
    count = int(params.path["count"])
    return {
        "session": chosen,
        "steps": read_steps(memory, _OUTLINES.of(memory, chosen), params.path["event"], count),
    }


def event(memory: Memory, params: Params) -> Records:
    """One step with everything in it: arguments, diff, output."""
    chosen = _session(memory, params)
    (step,) = read_steps(memory, _OUTLINES.of(memory, chosen), params.path["event"], 1)
    is_edit = step.item.event.kind == "edit"
    diffs: dict[str, list[Any]] = diffs_by_event(memory.diff(chosen)) if is_edit else {}
    return {"session": chosen, "step": step, "diffs": diffs}


def annotations(memory: Memory, params: Params) -> Records:
    """What the user says about a session."""
    chosen = _session(memory, params)
    return {"session": chosen, "annotations": memory.annotations.of(chosen)}


def forgetting(memory: Memory, params: Params) -> Records:
    """What forgetting a session would remove. Changes nothing."""
    chosen = _session(memory, params)
    return {"session": chosen, "plan": memory.plan_forgetting(chosen.session_uid)}


class Done(NamedTuple):
    """What to say, and what shows it: a part of this page, all of it (`refreshes`), or another address."""

    said: str
    page: Callable[[Memory, Params], Records] | None = None
    moved: str | None = None
    refreshes: bool = False


Action = Callable[[Params], Done]


def _change(
    said: str,
    shown: Callable[[Memory, Params], Records],
    change: Callable[[Memory, Params], object],
    *,
    refreshes: bool = False,
) -> Action:
    def act(params: Params) -> Done:
        with open_memory(create=False) as memory:
            change(memory, params)
        return Done(said, shown, refreshes=refreshes)

    return act


def _annotate(
    said: str, change: Callable[[Annotations, Session, Callable[[str], str]], object], *, refreshes: bool = False
) -> Action:
    def annotate(memory: Memory, params: Params) -> None:
        change(memory.annotations, memory.session(params.path["uid"]), params.text)

    return _change(said, annotations, annotate, refreshes=refreshes)


def _forget(params: Params) -> Done:
    """Forget a session for good; it must have been confirmed by what the dry run showed."""
    make_room()
    with open_memory(create=False) as memory:
        planned = memory.plan_forgetting(params.path["uid"])
        if params.text("sessions") != str(len(planned.sessions)):
            raise NeedsAnswer("What would be deleted has changed", "review it again")
        memory.forget(planned, keep_forks=params.text("keep_forks") == "1")
    return Done(f"Forgotten: {len(planned.sessions)}", moved="/sessions")


def _judge(verdict: str) -> Action:
    return _change(
        verdict.capitalize(), pages.fact, lambda memory, params: memory.knowledge.judge(params.path["uid"], verdict)
    )


_SESSION = "/session/{uid:path}"
ACTIONS: dict[str, Action] = {
    f"{_SESSION}/star": _annotate("Starred", lambda notes, chosen, _: notes.star(chosen)),
    f"{_SESSION}/unstar": _annotate("Star removed", lambda notes, chosen, _: notes.star(chosen, False)),
    f"{_SESSION}/tag": _annotate("Tagged", lambda notes, chosen, text: notes.tag(chosen, text("tag"))),
    f"{_SESSION}/untag": _annotate("Tag removed", lambda notes, chosen, text: notes.untag(chosen, text("tag"))),
    f"{_SESSION}/note": _annotate("Noted", lambda notes, chosen, text: notes.note(chosen, text("note"))),
    f"{_SESSION}/drop-note": _annotate(
        "Note removed", lambda notes, chosen, text: notes.drop_note(chosen, text("note"))
    ),
    f"{_SESSION}/rename": _annotate(
        "Renamed", lambda notes, chosen, text: notes.rename(chosen, text("name")), refreshes=True
    ),
    f"{_SESSION}/forget": _forget,
    "/sessions/views/save": _change(
        "Saved",
        pages.views,
        lambda memory, params: memory.annotations.save_view(params.text("name"), params.text("query")),
    ),
    "/sessions/views/drop": _change(
        "Removed", pages.views, lambda memory, params: memory.annotations.drop_view(params.text("name"))
    ),
    "/fact/{uid}/promote": _judge("promoted"),
    "/fact/{uid}/pin": _judge("pinned"),
    "/fact/{uid}/reject": _judge("rejected"),
}
