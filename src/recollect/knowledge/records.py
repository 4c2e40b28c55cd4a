"""What is known, as it is given back: facts with their evidence, fixes, decisions, workflows, repeats."""

from dataclasses import dataclass

from recollect.clock import AsDatetime
from recollect.knowledge.predicates import PREFERS

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
    invalid_at: str | None
    recorded_at: str
    superseded_by: str | None
    session_uid: str | None
    agent: str | None
    repo: str | None
    title: str | None
    by: str
    choice: str | None
    alternatives: tuple[str, ...]
    reason: str | None
    verdict: str | None
    evidence: tuple[Evidence, ...]
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
