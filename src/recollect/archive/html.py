"""A session as one HTML file that needs nothing else: no script, no picture, no request to anywhere."""

from base64 import b64encode
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect.errors import RecollectError
from recollect.schema import Digest, Session
from recollect.sessions import TranscriptItem

if TYPE_CHECKING:
    from jinja2 import Environment

    from recollect.recall import SessionDiff

TEMPLATES = Path(__file__).parent / "templates"
_PARTS = ("jinja2", "markdown_it", "nh3", "pygments", "starlette", "uvicorn")
OUTPUT_CHARS = 40_000  # of one output or argument; an archive of a build log should still open


def require_web_parts() -> None:
    """Raises RecollectError unless the packages of the extra `web` are installed."""
    if missing := [name for name in _PARTS if find_spec(name) is None]:
        hint = 'pip install "recollect[web]"'
        raise RecollectError(f"HTML needs packages that are not installed: {', '.join(missing)}", hint)


def render_session_html(
    session: Session,
    items: Iterable[TranscriptItem],
    *,
    digest: Digest | None = None,
    diff: "SessionDiff | None" = None,
) -> str:
    """A session, with the sub-agents in its transcript, as one self-contained HTML file.

    `diff` has what its edits changed; without it they are shown as calls. Raises RecollectError, which names the
    extra to install, if a package is missing.
    """
    require_web_parts()
    from recollect.archive.reading import read_exchanges  # only pages need it, and the extra

    style = read_style()
    page = templates().get_template("archive.html")
    return page.render(
        session=session,
        digest=digest,
        exchanges=read_exchanges(session, items),
        diffs=diffs_by_event(diff),
        files=files_changed(diff),
        style=style,
        style_hash=b64encode(sha256(style.encode()).digest()).decode(),
        is_archive=True,
    )


def read_style() -> str:
    return (TEMPLATES / "style.css").read_text(encoding="utf-8")


@lru_cache(maxsize=4)
def templates(*folders: Path) -> "Environment":
    """The templates of a session, and those in `folders`; every text in them is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from recollect.archive import markup, wording

    environment = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(wording.FILTERS)
    environment.tests["ends_with"] = str.endswith
    environment.filters.update(markdown=markup.markdown, clean=markup.clean, shell=markup.shell, json=markup.json_text)
    environment.globals.update(code=markup.code, OUTPUT_CHARS=OUTPUT_CHARS)
    return environment


def diffs_by_event(diff: "SessionDiff | None") -> dict[str, list[Any]]:
    """What each edit changed, by its event."""
    found: dict[str, list[Any]] = {}
    for edit in diff.edits if diff else ():
        found.setdefault(edit.event_uid, []).append(edit)
    return found


def files_changed(diff: "SessionDiff | None") -> dict[str, list[Any]]:
    """The edits of each file that were not rewound, in the order the files were first changed."""
    found: dict[str, list[Any]] = {}
    for edit in diff.edits if diff else ():
        if not edit.is_abandoned:
            found.setdefault(edit.path, []).append(edit)
    return found
