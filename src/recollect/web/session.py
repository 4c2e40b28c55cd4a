"""The pages of one session."""

from typing import Any

from recollect.api import Memory
from recollect.archive import diffs_by_event, files_changed
from recollect.errors import NotFound
from recollect.schema import Digest, Session
from recollect.web.pages import Params, Records, agents
from recollect.web.reader import Outline, Outlines, find_in, read_page, read_steps

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


def _outline(memory: Memory, session: Session) -> Outline:
    return _OUTLINES.of(memory, session)


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
    outline = _outline(memory, chosen)
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
    outline, page = _outline(memory, chosen), int(params.path["page"])
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
        "steps": read_steps(memory, _outline(memory, chosen), params.path["event"], count),
    }


def event(memory: Memory, params: Params) -> Records:
    """One step with everything in it: arguments, diff, output."""
    chosen = _session(memory, params)
    (step,) = read_steps(memory, _outline(memory, chosen), params.path["event"], 1)
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
