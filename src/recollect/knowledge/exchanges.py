"""A session's exchanges as the rules see them: a request, and the places of what followed it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from recollect import schema
from recollect.distill import Trace
from recollect.kinds import HANDED_PLAN
from recollect.knowledge.facts import Material
from recollect.store import Step

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
