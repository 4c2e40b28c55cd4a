"""What the tools about knowledge answer: decisions and workflows as records for the fence."""

from typing import TYPE_CHECKING

from recollect.amounts import duration, number, plural
from recollect.mcp.door import Call, Page
from recollect.mcp.scope import UID_CHARS, filters_of, ms_of, nothing_here, offset_of
from recollect.recall import AGENT, TOOL, USER, Discussion, Recalled
from recollect.text import cut_short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recollect.knowledge import Fact, FailingCommand, Route, Workflow

_TEXT_CHARS, _ABOUT_CHARS = 600, 100
_MOST_SEQUENCES, _MOST_FAILING = 12, 8
_NOTHING = "No decision found. `session_search` searches for the words."
_OPENS = "`get_session` reads an event with `at`"
_SURE = 0.7  # what a plain wish in passing does not reach


def recall_decisions(
    call: Call, topic: str = "", history: bool = False, limit: int = 10, everywhere: bool = False, cursor: str = "0"
) -> Page:
    """What is known about a topic; without one, what was decided and still holds, mere wishes last."""
    offset = offset_of(cursor)
    narrowed = filters_of(call, everywhere, {})
    if narrowed is None:
        return nothing_here(call)
    knowledge = call.memory.knowledge
    if topic:
        return _reasons(knowledge.why(topic, narrowed, limit=None, exclude=call.running), offset, limit)
    facts = sorted(knowledge.decisions(narrowed, history=history), key=lambda fact: fact.confidence < _SURE)
    if not facts:
        return Page(_NOTHING, [])
    return Page(
        f"Decisions: {len(facts)}, the more certain ones first, then newest first; {_OPENS}.",
        [_fact(fact) for fact in facts[offset : offset + limit]],
        offset,
        len(facts),
    )


def _reasons(answers: "Sequence[Fact | Discussion]", offset: int, limit: int) -> Page:
    if not answers:
        return Page(_NOTHING, [])
    records = [discussed(answer) if isinstance(answer, Discussion) else _fact(answer) for answer in answers]
    count = sum(not isinstance(answer, Discussion) for answer in answers)
    lead = f"Decisions and reasons: {count}, the best answer first" if count else "No decision on record"
    lead += f"; then {len(answers) - count} exchanges that discussed it" if len(answers) > count else ""
    return Page(f"{lead}; {_OPENS}.", records[offset : offset + limit], offset, len(answers))


def discussed(exchange: Discussion) -> Recalled:
    """An exchange as a record: what was asked, said, and answered to that."""
    parts = (
        ("asked", exchange.request),
        ("agent", exchange.answer),
        ("next", "; ".join(exchange.next_steps)),
        ("user replied", exchange.reply),
    )
    lines = [f"{what}: {cut_short(text, _TEXT_CHARS)}" for what, text in parts if text]
    source = "only its digest is left" if exchange.evicted else f"evidence: event {exchange.event_uid}"
    heading = f"discussed in session {exchange.session_uid} · {source}"
    return Recalled(f"{USER}, {AGENT}", heading, "\n".join(lines), ms_of(exchange.at), exchange.repo)


def _fact(fact: "Fact") -> Recalled:
    facts = [
        fact.predicate.replace("_", " "),
        f"by {fact.by}",
        f"session {fact.session_uid}" if fact.session_uid else "remembered",
        f"confidence {fact.confidence}",
        f"superseded {fact.invalid_at[:10]}" if fact.invalid_at else "",
    ]
    lines = [cut_short(fact.text, _TEXT_CHARS)]
    lines += [f"until then: {cut_short(fact.until_then, _TEXT_CHARS)}"] if fact.until_then else []
    lines += [f"in: {cut_short(fact.about, _ABOUT_CHARS)}"] if fact.about else []
    if fact.reason and fact.reason not in fact.text:
        lines.append(f"because: {cut_short(fact.reason, _TEXT_CHARS)}")
    others = [other for other in fact.alternatives if other not in fact.text]
    lines += [f"not: {cut_short(', '.join(others), _TEXT_CHARS)}"] if others else []
    cited = [event.event_uid[-UID_CHARS:] for event in fact.evidence[-1:] if fact.session_uid]  # others are around it
    lines += [f"evidence: event {uid}" for uid in cited]
    origin = f"{USER}, {AGENT}" if fact.by == "user" else AGENT
    return Recalled(origin, " · ".join(filter(None, facts)), "\n".join(lines), ms_of(fact.valid_at), fact.repo)


def recall_workflows(call: Call, goal: str = "", everywhere: bool = False, cursor: str = "0") -> Page:
    """How a goal was reached; without one, the orders of steps that work here and the commands that fail."""
    offset = offset_of(cursor)
    narrowed = filters_of(call, everywhere, {})
    if narrowed is None:
        return nothing_here(call)
    if goal:
        records = [_route(route) for route in call.memory.knowledge.how(goal, narrowed)]
        lead = "How earlier sessions reached a similar goal, the best first."
    else:
        known = call.memory.knowledge.workflows(narrowed)
        sequences = "\n".join(map(_sequence, known.workflows[:_MOST_SEQUENCES]))
        records = (
            [Recalled(AGENT, "what follows what, the most useful first; `!` failed", sequences)] if sequences else []
        )
        records += map(_failing, known.failing[:_MOST_FAILING])
        lead = f"Of {known.exchanges} exchanges: sequences of steps, then commands that fail."
    if not records:
        return Page("No earlier session reached a similar goal." if goal else "No sequence of steps is common yet.", [])
    return Page(lead, records[offset:], offset, len(records))


def _route(route: "Route") -> Recalled:
    heading = f"session {route.session_uid} · {number(route.tokens)} tokens · {duration(route.active_s)} of work"
    heading += " · only the names of its steps are left" if route.evicted else ""
    lines = [f"goal: {cut_short(route.goal, _TEXT_CHARS)}", f"steps: {' → '.join(route.steps)}"]
    return Recalled(f"{USER}, {AGENT}", heading, "\n".join(lines), ms_of(route.at), route.repo)


def _sequence(workflow: "Workflow") -> str:
    rate = "" if workflow.success_rate is None else f", {workflow.success_rate:.0%} succeeded"
    taken = f"{workflow.support} times in {plural(workflow.sessions, 'session')}{rate}"
    return f"{' → '.join(workflow.steps)} ({taken}, such as {workflow.session_uid})"


def _failing(command: "FailingCommand") -> Recalled:
    lines = [cut_short(command.command, _TEXT_CHARS), f"said: {cut_short(command.sample, _TEXT_CHARS)}"]
    heading = f"failed {command.failures} of {command.uses} times, last in session {command.session_uid}"
    return Recalled(f"{AGENT}, {TOOL}", heading, "\n".join(lines))
