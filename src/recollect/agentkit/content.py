"""What is kept of texts and media: one line of summary, and references instead of inline bytes."""

import base64
import hashlib
import re
from typing import Any

from recollect.kinds import SUMMARY_CHARS
from recollect.text import TERMINAL_CONTROL

_TERMINAL_CONTROL = re.compile(TERMINAL_CONTROL)
_TEXT_FIELDS = ("text", "value", "content", "resource")


def summarise(text: str) -> str:
    """One line of at most SUMMARY_CHARS characters, without colours and control characters."""
    line = " ".join(text[: SUMMARY_CHARS + 40].split())
    if not line.isprintable():
        line = "".join(char for char in _TERMINAL_CONTROL.sub("", line) if char.isprintable())
    return line if len(line) <= SUMMARY_CHARS else line[: SUMMARY_CHARS - 1].rstrip() + "…"


def texts_in(value: Any, depth: int = 8) -> list[str]:
    """The texts of a field that mostly is one: services also write it in parts, or as an object around it."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, list) and depth:
        return [text for part in value for text in texts_in(part, depth - 1)]
    if isinstance(value, dict) and depth:
        return next(filter(None, (texts_in(value.get(name), depth - 1) for name in _TEXT_FIELDS)), [])
    return []


def text_in(value: Any) -> str:
    """The same as one text."""
    return value if isinstance(value, str) else "\n".join(texts_in(value))


def media_reference(kind: str, mime: str | None, data: str, path: str | None = None) -> dict[str, Any]:
    """What is kept of inline base64 media: never the bytes themselves."""
    try:
        content = base64.b64decode(data.partition("base64,")[2] or data)
    except ValueError:
        content = data.encode("utf-8", "replace")
    reference = {"kind": kind, "mime": mime, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    return reference | ({"path": path} if path else {})
