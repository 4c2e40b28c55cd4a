"""What is kept of a message's content: its text, its parts without the bytes of media, and references to files."""

import hashlib
import mimetypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.agentkit.content import media_reference
from recollect.errors import NotFound
from recollect.live.records import CHANGED, MISSING, MOVED, PRESENT, Media

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


def reference(kind: str, path: Path, mime: str | None) -> dict[str, Any]:
    """What is kept of a file; raises NotFound if it cannot be read."""
    path = path.absolute()
    try:
        sha256, size = _hash(path), path.stat().st_size
    except OSError as error:
        raise NotFound(f"Cannot read the file ({error.strerror}): {path}", "attach it while it exists") from error
    mime = mime or mimetypes.guess_type(path.name)[0]
    return {"kind": kind, "mime": mime, "sha256": sha256, "bytes": size, "path": str(path)}


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_states(references: Sequence[Mapping[str, Any]], roots: Sequence[Path]) -> list[Media]:
    """What became of each file; one that is not where it was is looked for below the roots by size and hash."""
    states = [_state(item) for item in references]
    sizes = {media.bytes for media in states if media.state != PRESENT}
    elsewhere: dict[str, str] = {}
    for path in _files(roots) if sizes else ():
        with suppress(OSError):  # removed meanwhile, or not ours to read
            if path.stat().st_size in sizes:
                elsewhere.setdefault(_hash(path), str(path))
    return [
        replace(media, state=MOVED, found_path=elsewhere[media.sha256])
        if media.state != PRESENT and media.sha256 in elsewhere
        else media
        for media in states
    ]


def _state(item: Mapping[str, Any]) -> Media:
    media = Media(item["kind"], item["path"], item.get("mime"), item["sha256"], item["bytes"], MISSING)
    try:
        state = PRESENT if _hash(Path(media.path)) == media.sha256 else CHANGED
    except OSError:
        return media
    return replace(media, state=state)


def _files(roots: Sequence[Path]) -> Iterator[Path]:
    """Regular files below the roots; links are not followed."""
    for root in roots:
        for folder, _, names in os.walk(root):
            paths = (Path(folder, name) for name in names)
            yield from (path for path in paths if path.is_file() and not path.is_symlink())
