"""References to files: what is kept of one, and where it is by now."""

import hashlib
import mimetypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from recollect.errors import NotFound
from recollect.live.records import CHANGED, MISSING, MOVED, PRESENT, Media


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
    return [media if media.state == PRESENT else _found(media, elsewhere.get(media.sha256)) for media in states]


def _state(item: Mapping[str, Any]) -> Media:
    media = Media(item["kind"], item["path"], item.get("mime"), item["sha256"], item["bytes"], MISSING)
    try:
        state = PRESENT if _hash(Path(media.path)) == media.sha256 else CHANGED
    except OSError:
        return media
    return Media(media.kind, media.path, media.mime, media.sha256, media.bytes, state)


def _found(media: Media, path: str | None) -> Media:
    if path is None:
        return media
    return Media(media.kind, media.path, media.mime, media.sha256, media.bytes, MOVED, path)


def _files(roots: Sequence[Path]) -> Iterator[Path]:
    """Regular files below the roots; links are not followed."""
    for root in roots:
        for folder, _, names in os.walk(root):
            paths = (Path(folder, name) for name in names)
            yield from (path for path in paths if path.is_file() and not path.is_symlink())
