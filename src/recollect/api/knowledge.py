"""What the sessions of a store teach: fixes of errors, decisions, workflows, facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from recollect import analysis, ingest, knowledge, recall
from recollect.config import current_sessions
from recollect.model.clock import moment_ms, now_ms
from recollect.model.errors import Ambiguous, NotFound, UsageError
from recollect.model.text import plural
from recollect.recall import NO_FILTERS, Filters
from recollect.redact import Redactor
from recollect.store import MAIN_GROUP, Span

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from os import PathLike

    from recollect.api import Memory
    from recollect.knowledge import Audit, Fact, Fix, Graph, Link, Rehearsal, Route, Workflows
    from recollect.recall import Discussion, LineOrigin, Uncommitted
    from recollect.store import SessionFilter


_LEAST_UID_CHARS = 4
_TOPIC_CHARS = 120
_GIT_SECONDS = 1.0
_MOST_CHECKED = 5  # fixes, against git
_NOTE_CHARS = 4_000
_MOST_DISCUSSIONS = 5
_MOST_CANDIDATES = 100  # decisions among which the unsure ones are looked for


class Knowledge:
    """The knowledge of a memory, reached as `memory.knowledge`."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._store = memory._store

    def fixes(self, error_text: str, limit: int | None = 3, *, repo: str | None = None) -> list[Fix]:
        """How an error was fixed before, most certain first; empty if no session fixed it or a similar one.

        `repo` prefers fixes of that repository. `error_text` may also describe the error in a few words. The first few
        show which of their files changed since, if git answers within a second.
        """
        from time import monotonic

        fixes = knowledge.find_fixes(self._store, error_text, repo)[:limit]
        end = monotonic() + _GIT_SECONDS
        checked = [
            knowledge.with_changed_files(fix, self._memory.session(fix.session_uid).cwd, end - monotonic())
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
        """Decisions and preferences that are still valid, newest first; or those valid at `as_of`.

        `history` adds superseded ones, with their end; `everything` adds commits and those
        with a confidence below 0.6.
        """
        asked_ms = moment_ms("--as-of", as_of)
        moment = None if history else now_ms() if asked_ms is None else asked_ms
        repos = self._repos(filters)
        return knowledge.find_decisions(
            self._store, self._sessions(filters), repos, moment, with_commits=everything, limit=limit
        )

    def candidates(self, filters: Filters = NO_FILTERS, *, limit: int = 3) -> list[Fact]:
        """The newest that the user may have decided, too unsure to be listed, and not judged by the user yet."""
        facts = self.decisions(filters, everything=True, limit=_MOST_CANDIDATES)
        unsure = [fact for fact in facts if fact.by == "user" and fact.confidence < knowledge.LEAST_CONFIDENCE]
        return [fact for fact in unsure if fact.verdict is None][:limit]

    def why(
        self,
        topic: str,
        filters: Filters = NO_FILTERS,
        *,
        limit: int | None = 5,
        exclude: Collection[str] | None = None,
    ) -> list[Fact | Discussion]:
        """What is known about a topic, the best answer first: reasons, causes, fixes and decisions that match it well.

        Then follow exchanges that discussed it; of a limited list they take two fifths, or more if facts are few.
        `exclude` are ids of sessions whose exchanges to leave out: by default the one this process runs in.
        """
        facts = knowledge.find_reasons(self._store, topic, self._sessions(filters), self._repos(filters))
        cited = {evidence.event_uid for fact in facts[:limit] for evidence in fact.evidence}
        exchanges = self.discussions(topic, filters, limit=limit or _MOST_DISCUSSIONS, exclude=exclude)
        exchanges = [exchange for exchange in exchanges if exchange.event_uid not in cited]
        most = None if limit is None else max(limit - len(exchanges), limit - limit * 2 // 5)
        answers: list[Fact | Discussion] = [*facts[:most], *exchanges]
        return answers[:limit]

    def discussions(
        self,
        topic: str,
        filters: Filters = NO_FILTERS,
        *,
        limit: int = 5,
        is_error: bool = False,
        exclude: Collection[str] | None = None,
    ) -> list[Discussion]:
        """Exchanges that discussed a topic, the best match first, in the words nearest to it.

        With `is_error` the topic is the text of an error, and exchanges in which it was printed count, too. `exclude`
        are ids of sessions to leave out: by default the one this process runs in.
        """
        if is_error and "\n" in topic.strip():  # a whole output
            topic = knowledge.error_in(topic) or topic
        left_out = current_sessions() if exclude is None else exclude
        return recall.find_discussions(self._store, topic, filters, limit, exclude=left_out, is_error=is_error)

    def line(self, path: str | PathLike[str], line: int) -> LineOrigin:
        """Which commit and which session's edit wrote a line of a file on this machine, and what for.

        Raises NotFound if git does not know the line.
        """
        file = Path(path).resolve()
        origin = recall.line_origin(self._store, str(file), line, self._repos_of(file.parent))
        if origin is None:
            lines = len(file.read_bytes().splitlines()) if file.is_file() else line
            if line > lines:
                raise NotFound(f"No line {line} in a file of {plural(lines, 'line')}: {path}")
            raise NotFound(f"Git does not know this line: {path}:{line}", "the file has to be in a repository")
        if origin.edit is None:
            return origin
        return replace(origin, cause=knowledge.fixed_by(self._store, origin.edit.path, origin.edit.event_uid))

    def uncommitted(self, folder: str | PathLike[str] = ".", *, most_files: int | None = None) -> Uncommitted:
        """The sessions whose edits wrote what a checkout on this machine has not committed yet, the most lines first.

        `most_files` looks at those only that changed most. Raises NotFound if the folder is in no checkout.
        """
        path = Path(folder).resolve()
        change = recall.find_uncommitted(self._store, str(path), self._repos_of(path), most_files)
        if change is None:
            raise NotFound(f"Not in a git checkout: {folder}", "run it where the change is")
        return change

    def facts(self, entity: str) -> list[Fact]:
        """Everything known about a file, command, package, setting or error, oldest first."""
        return knowledge.find_facts(self._store, entity)

    def graph(
        self,
        filters: Filters = NO_FILTERS,
        *,
        around: str | None = None,
        limit: int | None = 60,
        latest: int | None = None,
    ) -> Graph:
        """What is known as a graph of at most `limit` nodes, the edges with most facts first.

        With `around`, what is two steps or fewer from a file, command, error or other entity; raises NotFound if no
        fact names it. `latest` limits it to the newest facts, unless there is an `around`. `graph_svg` draws it.
        """
        return knowledge.find_graph(self._store, self._sessions(filters), self._repos(filters), around, limit, latest)

    def graph_svg(self, graph: Graph, link: Link | None = None) -> str:
        """A graph laid out as SVG; `link` returns the address a node links to, or None."""
        return knowledge.draw(graph, link)

    def workflow_graph(self, filters: Filters = NO_FILTERS, *, latest: int | None = None) -> Graph:
        """Which step follows which in the workflows of these sessions; `graph_svg` and `graph_document` draw it."""
        return knowledge.workflow_graph(self._store.facts.exchanges(self._sessions(filters), latest))

    def graph_document(self, graph: Graph, format: str) -> str:
        """A graph as one file: `html` or `svg`, which need nothing else, or `dot` for Graphviz."""
        if format not in knowledge.DOCUMENTS:
            raise UsageError(f"Unknown format of a graph: {format}", f"known: {', '.join(knowledge.DOCUMENTS)}")
        return knowledge.DOCUMENTS[format](graph)

    def how(self, goal: str, filters: Filters = NO_FILTERS) -> list[Route]:
        """How earlier exchanges reached a similar goal, with the edits and commands that led there; the best first."""
        return knowledge.find_routes(self._store, goal, self._sessions(filters))

    def workflows(
        self, filters: Filters = NO_FILTERS, *, least_support: int = 3, latest: int | None = None
    ) -> Workflows:
        """Orders of steps that exchanges take, with how often they work, and commands that fail often.

        `latest` limits it to the most recent exchanges: all those of a large store take seconds.
        """
        sessions = self._sessions(filters)
        exchanges = self._store.facts.exchanges(sessions, latest)
        timeless = sessions._replace(since_ms=None, before_ms=None)
        uses = self._store.activity.stats("command", Span(timeless, sessions.since_ms, sessions.before_ms))
        return knowledge.Workflows(
            exchanges=len(exchanges),
            workflows=tuple(knowledge.find_workflows(exchanges, least_support)),
            failing=tuple(knowledge.failing_commands(uses)),
        )

    def rehearse(self, filters: Filters = NO_FILTERS) -> Rehearsal:
        """What this memory would have saved: problems of sessions that an earlier one had already solved."""
        return knowledge.make_rehearsal(self._store, self._sessions(filters))

    def remember(self, text: str, *, topic: str | None = None, repo: str | None = None) -> Fact:
        """Keep a decision made elsewhere. With a `topic` it replaces the last note on that topic."""
        return self._keep(text, topic, repo, knowledge.REMEMBERED)

    def record(self, text: str, *, topic: str | None = None, repo: str | None = None, why: str | None = None) -> Fact:
        """Keep a decision that an agent reports. It never replaces what a user said."""
        return self._keep(text, topic, repo, knowledge.RECORDED, why)

    def _keep(self, text: str, topic: str | None, repo: str | None, origin: str, why: str | None = None) -> Fact:
        if not text.strip() or len(text) > _NOTE_CHARS:
            raise UsageError(f"A note has 1 to {_NOTE_CHARS} characters; this one has {len(text)}")
        names = self._memory.repos_named(repo) if repo else [None]
        redact = self._redactor().text
        said, about = redact(text), redact(topic or text)[:_TOPIC_CHARS]
        matter = (about, names[0], origin)
        earlier = [note for note, _ in self._store.facts.notes() if (note.topic, note.repo, note.origin) == matter]
        if earlier and earlier[-1].text == said:
            return knowledge.fact_of_note(earlier[-1], None)
        reason = redact(why) if why else None
        note = knowledge.make_note(said, about, names[0], origin, self._group, number=len(earlier), reason=reason)
        self._store.facts.add_notes([note])
        self._renew_brief(note.repo)
        return knowledge.fact_of_note(note, None)

    def import_decisions(self, path: str | PathLike[str], *, repo: str | None = None) -> int:
        """Import decisions from a Markdown or JSON file; known ones stay unchanged. Returns the new ones."""
        file = Path(path)
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or "not UTF-8"
            raise NotFound(f"Cannot read the file ({reason}): {file}", "give a Markdown or JSON file") from error
        names = self._memory.repos_named(repo) if repo else [None]
        notes = knowledge.parse_notes(self._redactor().text(text), file.name, names[0], self._group)
        if not notes:
            raise UsageError(
                f"No decision found in the file: {file}",
                "a JSON list has objects with `text`, and perhaps `topic` and `date`; a Markdown file has list items",
            )
        return self._store.facts.add_notes(notes)

    def audit(self) -> Audit:
        """How reliable the facts are: duplicates, contradictions, missing evidence, echoes, secrets; the worst.

        Also wishes from pasted text, fixes after which a run still failed, and errors known by a line that runs print
        which do not fail.
        """
        return knowledge.audit(self._store, self._redactor().text)

    def judge(self, uid: str, verdict: str) -> Fact:
        """Promote, pin or reject a fact by its id or the start of it; a rejected fact stays rejected."""
        if verdict not in ("promoted", "pinned", "rejected"):
            raise UsageError(f"Unknown verdict: {verdict}", "known: promoted, pinned, rejected")
        fact = self.fact(uid)
        self._store.facts.judge(fact.fact_uid, verdict, self._group or MAIN_GROUP)
        self._renew_brief(fact.repo)
        return replace(fact, verdict=verdict)

    def fact(self, uid: str) -> Fact:
        """The one fact with this id or the beginning of it, whatever its verdict."""
        facts = self._named(uid)
        if not facts:
            raise NotFound(f"No fact has this id: {uid}", "`recollect decisions`, `why` and `fix --json` show ids")
        if len(facts) > 1:
            raise Ambiguous(f"Several facts begin with this id: {uid}", "give more of it")
        return facts[0]

    def _renew_brief(self, repo: str | None) -> None:
        if repo and self._store.group is None:
            analysis.renew_brief(self._store, repo)

    def _named(self, uid: str) -> list[Fact]:
        if len(uid) < _LEAST_UID_CHARS:
            return []
        notes = [knowledge.fact_of_note(note, verdict) for note, verdict in self._store.facts.notes()]
        facts = [knowledge.fact_of(stored) for stored in self._store.facts.select(uid=uid, with_rejected=True)]
        return [*facts, *(note for note in notes if note.fact_uid.startswith(uid))]

    def _sessions(self, filters: Filters) -> SessionFilter:
        return recall.sessions_of(self._store, filters)

    def _repos(self, filters: Filters) -> Sequence[str] | None:
        return self._memory.repos_named(filters.repo) if filters.repo else None

    def _repos_of(self, folder: Path) -> list[str]:
        """Return the repositories that a folder on this machine belongs to."""
        try:
            return self._memory.repos_named(str(folder))
        except NotFound:
            return []

    @property
    def _group(self) -> str:
        return self._store.group or MAIN_GROUP

    def _redactor(self) -> Redactor:
        return ingest.Protection(self._memory.settings.folder, self._memory.settings.redaction).redactor()
