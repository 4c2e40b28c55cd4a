"""What a session's events add up to. More can be added at any time, in reading order, and the sum can be kept."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from recollect.kinds import ASSISTANT_MSG, LIFECYCLE, MAIN_LANE, USER_MSG
from recollect.sessions.marks import Marks, rewind_of
from recollect.sessions.pricing import Used
from recollect.sessions.titles import has_subject
from recollect.store import HALF_BYTES, Step

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
        self.answered_bytes += sum(step.payload_bytes for step in own if step.role == "assistant")
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
