"""What the reading tools answer: sessions, events and files as records for the fence."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from recollect import distill, knowledge, recall
from recollect.amounts import plural
from recollect.errors import NotFound
from recollect.kinds import EDIT
from recollect.mcp.door import BadArguments, Call, Page
from recollect.mcp.knowing import discussed
from recollect.mcp.scope import UID_CHARS, WIDER, filters_of, ms_of, nothing_here, offset_of, repos_of, session_of
from recollect.recall import AGENT, TOOL, USER, Recalled, read_brief
from recollect.text import ELLIPSIS, column_of, cut_short, evidence, payload_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recollect.knowledge import Fix
    from recollect.recall import FileEdit, FileVisit, Match, SearchAnswer, SessionHit
    from recollect.schema import Session
    from recollect.sessions import TranscriptItem

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
        text = distill.render_digest(call.memory.digest(chosen), session=chosen)
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
