"""File names that every file system takes, made from what people and models wrote."""

import re
import unicodedata
from datetime import date

from recollect.schema import Session

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
