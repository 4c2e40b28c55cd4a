"""What the sessions of a store teach: fixes of errors, decisions, workflows, facts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recollect.errors import Ambiguous, NotFound, UsageError
from recollect.recall.filters import NO_FILTERS, Filters

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from os import PathLike

    from recollect.api import Memory
    from recollect.knowledge.drawing import Link
    from recollect.knowledge.records import Audit, Fact, Fix, Graph, Rehearsal, Route, Workflows
    from recollect.recall import LineOrigin
    from recollect.store import HeaderFilter

_LEAST_UID_CHARS = 4
_TOPIC_CHARS = 120
_GIT_SECONDS = 1.0
_MOST_CHECKED = 5  # fixes, against git
_NOTE_CHARS = 4_000


class Knowledge:
    """The knowledge of a memory, reached as `memory.knowledge`."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._store = memory._store

    def fixes(self, error_text: str, limit: int | None = 3, *, repo: str | None = None) -> list[Fix]:
        """How an error was fixed before, the surest first; none if nobody fixed it or one that reads alike.

        `repo` prefers fixes of that repository. `error_text` may also describe the error in a few words. The first few
        say which of their files changed since, as far as git can tell within a second.
        """
        from time import monotonic

        from recollect.knowledge.fixes import find_fixes, with_changed_files

        fixes = find_fixes(self._store, error_text, repo)[:limit]
        end = monotonic() + _GIT_SECONDS
        checked = [
            with_changed_files(fix, self._memory.session(fix.session_uid).cwd, end - monotonic())
            for fix in fixes[:_MOST_CHECKED]
        ]
        return checked + fixes[_MOST_CHECKED:]

    def decisions(
        self,
        filters: Filters = NO_FILTERS,
        *,
        as_of: str | datetime | None = None,
        history: bool = False,
        everything: bool = False,
        limit: int | None = None,
    ) -> list[Fact]:
        """What was decided and preferred and still holds, newest first; or held at `as_of`.

        `history` adds what was superseded, with its end; `everything` adds commits, what agents say they decided by
        themselves, and what is less sure than 0.6.
        """
        from recollect.clock import moment_ms, now_ms
        from recollect.knowledge.asking import find_decisions

        asked_ms = moment_ms("--as-of", as_of)
        moment = None if history else now_ms() if asked_ms is None else asked_ms
        repos = self._repos(filters)
        return find_decisions(self._store, self._sessions(filters), repos, moment, with_weak=everything, limit=limit)

    def why(self, topic: str, filters: Filters = NO_FILTERS, *, limit: int | None = 5) -> list[Fact]:
        """What is known about a topic, the best answer first: reasons, causes, fixes, decisions."""
        from recollect.knowledge.asking import find_reasons

        return find_reasons(self._store, topic, self._sessions(filters), self._repos(filters))[:limit]

    def line(self, path: str | PathLike[str], line: int) -> LineOrigin:
        """Which commit and which session's edit wrote a line of a file on this machine, and what for.

        Raises NotFound if git does not know the line.
        """
        from recollect.recall import line_origin

        file = Path(path).resolve()
        try:
            repos = self._memory.repos_named(str(file.parent))
        except NotFound:
            repos = []
        origin = line_origin(self._store, str(file), line, repos)
        if origin is None:
            raise NotFound(f"Git does not know this line: {path}:{line}", "the file has to be in a repository")
        return origin

    def facts(self, entity: str) -> list[Fact]:
        """Everything known about a file, command, package, setting or error, oldest first."""
        from recollect.knowledge.asking import find_facts

        return find_facts(self._store, entity)

    def graph(self, filters: Filters = NO_FILTERS, *, around: str | None = None, limit: int | None = 60) -> Graph:
        """What is known as a graph of at most `limit` nodes, the edges with most facts first.

        With `around`, what is two steps or fewer from a file, command, error or other entity; raises NotFound if no
        fact names it. `graph_svg` draws it.
        """
        from recollect.knowledge.graph import find_graph

        return find_graph(self._store, self._sessions(filters), self._repos(filters), around, limit)

    def graph_svg(self, graph: Graph, link: Link | None = None) -> str:
        """A graph laid out as SVG; `link` gives the address that a node leads to, or None."""
        from recollect.knowledge.drawing import draw

        return draw(graph, link)

    def graph_document(self, graph: Graph, format: str) -> str:
        """A graph as one file: `html`, which needs nothing else, or `dot` for Graphviz."""
        from recollect.knowledge.drawing import DOCUMENTS

        if format not in DOCUMENTS:
            raise UsageError(f"Unknown format of a graph: {format}", f"known: {', '.join(DOCUMENTS)}")
        return DOCUMENTS[format](graph)

    def how(self, goal: str, filters: Filters = NO_FILTERS) -> list[Route]:
        """How exchanges that reached a goal like this one went, the best first."""
        from recollect.knowledge.workflows import find_routes

        return find_routes(goal, self._store.exchange_steps.select(self._sessions(filters)))

    def workflows(self, filters: Filters = NO_FILTERS, *, least_support: int = 3) -> Workflows:
        """Orders of steps that exchanges take, with how often they work, and commands that fail often."""
        from recollect.knowledge.predicates import FIXED_BY
        from recollect.knowledge.records import Workflows
        from recollect.knowledge.workflows import failing_commands, find_workflows
        from recollect.store import Span

        sessions = self._sessions(filters)
        exchanges = self._store.exchange_steps.select(sessions)
        timeless = sessions._replace(since_ms=None, before_ms=None)
        rows = self._store.activity.stats("command", Span(timeless, sessions.since_ms, sessions.before_ms))
        uses = [(row.name or "", row.uses or 0, row.failures or 0, row.sample or "") for row in rows]
        return Workflows(
            exchanges=len(exchanges),
            workflows=tuple(find_workflows(exchanges, least_support)),
            failing=tuple(failing_commands(uses, self._store.facts.select((FIXED_BY,), timeless))),
        )

    def rehearse(self, filters: Filters = NO_FILTERS) -> Rehearsal:
        """What this memory would have saved: what sessions met although an earlier one had dealt with it."""
        from recollect.knowledge.rehearse import rehearse

        return rehearse(self._store, self._sessions(filters))

    def remember(self, text: str, *, topic: str | None = None, repo: str | None = None) -> Fact:
        """Keep something that was decided elsewhere. With a `topic` it takes the place of the last note on it."""
        from recollect.knowledge.timeline import REMEMBERED

        return self._keep(text, topic, repo, REMEMBERED)

    def record(self, text: str, *, topic: str | None = None, repo: str | None = None, why: str | None = None) -> Fact:
        """Keep something that an agent says was decided. It never takes the place of what a user said."""
        from recollect.knowledge.timeline import RECORDED

        return self._keep(text, topic, repo, RECORDED, why)

    def _keep(self, text: str, topic: str | None, repo: str | None, origin: str, why: str | None = None) -> Fact:
        from recollect.knowledge.notes import make_note
        from recollect.knowledge.timeline import fact_of_note

        if not text.strip() or len(text) > _NOTE_CHARS:
            raise UsageError(f"A note has 1 to {_NOTE_CHARS} characters; this one has {len(text)}")
        names = self._memory.repos_named(repo) if repo else [None]
        said, about = self._redact(text), self._redact(topic or text)[:_TOPIC_CHARS]
        matter = (about, names[0], origin)
        earlier = [note for note, _ in self._store.verdicts.notes() if (note.topic, note.repo, note.origin) == matter]
        if earlier and earlier[-1].text == said:
            return fact_of_note(earlier[-1], None)
        reason = self._redact(why) if why else None
        note = make_note(said, about, names[0], origin, self._group, number=len(earlier), reason=reason)
        self._store.verdicts.add_notes([note])
        self._renew_brief(note.repo)
        return fact_of_note(note, None)

    def import_decisions(self, path: str | PathLike[str], *, repo: str | None = None) -> int:
        """Take the decisions of a Markdown or JSON file; those known already stay as they are. Returns the new ones."""
        from recollect.knowledge.notes import parse_notes

        file = Path(path)
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or "not UTF-8"
            raise NotFound(f"Cannot read the file ({reason}): {file}", "give a Markdown or JSON file") from error
        names = self._memory.repos_named(repo) if repo else [None]
        notes = parse_notes(self._redact(text), file.name, names[0], self._group)
        if not notes:
            raise UsageError(f"No decision found in the file: {file}", "see `recollect decisions import --help`")
        return self._store.verdicts.add_notes(notes)

    def audit(self) -> Audit:
        """How sound what is known is: duplicates, contradictions, facts without support, echoes, secrets; the worst."""
        from recollect.knowledge.asking import audit

        return audit(self._store, self._redact)

    def judge(self, uid: str, verdict: str) -> Fact:
        """Promote, pin or reject a fact by its id or the beginning of it; a rejected one stays rejected."""
        from dataclasses import replace

        from recollect.store import MAIN_GROUP

        if verdict not in ("promoted", "pinned", "rejected"):
            raise UsageError(f"Unknown verdict: {verdict}", "known: promoted, pinned, rejected")
        fact = self.fact(uid)
        self._store.verdicts.judge(fact.fact_uid, verdict, self._group or MAIN_GROUP)
        self._renew_brief(fact.repo)
        return replace(fact, verdict=verdict)

    def fact(self, uid: str) -> Fact:
        """The one fact with this id or the beginning of it, whatever was said of it."""
        found = self._named(uid)
        if not found:
            raise NotFound(f"No fact has this id: {uid}", "`recollect decisions`, `why` and `fix --json` show ids")
        if len(found) > 1:
            raise Ambiguous(f"Several facts begin with this id: {uid}", "give more of it")
        return found[0]

    def _renew_brief(self, repo: str | None) -> None:
        from recollect.analysis.prepared import renew_brief

        if repo and self._store.group is None:
            renew_brief(self._store, repo)

    def _named(self, uid: str) -> list[Fact]:
        from recollect.knowledge.timeline import fact_of, fact_of_note

        if len(uid) < _LEAST_UID_CHARS:
            return []
        notes = [fact_of_note(note, verdict) for note, verdict in self._store.verdicts.notes()]
        found = [fact_of(stored) for stored in self._store.facts.find(uid)]
        return [*found, *(note for note in notes if note.fact_uid.startswith(uid))]

    def _sessions(self, filters: Filters) -> HeaderFilter:
        from recollect.recall import sessions_of

        return sessions_of(self._store, filters)

    def _repos(self, filters: Filters) -> Sequence[str] | None:
        return self._memory.repos_named(filters.repo) if filters.repo else None

    @property
    def _group(self) -> str:
        from recollect.store import MAIN_GROUP

        return self._store.group or MAIN_GROUP

    def _redact(self, text: str) -> str:
        from recollect.ingest.protection import Protection

        return Protection(self._memory.settings.folder, self._memory.settings.redaction).redactor().text(text)
