"""What the tools answer: sessions, events, files, decisions and workflows as records for the fence.

Each tool is a function of its name. Those that change something do only what a call names, never what recalled text
asks for.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from recollect import digest, knowledge, recall
from recollect.mcp.door import CLEARED, RESUMED, BadArguments, Call, Page
from recollect.model.clock import moment_ms, ms_of
from recollect.model.errors import NotFound, UsageError
from recollect.model.kinds import EDIT
from recollect.model.text import ELLIPSIS, column_of, cut_short, duration, evidence, number, payload_text, plural
from recollect.recall import AGENT, TOOL, USER, Discussion, Filters, Recalled, read_brief

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recollect.knowledge import Fact, FailingCommand, Fix, Route, Workflow
    from recollect.model.schema import Session
    from recollect.recall import FileEdit, FileVisit, Match, SearchAnswer, SessionHit
    from recollect.sessions import TranscriptItem

_NO_SESSION = "No session here has this id; `list_sessions` and `session_search` show ids"
_NOTHING_HERE = "Nothing about this repository is stored yet."
UID_CHARS = 12  # of an event's id, from its end, as digests cite it: enough for `at`
WIDER = 'Pass "everywhere": true to search all repositories.'


def session_of(call: Call, name: str) -> "Session":
    """The session of an id; raises BadArguments if there is none, or none on this side of the wall."""
    try:
        session = call.memory.session(name)
    except NotFound:
        raise BadArguments(_NO_SESSION) from None
    if call.scope.has_wall and call.scope.group is None and session.repo not in repos_of(call):
        raise BadArguments(_NO_SESSION)
    return session


def filters_of(call: Call, everywhere: bool, filters: dict[str, Any]) -> Filters | None:
    """The filters of a call, within its scope; None if nothing is known of the repository that it is in."""
    if everywhere and call.scope.has_wall:
        raise BadArguments("This server is limited to one repository or group: leave out `everywhere`")
    for name in ("since", "before"):
        try:
            moment_ms(name, filters.get(name))
        except UsageError:
            raise BadArguments(f"`{name}` must be a date such as 2026-11-01, 7d, yesterday or last week") from None
    if everywhere or call.scope.group is not None:  # a memory of a group has nothing else
        return Filters(**filters)
    return Filters(repo=str(call.scope.folder), **filters) if repos_of(call) else None


def repos_of(call: Call) -> Sequence[str]:
    try:
        return call.memory.repos_named(str(call.scope.folder))
    except NotFound:
        return []


def nothing_here(call: Call) -> Page:
    return Page(_NOTHING_HERE if call.scope.has_wall else f"{_NOTHING_HERE} {WIDER}", [])


def offset_of(cursor: str) -> int:
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > 9:
        raise BadArguments("`cursor` must be the number at the end of an earlier answer")
    return int(cursor)


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


_ORIGINS = {"asked": USER, "said": AGENT, "did": AGENT, "got": TOOL}
_EVERYONE = f"{USER}, {AGENT}, {TOOL}"
_NOT_THIS = "No earlier session fixed this error. Fixes of similar errors"
_NO_FIX = "No earlier session fixed this error or a similar one."
_HOW_TO_READ = "`get_session` reads one, and with `at` the events around a number like #12."
_SNIPPET_CHARS, _REQUEST_CHARS = 400, 160
_MATCH_CHARS, _MATCHES_CHARS = 1_500, 5_400  # of a matching event, and of all those of an answer
_EVENT_CHARS, _OUTPUT_CHARS = 3000, 1000  # of an event among others, and of what a tool printed
_MOST_EDITS = 5  # of a session, of one file
_PIECE_BYTES = 8_000  # of a long text


def session_search(
    call: Call,
    query: str = "",
    limit: int = 5,
    cursor: str = "0",
    everywhere: bool = False,
    **filters: str,
) -> Page:
    """Sessions that match, each with its best events whole."""
    offset = offset_of(cursor)
    narrowed = filters_of(call, everywhere, filters)
    if narrowed is None:
        return nothing_here(call)
    answer = call.memory.answer(
        query,
        narrowed,
        limit=limit,
        offset=offset,
        matches=3 if query else 1,
        context=0,
        exclude=call.running,
    )
    if not answer.hits:
        wider = "" if everywhere or call.scope.has_wall else f" {WIDER}"
        return Page(f"No earlier session matches.{wider}", [], offset)
    order = "the best first" if query else "newest first"
    least = "At least " * answer.is_least
    lead = f"{least}{plural(_total(answer, offset), 'earlier session')}, {order}. {_HOW_TO_READ}"
    quotes = _quotes(call, answer.hits)
    return Page(lead, [_hit(call, hit, quotes) for hit in answer.hits], offset, _total(answer, offset))


def _quotes(call: Call, hits: "Sequence[SessionHit]") -> dict[str, str]:
    """Matching events by their ids, whole: the best of each session first, as long as there is room for them."""
    quotes: dict[str, str] = {}
    left = _MATCHES_CHARS
    for match in (match for rank in zip_longest(*(hit.matches for hit in hits)) for match in rank if match):
        quote = _whole_match(call, match)
        if len(quote) > left:
            quote = cut_short(" ".join(match.snippet.split()), _SNIPPET_CHARS)
        if len(quote) <= left:
            quotes[match.event_uid] = quote
            left -= len(quote)
    return quotes


def _whole_match(call: Call, match: "Match") -> str:
    """The text of a matching event; of a long one what is around the words that were searched."""
    if not match.seq:  # quoted from a digest
        return match.snippet
    (item,) = call.memory.window(call.memory.session(match.session_uid), str(match.seq), 0)
    text = evidence(_text(item)).strip()
    if len(text) <= _MATCH_CHARS:
        return text
    lowered = text.lower()
    places = [place for word in match.words if (place := lowered.find(word)) >= 0]
    near = {place: sum(place <= other < place + _MATCH_CHARS * 2 // 3 for other in places) for place in places}
    start = max(0, max(near, key=lambda place: near[place], default=0) - _MATCH_CHARS // 3)
    return f"{ELLIPSIS if start else ''}{text[start : start + _MATCH_CHARS]}{ELLIPSIS}"


def _total(answer: "SearchAnswer", offset: int) -> int:
    return answer.total if answer.total is not None else offset + len(answer.hits) + answer.is_cut


def _hit(call: Call, hit: "SessionHit", quotes: "Mapping[str, str]") -> Recalled:
    outcome = hit.outcome or call.memory.session(hit.session_uid).outcome
    lines = [f"title: {cut_short(hit.title, 200)}"] if hit.title else []
    lines += [f"conversation: {hit.key}"] if hit.key else []
    lines += [f"decided, {hit.decided}"] if hit.decided else []
    lines += [f"its decision was amended in: {hit.superseded_by}"] if hit.superseded_by else []
    lines += [f"does not have: {', '.join(hit.missing)}"] if hit.missing else []
    if hit.first_request and hit.first_request.snippet != hit.title and hit.first_request.event_uid not in quotes:
        lines.append(f"first request: {cut_short(hit.first_request.snippet, _REQUEST_CHARS)}")
    for match in sorted(hit.matches, key=lambda match: (match.session_uid, match.seq)):
        if match.event_uid in quotes:
            number = f"#{match.seq} " if match.seq else ""
            within = "" if match.session_uid == hit.session_uid else f" in sub-agent {match.session_uid}"
            lines.append(f"{number}{match.kind} ({_origin(match.kind)}){within}: {quotes[match.event_uid]}")
    if hit.ending and hit.ending.event_uid not in quotes and hit.is_recent:
        lines.append(f"end: {cut_short(' '.join(hit.ending.snippet.split()), _SNIPPET_CHARS)}")
    lines += [f"left open: {text}" for text in hit.open_ends]
    heading = f"session {hit.session_uid} · {outcome}"
    return Recalled(_EVERYONE, heading, "\n".join(lines), ms_of(hit.ended_at or hit.started_at), hit.repo)


def get_session(call: Call, session: str, at: str | None = None, context: int = 5, cursor: str = "0") -> Page:
    """A session's digest, or the events around one; what is long comes in several records."""
    chosen = session_of(call, session)
    offset = offset_of(cursor)
    if at is None:
        text = digest.render_digest(call.memory.digest(chosen), session=chosen)
        heading = f"session {chosen.session_uid} · {chosen.outcome}"
        pages = [Recalled(_EVERYONE, heading, piece, ms_of(chosen.ended_at), chosen.repo) for piece in _pieces(text)]
        return Page('The digest of a session; "at" reads its events.', pages[offset:], offset)
    if at == "end":
        items = list(call.memory.transcript(chosen, last=2 * context + 1))
    else:
        items = _window(call, chosen, at, context)
    records = _whole(items[0]) if len(items) == 1 else [_event(item) for item in items]
    return Page(f"{plural(len(items), 'event')} of the session, in reading order.", records[offset:], offset)


def _window(call: Call, session: "Session", at: str, context: int) -> "list[TranscriptItem]":
    try:
        return list(call.memory.window(session, at.removeprefix("#"), context))
    except NotFound:
        if session.evicted_at is not None:
            raise BadArguments("This event was evicted to save space: leave out `at` to read the digest") from None
        raise BadArguments("This session has no such event: `at` takes a number like #12, an id, or `end`") from None


def _text(item: "TranscriptItem") -> str:
    """The content of an event; of an edit, what it changed."""
    patch = recall.patch_of(item.session, item.payload) if item.event.kind == EDIT else ""
    return patch or payload_text(item.event.kind, item.payload) or item.event.summary


def _event(item: "TranscriptItem") -> Recalled:
    text, origin = _text(item), _origin(item.event.kind)
    most = _OUTPUT_CHARS if origin == TOOL else _EVENT_CHARS
    if len(text) > most:
        text = f'{text[:most]}… ({len(text) - most} more characters: "context": 0 reads it all)'
    return Recalled(origin, _heading(item), text, ms_of(item.event.ts), item.session.repo)


def _whole(item: "TranscriptItem") -> list[Recalled]:
    """One event in full."""
    text = _text(item)
    origin, heading = _origin(item.event.kind), _heading(item)
    return [Recalled(origin, heading, piece, ms_of(item.event.ts), item.session.repo) for piece in _pieces(text)]


def _pieces(text: str) -> list[str]:
    """A text in pieces, each small enough for an answer in bytes."""
    data = text.encode("utf-8", "replace")
    starts = range(0, max(len(data), 1), _PIECE_BYTES)
    return [data[start : start + _PIECE_BYTES].decode("utf-8", "ignore") for start in starts]


def _heading(item: "TranscriptItem") -> str:
    event = item.event
    facts = [
        f"#{event.seq} {event.kind}",
        event.tool,
        "failed" if event.is_error else None,
        f"event {event.event_uid[-UID_CHARS:]}",
    ]
    return " · ".join(fact for fact in facts if fact)


def recall_file(call: Call, path: str, limit: int = 20, everywhere: bool = False, cursor: str = "0") -> Page:
    """Who touched a file, with the edits that wrote it: sessions that edited it first."""
    offset = offset_of(cursor)
    narrowed = filters_of(call, everywhere, {})
    if narrowed is None:
        return nothing_here(call)
    edits: dict[str, list[FileEdit]] = {}
    for edit in call.memory.blame(path, narrowed):
        edits.setdefault(edit.session_uid, []).append(edit)
    records = []
    for visit in call.memory.files(path, narrowed):
        own = [uid for uid in edits if f"{uid}/".startswith(f"{visit.session_uid}/")]  # also of its sub-agents
        records.append(_visit(visit, [edit for uid in own for edit in edits.pop(uid)]))
    records += [_edits(edits_before) for edits_before in edits.values()]
    if not records:
        return Page("No earlier session touched or discussed this path.", [])
    lead = f"{plural(len(records), 'session')} used this path: those that edited it first, the newest first."
    return Page(f"{lead} {_HOW_TO_READ}", records[offset : offset + limit], offset, len(records))


def _visit(visit: "FileVisit", edits: "list[FileEdit]") -> Recalled:
    counts = {"edit": visit.edits, "call": visit.calls, "mention": visit.mentions}
    contacts = ", ".join(plural(count, name) for name, count in counts.items() if count)
    lines = [f"title: {cut_short(visit.title, 200)}"] if visit.title else []
    lines += _edit_lines(edits, visit.cwd)
    return Recalled(
        USER, f"session {visit.session_uid} · {contacts}", "\n".join(lines), ms_of(visit.last_at), visit.repo
    )


def _edits(edits: "list[FileEdit]") -> Recalled:
    """Edits that a session made when the file had another name."""
    heading = f"session {edits[0].session_uid} · {plural(len(edits), 'edit')} under an earlier name"
    return Recalled(USER, heading, "\n".join(_edit_lines(edits, None)), ms_of(edits[0].ts))


def _edit_lines(edits: "list[FileEdit]", cwd: str | None) -> Iterator[str]:
    """The latest edits; a path and a request are given once for those that share them."""
    path = request = None
    for edit in edits[:_MOST_EDITS]:
        within = f" in {edit.session_uid}" if "/" in edit.session_uid else ""
        where = "" if edit.path == path else f" {edit.path.removeprefix(f'{cwd}/')}"
        why = (
            "" if edit.request in (request, None) else f": {cut_short(' '.join(edit.request.split()), _SNIPPET_CHARS)}"
        )
        yield f"edit #{edit.seq}{within} +{edit.added} -{edit.removed}{where}{why}"
        path, request = edit.path, edit.request
    if len(edits) > _MOST_EDITS:
        yield f"and {plural(len(edits) - _MOST_EDITS, 'earlier edit')}"


def list_sessions(call: Call, limit: int = 20, cursor: str = "0", everywhere: bool = False, **filters: str) -> Page:
    """Past sessions, newest first, without the one that asks; in a group, its active one and its bookmarks first."""
    offset = offset_of(cursor)
    narrowed = filters_of(call, everywhere, filters)
    if narrowed is None:
        return nothing_here(call)
    marks = list(_marks(call)) if call.scope.group else []
    records = marks[offset : offset + limit]
    begin, most = max(0, offset - len(marks)), limit - len(records)
    sessions = call.memory.sessions(narrowed, roots_only=True, is_idle=False, limit=most, offset=begin) if most else []
    total = call.memory.count_sessions(narrowed, roots_only=True, is_idle=False)
    records += [_listed(session, session.native_session_id in call.running) for session in sessions]
    if not records:
        return Page("No earlier sessions.", [], offset)
    bookmarked = " `resume_session` continues a bookmark, by its number or name." if len(marks) > 1 else ""
    return Page(f"{total} sessions, newest first.{bookmarked}", records, offset, len(marks) + total)


def _marks(call: Call) -> Iterator[Recalled]:
    """The session that a group is at, and those it put aside."""
    sessions = call.memory.groups.sessions(call.scope.group)
    active = sessions.get()
    yield Recalled(TOOL, f"active: {active or 'none, the next prompt begins a session'}", "")
    for mark in sessions.history():
        yield Recalled(USER, f"bookmark {mark.id} · {mark.session_uid}", mark.name, ms_of(mark.archived_at))


def _listed(session: "Session", is_running: bool) -> Recalled:
    resume = f" · resume: {session.resume_command}" if session.resume_command else ""
    heading = f"session {session.session_uid} · {'this one' if is_running else session.outcome}{resume}"
    title = f"title: {cut_short(session.title, 300)}" if session.title else ""
    return Recalled(USER, heading, title, ms_of(session.ended_at), session.repo)


def recall_error(call: Call, error: str, cursor: str = "0") -> Page:
    """How an error was fixed before; behind a wall, only by sessions inside it."""
    offset = offset_of(cursor)
    repos = repos_of(call)
    fixes = call.memory.knowledge.fixes(error, None, repo=repos[0] if repos else None)
    is_free = not call.scope.has_wall or call.scope.group is not None
    inside = [fix for fix in fixes if is_free or fix.repo in repos]
    if not inside:
        return _met(call, error)
    what = "Fixes of this error" if any(fix.is_same_error for fix in inside) else _NOT_THIS
    return Page(f"{what}, most certain first.", [_fixed(fix) for fix in inside][offset:], offset)


def _met(call: Call, error: str) -> Page:
    """Where an error without a known fix came up in this repository."""
    narrowed = filters_of(call, False, {})
    if narrowed is None:
        return Page(_NO_FIX, [])
    exchanges = call.memory.knowledge.discussions(error, narrowed, limit=3, is_error=True, exclude=call.running)
    lead = f"{_NO_FIX} It, or one like it, came up in:" if exchanges else _NO_FIX
    return Page(lead, list(map(discussed, exchanges)))


def _fixed(fix: "Fix") -> Recalled:
    alike = "" if fix.is_same_error else " (not this error, but a similar one)"
    met = f"seen in {len(fix.sessions)} sessions" if len(fix.sessions) > 1 else "seen in that session only"
    heading = f"fixed in session {fix.session_uid}{alike} · confidence {fix.confidence} · {met}"
    lines = knowledge.fix_lines(fix)
    lines += [f"helped {fix.fixed_count} times"] if fix.fixed_count > 1 else []
    lines += [f"changed since: {', '.join(fix.changed_files)}"] if fix.changed_files else []
    lines += [f"came back in {plural(fix.returns, 'later session')}"] if fix.returns else []
    return Recalled(f"{AGENT}, {TOOL}", heading, "\n".join(lines), ms_of(fix.fixed_at), fix.repo)


def session_brief(call: Call) -> Page:
    """The brief that a session starting here gets."""
    if call.scope.group is not None:  # briefs are made of everybody's sessions
        return Page("A group has no brief; `session_search` without a query lists its latest sessions.", [])
    brief = read_brief(str(call.memory.settings.folder), str(call.scope.folder))
    return Page(brief or "Nothing is known about earlier sessions in this folder.", [])


def latest_sessions(call: Call, limit: int) -> Iterator[tuple[str, str]]:
    """Ids of the latest sessions, fit for an address, and when they ended."""
    from urllib.parse import quote  # few agents list resources

    narrowed = filters_of(call, False, {})
    sessions = [] if narrowed is None else call.memory.sessions(narrowed, roots_only=True, is_idle=False, limit=limit)
    return ((quote(session.session_uid, safe=":/"), session.ended_at or "unknown") for session in sessions)


def _origin(kind: str) -> str:
    return _ORIGINS[column_of(kind)]


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
