"""Which session a name means, and the command that continues it."""

from dataclasses import replace
from os import PathLike
from pathlib import Path

from recollect.agents import resume_command
from recollect.config import current_sessions
from recollect.errors import Ambiguous, NotFound
from recollect.kinds import WARM_UP
from recollect.schema import Session
from recollect.store import SessionFilter, Store

LAST = "last"
_MOST_CHOICES = 12
_A_FEW = 50
_LEAST_OF_A_TITLE, _LEAST_OF_AN_ID = 3, 6


def find_named(store: Store, name: str, *, is_strict: bool = False) -> Session:
    """The one session of this name; raises NotFound, or Ambiguous with the candidates.

    Strictly, neither `last` nor a part of a title names one: what is deleted should be named as a whole.
    """
    if name == LAST and not is_strict:
        return find_last(store, None)
    if ":" in name and len(whole := store.sessions.find(SessionFilter(uids=frozenset({name})))) == 1:
        return resumable(whole[0])  # an index has it; parts of names are looked for in all of them
    matches = store.sessions.named_like(name)
    if len(matches) > 1:
        matches = [match for match in matches if match.is_exact] or matches
        roots = {match.root_session_uid for match in matches}
        matches = [match for match in matches if match.session_uid in roots] if len(roots) == 1 else matches
    uids = [SessionFilter(uids=frozenset({match.session_uid})) for match in matches]
    sessions = [session for uid in uids for session in store.sessions.find(uid)]
    sessions = sessions or ([] if is_strict else _archived(store, name) or _titled(store, name))
    if not sessions:
        least = "give at least 6 characters of an id; " if len(name) < _LEAST_OF_AN_ID else ""
        said = f"; `recollect search {name}` looks at what was said" if " " in name else ""
        hint = f"{least}`recollect sessions` lists ids and titles{said}"
        raise NotFound(f"No session has this id or title: {name}", hint)
    if len(sessions) > 1:
        sessions.sort(key=lambda session: session.ended_at or "", reverse=True)
        choices = tuple(map(_choice, sessions[:_MOST_CHOICES]))
        listed = f"; the newest {_MOST_CHOICES}:" if len(sessions) > _MOST_CHOICES else ""
        raise Ambiguous(f"{len(sessions)} sessions match `{name}`{listed}", "give more of the id or title", choices)
    return resumable(sessions[0])


def _archived(store: Store, name: str) -> list[Session]:
    """The session that a document was written of, by the document's path or file name."""
    if "." not in name:
        return []
    keys = store.archives.named(name)
    return [
        session
        for header in store.sessions.of(keys).values()
        for session in store.sessions.find(SessionFilter(uids=frozenset({header.session_uid})))
    ]


def _titled(store: Store, text: str) -> list[Session]:
    """Sessions with this in their title, the newest first; sub-agents only if there is nothing else."""
    if len(text) < _LEAST_OF_A_TITLE:
        return []
    matches = store.sessions.find(SessionFilter(text=text))
    roots = [session for session in matches if session.parent_session_uid is None]
    return roots or matches


def _choice(session: Session) -> dict[str, str | None]:
    return {
        "session_uid": session.session_uid,
        "ended_at": session.ended_at,
        "repo": session.repo,
        "title": session.title,
    }


def find_last(store: Store, folder: str | PathLike[str] | None) -> Session:
    """The session active last, in this folder or below it, and not the one this process runs in."""
    running = current_sessions()
    for limit in (_A_FEW, None):
        for session in store.sessions.find(SessionFilter(roots_only=True), limit=limit):
            is_inside = folder is None or Path(session.cwd or "").is_relative_to(folder)
            if is_inside and session.native_session_id not in running and session.session_class != WARM_UP:
                return resumable(session)
    if folder is not None:
        raise NotFound(f"No sessions in this folder: {folder}", "`recollect sessions` lists all")
    where = "a sweep outside the group reads them" if store.group else "`recollect doctor` shows where Recollect looks"
    raise NotFound("No sessions yet", where)


def resumable(session: Session) -> Session:
    """The session with the command that continues it: a sub-agent has none."""
    if session.parent_session_uid is not None:
        return session
    return replace(session, resume_command=resume_command(session.agent, session.native_session_id, session.path))
