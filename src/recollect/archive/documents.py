"""A session in each of the formats it can be archived in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import orjson

from recollect.analysis.distiller import find_digest
from recollect.archive.html import render_session_html
from recollect.archive.markdown import markdown_lines
from recollect.errors import NotFound, UsageError
from recollect.recall import session_diff
from recollect.schema import Digest, Session, to_json
from recollect.sessions.transcript import iter_transcript
from recollect.store import Store


@dataclass(frozen=True, slots=True)
class Detail:
    """How much of a session a document shows."""

    tools: bool = False
    diffs: bool = False
    message_chars: int = 2000


def render(store: Store, session: Session, format: str, detail: Detail, today: date) -> str:
    """A session as a document; raises UsageError for an unknown format."""
    if format not in FORMATS:
        raise UsageError(f"Unknown format: {format}", f"known: {', '.join(FORMATS)}")
    return FORMATS[format](store, session, detail, today)


def _markdown(store: Store, session: Session, detail: Detail, today: date) -> str:
    digest = _digest_if_evicted(store, session)
    items, diffs = iter_transcript(store, session), _diffs(store, session) if detail.diffs else {}
    lines = markdown_lines(
        session, items, today, digest=digest, chars=detail.message_chars, tools=detail.tools, diffs=diffs
    )
    return "\n".join(lines).rstrip() + "\n"


def _html(store: Store, session: Session, detail: Detail, today: date) -> str:
    """Always with tools, diffs and whole messages: they fold."""
    digest = _digest_if_evicted(store, session)
    return render_session_html(
        session, iter_transcript(store, session), digest=digest, diff=session_diff(store, session)
    )


def _json(store: Store, session: Session, detail: Detail, today: date) -> str:
    digest = _digest_if_evicted(store, session)
    document: dict[str, Any] = {
        "format": "recollect-archive",
        "version": 1,
        "archived_on": today.isoformat(),
        "session": to_json(session),
        "events": [item.to_json() for item in iter_transcript(store, session)],
        "digest": to_json(digest) if digest else None,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _digest_if_evicted(store: Store, session: Session) -> Digest | None:
    """What is left of a session whose raw detail was dropped; None for one that has it."""
    if session.evicted_at is None:
        return None
    try:
        return find_digest(store, session)
    except NotFound:
        return None  # a tiny sub-agent


def _diffs(store: Store, session: Session) -> Mapping[str, str]:
    diffs: dict[str, str] = {}
    for edit in session_diff(store, session).edits:
        diffs[edit.event_uid] = diffs.get(edit.event_uid, "") + edit.diff
    return diffs


FORMATS: Mapping[str, Callable[[Store, Session, Detail, date], str]] = {"md": _markdown, "html": _html, "json": _json}
