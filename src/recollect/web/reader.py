"""A session a page at a time: what stands where is worked out once, contents are read for what is shown."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Any

from recollect import kinds
from recollect.api import Memory
from recollect.archive import Exchange, Step, SubAgent, read_exchanges
from recollect.errors import NotFound
from recollect.schema import Event, Session
from recollect.sessions import TranscriptItem
from recollect.text import payload_text

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
