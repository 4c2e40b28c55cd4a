"""A session as one HTML file that needs nothing else: no script, no picture, no request to anywhere.

Its transcript is in exchanges: a request with what followed, calls with their results, sub-agents in place.
"""

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from recollect.model import schema
from recollect.model.errors import RecollectError
from recollect.model.schema import Digest, Session
from recollect.sessions import TranscriptItem

if TYPE_CHECKING:
    from jinja2 import Environment

    from recollect.recall import EditDiff, SessionDiff


TEMPLATES = files("recollect.archive") / "templates"
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
def templates(*packages: str) -> "Environment":
    """The templates of a session, and those of these packages; every text in them is escaped."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    from recollect.archive import wording

    folders = [*(files(package) / "templates" for package in packages), TEMPLATES]

    def load(name: str) -> str | None:
        paths = (folder / name for folder in folders)
        return next((path.read_text(encoding="utf-8") for path in paths if path.is_file()), None)

    environment = Environment(
        loader=FunctionLoader(load),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(wording.FILTERS)
    environment.tests["ends_with"] = str.endswith
    environment.globals.update(code=wording.code, OUTPUT_CHARS=OUTPUT_CHARS)
    return environment


def diffs_by_event(diff: "SessionDiff | None") -> "dict[str, list[EditDiff]]":
    """What each edit changed, by its event."""
    found: dict[str, list[EditDiff]] = {}
    for edit in diff.edits if diff else ():
        found.setdefault(edit.event_uid, []).append(edit)
    return found


def patches(diff: "SessionDiff") -> dict[str, str]:
    """Return what edits did, by the uid of their event."""
    return {uid: "".join(edit.diff for edit in edits) for uid, edits in diffs_by_event(diff).items()}


def files_changed(diff: "SessionDiff | None") -> "dict[str, list[EditDiff]]":
    """The edits of each file that were not rewound, in the order the files were first changed."""
    found: dict[str, list[EditDiff]] = {}
    for edit in diff.edits if diff else ():
        if not edit.is_abandoned:
            found.setdefault(edit.path, []).append(edit)
    return found


_SPOKEN = (schema.USER_MSG, schema.ASSISTANT_MSG, schema.COMPLETION, schema.DECISION, schema.HUMAN_INTERVENTION)
_CALLS = schema.KIND_FAMILY[schema.TOOL_CALL]
_RESULTS = (schema.TOOL_RESULT, schema.ERROR, schema.DECISION, schema.HUMAN_INTERVENTION)


@dataclass(slots=True)
class Step:
    """A call with its result and the sub-agents it started; or a thought or note, which has neither."""

    item: TranscriptItem
    result: TranscriptItem | None = None
    sub_agents: "list[SubAgent]" = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        shown = self.result or self.item
        return shown.event.is_error or shown.event.kind == schema.ERROR

    @property
    def is_refused(self) -> bool:
        return self.result is not None and self.result.event.kind == schema.HUMAN_INTERVENTION

    @property
    def seconds(self) -> float | None:
        """How long the call took."""
        if self.result is None or not self.item.event.ts or not self.result.event.ts:
            return None
        begin, end = (datetime.fromisoformat(item.event.ts or "") for item in (self.item, self.result))
        return max(0.0, (end - begin).total_seconds())

    def to_json(self) -> dict[str, Any]:
        return {
            "call": self.item.to_json(),
            "result": self.result.to_json() if self.result else None,
            "sub_agents": [sub_agent.to_json() for sub_agent in self.sub_agents],
        }


@dataclass(slots=True)
class Steps:
    """What an agent did between two messages."""

    steps: list[Step] = field(default_factory=list)

    @property
    def counts(self) -> list[tuple[str, int]]:
        """How often each tool was called, the most frequent first."""
        calls = (step.item.event for step in self.steps if step.item.event.kind in _CALLS)
        return Counter(event.tool or event.kind for event in calls).most_common()

    @property
    def failures(self) -> int:
        return sum(step.has_failed for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        return {"steps": [step.to_json() for step in self.steps]}


@dataclass(slots=True)
class SubAgent:
    """A session that another one started; `exchanges` is empty where they are read on demand."""

    session: Session
    exchanges: "list[Exchange]" = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "sub_agent": self.session.session_uid,
            "exchanges": [exchange.to_json() for exchange in self.exchanges],
        }


Part = TranscriptItem | Steps | SubAgent  # a TranscriptItem: something a person or an agent said


@dataclass(slots=True)
class Exchange:
    """A request, numbered from 1, with everything until the next; what precedes the first request has number 0."""

    number: int
    request: TranscriptItem | None = None
    parts: list[Part] = field(default_factory=list)

    def add_step(self, step: Step) -> None:
        if not self.parts or not isinstance(self.parts[-1], Steps):
            self.parts.append(Steps())
        last = self.parts[-1]
        assert isinstance(last, Steps)
        last.steps.append(step)

    def to_json(self) -> dict[str, Any]:
        request = self.request.to_json() if self.request else None
        return {"number": self.number, "request": request, "parts": list(map(_part_json, self.parts))}


def _part_json(part: Part) -> dict[str, Any]:
    return {"message": part.to_json()} if isinstance(part, TranscriptItem) else part.to_json()


def read_exchanges(
    session: Session, items: Iterable[TranscriptItem], *, number: int = 0, sub_agents: Iterable[Session] = ()
) -> list[Exchange]:
    """The exchanges of a session whose transcript this is; the first request gets the number after `number`.

    A sub-agent's items stand in its own exchanges, below the call that started it. `sub_agents` have no items: they
    are placed by the call that started them, and left out if it is not among these items.
    """
    readers = {session.session_uid: _Reader(number)}
    for item in items:
        reader = readers.get(item.session.session_uid)
        if reader is None:
            reader = readers[item.session.session_uid] = _Reader(0)
            readers.get(item.session.parent_session_uid or "", readers[session.session_uid]).place(
                SubAgent(item.session, reader.exchanges)
            )
        reader.add(item)
    own = readers[session.session_uid]
    for child in sub_agents:
        own.attach(SubAgent(child))
    return own.exchanges


class _Reader:
    """Puts the events of one session together."""

    def __init__(self, number: int) -> None:
        self.exchanges: list[Exchange] = []
        self._number = number
        self._calls: dict[str, Step] = {}

    def add(self, item: TranscriptItem) -> None:
        event = item.event
        if event.kind == schema.USER_MSG:
            self._number += 1
            self.exchanges.append(Exchange(self._number, item))
            return
        call = self._calls.get(event.call_id or "")
        if call is not None and call.result is None and event.kind in _RESULTS:
            call.result = item
            return
        if event.kind in _SPOKEN:
            self._last().parts.append(item)
            return
        step = Step(item)
        if event.call_id and event.kind in _CALLS:
            self._calls.setdefault(event.call_id, step)
        self._last().add_step(step)

    def place(self, sub_agent: SubAgent) -> None:
        """Show a sub-agent below its call, or here if the call is unknown."""
        if not self.attach(sub_agent):
            self._last().parts.append(sub_agent)

    def attach(self, sub_agent: SubAgent) -> bool:
        call = self._calls.get(sub_agent.session.spawn_call_id or "")
        if call is None:
            return False
        call.sub_agents.append(sub_agent)
        return True

    def _last(self) -> Exchange:
        if not self.exchanges:
            self.exchanges.append(Exchange(self._number))
        return self.exchanges[-1]
