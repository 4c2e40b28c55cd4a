"""A session in each of the formats it can be archived in, and new files in a folder that others may write to as well.

In Markdown, what was said is data: it cannot link, load, or pass for another turn. A file is complete or absent, never
over another, never by a link.
"""

import errno
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from functools import partial
from itertools import count
from pathlib import Path
from stat import S_ISREG
from typing import Any

import orjson

from recollect.agents import profile_of
from recollect.analysis import find_digest
from recollect.archive.html import patches, render_session_html
from recollect.digest import inert, inert_lines, render_digest
from recollect.model.errors import NotFound, StoreUnwritable, UsageError
from recollect.model.files import drop_left_beside, work_name
from recollect.model.kinds import ASSISTANT_MSG, HUMAN_INTERVENTION, KIND_FAMILY, TOOL_CALL, TOOL_RESULT, USER_MSG
from recollect.model.schema import Digest, Session, to_json
from recollect.recall import session_diff
from recollect.sessions import TranscriptItem, iter_transcript
from recollect.store import Store

_USER = "User"
_RESULTS = (*KIND_FAMILY[TOOL_RESULT], HUMAN_INTERVENTION)
_TICKS = re.compile("`+")
_TURN = re.compile(r"\s*\*\*[^*]+\*\*:")


def markdown_lines(
    session: Session,
    items: Iterable[TranscriptItem],
    today: date,
    *,
    chars: int,
    digest: Digest | None = None,
    tools: bool = False,
    diffs: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The document line by line; messages are cut at `chars`.

    `diffs` has what edits did, by the uid of their event; `digest` is what is left of an evicted session.
    """
    yield f"# {inert(session.title or session.session_uid)}"
    yield f"\nArchived: {today:{'%Y-%m-%d %H:%M' if isinstance(today, datetime) else '%Y-%m-%d'}}\n"
    yield f"<!-- session_uid: {session.session_uid.replace('-->', '')} -->\n\n---"
    speaker: str | None = None
    within = session.session_uid
    for item in items:
        if tools and item.depth and item.session.session_uid != within:
            yield f"\n- sub-agent `{item.session.session_uid}`: {inert(item.session.title or '–')}"
        within = item.session.session_uid
        if item.depth:
            continue
        name = _speaker(item)
        if name:
            yield "" if name == speaker else f"\n**{name}**:"
            speaker = name
            yield from _said(item, chars)
        elif tools and (line := _tool_line(item)):
            yield line
        yield from _diff((diffs or {}).get(item.event.event_uid, ""))
    if digest is not None:
        yield "\n---\n\nThe raw detail was evicted to stay within the store's budget. Its digest:\n"
        yield render_digest(digest, UTC, session)


def _speaker(item: TranscriptItem) -> str | None:
    """Whose turn an event is part of; None for what is no message."""
    if item.event.kind == USER_MSG:
        name = _USER
    elif item.event.kind in KIND_FAMILY[ASSISTANT_MSG]:
        name = profile_of(item.session.agent).display_name
    else:
        return None
    return f"{name} (rewound)" if item.event.is_abandoned else name


def _said(item: TranscriptItem, chars: int) -> Iterator[str]:
    text = item.payload.get("text")
    text = text.strip() if isinstance(text, str) else item.event.summary
    for line in inert_lines(text[:chars]):
        yield f"\\{line.lstrip()}" if _TURN.match(line) else line
    if len(text) > chars:
        yield f"\n*[… cut: {len(text):,} characters in all]*"
    for media in item.payload.get("media") or ():
        yield f"\n*[{inert(str(media.get('kind')))}, {media.get('bytes', 0):,} bytes, not kept]*"


def _tool_line(item: TranscriptItem) -> str | None:
    event = item.event
    if event.kind in KIND_FAMILY[TOOL_CALL]:
        return f"\n- {inert(event.tool or event.kind)}: {inert(event.summary)}"
    if event.kind in _RESULTS:
        mark = "error: " if event.is_error else ""
        return f"  ↳ {mark}{inert(event.summary)}"
    return None


def _diff(text: str) -> Iterator[str]:
    if text:
        fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
        yield f"\n{fence}diff\n{text.rstrip()}\n{fence}"


def render(store: Store, session: Session, format: str, today: date, **detail: Any) -> str:
    """A session as a document; raises UsageError for an unknown format.

    In Markdown, `chars` of each message, with `tools` its calls, with `diffs` what its edits changed.
    """
    if format not in FORMATS:
        raise UsageError(f"Unknown format: {format}", f"known: {', '.join(FORMATS)}")
    return FORMATS[format](store, session, today, **detail)


def _markdown(store: Store, session: Session, today: date, *, chars: int, tools: bool, diffs: bool) -> str:
    digest = digest_if_evicted(session, partial(find_digest, store))
    items, changed = iter_transcript(store, session), patches(session_diff(store, session)) if diffs else {}
    lines = markdown_lines(session, items, today, digest=digest, chars=chars, tools=tools, diffs=changed)
    return "\n".join(lines).rstrip() + "\n"


def _html(store: Store, session: Session, today: date, **detail: Any) -> str:
    """Always with tools, diffs and whole messages: they fold."""
    digest = digest_if_evicted(session, partial(find_digest, store))
    return render_session_html(
        session, iter_transcript(store, session), digest=digest, diff=session_diff(store, session)
    )


def _json(store: Store, session: Session, today: date, **detail: Any) -> str:
    digest = digest_if_evicted(session, partial(find_digest, store))
    document: dict[str, Any] = {
        "format": "recollect-archive",
        "version": 1,
        "archived_on": today.isoformat(),
        "session": to_json(session),
        "events": [item.to_json() for item in iter_transcript(store, session)],
        "digest": to_json(digest) if digest else None,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def digest_if_evicted(session: Session, find: Callable[[Session], Digest]) -> Digest | None:
    """What is left of a session whose raw detail was dropped; None for one that has it."""
    if session.evicted_at is None:
        return None
    try:
        return find(session)
    except NotFound:
        return None  # a tiny sub-agent: a line in its root's digest is all there is


FORMATS: Mapping[str, Callable[..., str]] = {"md": _markdown, "html": _html, "json": _json}


_SLUG_CHARS = 60
_SLUG_BYTES = 120  # some file systems take names of 143 bytes only, and a date, a number and an ending come with it
_NO_NAME = re.compile(r"[\W_]+")


def document_name(session: Session, today: date, suffix: str) -> str:
    """`2026-11-15-fix-the-failing-test.md`: the day of the session's last activity, and its title."""
    ended = session.ended
    day = ended.astimezone().date() if ended else today
    return f"{day:%Y-%m-%d}-{slug(session.title or '') or slug(session.native_session_id) or 'session'}.{suffix}"


def digest_name(session: Session) -> str:
    """A name that stays the same, whatever the session's title becomes."""
    return f"{slug(session.agent)}-{_NO_NAME.sub('-', session.native_session_id).strip('-')[:100] or 'session'}.md"


def slug(text: str) -> str:
    """The words of a text in small letters, joined by `-`: no separators, dots, spaces or control characters."""
    words = _NO_NAME.sub("-", unicodedata.normalize("NFC", text).lower()).strip("-")
    kept = words.encode(errors="ignore")[:_SLUG_BYTES].decode(errors="ignore")[:_SLUG_CHARS]
    whole_words = kept.rpartition("-")[0] if len(kept) < len(words) else kept
    return (whole_words or kept).strip("-")


_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems without hard links


def write_new(folder: Path, name: str, content: bytes) -> Path:
    """Write a file under this name, or with `-2`, `-3` … where it is taken; returns the path.

    A file of such a name that has this content already is that file.
    """
    stem, _, suffix = name.rpartition(".")
    names = (name if number == 1 else f"{stem}-{number}.{suffix}" for number in count(1))
    with _opened(folder) as fd:
        drop_left_beside(folder / name)
        return folder / next(taken for taken in names if _read(fd, taken) == content or _place(fd, taken, content))


def write_named(folder: Path, name: str, content: bytes, is_ours: Callable[[bytes], bool]) -> bool:
    """Write or replace a file of our own; False if somebody else's has the name."""
    with _opened(folder) as fd:
        drop_left_beside(folder / name)
        held = _read(fd, name)
        if held is None:
            return _place(fd, name, content)
        if held != content and is_ours(held):
            with _beside(fd, name, content) as beside:
                os.replace(beside, name, src_dir_fd=fd, dst_dir_fd=fd)
                os.fsync(fd)
        return is_ours(held)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """The folder itself, made if need be: it may not be a link, whoever put it there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileExistsError, NotADirectoryError):
        reason = "A link, not a folder" if folder.is_symlink() else "Not a folder"
        raise UsageError(f"{reason}: {folder}", "give the path of a real folder") from None
    try:
        yield fd
    except OSError as error:
        raise StoreUnwritable(f"Cannot write ({error.strerror}): {folder}", "choose another folder") from error
    finally:
        os.close(fd)


def _read(folder: int, name: str) -> bytes | None:
    """What a regular file holds; None if there is none of this name, nothing for what is no regular file."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EACCES, errno.ENXIO):
            return b""
        raise
    if not S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return b""
    with open(fd, "rb") as file:
        return file.read()


def _place(folder: int, name: str, content: bytes) -> bool:
    """Write a new file; False if the name is taken."""
    with _beside(folder, name, content) as beside:
        try:
            os.link(beside, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder))
            os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
    return True


@contextmanager
def _beside(folder: int, name: str, content: bytes) -> Iterator[str]:
    beside = work_name(name)
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield beside
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder)
