"""What leaves the store for other programs: sessions as documents, or back in the storage of an agent.

A handover is planned first, with what cannot come back; nothing is written until the plan is handed to `write`.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from recollect.agentkit.log import as_rebuilt
from recollect.agentkit.optional import Draft, Item
from recollect.agents import find_writeback, get_adapter, profile_of, resume_words, shell_line
from recollect.analysis import find_digest
from recollect.archive import digest_name, document_name, render, write_named, write_new
from recollect.digest import brief_digest, render_digest
from recollect.model.clock import AsDatetime, rfc3339
from recollect.model.errors import NotFound, Unsupported
from recollect.model.kinds import USER_MSG, SessionKey
from recollect.model.schema import Session
from recollect.model.text import Progress, silent
from recollect.redact import MARK
from recollect.sessions import find_spawned, iter_payloads, read_events
from recollect.store import Store, drop_abandoned, sweep_lock

if TYPE_CHECKING:
    from recollect.config import Settings


_BRIEF_TOKENS = 1500
_MOST_CHARS = 400_000  # of a conversation that another agent takes over: about half of what a model can read


@dataclass(frozen=True, slots=True)
class HandoverPlan:
    """What is about to be written, and what it lacks; a plan without files has a `brief` for a first prompt."""

    session_uid: str
    agent: str
    cwd: str | None
    command: str
    files: tuple[str, ...]
    losses: tuple[str, ...]
    brief: str | None
    is_rebuild: bool
    words: tuple[str, ...]
    draft: Draft | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("draft", "words")}


class Handover:
    """Plans and writes files of sessions into the agents' homes."""

    def __init__(self, store: Store, settings: "Settings") -> None:
        self._store = store
        self._settings = settings

    def is_gone(self, session: Session) -> bool:
        """Whether the agent has deleted a session's files, as far as this machine can tell."""
        writeback, here = find_writeback(session.agent), self._sources(session)
        if writeback is None:
            return bool(session.sources) and all(
                source.source_gone_at or not os.path.lexists(source.file) for source in session.sources
            )
        return not os.path.lexists(writeback.locate(session, self._home(session.agent), here))

    def plan_rebuild(self, session: Session) -> HandoverPlan:
        """How to rewrite a session's file that the agent deleted.

        Raises NotFound if nothing is left to write, or if Recollect cannot write this agent's format.
        """
        writeback = find_writeback(session.agent)
        if writeback is None:
            raise NotFound(f"The agent has deleted the log: {session.sources[0].path}", _hint(session))
        items = self._items(session)
        if not resume_words(session.agent, session.native_session_id):
            raise NotFound(
                f"Cannot resume a session of this agent, or with this id: {session.session_uid}", _hint(session)
            )
        path = writeback.locate(session, self._home(session.agent), self._sources(session))
        draft = writeback.rebuild(session, items, path)
        words = resume_words(session.agent, session.native_session_id, str(path))
        return _plan(session, session.agent, words, (*self._losses(session, items), *draft.losses), draft)

    def plan_handoff(self, session: Session, to: str) -> HandoverPlan:
        """How another agent would continue a session: with a session file in its own format, or with a brief."""
        profile, writeback = get_adapter(to).profile, find_writeback(to)
        try:
            if writeback is None:
                raise Unsupported(f"Recollect cannot write sessions of this agent: {to}")
            items, left_out = _recent(self._items(session))
            draft = writeback.compose(session, items, self._home(to), self._introduction(session, left_out))
        except Unsupported:
            text = brief_digest(find_digest(self._store, session), session, _BRIEF_TOKENS)
            words = [word.replace("{prompt}", text) for word in profile.start_command]
            return _plan(
                session,
                to,
                words,
                ("everything except a brief, because this agent cannot take over a whole session",),
                brief=text,
            )
        losses = [f"the first {left_out:,} events, replaced by a brief"] if left_out else []
        words = resume_words(to, draft.native_session_id, str(draft.files[0][0]))
        return _plan(session, to, words, (*losses, *self._losses(session, items), *draft.losses), draft)

    def write(self, plan: HandoverPlan) -> list[Path]:
        """Write the files of a plan. Raises NotFound if such a file exists by now, Busy during a sweep.

        The lines of a rebuilt log are marked: a sweep stores only what the agent adds to them. The main file comes
        last: as long as it is missing, the session is gone and can be written again.
        """
        files = plan.draft.files if plan.draft else ()
        with sweep_lock(self._store.folder):
            for path, content in reversed(files):
                drop_abandoned(path.parent, path.suffix)  # the names of new sessions are never those of earlier ones
                if plan.is_rebuild and path.suffix == ".jsonl":
                    content = as_rebuilt(content)
                written = write_new(path.parent, path.name, content)
                if written != path:
                    written.unlink()
                    raise NotFound(f"File exists again: {path}", "run the command again")
        return [path for path, _ in files]

    def _sources(self, session: Session) -> list[Path]:
        """Its files on this machine, those that are there first: a home may have moved since it was read."""
        files = [Path(source.file) for source in session.sources if source.host == self._settings.host]
        return sorted(files, key=lambda file: not os.path.lexists(file))

    def _home(self, agent: str) -> Path:
        return self._settings.roots[agent][0]

    def _items(self, session: Session) -> list[Item]:
        events = read_events(self._store, session)
        if not events:
            raise NotFound(f"No events of this session are stored: {session.session_uid}", _hint(session))
        return list(zip(events, iter_payloads(self._store, session, events), strict=True))

    def _losses(self, session: Session, items: Sequence[Item]) -> Iterator[str]:
        """What the store lacks of a session."""
        if session.evicted_at:
            yield f"everything before {session.evicted_at}, which was evicted"
        marks = sum(len(MARK.findall(orjson.dumps(payload))) for _, payload in items)
        media = sum(len(payload.get("media") or ()) for _, payload in items)
        spawned = len(find_spawned(self._store, session)[session.session_uid])
        if marks:
            yield f"{marks:,} secrets, which are now marks"
        if media:
            yield f"{media:,} pictures or documents, which are not stored"
        if spawned:
            yield f"the transcripts of {spawned:,} sub-agents; their answers are included"

    def _introduction(self, session: Session, left_out: int) -> str:
        name = profile_of(session.agent).display_name
        text = (
            f"The conversation below was held with {name} ({session.session_uid}) and handed over by Recollect. Tool"
            " calls and results in it are that agent's: check the state of files before relying on them."
        )
        if not left_out:
            return text
        earlier = brief_digest(find_digest(self._store, session), session, _BRIEF_TOKENS)
        return f"{text} Its first {left_out:,} events are left out; this is a summary of all of it:\n\n{earlier}"


def _hint(session: Session) -> str:
    return f"`recollect digest {session.argument} --for-agent` prints a brief to start a new session with"


def _plan(
    session: Session,
    agent: str,
    words: Sequence[str],
    losses: Sequence[str],
    draft: Draft | None = None,
    brief: str | None = None,
) -> HandoverPlan:
    files = tuple(str(path) for path, _ in draft.files) if draft else ()
    # A brief is inserted when the command runs, because it is too long to type.
    inserted = f'"$(recollect digest {shlex.quote(session.argument)} --for-agent)"'
    command = " ".join(inserted if word == brief else shlex.quote(word) for word in words)
    return HandoverPlan(
        session_uid=session.session_uid,
        agent=agent,
        cwd=session.cwd,
        command=command if brief else shell_line(words),
        files=files,
        losses=tuple(losses),
        brief=brief,
        is_rebuild=draft is not None and draft.native_session_id == session.native_session_id,
        words=tuple(words),
        draft=draft,
    )


def _recent(items: Sequence[Item]) -> tuple[list[Item], int]:
    """The last part of a long session, from one of the user's messages on, and how many events come before it."""
    sizes = [len(orjson.dumps(payload)) for _, payload in items]
    start, total = len(items), 0
    while start and total + sizes[start - 1] <= _MOST_CHARS:
        start -= 1
        total += sizes[start]
    while start and start < len(items) and items[start][0].kind != USER_MSG:
        start += 1
    return list(items[start:]), start


_DIGEST_MARK = b"<!-- recollect digest -->\n"


@dataclass(frozen=True, slots=True)
class Archive:
    """A document of a session. It may have been moved or deleted since it was written."""

    session_uid: str
    path: str
    format: str
    made_at: str

    made = AsDatetime("made_at")


@dataclass(frozen=True, slots=True)
class DigestPages:
    """What `write_digests` did. `foreign` are files that Recollect did not write; they were left alone."""

    path: str
    written: int
    without_digest: int
    foreign: tuple[str, ...]


class Archives:
    """The documents of a store's sessions."""

    def __init__(self, store: Store, settings: "Settings") -> None:
        self._store = store
        self._settings = settings

    def render(self, session: Session, format: str = "md", *, tools: bool = False, diffs: bool = False) -> str:
        """A session as a document: `md`, `html`, or `json`, which has every event whole.

        In Markdown, `tools` adds a line for each call and its result, `diffs` what each edit changed; HTML always has
        both. Raises RecollectError if the extra that HTML needs is not installed.
        """
        chars = self._settings.archive_message_chars
        return render(self._store, session, format, _today().date(), chars=chars, tools=tools, diffs=diffs)

    def write(
        self,
        session: Session,
        folder: str | PathLike[str],
        format: str = "md",
        *,
        tools: bool = False,
        diffs: bool = False,
        name: str | None = None,
    ) -> Path:
        """Write a session into a folder as `2026-11-15-its-title.md`; returns the path, which the store remembers.

        Never overwrites a file and never follows a link; a document with the same content is not written twice. `name`
        takes the place of the title, and the present moment that of the session's last day.
        """
        return Path(self.write_all([session], folder, format, tools=tools, diffs=diffs, name=name)[0].path)

    def write_all(
        self,
        sessions: Sequence[Session],
        folder: str | PathLike[str],
        format: str = "md",
        *,
        tools: bool = False,
        diffs: bool = False,
        name: str | None = None,
        progress: Progress = silent,
    ) -> list[Archive]:
        """Write each of these sessions into a folder, as `write` does."""
        written, chars = [], self._settings.archive_message_chars
        for number, session in enumerate(sessions, start=1):
            now = _today() if name else _today().date()
            titled = replace(session, title=name, ended_at=None) if name else session
            content = render(self._store, titled, format, now, chars=chars, tools=tools, diffs=diffs)
            name_there = document_name(titled, now, format)
            path = write_new(Path(folder).absolute(), name_there, content.encode("utf-8", "replace"))
            row = self._store.archives.put(_key(session), str(path), format)
            written.append(_archive(session, *row[1:]))
            progress("archiving", number, len(sessions))
        return written

    def of(self, session: Session) -> list[Archive]:
        """The documents written of a session, oldest first."""
        return [_archive(session, *row[1:]) for row in self._store.archives.of([_key(session)])]

    def write_digests(
        self, folder: str | PathLike[str], sessions: Sequence[Session], progress: Progress = silent
    ) -> DigestPages:
        """Write the digest of each session as Markdown, under a name that stays the same.

        A page written earlier is replaced; a file that is not such a page is left alone.
        """
        target, written, without_digest, foreign = Path(folder).absolute(), 0, 0, []
        for number, session in enumerate(sessions, start=1):
            try:
                page = render_digest(find_digest(self._store, session), session=session)
            except NotFound:
                without_digest += 1
                continue
            name = digest_name(session)
            if write_named(target, name, _DIGEST_MARK + page.encode(), lambda held: held.startswith(_DIGEST_MARK)):
                written += 1
            else:
                foreign.append(name)
            progress("writing", number, len(sessions))
        return DigestPages(str(target), written, without_digest, tuple(foreign))


def _archive(session: Session, path: str, format: str, made_ms: int) -> Archive:
    return Archive(session.session_uid, path, format, rfc3339(made_ms) or "")


def _key(session: Session) -> SessionKey:
    return SessionKey(session.agent, session.native_session_id)


def _today() -> datetime:
    return datetime.now().astimezone()
