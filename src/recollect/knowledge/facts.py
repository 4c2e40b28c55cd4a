"""What a rule reads of a session, exchange by exchange, and how what it finds becomes a fact: with its evidence."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from recollect import schema
from recollect.distill import PAUSE_MS, Payloads, Subject, Trace, payload_text, shortened, weighed
from recollect.kinds import HANDED_PLAN
from recollect.knowledge.records import DECIDED, FIXED_BY, HAS_VALUE, PREFERS, SURE, TOUCHES, fact_uid
from recollect.store import FactRow, Response, Step
from recollect.text import evidence

QUOTE_CHARS = 200
NAME_CHARS = 160
TEXT_CHARS = 400
MOST_EVIDENCE = 6


@dataclass(frozen=True)
class Material:
    """What is at hand of a session: its row, its agent, and its events read once."""

    subject: Subject
    agent: str
    is_human: bool  # what is asked for comes from a person, not from another agent
    trace: Trace
    payloads: Payloads
    responses: Sequence[Response]
    _texts: dict[bytes, str] = field(default_factory=dict)

    @cached_property
    def spending(self) -> "Spending":
        return Spending(self.responses, self.subject.usd)

    def text(self, step: Step) -> str:
        """All that an event says, or its summary, without what an earlier recall put into it."""
        text = self._texts.get(step.event_uid)
        if text is None:
            text = evidence(payload_text(self.payloads.get(step.event_uid, {})) or step.summary)
            self._texts[step.event_uid] = text
        return text

    def active_ms(self, start: int, end: int) -> int:
        """The working time from one step to another: a long silence is none."""
        times = [step.ts_ms for step in self.trace.steps[start : end + 1] if step.ts_ms is not None]
        return sum(b - a for a, b in pairwise(times) if 0 <= b - a <= PAUSE_MS)


class Spending:
    """What the responses of a session used, added up once: it is asked for of every exchange and every error."""

    def __init__(self, responses: Sequence[Response], usd: float | None) -> None:
        timed = sorted(
            (response.ts_ms, _tokens(response), weighed(response))
            for response in responses
            if response.ts_ms is not None
        )
        self._times = [ts_ms for ts_ms, _, _ in timed]
        self._tokens = [0, *accumulate(tokens for _, tokens, _ in timed)]
        self._weights = [0.0, *accumulate(weight for _, _, weight in timed)]
        self._total, self._usd = sum(map(weighed, responses)), usd

    def between(self, began: int | None, ended: int | None) -> dict[str, Any]:
        """The tokens and the share of the session's money after one moment and up to another."""
        if began is None or ended is None:
            return {"tokens": None, "usd": None}
        start, end = bisect_right(self._times, began), bisect_right(self._times, ended)
        end = max(start, end)
        usd = None
        if self._usd is not None and self._total:
            usd = round(self._usd * (self._weights[end] - self._weights[start]) / self._total, 6)
        return {"tokens": self._tokens[end] - self._tokens[start], "usd": usd}


def _tokens(response: Response) -> int:
    return response.input_tokens + response.output_tokens + response.cache_read_tokens + response.cache_write_tokens


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact as a rule finds it. The first of its evidence is what it is known by."""

    rule: str
    predicate: str
    subject: tuple[str, str]  # kind and name
    object: tuple[str, str]
    text: str
    confidence: float
    evidence: Sequence[tuple[Step, str]]  # events, and what each says
    details: Mapping[str, Any] = field(default_factory=dict)


def decided(
    rule: str,
    topic: str,
    choice: str,
    text: str,
    confidence: float,
    evidence: Sequence[tuple[Step, str]],
    **details: Any,
) -> Finding:
    """What was decided on a topic, by the user if nothing else is said."""
    details = {"by": "user", "alternatives": [], "reason": None} | details
    return Finding(rule, DECIDED, ("decision", topic), ("choice", choice), text, confidence, evidence, details)


def fact_rows(findings: Iterable[Finding], began_ms: int | None) -> list[FactRow]:
    """Facts ready to be stored. Their ids depend on the rule and the event, so that a verdict on one outlives it.

    What cites events without a time holds since the session began.
    """
    numbers: Counter[tuple[str, str, str]] = Counter()
    rows = []
    for finding in findings:
        first = finding.evidence[0][0]
        key = (finding.rule, finding.predicate, first.uid)
        rows.append(_row(finding, fact_uid(*key, str(numbers[key])), began_ms))
        numbers[key] += 1
    return rows


def distinct(rows: Iterable[FactRow]) -> tuple[FactRow, ...]:
    """Facts of a session, each once: a failure where it was met first, a fix as it was in the end.

    A value or a decision may come back after another one; only what says the same again at once is left out.
    """
    kept: dict[Hashable, FactRow] = {}
    last: dict[tuple[str, str], str] = {}
    for row in rows:
        key: Hashable = (row.predicate, row.subject, row.object)
        if row.predicate in (DECIDED, PREFERS, HAS_VALUE):
            if last.get((row.predicate, row.subject)) != row.object:
                kept[row.fact_uid] = row
            last[row.predicate, row.subject] = row.object
        elif row.predicate == FIXED_BY:
            kept.pop(key, None)
            kept[key] = row
        elif row.predicate == TOUCHES:  # a request may be made twice
            kept[row.fact_uid] = row
        else:
            kept.setdefault(key, row)
    return tuple(kept.values())


def _row(finding: Finding, uid: str, began_ms: int | None) -> FactRow:
    cited = [
        {"event_uid": step.uid, "quote": shortened(quote, QUOTE_CHARS)}
        for step, quote in finding.evidence[:MOST_EVIDENCE]
    ]
    return FactRow(
        fact_uid=uid,
        rule=finding.rule,
        predicate=finding.predicate,
        subject_kind=finding.subject[0],
        subject=shortened(finding.subject[1], NAME_CHARS),
        object_kind=finding.object[0],
        object=shortened(finding.object[1], NAME_CHARS),
        text=shortened(finding.text, TEXT_CHARS),
        confidence=round(min(max(finding.confidence, 0.0), SURE), 2),
        since_ms=began_ms if finding.evidence[0][0].ts_ms is None else finding.evidence[0][0].ts_ms,
        details=dict(finding.details),
        evidence=cited,
    )


_PLAN_REQUEST = re.compile(r"implement (?:the following|this) plan\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Turn:
    """A request with everything until the next one. The first may have none."""

    request: Step | None
    start: int
    end: int
    steps: Sequence[Step]
    uids: frozenset[bytes]

    def has(self, step: Step) -> bool:
        return step.event_uid in self.uids

    @property
    def was_stopped(self) -> bool:
        return any(step.kind == schema.HUMAN_INTERVENTION for step in self.steps[-2:])


def is_plan(material: Material, request: Step) -> bool:
    """Whether a request hands the agent a plan, which another agent wrote, to implement."""
    is_likely = request.summary.startswith(HANDED_PLAN) or _PLAN_REQUEST.match(request.summary) is not None
    return is_likely and _PLAN_REQUEST.match(material.text(request).lstrip()) is not None


def turns_of(trace: Trace) -> list[Turn]:
    """The exchanges of a session, in order."""
    requests = {step.event_uid for step in trace.requests}
    starts = [position for position, step in enumerate(trace.steps) if step.event_uid in requests]
    bounds = [*([] if starts[:1] == [0] else [0]), *starts, len(trace.steps)]
    turns = []
    for start, end in pairwise(bounds):
        steps = trace.steps[start:end]
        first = steps[0] if steps and steps[0].event_uid in requests else None
        turns.append(Turn(first, start, end, steps, frozenset(step.event_uid for step in steps)))
    return turns
