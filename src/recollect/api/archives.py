"""Sessions as documents: writing them, and finding the documents of a session."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.analysis import find_digest
from recollect.archive import Detail, digest_name, document_name, render, write_named, write_new
from recollect.clock import AsDatetime, rfc3339
from recollect.distill import render_digest
from recollect.errors import NotFound
from recollect.kinds import SessionKey
from recollect.schema import Session
from recollect.store import Store
from recollect.text import Progress, silent

if TYPE_CHECKING:
    from recollect.config import Settings

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
        detail = Detail(tools, diffs, self._settings.archive_message_chars)
        return render(self._store, session, format, detail, _now().date())

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
        written, detail = [], Detail(tools, diffs, self._settings.archive_message_chars)
        for number, session in enumerate(sessions, start=1):
            now = _now() if name else _now().date()
            titled = replace(session, title=name, ended_at=None) if name else session
            content = render(self._store, titled, format, detail, now).encode("utf-8", "replace")
            path = write_new(Path(folder).absolute(), document_name(titled, now, format), content)
            row = self._store.archives.put(_key(session), str(path), format)
            written.append(Archive(session.session_uid, row.path, row.format, rfc3339(row.made_ms) or ""))
            progress("archiving", number, len(sessions))
        return written

    def of(self, session: Session) -> list[Archive]:
        """The documents written of a session, oldest first."""
        rows = self._store.archives.of([_key(session)])
        return [Archive(session.session_uid, row.path, row.format, rfc3339(row.made_ms) or "") for row in rows]

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


def _key(session: Session) -> SessionKey:
    return SessionKey(session.agent, session.native_session_id)


def _now() -> datetime:
    return datetime.now().astimezone()
