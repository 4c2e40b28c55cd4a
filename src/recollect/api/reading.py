"""What an open store answers: sessions by name, events, digests, searches, sums. Nothing here changes it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect import analysis, knowledge, recall, sessions, store
from recollect.agents import resume_command
from recollect.config import current_sessions
from recollect.model.clock import rfc3339
from recollect.model.errors import Ambiguous, NotFound, UsageError
from recollect.model.kinds import WARM_UP, SessionKey
from recollect.model.text import Progress, silent
from recollect.recall import NO_FILTERS, Filters

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import TypedDict, Unpack

    from recollect.config import Settings
    from recollect.digest import Exchange
    from recollect.model.schema import Digest, Event, Session, Signal
    from recollect.recall import (
        FileEdit,
        FileVisit,
        Recalled,
        Related,
        SearchAnswer,
        SessionDiff,
        SessionHit,
        Spending,
        StatLine,
        Stats,
        TimelineEntry,
        Unfinished,
    )
    from recollect.sessions import TranscriptItem
    from recollect.store import SessionFilter, Span, Store

    class SearchOptions(TypedDict, total=False):
        """How much of an answer to a query to show, and what to leave out."""

        limit: int
        offset: int
        matches: int
        context: int
        mode: str
        exclude: Collection[str] | None
        budget_tokens: int | None
        scan_seconds: float


_LAST = "last"
_MOST_CHOICES = 12
_A_FEW = 50
_LEAST_OF_A_TITLE, _LEAST_OF_AN_ID = 3, 6


class Reading:
    """The reading half of an open store."""

    def __init__(self, store: Store, load: Callable[[], Settings]) -> None:
        self._store = store
        self._load = load

    @cached_property
    def settings(self) -> Settings:
        """Loaded on first use: a search needs none."""
        return self._load()

    def sessions(
        self,
        filters: Filters = NO_FILTERS,
        *,
        text: str | None = None,
        roots_only: bool = False,
        is_idle: bool | None = None,
        sort: str = "recent",
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Session]:
        """Sessions that match every filter, newest first, or highest first by `sort`: cost, duration, tokens.

        `text` is a part of the title. A session matches `since` if it was active at or after it, and `before` if it
        began before. `roots_only` leaves out sub-agents; `is_idle` False leaves out sessions without any work, and
        True lists only those.
        """
        if sort not in store.SORTS:
            raise UsageError(f"Unknown order: {sort}", f"known: {', '.join(store.SORTS)}")
        chosen = self._chosen(filters, text=text, roots_only=roots_only, is_idle=is_idle)
        matches = self._store.sessions.find(chosen, sort=sort, limit=limit, offset=offset)
        return list(map(_resumable, matches))

    def count_sessions(
        self,
        filters: Filters = NO_FILTERS,
        *,
        text: str | None = None,
        roots_only: bool = False,
        is_idle: bool | None = None,
    ) -> int:
        """How many sessions `sessions` lists without a limit."""
        return self._store.sessions.count(self._chosen(filters, text=text, roots_only=roots_only, is_idle=is_idle))

    def _chosen(self, filters: Filters, **conditions: Any) -> SessionFilter:
        return recall.sessions_of(self._store, filters)._replace(**conditions)

    def session(self, name: str) -> Session:
        """The one session with this id, prefix or suffix of an id (6 characters or more), title, or part of a title.

        `last` is the one active last, unless it is the one this process runs in.
        """
        return self._named(name)

    def _named(self, name: str, *, is_strict: bool = False) -> Session:
        """The one session of this name; raises NotFound, or Ambiguous with the candidates.

        Strictly, neither `last` nor a part of a title names one: what is deleted should be named as a whole.
        """
        if name == _LAST and not is_strict:
            return self.last_session()
        if ":" in name and len(whole := self._of_uids([name])) == 1:
            return _resumable(whole[0])  # parts of names are looked for in all of them
        matches = self._store.sessions.named_like(name)
        if len(matches) > 1:
            matches = [match for match in matches if match.is_exact] or matches
            roots = {match.root_session_uid for match in matches}
            matches = [match for match in matches if match.session_uid in roots] if len(roots) == 1 else matches
        found = self._of_uids(match.session_uid for match in matches)
        found = found or ([] if is_strict else self._archived(name) or self._titled(name))
        if not found:
            least = "give at least 6 characters of an id; " if len(name) < _LEAST_OF_AN_ID else ""
            said = f"; `recollect search {name}` looks at what was said" if " " in name else ""
            hint = f"{least}`recollect sessions` lists ids and titles{said}"
            raise NotFound(f"No session has this id or title: {name}", hint)
        if len(found) > 1:
            found.sort(key=lambda session: session.ended_at or "", reverse=True)
            fields = ("session_uid", "ended_at", "repo", "title")
            choices = tuple({name: getattr(session, name) for name in fields} for session in found[:_MOST_CHOICES])
            listed = f"; the newest {_MOST_CHOICES}:" if len(found) > _MOST_CHOICES else ""
            raise Ambiguous(f"{len(found)} sessions match `{name}`{listed}", "give more of the id or title", choices)
        return _resumable(found[0])

    def _archived(self, name: str) -> list[Session]:
        """The session that a document was written of, by the document's path or file name."""
        if "." not in name:
            return []
        headers = self._store.sessions.of(self._store.archives.named(name)).values()
        return self._of_uids(header.session_uid for header in headers)

    def _of_uids(self, uids: Iterable[str]) -> list[Session]:
        chosen = [store.SessionFilter(uids=frozenset({uid})) for uid in uids]  # one by one: an index has each
        return [session for one in chosen for session in self._store.sessions.find(one)]

    def _titled(self, text: str) -> list[Session]:
        """Sessions with this in their title, the newest first; sub-agents only if there is nothing else."""
        if len(text) < _LEAST_OF_A_TITLE:
            return []
        matches = self._store.sessions.find(store.SessionFilter(text=text))
        roots = [session for session in matches if session.parent_session_uid is None]
        return roots or matches

    def last_session(self, folder: str | PathLike[str] | None = None) -> Session:
        """The session active last, in this folder or below it; the one this process runs in is left out.

        Raises NotFound if there is none.
        """
        running = current_sessions()
        for limit in (_A_FEW, None):
            for session in self._store.sessions.find(store.SessionFilter(roots_only=True), limit=limit):
                is_inside = folder is None or Path(session.cwd or "").is_relative_to(folder)
                if is_inside and session.native_session_id not in running and session.session_class != WARM_UP:
                    return _resumable(session)
        if folder is not None:
            raise NotFound(f"No sessions in this folder: {folder}", "`recollect sessions` lists all")
        inside, outside = "a sweep outside the group reads them", "`recollect doctor` shows where Recollect looks"
        raise NotFound("No sessions yet", inside if self._store.group else outside)

    def sub_agents(self, session: Session) -> list[Session]:
        """The sessions this one spawned, in the order they began."""
        return list(map(_resumable, sessions.find_spawned(self._store, session)[session.session_uid]))

    def events(
        self, session: Session, kind: str | None = None, *, with_copies: bool = False, span: range | None = None
    ) -> list[Event]:
        """A session's events in reading order, or only those of a kind (and its more specific ones), or at some places.

        What a fork or a resumed session copied from an earlier one is left out, unless `with_copies`: over all
        sessions every event comes once.
        """
        events = sessions.read_events(self._store, session, kind, span=span)
        return events if with_copies else [event for event in events if event.copy_of is None]

    def event_kinds(self, session: Session) -> list[str]:
        """The kind of each event of a session, copies included, in reading order."""
        rows = self._store.events.rows(_key(session), ("kind",))
        return [kind for (kind,) in rows]

    def token_curve(self, session: Session, most: int) -> list[tuple[str, int, int]]:
        """When a session used input and output tokens; of more than `most` events, several are added up."""
        columns = ("ts_ms", "input_tokens", "output_tokens")
        rows = self._store.events.rows(_key(session), columns)
        timed = [(at_ms, sent or 0, written or 0) for at_ms, sent, written in rows if at_ms]
        step = max(1, -(-len(timed) // most))
        pieces = (tuple(zip(*timed[start : start + step], strict=True)) for start in range(0, len(timed), step))
        return [(rfc3339(times[0]) or "", sum(sent), sum(written)) for times, sent, written in pieces]

    def event_place(self, session: Session, name: str) -> int | None:
        """The place in reading order of an event with this seq or end of its uid; of a result, that of its call."""
        return self._store.events.place(_key(session), name)

    def payloads(self, session: Session, events: Sequence[Event]) -> Iterator[dict[str, Any]]:
        """The full content of each event, in the order given."""
        return sessions.iter_payloads(self._store, session, events)

    def transcript(
        self, session: Session, kind: str | None = None, *, last: int | None = None
    ) -> Iterator[TranscriptItem]:
        """A session in reading order, each sub-agent where it was called; with `last`, only that many from the end."""
        return sessions.iter_transcript(self._store, session, kind, last=last)

    def window(self, session: Session, at: str, count: int) -> list[TranscriptItem]:
        """The `count` events on each side of one; `at` is its seq, or a prefix or suffix of its event_uid."""
        return sessions.read_window(self._store, session, at, count)

    def digest(self, session: Session) -> Digest:
        """The digest of a session. Raises NotFound until a sweep has made it, and for a tiny sub-agent."""
        return analysis.find_digest(self._store, session)

    def packet(self, session: Session) -> list[Recalled]:
        """What a compaction of a session loses: the user's standing wishes, open steps, commands, errors and fixes."""
        return analysis.make_packet(self._store, session)

    def exchanges(self, session: Session) -> list[Exchange]:
        """A session split into requests and what followed each, filtered by the settings in `[exchanges]`."""
        return analysis.find_exchanges(self._store, session, self.settings.exchanges)

    def signals(
        self,
        session: Session | None = None,
        filters: Filters = NO_FILTERS,
        *,
        signal: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Signal]:
        """What is worth noticing in one session or in all that match, newest first."""
        key = _key(session) if session else None
        return self._store.digests.signals(recall.sessions_of(self._store, filters), key, signal, limit, offset)

    def count_signals(
        self, session: Session | None = None, filters: Filters = NO_FILTERS, *, signal: str | None = None
    ) -> int:
        """How many signals `signals` lists without a limit."""
        key = _key(session) if session else None
        return self._store.digests.signal_count(recall.sessions_of(self._store, filters), key, signal)

    def search(self, query: str, filters: Filters = NO_FILTERS, **options: Unpack[SearchOptions]) -> list[SessionHit]:
        """Sessions that match a query, best first; an empty query lists recent sessions.

        The options: `limit` (10) and `offset` (0) of the list; how many of its best `matches` (3) each hit has, with
        how many events as `context` (2) on either side; `mode`, which is `words`, `substring` or `regex`; `exclude`,
        the ids of sessions to leave out: by default the one this process runs in.
        """
        return self.answer(query, filters, **options).hits

    def answer(
        self,
        query: str,
        filters: Filters = NO_FILTERS,
        *,
        progress: Progress = silent,
        **options: Unpack[SearchOptions],
    ) -> SearchAnswer:
        """What `search` finds, with the number of matches, a corrected spelling and notes.

        It takes the same options and two more: `budget_tokens` cuts the answer to what an agent can afford. A search
        for a substring or regular expression stops after `scan_seconds` (20), with a note.
        """
        given: dict[str, Any] = {**options}
        if given.get("exclude") is None:
            given["exclude"] = current_sessions()
        asked = recall.Options(filters=filters, **given)
        answer = recall.search(self._store, query, asked, progress=partial(progress, "searching"))
        is_in_words = query and asked.mode == "words"
        return answer._replace(hits=self._amended(query, asked, answer.hits)) if is_in_words else answer

    def _amended(self, query: str, options: recall.Options, hits: list[SessionHit]) -> list[SessionHit]:
        """The hits, with what holds now before what it took the place of."""
        if not self._store.facts.has_amendments():  # as mostly: the rules take a while to load
            return hits
        uids, repos = {hit.session_uid for hit in hits}, {hit.repo for hit in hits if hit.repo}
        amended = knowledge.find_amended(self._store, query, uids, repos)
        newer = {
            uid: recall.Amendment(
                fact.session_uid, fact.evidence[0].event_uid, fact.text, fact.until_then or "", fact.valid_at
            )
            for uid, fact in amended.items()
            if fact.session_uid
        }
        return recall.with_amendments(self._store, query, options, hits, newer)

    def recent(self, filters: Filters = NO_FILTERS, *, limit: int = 10, offset: int = 0) -> SearchAnswer:
        """The sessions active last, each with its last request; the one this process runs in is left out."""
        return self.answer("", filters=filters, limit=limit, offset=offset, matches=1, context=0)

    def files(self, path: str, filters: Filters = NO_FILTERS, *, limit: int | None = None) -> list[FileVisit]:
        """Sessions that touched or discussed a path, newest first; with `limit`, only that many, the latest."""
        return recall.files(self._store, _resolved(path), filters, limit)

    def blame(self, path: str, filters: Filters = NO_FILTERS, *, limit: int | None = None) -> list[FileEdit]:
        """The edits that wrote a file, newest first, across renames; at most `limit`."""
        return recall.blame(self._store, _resolved(path), filters, limit)

    def diff(self, session: Session, path: str | None = None) -> SessionDiff:
        """What a session and its sub-agents changed, edit by edit; with `path`, in that file or folder."""
        return recall.session_diff(self._store, session, _resolved(path) if path else None)

    def evicted_edits(self, path: str) -> int:
        """How many evicted sessions edited a file according to their digests, so that `blame` cannot show how."""
        return recall.evicted_edits(self._store, _resolved(path))

    def timeline(
        self, filters: Filters = NO_FILTERS, *, limit: int | None = None, offset: int = 0
    ) -> list[TimelineEntry]:
        """Sessions active in a period, in the order they began; the latest if there are more than `limit`.

        Sub-agents and sessions without any work are left out.
        """
        return recall.timeline(self._store, filters, limit, offset)

    def names(self, of: str) -> list[str]:
        """Every `agent`, `repo` (its last name), `branch` or `model` of a session, the latest first."""
        listed = self._store.sessions.names(of)
        return list(dict.fromkeys(map(recall.last_name, listed))) if of == "repo" else listed

    def repos_named(self, name: str) -> list[str]:
        """The repositories that match a name, part of one, or a folder."""
        return recall.repos_for(self._store, name)

    def unfinished(self, filters: Filters = NO_FILTERS, *, limit: int | None = None) -> list[Unfinished]:
        """Sessions that left to-dos, questions, failing tests, or requests unanswered or unfinished, newest first."""
        return recall.unfinished(self._store, filters, limit)

    def related(self, session: Session, limit: int = 10) -> list[Related]:
        """Sessions this one came from or led to, and sessions about the same things."""
        return recall.related(self._store, session.session_uid, limit)

    def stats(self, by: str = "month", filters: Filters = NO_FILTERS, *, session: Session | None = None) -> Stats:
        """Totals by day, week, month, block, session, repo, model, agent, tool or command; nothing is counted twice.

        A block is the five hours from an agent's first activity after the block before. `session` limits them to one
        session with its sub-agents.
        """
        return recall.make_stats(self._store, by, self._span(filters, session))

    def breakdown(
        self, by: str = "month", filters: Filters = NO_FILTERS, *, session: Session | None = None
    ) -> list[StatLine]:
        """The lines of `stats` without their totals, which takes half the time."""
        return recall.make_breakdown(self._store, by, self._span(filters, session))

    def _span(self, filters: Filters, session: Session | None) -> Span:
        headers, root = recall.sessions_of(self._store, filters), None if session is None else session.root_session_uid
        chosen = headers._replace(since_ms=None, before_ms=None, root=root)
        return store.Span(chosen, headers.since_ms, headers.before_ms)

    def spending(self, filters: Filters = NO_FILTERS) -> Spending:
        """Costs today, this month compared with the last, with a forecast, and in the current five-hour blocks."""
        from datetime import datetime

        return recall.make_spending(self._store, datetime.now().astimezone(), recall.sessions_of(self._store, filters))


def _resolved(path: str) -> str:
    """A path as given, but one with `..` is resolved against the current folder."""
    return recall.absolute(path, str(Path.cwd())) if ".." in path.split("/") else path


def _key(session: Session) -> SessionKey:
    return SessionKey(session.agent, session.native_session_id)


def _resumable(session: Session) -> Session:
    """The session with the command that continues it: a sub-agent has none."""
    if session.parent_session_uid is not None:
        return session
    return replace(session, resume_command=resume_command(session.agent, session.native_session_id, session.path))
