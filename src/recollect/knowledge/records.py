"""What is known, as it is given back: what facts say and how sure they are, and the facts, fixes, workflows and repeats
themselves. Notes by hand are read here."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

import orjson

from recollect.model.clock import AsDatetime, now_ms
from recollect.store import PINNED, PROMOTED, Note

CAUSED_BY, FIXED_BY, REQUIRES, CONFLICTS_WITH = "caused_by", "fixed_by", "requires", "conflicts_with"
PREFERS, DECIDED, FAILS_WITH, TOUCHES, HAS_VALUE = "prefers", "decided", "fails_with", "touches", "has_value"
# How a decision was found.
ANSWER, PLAN, REFUSAL = "answer", "plan", "refusal"
COMMIT, RULE_FILE = "commit", "rule_file"
FOLLOWS = "follows"  # of steps in a workflow: made of exchanges when it is asked for
PREDICATES = (
    CAUSED_BY, FIXED_BY, REQUIRES, CONFLICTS_WITH, PREFERS, DECIDED, FAILS_WITH, TOUCHES, HAS_VALUE
)  # fmt: skip
SURE = 0.99
GONE = "the error was gone in the next run, which failed otherwise"
PASSED = "then passed: "  # and the command: the receipt of a fix
STANDING = 0.8  # how sure a rule is that a user states for all that follows
LEAST_CONFIDENCE = 0.6  # of what is shown unasked


def fact_uid(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def judged(confidence: float, verdict: str | None) -> float:
    """How sure a fact is with what the user said of it."""
    return SURE if verdict in (PROMOTED, PINNED) else confidence


_ON_A_QUESTION = "on “"
_SAME_CHARS = 30  # a session may begin with the wish


@dataclass(frozen=True, slots=True)
class Evidence:
    """An event that shows a fact, and what it says."""

    event_uid: str
    quote: str
    session_uid: str | None = None  # None for the note of a user


@dataclass(frozen=True, slots=True)
class FixStep:
    """A change that was part of a fix: an edit, an installation or a command."""

    kind: str
    name: str
    gist: str


@dataclass(frozen=True, slots=True)
class Fix:
    """How an error was fixed. `sessions` are all that had the error, this one first; `returns` counts later ones.

    `fixed_count` is how often the same changes fixed it; the rest describes the most certain of these fixes.
    `tried` are changes after which the error was still there; `chosen_by` is `user` if a person asked for the fix.
    `changed_files` are the edited files that changed since, if the repository is on this machine.
    """

    fact_uid: str
    error: str
    headline: str
    text: str
    steps: tuple[FixStep, ...]
    step_count: int
    why: str | None
    chosen_by: str
    quote: str | None
    tried: tuple[str, ...]
    confidence: float
    fixed_at: str | None
    session_uid: str
    agent: str
    repo: str | None
    sessions: tuple[str, ...]
    fixed_count: int
    returns: int
    evidence: tuple[Evidence, ...]
    is_same_error: bool  # else it only reads alike
    changed_files: tuple[str, ...] | None = None

    fixed = AsDatetime("fixed_at")


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that sessions, or the user, taught.

    It is valid from `valid_at` to `invalid_at`, when the fact `superseded_by` replaced it; `until_then` is what it
    replaced itself. `recorded_at` is when it was learned. `by` says who decided it: `user`, `agent`, `commit` or
    `file`. `session_uid` and its `title` are None for what a user had remembered. `verdict` is what the user said of
    it: `promoted`, `pinned` or `rejected`.
    """

    fact_uid: str
    predicate: str
    subject_kind: str
    subject: str
    object_kind: str
    object: str
    text: str
    confidence: float
    method: str
    valid_at: str | None
    invalid_at: str | None = None
    recorded_at: str = ""
    superseded_by: str | None = None
    session_uid: str | None = None
    agent: str | None = None
    repo: str | None = None
    title: str | None = None
    by: str = "agent"
    choice: str | None = None
    alternatives: tuple[str, ...] = ()
    reason: str | None = None
    verdict: str | None = None
    evidence: tuple[Evidence, ...] = ()
    until_then: str | None = None

    valid = AsDatetime("valid_at")
    invalid = AsDatetime("invalid_at")
    recorded = AsDatetime("recorded_at")

    @property
    def about(self) -> str | None:
        """The title of the session, for a wish that is shown without a question: it may not say what it is about."""
        is_bare = self.predicate == PREFERS and self.by == "user" and _ON_A_QUESTION not in self.text
        return self.title if is_bare and self.title and self.title[:_SAME_CHARS] not in self.text else None


@dataclass(frozen=True, slots=True)
class GraphNode:
    """Something that facts are about: a file, a command, an error, a setting, a decision. `id` is unique in a graph."""

    id: str
    kind: str
    name: str
    facts: int


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """What facts say of two nodes, by the nodes' ids: `predicate` as in a fact, and the surest of their confidences.

    `follows` leads from a step of a workflow to the one before it. `event_uid` in `session_uid` is the latest evidence.
    """

    source: str
    target: str
    predicate: str
    confidence: float
    fact_uids: tuple[str, ...]
    session_uid: str | None = None
    event_uid: str | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """Facts as nodes and edges. `hidden` is how many nodes were left out, those of the weakest edges first.

    `around` is the entity that was asked for, and `roots` are the ids of the nodes it names.
    """

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    hidden: int
    around: str | None = None
    roots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """How sound the memory is: how many facts there are, how many of them are of little use, and the worst."""

    facts: int
    duplicates: int
    superseded: int
    contradicted: int
    unsupported: int
    unfinished: int  # fixes after which the next run failed
    common: int  # fixes of an error that is known by a line which runs print that do not fail
    looked_up: int  # fixes whose line was searched for, the newest
    pasted: int  # wishes in a message that nobody typed
    echoes: int
    secrets: int
    rejected: int
    unsure: int
    stale: int  # fixes all of whose files changed since
    checked: int  # fixes of which git could tell
    by_method: dict[str, int]
    worst: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Workflow:
    """A sequence of steps that several exchanges took; a failed step ends in `!`.

    `lift` is how much more often they come together than by chance; `success_rate` is of the exchanges that tell how
    they ended; `evidence` are requests that were worked on like this, the latest last: `event_uid`, in `session_uid`.
    """

    steps: tuple[str, ...]
    support: int
    sessions: int
    lift: float
    success_rate: float | None
    median_tokens: int
    agents: tuple[str, ...]
    evidence: tuple[str, ...]
    session_uid: str
    event_uid: str


@dataclass(frozen=True, slots=True)
class FailingCommand:
    """A family of commands that fails here, with what it said last and where."""

    command: str
    uses: int
    failures: int
    rate: float
    sample: str
    session_uid: str | None
    event_uid: str | None


@dataclass(frozen=True, slots=True)
class Workflows:
    """How sessions usually go: sequences of steps, and commands that fail."""

    exchanges: int
    workflows: tuple[Workflow, ...]
    failing: tuple[FailingCommand, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """How an exchange reached a goal: what was edited and run, in order, and what failed on the way.

    `is_confirmed` if tests or the user's next words say so; else the agent's answer alone does. Of an `evicted`
    session, `steps` are only the names of tools and commands.
    """

    goal: str
    steps: tuple[str, ...]
    is_confirmed: bool
    session_uid: str
    agent: str
    repo: str | None
    at: str | None
    tokens: int
    active_s: int
    usd: float | None
    request_uid: str
    evicted: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """Something that was solved or answered again although the memory of that day knew it.

    `kind` is `error`, `question` or `command`; `known` is the earlier fix, answer or failure. What it cost is counted
    from the moment it was met until it was solved again; None where nobody knows.
    """

    kind: str
    text: str
    at: str | None
    session_uid: str
    known: str
    known_at: str | None
    known_session_uid: str
    fact_uid: str
    seconds: int | None
    tokens: int | None
    usd: float | None
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the memory would have saved."""

    sessions: int
    errors_met: int
    repeats: tuple[Repeat, ...]
    seconds: int
    tokens: int
    usd: float


_HEADING = re.compile(r"^#{1,6}\s+(?P<title>.+)$")
_ITEM = re.compile(r"^\s*[-*]\s+(?P<text>\S.+)$")
_DATED = re.compile(r"^(?P<date>\d{4}-\d\d-\d\d)[:,]?\s+(?P<rest>.+)$")
_TOPIC = re.compile(r"^\*\*(?P<topic>[^*]{2,60})\*\*:?\s+(?P<rest>.+)$|^(?P<plain>[A-Z][\w /-]{2,40}): (?P<after>.+)$")


def make_note(
    text: str,
    topic: str,
    repo: str | None,
    origin: str,
    group: str,
    *,
    since_ms: int | None = None,
    number: int = 0,
    reason: str | None = None,
) -> Note:
    """A note; its id depends on what it says and how many came before it, so that the same one is kept once."""
    at_ms = now_ms()
    uid = fact_uid("note", origin, group, repo or "", topic, text, str(since_ms or number))
    return Note(uid, group, repo, origin, topic or text[:120], text, reason, since_ms or at_ms, at_ms)


def parse_notes(content: str, origin: str, repo: str | None, group: str) -> list[Note]:
    """The decisions of a file: a JSON list, or the items and record headings of a Markdown file."""
    if content.lstrip().startswith("["):
        try:
            listed = [item for item in orjson.loads(content) if isinstance(item, dict)]
        except orjson.JSONDecodeError:
            return []
        items = [(item.get("text"), str(item.get("topic") or ""), _date_ms(item.get("date"))) for item in listed]
    else:
        items = list(_items(content))
    return [
        make_note(text, topic, repo, origin, group, since_ms=since_ms)
        for text, topic, since_ms in items
        if isinstance(text, str)
    ]


def _date_ms(date: Any) -> int | None:
    try:
        return round(datetime.fromisoformat(f"{str(date)[:10]}T00:00:00+00:00").timestamp() * 1000)
    except ValueError:
        return None


def _items(content: str) -> Iterator[tuple[str, str, int | None]]:
    """List items, each with its topic if it begins with one, and its date.

    The heading above is the topic of the only item below it; a topic has one decision at a time.
    """
    listed: list[tuple[int, str, str]] = []  # the line of the heading, its title, the item
    number, above = 0, ""
    for line_number, line in enumerate(content.splitlines()):
        if heading := _HEADING.match(line):
            number, above = line_number, heading["title"].strip()
        elif item := _ITEM.match(line):
            listed.append((number, above, item["text"].strip()))
    counts = Counter(number for number, _, _ in listed)
    for number, title, text in listed:
        since_ms, topic = None, title if counts[number] == 1 else ""
        if dated := _DATED.match(text):
            text, since_ms = dated["rest"], _date_ms(dated["date"])
        if named := _TOPIC.match(text):
            topic, text = named["topic"] or named["plain"], named["rest"] or named["after"]
        yield text, topic, since_ms
