"""What is kept of a message's content: its text, calls, parts without the bytes of media, and references to files."""

import hashlib
import mimetypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from recollect.agentkit.values import as_id, media_reference, storable
from recollect.errors import NotFound
from recollect.live.records import CHANGED, MISSING, MOVED, PRESENT, Media, Message

_LEAST_MEDIA_CHARS = 256  # of base64; less is a text that happens to be called so


def said(content: Any) -> tuple[str, Any]:
    """The text of a content, and its parts where it is more than a text."""
    if content is None or isinstance(content, str):
        return content or "", None
    parts = without_bytes(content)
    return "\n".join(_texts(parts)), parts


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        texts = (_texts(part) for key, part in value.items() if key in ("text", "content", "parts", "input", "output"))
        return [text for found in texts for text in found]
    return [text for part in value for text in _texts(part)] if isinstance(value, list | tuple) else []


def text_of(message: Message) -> str:
    """What a message said, or the calls that it made instead."""
    return said(message.content)[0] or "\n".join(as_one_line(name, call) for name, call, _ in calls_of(message.extra))


def as_one_line(name: str, arguments: Any) -> str:
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return f"{name} {command if isinstance(command, str) else orjson.dumps(arguments).decode()}"


def calls_of(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any, str | None]]:
    """The calls among a message's fields, in the shape of OpenAI's API: name, arguments and id of each."""
    calls = fields.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            yield function["name"], _arguments(function.get("arguments")), as_id(call.get("id"))


def _arguments(value: Any) -> Any:
    """Arguments, which that API has as a text of JSON."""
    try:
        parsed = orjson.loads(value) if isinstance(value, str) else value
    except orjson.JSONDecodeError:
        parsed = value
    return {} if parsed is None else storable(without_bytes(parsed))


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
    path = path.expanduser().absolute()
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
