"""The tools that change something. They do only what a call names, never what recalled text asks for."""

from recollect.errors import UsageError
from recollect.mcp.door import Call, Page
from recollect.mcp.scope import repos_of, session_of
from recollect.recall import AGENT, TOOL, USER, Recalled

CLEARED = "Cleared: the next prompt begins a new session. The old one is bookmarked."
RESUMED = "Resumed: the next prompt continues it."


def clear_session(call: Call, name: str) -> Page:
    """Put the group's conversation aside under a name."""
    done = call.memory.groups.clear(name, call.scope.group)
    mark = Recalled(USER, f"bookmark {done.bookmark.id} · {done.bookmark.session_uid}", done.bookmark.name)
    return Page(CLEARED, [mark])


def resume_session(call: Call, history_id: str | int, save_as: str | None = None) -> Page:
    """Make a bookmarked conversation the group's active one."""
    done = call.memory.groups.resume(str(history_id), call.scope.group, save_as=save_as)
    kept = [Recalled(USER, "the session active before is bookmarked as", done.saved_as)] if done.saved_as else []
    return Page(RESUMED, [Recalled(TOOL, f"active: {done.session_uid}", done.name), *kept])


def record_decision(call: Call, decision: str, why: str, topic: str | None = None, evidence: str | None = None) -> Page:
    """Keep what was decided about this repository, as an agent's word."""
    return _recorded(call, decision, topic, f"{why} (evidence: {evidence})" if evidence else why)


def remember(call: Call, text: str, topic: str | None = None) -> Page:
    """Keep something about this repository, as an agent's word."""
    return _recorded(call, text, topic, None)


def _recorded(call: Call, text: str, topic: str | None, why: str | None) -> Page:
    repos = repos_of(call)
    if not repos:
        raise UsageError("Nothing about this repository is stored yet", "it can be recorded once a session has ended")
    fact = call.memory.knowledge.record(text, topic=topic, repo=repos[0], why=why)
    lead = "Recorded and marked as the agent's; `recall_decisions` returns it. The user can promote or reject it."
    return Page(lead, [Recalled(AGENT, f"fact {fact.fact_uid}", fact.text, repo=fact.repo)])


def forget_memory(call: Call, session: str, reason: str) -> Page:
    """Ask the user to have a session forgotten. Deletes nothing."""
    chosen = session_of(call, session)
    call.memory.annotations.ask_to_forget(chosen, reason)
    asked = Recalled(TOOL, f"session {chosen.session_uid}", "", repo=chosen.repo)
    return Page("Nothing is deleted yet: the user confirms it with `recollect forget --pending`.", [asked])
