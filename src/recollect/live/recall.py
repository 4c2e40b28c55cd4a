"""`session_search`: earlier conversations for a host's agent, in one call whose mode follows from its arguments."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from recollect.live.appender import text_of
from recollect.model.clock import ms_of
from recollect.model.errors import NotFound
from recollect.model.text import cut_short, payload_text, plural
from recollect.recall import AGENT, TOOL, USER, Recalled, fenced, one_line

if TYPE_CHECKING:
    from recollect.live.host import Live
    from recollect.live.records import LiveSession, Message
    from recollect.model.schema import Event
    from recollect.recall import Glimpse, Match, SessionHit

RECENT, SEARCH, SCROLL = "recent", "search", "scroll"
WINDOW = 5  # messages on each side of a match
_PREVIEW_CHARS = 160
_PREVIEWED = 3
_LIMIT_BYTES = 24_000
_DEEPEST = 32
_MATCHES = 3  # of a session
_MOST_OWN = 200  # of the conversation that asks: most may be in its history


@dataclass(frozen=True, slots=True)
class Quoted:
    """A message in an answer; `is_match` marks the one that was found."""

    event_uid: str
    role: str
    ts: str | None
    text: str
    is_match: bool = False


@dataclass(frozen=True, slots=True)
class Recall:
    """A session in an answer. `summary` is from its digest; without one, `preview` is its last messages.

    `parents` are the sessions that it continues, the nearest first. Each window is a match with what is around it.
    """

    session_uid: str
    key: str
    channel: str | None
    chat_id: str | None
    title: str | None
    started_at: str | None
    updated_at: str | None
    message_count: int
    parents: tuple[str, ...] = ()
    summary: str | None = None
    preview: tuple[Quoted, ...] = ()
    first: Quoted | None = None
    last: Quoted | None = None
    windows: tuple[tuple[Quoted, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What `session_search` found. `before` and `after` are anchors for scrolling."""

    mode: str
    query: str
    sessions: tuple[Recall, ...]
    notes: tuple[str, ...] = ()
    before: str | None = None
    after: str | None = None
    _limit_bytes: int = field(default=_LIMIT_BYTES, repr=False)

    def to_json(self) -> dict[str, Any]:
        """As data."""
        fields = asdict(self)
        del fields["_limit_bytes"]
        return fields

    @property
    def text(self) -> str:
        """For a model: between fences that mark it as history, with the origin of each record."""
        if not self.sessions:
            return "; ".join(["No earlier conversation found", *self.notes])
        records = [record for session in self.sessions for record in _records(session)]
        text, shown = fenced(records, self._limit_bytes)
        rest = len(records) - shown
        more = [f"({rest} more left out)"] if rest else []
        ways = {"Earlier": self.before, "Later": self.after}
        more += [f'{way} messages: anchor "{anchor}"' for way, anchor in ways.items() if anchor]
        return "\n".join([text, *more])


class SessionSearch:
    """Recalls the sessions of one host."""

    def __init__(self, live: "Live") -> None:
        self._live = live

    def __call__(
        self,
        query: str = "",
        *,
        session: str | None = None,
        anchor: str | None = None,
        current: str | None = None,
        channel: str | None = None,
        limit: int = 5,
    ) -> SearchResult:
        """Recent sessions without a query, matches with one; with a session, the messages around an anchor.

        `current` is the key of the conversation that asks. What its history holds is left out, with the sessions that
        it continues; what came before its history is searched. `anchor` is an `event_uid` of an earlier answer; without
        one, scrolling begins at the end of the session.
        """
        if session is not None and not query.strip():
            return self._scroll(session, anchor)
        left_out = self._continued(current) if current else []
        if query.strip() and session is not None:
            return self._search(query, session, channel, [], limit)
        if query.strip():
            others = self._search(query, None, channel, left_out, limit)
            own = self._own_past(query, current, channel) if current else ()
            return replace(others, sessions=(*own, *others.sessions)[:limit])
        rows = self._live.list_sessions(channel, with_archived=True, limit=limit + len(left_out))
        chosen = [row for row in rows if row.session_uid not in left_out and row.message_count][:limit]
        return SearchResult(RECENT, "", tuple(self._recall(row) for row in chosen))

    def _search(
        self, query: str, session: str | None, channel: str | None, left_out: Sequence[str], limit: int
    ) -> SearchResult:
        answer = self._live.search(
            query, channel=channel, session=session, exclude=left_out, limit=limit * 2, context=WINDOW
        )
        found: dict[str, Recall] = {}
        for hit in answer.hits:
            row = self._live.find(hit.session_uid)
            if row is not None:
                first = self._continued(row.session_uid)[-1]
                found.setdefault(first, _with_matches(self._recall(row), hit, hit.matches))
        return SearchResult(SEARCH, query, tuple(found.values())[:limit], tuple(answer.notes))

    def _own_past(self, query: str, current: str, channel: str | None) -> tuple[Recall, ...]:
        """What matches in the conversation that asks, before its history begins."""
        row = self._live.find(current)
        start = self._live.history_start(row) if row is not None else 0
        if row is None or not start:
            return ()
        hits = self._live.search(query, session=current, channel=channel, matches=_MOST_OWN, context=WINDOW).hits
        matches = [match for hit in hits for match in hit.matches]
        early = self._live.before(start, [match.event_uid for match in matches])
        chosen = [match for match in matches if match.event_uid in early][:_MATCHES]
        return (_with_matches(self._recall(row), hits[0], chosen),) if chosen else ()

    def _scroll(self, session: str, anchor: str | None) -> SearchResult:
        row = self._live.find(session)
        if row is None:
            raise NotFound(f"No such session: {session}", "use a key or an id of an earlier answer")
        memory = self._live.memory
        owner = memory.session(row.session_uid)
        events = memory.events(owner, with_copies=True)
        places = [number for number, event in enumerate(events) if anchor in (None, event.event_uid, event.native_id)]
        if anchor is not None and not places:
            raise NotFound(f"No such message: {anchor}", "use an `event_uid` of an earlier answer")
        place = places[-1] if places else 0
        start = max(0, place - WINDOW)
        window = events[start : place + WINDOW + 1]
        payloads = memory.payloads(owner, window)
        quoted = tuple(
            _of_event(event, payload, is_match=event is events[place])
            for event, payload in zip(window, payloads, strict=True)
        )
        before = window[0].event_uid if start else None
        after = window[-1].event_uid if start + len(window) < len(events) else None
        recall = self._recall(row, windows=(quoted,))
        return SearchResult(SCROLL, "", (recall,), before=before, after=after)

    def _lineage(self, name: str) -> "list[LiveSession]":
        """A session and its parents, up to the first."""
        chain: list[LiveSession] = []
        row = self._live.find(name)
        while row is not None and row not in chain and len(chain) < _DEEPEST:
            chain.append(row)
            row = self._live.find(row.parent_session_uid) if row.parent_session_uid else None
        return chain

    def _continued(self, name: str) -> list[str]:
        """A session and those whose words it goes on from: with one that was archived it began anew."""
        chain = self._lineage(name)
        going_on = takewhile(lambda parent: parent.archived_at is None, chain[1:])
        return [row.session_uid for row in (*chain[:1], *going_on)] or [name]

    def _recall(self, row: "LiveSession", windows: tuple[tuple[Quoted, ...], ...] = ()) -> Recall:
        summary = self._summary(row.session_uid)
        last = [] if summary or windows else self._live.get_history(row.key, _PREVIEWED)
        return Recall(
            session_uid=row.session_uid,
            key=row.key,
            channel=row.channel,
            chat_id=row.chat_id,
            title=row.title,
            started_at=row.created_at,
            updated_at=row.updated_at,
            message_count=row.message_count,
            parents=tuple(parent.session_uid for parent in self._lineage(row.session_uid)[1:]),
            summary=summary,
            preview=tuple(map(_quoted, last)),
            windows=windows,
        )

    def _summary(self, session_uid: str) -> str | None:
        """What the session's digest says of it, if a sweep has made one."""
        try:
            digest = self._live.memory.digest(self._live.memory.session(session_uid))
        except NotFound:
            return None
        asked = [f"asked: {request.text}" for request in digest.requests[:_PREVIEWED]]
        answer = [f"last answer: {digest.final_answer.text}"] if digest.final_answer else []
        return "\n".join([*asked, *answer]) or None


def _with_matches(recall: Recall, hit: "SessionHit", matches: "Sequence[Match]") -> Recall:
    windows = tuple(map(_window_of, matches))
    first, last = (None if end is None else _glimpsed(end) for end in (hit.first_request, hit.ending))
    return replace(recall, preview=(), windows=windows, first=first, last=last)


def _window_of(match: "Match") -> tuple[Quoted, ...]:
    items: list[Glimpse | Match] = [*match.before, match, *match.after]
    return tuple(_glimpsed(item, is_match=item is match) for item in items)


_ROLES = {
    "user_msg": "user",
    "human_intervention": "user",
    "decision": "user",
    "assistant_msg": "assistant",
    "completion": "assistant",
    "thinking": "assistant",
    "lifecycle": "system",
}
_ORIGINS = {"user": USER, "assistant": AGENT}


def _glimpsed(item: "Glimpse | Match", *, is_match: bool = False) -> Quoted:
    return Quoted(item.event_uid, _ROLES.get(item.kind, "tool"), item.ts, item.snippet, is_match)


def _quoted(message: "Message") -> Quoted:
    return Quoted(message.event_uid, message.role, message.ts, text_of(message))


def _of_event(event: "Event", payload: Mapping[str, Any], *, is_match: bool) -> Quoted:
    role = event.role if event.role and "input" not in payload else TOOL
    text = event.summary if role == TOOL and "input" in payload else payload_text(event.kind, payload)
    return Quoted(event.event_uid, role, event.ts, text, is_match)


def _records(session: Recall) -> list[Recalled]:
    """A session for a model: a heading with its place, then what is quoted of it."""
    place = f"{session.key} · {plural(session.message_count, 'message')} · {session.session_uid}"
    records = [
        Recalled(AGENT, f"{session.title or 'untitled'} ({place})", session.summary or "", ms_of(session.updated_at))
    ]
    ends = [end for end in (session.first, session.last) if end is not None]
    quotes = _merged(session.windows)
    seen = {quote.event_uid for quote in quotes}
    for quote in [*session.preview, *[end for end in ends if end.event_uid not in seen], *quotes]:
        mark = " (match)" if quote.is_match and len(quotes) > 1 else ""
        heading = f"{quote.role}{mark}, {quote.event_uid}"
        records.append(Recalled(_ORIGINS.get(quote.role, TOOL), heading, quote.text, ms_of(quote.ts)))
    return records


def _merged(windows: tuple[tuple[Quoted, ...], ...]) -> list[Quoted]:
    """The messages of all windows, each once: what is around one match is often around the next."""
    quotes: dict[str, Quoted] = {}
    for quote in (quote for window in windows for quote in window):
        if quote.is_match or quote.event_uid not in quotes:
            quotes[quote.event_uid] = quote
    return list(quotes.values())


def lines_for_people(result: SearchResult) -> list[str]:
    """An answer as a chat shows it to its user: a line for each session, and below it what was found, with its context.

    `>` marks a match; the message before it and the one after it are shown, too.
    """
    lines = []
    for session in result.sessions:
        date = (session.updated_at or "")[:10]
        lines.append(one_line(f"{date} {session.key}: {session.title or 'untitled'}", _PREVIEW_CHARS))
        near = [quotes for window in session.windows if (quotes := _near_match(window))]
        for quote in _merged(tuple(near)):
            mark = ">" if quote.is_match else " "
            lines.append(f"{mark} {quote.role}: {cut_short(one_line(quote.text), _PREVIEW_CHARS)}")
    return lines


def _near_match(window: tuple[Quoted, ...]) -> tuple[Quoted, ...]:
    place = next((number for number, quote in enumerate(window) if quote.is_match), 0)
    return window[max(0, place - 1) : place + 2]
