"""What users note about sessions: `memory.annotations`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

from recollect import ingest
from recollect.model.clock import AsDatetime, rfc3339
from recollect.model.errors import UsageError
from recollect.model.kinds import SessionKey
from recollect.recall import Filters
from recollect.store import MAIN_GROUP

if TYPE_CHECKING:
    from recollect.api import Memory
    from recollect.model.schema import Session

FORGET = "forget"
VIEW_FIELDS = (*Filters._fields, "title", "sort", "all")  # of an address that lists sessions
_MOST_CHARS = {"tag": 60, "view": 60, "name": 200, "note": 4000, FORGET: 1000}
_NAMES = {FORGET: "reason"}


@dataclass(frozen=True, slots=True)
class UserNote:
    """A note on a session."""

    text: str
    made_at: str | None

    made = AsDatetime("made_at")


@dataclass(frozen=True, slots=True)
class SessionAnnotations:
    """What the user added to a session; `name` replaces its title."""

    session_uid: str
    is_starred: bool
    tags: tuple[str, ...]
    notes: tuple[UserNote, ...]
    name: str | None


@dataclass(frozen=True, slots=True)
class SavedView:
    """A list of sessions that the user named; `query` has its filters and order, as in an address."""

    name: str
    query: str
    made_at: str | None

    made = AsDatetime("made_at")


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """An agent's request to forget a session, and the reason."""

    session_uid: str
    reason: str
    asked_at: str | None

    asked = AsDatetime("asked_at")


class Annotations:
    """Stars, tags, notes and names of sessions, and saved lists of sessions.

    Annotations outlive a session's raw detail and are deleted when it is forgotten.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._table = memory._store.annotations

    def of(self, session: Session) -> SessionAnnotations:
        """What the user noted about a session."""
        rows = self._table.of(_key(session))
        texts = {kind: tuple(row.text for row in rows if row.kind == kind) for kind in ("star", "tag", "name")}
        return SessionAnnotations(
            session_uid=session.session_uid,
            is_starred=bool(texts["star"]),
            tags=tuple(sorted(texts["tag"])),
            notes=tuple(UserNote(row.text, rfc3339(row.made_ms)) for row in rows if row.kind == "note"),
            name=next(iter(texts["name"]), None),
        )

    def tags(self) -> list[str]:
        """All tags, the most frequent first."""
        return self._table.tags()

    def star(self, session: Session, is_starred: bool = True) -> SessionAnnotations:
        """Star a session, or remove its star."""
        if is_starred:
            self._table.put(_key(session), "star", "")
        else:
            self._table.drop(_key(session), "star")
        return self.of(session)

    def tag(self, session: Session, tag: str) -> SessionAnnotations:
        """Add a tag to a session. Raises UsageError for one that is empty or too long."""
        return self._put(session, "tag", tag)

    def untag(self, session: Session, tag: str) -> SessionAnnotations:
        """Remove a tag from a session, if present."""
        self._table.drop(_key(session), "tag", tag)
        return self.of(session)

    def note(self, session: Session, text: str) -> SessionAnnotations:
        """Add a note to a session. Raises UsageError for one that is empty or too long."""
        return self._put(session, "note", text)

    def drop_note(self, session: Session, text: str) -> SessionAnnotations:
        """Remove the note with exactly this text."""
        self._table.drop(_key(session), "note", text)
        return self.of(session)

    def rename(self, session: Session, name: str) -> SessionAnnotations:
        """Give a session another title, which no sweep changes."""
        return self._put(session, "name", name)

    def _put(self, session: Session, kind: str, text: str) -> SessionAnnotations:
        self._table.put(_key(session), kind, self._checked(kind, text))
        return self.of(session)

    def views(self) -> list[SavedView]:
        """The lists of sessions that the user named, the oldest first."""
        rows = self._table.views(self._group)
        return [SavedView(row.name, row.query, rfc3339(row.made_ms)) for row in rows]

    def save_view(self, name: str, query: str) -> None:
        """Save a list of sessions under a name, replacing an earlier one. Raises UsageError for a bad name."""
        chosen = {field: values[-1] for field, values in parse_qs(query).items() if field in VIEW_FIELDS}
        if not chosen:
            raise UsageError("This list has no filter and no order to save", "choose a filter first")
        kept = {field: self._redacted(value) for field, value in sorted(chosen.items())}
        self._table.put_view(self._group, self._checked("view", name), urlencode(kept))

    def drop_view(self, name: str) -> None:
        """Remove the saved list of this name, if any."""
        self._table.drop_view(self._group, name)

    @property
    def _group(self) -> str:
        return self._memory._store.group or MAIN_GROUP

    def ask_to_forget(self, session: Session, reason: str) -> None:
        """Queue an agent's request to forget a session, replacing an earlier one; only a user can confirm it."""
        self._memory._store.refuse_in_group()
        self._table.put(_key(session), FORGET, self._checked(FORGET, reason))

    def forget_requests(self) -> list[ForgetRequest]:
        """Agents' requests to forget a session that nobody has confirmed yet, the oldest first."""
        rows = self._table.of_kind(FORGET)
        return [ForgetRequest(":".join(row[:2]), row.text, rfc3339(row.made_ms)) for row in rows]

    def drop_forget_requests(self) -> int:
        """Dismiss all requests to forget; returns how many there were."""
        rows = self._table.of_kind(FORGET)
        for row in rows:
            self._table.drop(SessionKey(row.agent, row.native_session_id), FORGET)
        return len(rows)

    def _checked(self, kind: str, text: str) -> str:
        """The text without secrets; raises UsageError for one that is empty or too long."""
        text = text.strip() if kind == "note" else " ".join(text.split())
        if not text or len(text) > _MOST_CHARS[kind]:
            raise UsageError(
                f"A {_NAMES.get(kind, kind)} has 1 to {_MOST_CHARS[kind]} characters; this one has {len(text)}"
            )
        return self._redacted(text)

    def _redacted(self, text: str) -> str:
        settings = self._memory.settings
        return ingest.Protection(settings.folder, settings.redaction).redactor().text(text)


def _key(session: Session) -> SessionKey:
    return SessionKey(session.agent, session.native_session_id)
