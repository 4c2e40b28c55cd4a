"""Long sessions in parts, so that one more line does not cost as much as all lines before it.

A part ends before a request, so that marks, signals and digests of two parts have little to do with each other. What
was made of closed parts is kept and added to; the last two parts are open and are always read, so that whatever is
said of a session's end rests on a thousand events or more. Where the parts end follows from the events alone: however
a session arrives, it is cut in the same places.

What a session's events add up to. More can be added at any time, in reading order, and the sum can be kept.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import msgspec

from recollect.model.kinds import (
    ASSISTANT_MSG,
    EDIT,
    ERROR,
    LIFECYCLE,
    MAIN_LANE,
    TEST_RUN,
    TOOL_CALL,
    USER_MSG,
    SessionKey,
)
from recollect.sessions.marks import Marks, rewind_of
from recollect.sessions.pricing import Used
from recollect.sessions.titles import has_subject
from recollect.store import HALF_BYTES, Boundary, Kept, Response, Step, Store, StoredSession

PART_EVENTS = 1_000  # at least
PIECE_EVENTS = 50_000  # of a session, settled at once: about five seconds, and each piece writes its digest anew
_CALLS = frozenset({TOOL_CALL, TEST_RUN, EDIT})


class Parts(NamedTuple):
    """A session's events: those of closed parts, one after another, and all others."""

    closed: Sequence[list[Step]]
    open: list[Step]


def split(steps: list[Step]) -> Parts:
    """Cut events in reading order into parts; they begin with the session, or where closed parts ended before."""
    whole = Parts((), steps)
    if len(steps) < 2 * PART_EVENTS:
        return whole
    lane, count = Counter(step.lane for step in steps).most_common(1)[0]
    if len(steps) - count > PART_EVENTS:
        return whole
    first = next(index for index, step in enumerate(steps) if step.lane == lane)
    main = steps[first : first + count]
    starts = _starts(main)
    if len(starts) < 3:
        return whole
    closed = [main[start:end] for start, end in pairwise(starts[:-1])]
    return Parts(closed, [*steps[:first], *main[starts[-2] :], *steps[first + count :]])


def _starts(steps: Sequence[Step]) -> list[int]:
    """Where parts begin: with a request; in work that no request interrupts, with a call after the end of another."""
    starts = [0]
    for index, step in enumerate(steps):
        size = index - starts[-1]
        if size < PART_EVENTS:
            continue
        is_next_call = (
            step.base_kind in _CALLS and step.role == "assistant" and steps[index - 1].base_kind not in _CALLS
        )
        if step.base_kind == USER_MSG or (size >= 2 * PART_EVENTS and is_next_call):
            starts.append(index)
    return starts


def boundary_of(parts: Parts, earlier_ms: int = 0) -> Boundary | None:
    """Where the closed parts end; None if there are none, or what they hold did not arrive before all else."""
    if not parts.closed:
        return None
    last = parts.closed[-1][-1]
    late = [step.seq for step in parts.open if step.lane == last.lane]
    if max(step.seq for part in parts.closed for step in part) >= min(late):
        return None
    return Boundary(last.lane, min(late), last.position, cuts_ms(parts, earlier_ms)[-1])


def cuts_ms(parts: Parts, earlier_ms: int = 0) -> list[int]:
    """The latest time that each closed part or one before it has: its responses are those up to then."""
    cuts: list[int] = []
    for part in parts.closed:
        earlier_ms = max(earlier_ms, max((step.ts_ms for step in part if step.ts_ms is not None), default=0))
        cuts.append(earlier_ms)
    return cuts


def until(cut_ms: int, responses: Sequence[Response]) -> tuple[list[Response], list[Response]]:
    """Responses up to a time, with those of no time, and later ones."""
    early = [response for response in responses if (response.ts_ms or 0) <= cut_ms]
    return early, [response for response in responses if (response.ts_ms or 0) > cut_ms]


def read_in_pieces(
    store: Store, keys: Sequence[SessionKey], whole: Collection[SessionKey]
) -> Iterator[tuple[list[StoredSession], bool]]:
    """Read sessions as far as what was kept of them does not say enough, and say each time if that was all.

    A very long session comes in pieces, as if it had arrived so: whatever stops a sweep, the next one goes on from the
    last piece. Some sessions are read `whole` in any case.
    """
    reached = -1
    while True:
        kept = store.kept.find([key for key in keys if key not in whole])
        before_seq = _end_of_piece(store, keys, kept, reached)
        sessions = store.steps.read(keys, kept) if before_seq is None else store.steps.read(keys, kept, before_seq)
        unfit = [session.key for session in sessions if session.kept is not None and not _goes_on(store, session)]
        if store.kept.drop(unfit):
            again = {session.key: session for session in store.steps.read(unfit)}
            sessions, before_seq = [again.get(session.key, session) for session in sessions], None
        yield sessions, before_seq is None
        if before_seq is None:
            return
        reached = kept[keys[0]].boundary.seq if kept else 0


def _end_of_piece(
    store: Store, keys: Sequence[SessionKey], kept: Mapping[SessionKey, Kept], reached: int
) -> int | None:
    """Return the seq before which a session is read next; None to read all of it, also where a piece closed no part.

    Of a session whose state is lost all that its digest covers is read at once: its row must not say less than it did.
    """
    counts = store.steps.counts(keys)
    if len(counts) != 1 or max(counts.values()) <= PIECE_EVENTS:  # what is read together is no longer than a piece
        return None
    ((key, count),) = counts.items()
    start = kept[key].boundary.seq if key in kept else 0
    end = max(start + PIECE_EVENTS, store.session_rows.analyzed_events(key))
    return end if reached < start and end < count else None


def _goes_on(store: Store, session: StoredSession) -> bool:
    """Whether what was read of a session changes nothing of what came before it."""
    assert session.kept is not None
    boundary = session.kept.boundary
    late = [step for step in session.steps if step.lane == boundary.lane]
    if len(session.steps) - len(late) > PART_EVENTS or any(step.position <= boundary.position for step in late):
        return False
    if any(rewind and rewind["rewind_to"] <= boundary.position for rewind in map(rewind_of, late)):
        return False
    return not store.steps.are_left_behind(session.key, boundary, late)


_MESSAGES = (USER_MSG, ASSISTANT_MSG)  # a completion is an assistant_msg at base
_HASH_BYTES = 16


@dataclass(slots=True)
class Span:
    """When events took place, and which model spoke last."""

    started_ms: int | None = None
    ended_ms: int | None = None
    model: str | None = None

    def add(self, steps: list[Step]) -> None:
        times = [step.ts_ms for step in steps if step.ts_ms is not None]
        if times:
            first, last = min(times), max(times)
            self.started_ms = first if self.started_ms is None else min(first, self.started_ms)
            self.ended_ms = last if self.ended_ms is None else max(last, self.ended_ms)
        models = (step.model for step in reversed(steps) if step.model and not step.model.startswith("<"))
        self.model = next(models, self.model)


@dataclass(slots=True)
class Totals:
    """The sum of some events. What a session did itself, and what describes it: its own events, or its copies if it
    has no others."""

    events: int = 0
    messages: int = 0
    own_events: int = 0
    turns: int = 0
    retries: int = 0
    content: str = ""  # as hex
    own: Span = field(default_factory=Span)
    all: Span = field(default_factory=Span)
    first_parent: bytes | None = None  # the event that the first one follows
    asked: list[str] = field(default_factory=list)  # lanes with a request
    request: str | None = None
    subject: str | None = None  # the first request that says what the session is about
    command: str | None = None
    commits: list[str] = field(default_factory=list)
    originals: list[bytes] = field(default_factory=list)  # halves of uids: whose events were copied, the last one first
    rewinds: list[Step] = field(default_factory=list)
    used: list[Used] = field(default_factory=list)
    answered_bytes: int = 0  # of what the model wrote

    @property
    def span(self) -> Span:
        return self.own if self.own_events else self.all

    @property
    def first_prompt(self) -> str | None:
        """What the session was asked first; where nothing was, the command it was begun with."""
        return self.request or self.command

    @property
    def title(self) -> str | None:
        """The request that names the session, unless its agent did."""
        return self.subject or self.first_prompt

    def add(self, steps: list[Step], marks: Marks) -> None:
        if not steps:
            return
        own = [step for step in steps if step.copy_of is None]
        answers = (step for step in own if step.role == "assistant" and step.base_kind != ERROR)
        self.answered_bytes += sum(step.payload_bytes for step in answers)
        if not self.events:
            self.first_parent = steps[0].parent_uid
        self.events += len(steps)
        self.own_events += len(own)
        kinds = [step.base_kind for step in steps]
        self.messages += sum(map(kinds.count, _MESSAGES))
        self.turns += sum(step.base_kind == USER_MSG for step in own)
        self.retries += sum(map(marks.is_retry, own))
        self.content = content_hash(steps, self.content)
        self.own.add(own)
        self.all.add(steps)
        self._add_texts(steps)
        self.rewinds += [step for step in steps if rewind_of(step) is not None]
        self._add_originals(steps)

    def _add_texts(self, steps: list[Step]) -> None:
        self.asked = sorted({*self.asked, *(step.lane for step in steps if step.base_kind == USER_MSG)})
        if self.subject is None:
            requests = [self.request] if self.request else []
            requests += [step.summary for step in steps if step.base_kind == USER_MSG and step.summary]
            self.request = next(iter(requests), None)
            self.subject = next(filter(has_subject, requests), None)
        if self.command is None:
            commands = (step.summary for step in steps if step.base_kind == LIFECYCLE and step.summary.startswith("/"))
            self.command = next(commands, None)
        ran = (step.summary for step in steps if step.tool and step.summary.startswith("ran "))
        self.commits += [message for command in ran if (message := command.partition("git commit")[2])]

    def _add_originals(self, steps: list[Step]) -> None:
        copied = (step.copy_of for step in reversed(steps) if step.copy_of is not None and step.lane == MAIN_LANE)
        halves = dict.fromkeys(uid[:HALF_BYTES] for uid in copied)
        self.originals = list(halves | dict.fromkeys(self.originals))


def content_hash(steps: Iterable[Step], before: str = "") -> str:
    """The same for the same events, whatever order and size of pieces they were read in: hashes that are added up."""
    total = int(before or "0", 16)
    for step in steps:
        total += int.from_bytes(blake2b(step.event_uid + step.payload_hash, digest_size=_HASH_BYTES).digest())
    return f"{total % (1 << 8 * _HASH_BYTES):0{2 * _HASH_BYTES}x}"


encode_totals = msgspec.json.encode
decode_totals = msgspec.json.Decoder(Totals).decode
