"""What is kept of a message's content: its text, and its parts without the bytes of media."""

from typing import Any

from recollect.agentkit.content import media_reference

_LEAST_MEDIA_CHARS = 256  # of base64; less is a text that happens to be called so


def said(content: Any) -> tuple[str, Any]:
    """The text of a content, and its parts where it is more than a text."""
    if isinstance(content, str):
        return content, None
    parts = without_bytes(content)
    return "\n".join(_texts(parts)), parts


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        texts = (_texts(part) for key, part in value.items() if key in ("text", "content", "parts", "input", "output"))
        return [text for found in texts for text in found]
    return [text for part in value for text in _texts(part)] if isinstance(value, list | tuple) else []


def without_bytes(value: Any, name: str = "") -> Any:
    """A JSON value in which inline media are references: sort, size and hash, never the bytes."""
    if isinstance(value, dict):
        mime = value.get("media_type") or value.get("mime_type") or value.get("mimeType")
        return {
            key: without_bytes(part, mime if key == "data" and isinstance(mime, str) else "")
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_bytes(part) for part in value]
    is_inline = isinstance(value, str) and ((value.startswith("data:") and ";base64," in value[:200]) or bool(name))
    if not is_inline or len(value) < _LEAST_MEDIA_CHARS:
        return value
    mime = name or value[len("data:") : value.index(";")]
    return {"media": media_reference(mime.partition("/")[0], mime, value)}
