"""Sessions back in an agent's own storage: files that it deleted, and sessions of one agent for another to go on with.

Everything is planned first, with what cannot come back; nothing is written until the plan is handed to `write`.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from recollect.agentkit.log import as_rebuilt
from recollect.agentkit.writeback import Draft, Item
from recollect.agents import find_writeback, get_adapter, profile_of, resume_words, shell_line
from recollect.analysis import find_digest
from recollect.archive import write_new
from recollect.distill import brief_digest
from recollect.errors import NotFound, Unsupported
from recollect.kinds import USER_MSG
from recollect.redact import MARK
from recollect.schema import Session
from recollect.sessions import find_spawned, iter_payloads, read_events
from recollect.store import Store, sweep_lock

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
    return HandoverPlan(
        session_uid=session.session_uid,
        agent=agent,
        cwd=session.cwd,
        command=_shell_line(session, words, brief),
        files=files,
        losses=tuple(losses),
        brief=brief,
        is_rebuild=draft is not None and draft.native_session_id == session.native_session_id,
        words=tuple(words),
        draft=draft,
    )


def _shell_line(session: Session, words: Sequence[str], brief: str | None) -> str:
    """The command for a shell; a brief is inserted when it runs, because it is too long to type."""
    if brief is None:
        return shell_line(words)
    inserted = f'"$(recollect digest {shlex.quote(session.argument)} --for-agent)"'
    return " ".join(inserted if word == brief else shlex.quote(word) for word in words)


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
