"""What a rule reads of a session: its exchanges, what it ran and changed, and how what is found becomes a fact.

Commands come with how they went, and the edits between them block by block, as far as these were left in the end: what
was undone, or written anew before it helped, fixed nothing.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from recollect.agentkit.calls import FileChange, Hunk
from recollect.agents import get_adapter
from recollect.digest import (
    CALLS,
    PAUSE_MS,
    Payloads,
    Subject,
    SuiteRun,
    Trace,
    one_line,
    payload_text,
    shell,
    shortened,
    weighed,
)
from recollect.knowledge.records import DECIDED, FIXED_BY, HAS_VALUE, PREFERS, SURE, TOUCHES, fact_uid
from recollect.knowledge.signature import fingerprint, headline_of
from recollect.model import schema
from recollect.model.kinds import HANDED_PLAN
from recollect.model.text import ELLIPSIS, evidence
from recollect.store import FactRow, Response, Step

QUOTE_CHARS = 200
NAME_CHARS = 160
TEXT_CHARS = 400
MOST_EVIDENCE = 6


@dataclass(frozen=True)
class Material:
    """What is at hand of a session: its row, its agent, and its events read once."""

    subject: Subject
    agent: str
    is_human: bool  # what is asked for comes from a person, not from another agent
    trace: Trace
    payloads: Payloads
    responses: Sequence[Response]
    _texts: dict[bytes, str] = field(default_factory=dict)

    @cached_property
    def spending(self) -> "Spending":
        return Spending(self.responses, self.subject.usd)

    def text(self, step: Step) -> str:
        """All that an event says, or its summary, without what an earlier recall put into it."""
        text = self._texts.get(step.event_uid)
        if text is None:
            text = evidence(payload_text(self.payloads.get(step.event_uid, {})) or step.summary)
            self._texts[step.event_uid] = text
        return text

    def active_ms(self, start: int, end: int) -> int:
        """The working time from one step to another: a long silence is none."""
        times = [step.ts_ms for step in self.trace.steps[start : end + 1] if step.ts_ms is not None]
        return sum(b - a for a, b in pairwise(times) if 0 <= b - a <= PAUSE_MS)


class Spending:
    """What the responses of a session used, added up once: it is asked for of every exchange and every error."""

    def __init__(self, responses: Sequence[Response], usd: float | None) -> None:
        timed = sorted(
            (
                one.ts_ms,
                one.input_tokens + one.output_tokens + one.cache_read_tokens + one.cache_write_tokens,
                weighed(one),
            )
            for one in responses
            if one.ts_ms is not None
        )
        self._times = [ts_ms for ts_ms, _, _ in timed]
        self._tokens = [0, *accumulate(tokens for _, tokens, _ in timed)]
        self._weights = [0.0, *accumulate(weight for _, _, weight in timed)]
        self._total, self._usd = sum(map(weighed, responses)), usd

    def between(self, began: int | None, ended: int | None) -> dict[str, Any]:
        """The tokens and the share of the session's money after one moment and up to another."""
        if began is None or ended is None:
            return {"tokens": None, "usd": None}
        start, end = bisect_right(self._times, began), bisect_right(self._times, ended)
        end = max(start, end)
        usd = None
        if self._usd is not None and self._total:
            usd = round(self._usd * (self._weights[end] - self._weights[start]) / self._total, 6)
        return {"tokens": self._tokens[end] - self._tokens[start], "usd": usd}


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact as a rule finds it. The first of its evidence is what it is known by."""

    rule: str
    predicate: str
    subject: tuple[str, str]  # kind and name
    object: tuple[str, str]
    text: str
    confidence: float
    evidence: Sequence[tuple[Step, str]]  # events, and what each says
    details: Mapping[str, Any] = field(default_factory=dict)


def decided(
    rule: str,
    topic: str,
    choice: str,
    text: str,
    confidence: float,
    evidence: Sequence[tuple[Step, str]],
    kind: str = "decision",
    **details: Any,
) -> Finding:
    """What was decided on a topic, by the user if nothing else is said."""
    details = {"by": "user", "alternatives": [], "reason": None} | details
    return Finding(rule, DECIDED, (kind, topic), ("choice", choice), text, confidence, evidence, details)


def fact_rows(findings: Iterable[Finding], began_ms: int | None) -> list[FactRow]:
    """Facts ready to be stored. Their ids depend on the rule and the event, so that a verdict on one outlives it.

    What cites events without a time holds since the session began.
    """
    numbers: Counter[tuple[str, str, str]] = Counter()
    rows = []
    for finding in findings:
        first = finding.evidence[0][0]
        key = (finding.rule, finding.predicate, first.uid)
        cited = finding.evidence[:MOST_EVIDENCE]
        rows.append(
            FactRow(
                fact_uid=fact_uid(*key, str(numbers[key])),
                rule=finding.rule,
                predicate=finding.predicate,
                subject_kind=finding.subject[0],
                subject=shortened(finding.subject[1], NAME_CHARS),
                object_kind=finding.object[0],
                object=shortened(finding.object[1], NAME_CHARS),
                text=shortened(finding.text, TEXT_CHARS),
                confidence=round(min(max(finding.confidence, 0.0), SURE), 2),
                since_ms=began_ms if first.ts_ms is None else first.ts_ms,
                details=dict(finding.details),
                evidence=[{"event_uid": step.uid, "quote": shortened(said, QUOTE_CHARS)} for step, said in cited],
            )
        )
        numbers[key] += 1
    return rows


def distinct(rows: Iterable[FactRow]) -> tuple[FactRow, ...]:
    """Facts of a session, each once: a failure where it was met first, a fix as it was in the end.

    A value or a decision may come back after another one; only what says the same again at once is left out.
    """
    kept: dict[Hashable, FactRow] = {}
    last: dict[tuple[str, str], str] = {}
    for row in rows:
        key: Hashable = (row.predicate, row.subject, row.object)
        if row.predicate in (DECIDED, PREFERS, HAS_VALUE):
            if last.get((row.predicate, row.subject)) != row.object:
                kept[row.fact_uid] = row
            last[row.predicate, row.subject] = row.object
        elif row.predicate == FIXED_BY:
            kept.pop(key, None)
            kept[key] = row
        elif row.predicate == TOUCHES:  # a request may be made twice
            kept[row.fact_uid] = row
        else:
            kept.setdefault(key, row)
    return tuple(kept.values())


_PLAN_REQUEST = re.compile(r"implement (?:the following|this) plan\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Turn:
    """A request with everything until the next one. The first may have none."""

    request: Step | None
    start: int
    end: int
    steps: Sequence[Step]
    uids: frozenset[bytes]

    def has(self, step: Step) -> bool:
        return step.event_uid in self.uids

    @property
    def was_stopped(self) -> bool:
        return any(step.kind == schema.HUMAN_INTERVENTION for step in self.steps[-2:])


def is_plan(material: Material, request: Step) -> bool:
    """Whether a request hands the agent a plan, which another agent wrote, to implement."""
    is_likely = request.summary.startswith(HANDED_PLAN) or _PLAN_REQUEST.match(request.summary) is not None
    return is_likely and _PLAN_REQUEST.match(material.text(request).lstrip()) is not None


def turns_of(trace: Trace) -> list[Turn]:
    """The exchanges of a session, in order."""
    requests = {step.event_uid for step in trace.requests}
    starts = [position for position, step in enumerate(trace.steps) if step.event_uid in requests]
    bounds = [*([] if starts[:1] == [0] else [0]), *starts, len(trace.steps)]
    turns = []
    for start, end in pairwise(bounds):
        steps = trace.steps[start:end]
        first = steps[0] if steps and steps[0].event_uid in requests else None
        turns.append(Turn(first, start, end, steps, frozenset(step.event_uid for step in steps)))
    return turns


_BETWEEN = 3  # lines that a comparison of texts leaves in what was written anew


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that went and the lines that came in their place. `line` is the number of the first, if the log has it."""

    removed: tuple[str, ...]
    added: tuple[str, ...]
    line: int | None = None

    def covers(self, line: int) -> bool:
        """Whether a line went with it, or had something written right before or after it."""
        if self.line is None:
            return False
        return self.line <= line < self.line + len(self.removed) if self.removed else self.line - 1 <= line <= self.line

    def distance(self, line: int) -> int:
        """How many lines it is away from a line."""
        if self.line is None:
            return 0
        return max(self.line - line, line - self.line - max(0, len(self.removed) - 1), 0)


def blocks_of(hunks: Iterable[Hunk]) -> tuple[Block, ...]:
    """Every place where an edit changed something; blank lines alone are nothing."""
    return tuple(block for hunk in hunks for block in _joined(_blocks(hunk)) if any((*block.removed, *block.added)))


def _blocks(hunk: Hunk) -> Iterator[tuple[Block, int]]:
    """The blocks of a hunk, each with the number of lines left before it. Spaces in a line count for nothing."""
    removed, added = list[str](), list[str]()
    passed = left = 0
    for line in (*hunk.lines, " "):
        if line[:1] == "-":
            removed.append(" ".join(line[1:].split()))
        elif line[:1] == "+":
            added.append(" ".join(line[1:].split()))
        elif line[:1] == " ":
            if removed or added:
                yield Block(tuple(removed), tuple(added), hunk.old_start and hunk.old_start + passed), left
                left = 0
            passed, left = passed + len(removed) + 1, left + 1
            removed, added = [], []


def _joined(blocks: Iterable[tuple[Block, int]]) -> list[Block]:
    """The blocks, of which one that only went and one next to it that only came are the same piece of work."""
    joined: list[Block] = []
    for block, left in blocks:
        last = joined[-1] if joined and left <= _BETWEEN else None
        if last is not None and not (last.added or block.removed):
            joined[-1] = replace(last, added=block.added)
        elif last is not None and not (last.removed or block.added):
            joined[-1] = replace(block, added=last.added)
        else:
            joined.append(block)
    return joined


COMMAND_CHARS = 160
_OUTPUT_CHARS = 60_000
# Commands that check something: what they print tells how they went where a pipe hides their exit.
_CHECKS = re.compile(
    r"lint|build|check|vet|tsc|mypy|ruff|eslint|compile|clippy|typecheck|test|fmt|validate", re.IGNORECASE
)
_PREPARES = re.compile(r"\b(?:fmt|format|build|install)\b")  # parts of a chain before what it is for
_WORD = re.compile(r"[a-z]{3,}")
_PIPED = re.compile(r"\||;|\n|(?<![&>])&(?![&>])")
_COMPLAINT = re.compile(
    r"^\S+\.\w{1,5}:\d+(?::\d+)?:? .+\(\w+\)$|^\S+\.\w{1,5}:\d+:\d+: (?!warning|note)\S"
    r"|^\S+\.\w{1,5}\(\d+,\d+\): error\b"
    r"|\bERROR task failed|^error(?:\[E\d+\])?: |: error TS\d+|^make(?:\[\d+\])?: \*\*\*|^Found \d+ errors?\b"
    r"|^(?:\x1b\[\d+m)*✖ \d+ problems? \([1-9]",
    re.MULTILINE,
)
# Commands that change something another command may depend on.
_INSTALLS = re.compile(
    r"(?:pip3?|uv|npm|pnpm|yarn|bun|cargo|go|brew|apt(?:-get)?|gem|poetry|pdm|bundle|conda|composer|rustup|dotnet|mise)"
    r" (?:install|i|add|get|sync|ci|update|upgrade|remove|uninstall|mod|use|restore|lock)"
)
_CHANGES = re.compile(
    r"rm|mv|cp|chmod|chown|mkdir|ln|touch|kill|pkill|export|unset|tee|patch|sed|perl"
    r"|git (?:checkout|reset|merge|rebase|pull|clean|restore|apply|revert|rm|mv|init|config|submodule|clone)"
    r"|docker(?: \w+)*|docker-compose|kubectl|systemctl|service|terraform \w+|alembic|createdb|psql|sqlite3|redis-cli"
    r"|direnv|nvm|pyenv|asdf"
)
# Git commands that leave the files of a branch as they are: a check that passes then says nothing of a change.
_LEAVES_FILES = re.compile(
    r"\bgit (?:-C \S+ )?(?:stash\b|checkout (?!.*(?:-- |--theirs|--ours))|reset (?!.*--hard)"
    r"|config .*--(?:list|get)\b)"
)
_STARTED = re.compile(r"\b(?:running|started|moved) (?:in|to) (?:the )?background\b", re.IGNORECASE)
_GOES_TO = re.compile(r"cd \S+ && ")
_NOTES = re.compile(r"(?:^|/)plans/[^/]+\.md$|(?:^|/)scratchpad/")


@dataclass(frozen=True, slots=True)
class Run:
    """A command that ended. `has_failed` is None where nothing tells."""

    position: int
    call: Step
    result: Step
    command: str
    doings: frozenset[str]
    seen: frozenset[str]  # those of which it shows how they went
    is_test: bool
    has_failed: bool | None
    headline: str  # of what went wrong
    signature: str

    @property
    def failing(self) -> frozenset[str]:
        """The programs of which one failed: of a chain the one that the error names (`failed to push`)."""
        parts = shell.exits(self.command) & self.doings or self.doings
        words = set(_WORD.findall(self.headline.lower()))
        named = frozenset(part for part in parts if part.rpartition(" ")[2] in words)
        return parts if len(named) != 1 or any(map(_CHECKS.search, parts)) else named

    def shows_again(self, earlier: "Run") -> bool:
        """Whether this shows how the thing that failed earlier goes now: the same program, given the same."""
        failed = earlier.failing
        checked = frozenset(family for family in failed if not _PREPARES.search(family)) or failed
        is_other = earlier.is_test and not self.is_test  # `go test -c` only builds
        if is_other or not checked <= self.seen:  # any of them may have failed
            return False
        if self.is_test and earlier.is_test:
            return shell.covers_tests(self.command, earlier.command)
        return all(self._covers(earlier, family) for family in checked)

    def _covers(self, earlier: "Run", family: str) -> bool:
        """Whether a program does what it did in another run: a check may take more at a time, else the same."""
        wide, narrow = shell.given(self.command, family), shell.given(earlier.command, family)
        if wide == narrow or _CHECKS.search(family) is None:
            return wide == narrow
        return all(any(name == folder or name.startswith(f"{folder}/") for name in narrow) for folder in wide)


@dataclass(frozen=True, slots=True)
class Change:
    """A step that changed something: an edit of a file, or a command."""

    position: int
    step: Step
    kind: str  # edit | install | command
    name: str  # the file, or the command
    edit: FileChange | None = None
    blocks: tuple[Block, ...] = ()
    gist: str = ""  # what became of what

    @property
    def sentence(self) -> str:
        what = f"editing {self.name}" if self.kind == "edit" else f"running `{self.name}`"
        return f"{what} ({self.gist})" if self.gist else what


def steps_to_read(trace: Trace) -> list[Step]:
    """Events whose full content the rules read: what people and agents said, edits, questions, and failures."""
    failed = {step.event_uid for step in trace.errors}
    failing = {_call_of(trace, step) for step in trace.errors} - {None}
    spoken = (schema.USER_MSG, schema.ASSISTANT_MSG, schema.COMPLETION)
    asking = {step.event_uid for step in trace.questions}
    edits = {edit.call.call_id for edit in trace.edits}
    chosen: list[Step] = []
    for step in trace.steps:
        if step.kind in spoken:
            if step.summary.endswith(ELLIPSIS) or step.summary.startswith(HANDED_PLAN):
                chosen.append(step)
        elif (
            step.kind in (schema.EDIT, schema.DECISION, schema.HUMAN_INTERVENTION)
            or step.event_uid in asking
            or step.event_uid in failed
            or (step.kind == schema.TOOL_RESULT and step.call_id in edits)  # has the lines of the edit
            or step.summary.startswith("proposed a plan")
            or (
                step.kind == schema.TOOL_RESULT and _is_piped_check(shell.command_of(_call_of(trace, step) or "") or "")
            )
            or (step.kind == schema.TOOL_RESULT and _call_of(trace, step) in failing)
            or (step.kind in CALLS and step.summary.startswith(shell.RAN) and step.summary.endswith(ELLIPSIS))
        ):
            chosen.append(step)
    return chosen


def _call_of(trace: Trace, step: Step) -> str | None:
    call = trace.calls.get(step.call_id or "")
    return call.summary if call is not None else None


def _is_piped_check(command: str) -> bool:
    """Whether a pipe may hide that a check failed."""
    return _CHECKS.search(command) is not None and _PIPED.search(command) is not None


def runs_of(material: Material) -> list[Run]:
    """Every command of the session's own work that ended, in order."""
    trace = material.trace
    failed = {step.event_uid for step in trace.errors}
    verdicts = {run.call.event_uid: run for run in trace.tests}
    runs = []
    for position, step in enumerate(trace.steps):
        call = trace.calls.get(step.call_id or "") if step.kind in (schema.TOOL_RESULT, schema.ERROR) else None
        command = shell.command_of(call.summary) if call is not None and call.role == "assistant" else None
        if call is None or command is None:
            continue
        command = shell.command_given(material.payloads.get(call.event_uid, {})) or command
        test, doings = verdicts.get(call.event_uid), shell.doings(command)
        has_failed = _has_failed(material, step, command, failed, test)
        headline = headline_of(material.text(step)[:_OUTPUT_CHARS]) if has_failed else ""
        runs.append(
            Run(
                position,
                call,
                step,
                command,
                doings,
                _seen(material, step, command, doings, test),
                test is not None,
                has_failed,
                headline,
                fingerprint(headline),
            )
        )
    return runs


def _has_failed(
    material: Material, result: Step, command: str, failed: set[bytes], test: SuiteRun | None
) -> bool | None:
    if result.event_uid in failed:
        return True
    if test is not None and test.has_passed is not None:
        return not test.has_passed
    if result.kind == schema.ERROR:
        return None  # refused, cut off, or an answer by exit code
    if _STARTED.search(material.text(result)[:COMMAND_CHARS]) or command.rstrip().endswith(("&", "& disown")):
        return None  # only begun
    if _is_piped_check(command) and _COMPLAINT.search(material.text(result)[-_OUTPUT_CHARS:]):
        return True
    return None if test is not None else False  # of tests that say nothing nobody knows


def _seen(
    material: Material, result: Step, command: str, doings: frozenset[str], test: SuiteRun | None
) -> frozenset[str]:
    """The parts of a command whose result its exit code or its output shows."""
    if test is not None and test.has_passed is not None:
        return doings
    seen = shell.exits(command) & doings
    checks = frozenset(family for family in doings - seen if _CHECKS.search(family))
    return seen if not checks or shell.hides_output(command, material.text(result)) else seen | checks


def changes_of(material: Material) -> list[Change]:
    """Every step of the session that changed a file, or something that commands depend on, in order."""
    trace = material.trace
    failed_edits = {edit.call.event_uid for edit in trace.edits if edit.has_failed}
    results = {step.call_id: step for step in trace.steps if step.kind == schema.TOOL_RESULT}
    return [
        change
        for position, step in enumerate(trace.steps)
        if step.kind in CALLS and step.role == "assistant" and step.event_uid not in failed_edits
        for change in _changes(material, position, step, results.get(step.call_id))
    ]


def _changes(material: Material, position: int, step: Step, result: Step | None) -> Iterator[Change]:
    if step.kind == schema.EDIT:
        for change in file_changes(material, step, result):
            if not _NOTES.search(change.path):
                name = inside(change.path, material.subject.cwd)
                yield Change(position, step, "edit", name, change, blocks_of(change.hunks))
        return
    command = shell.command_of(step.summary)
    if command is None or (step.call_id or "") in material.trace.undone or shell.only_looks(command):
        return
    doings, shown = shell.doings(command), one_line(command)
    if len(shown) > COMMAND_CHARS:
        shown = _GOES_TO.sub("", shown, count=1)
    if any(map(_INSTALLS.match, doings)):
        yield Change(position, step, "install", shortened(shown, COMMAND_CHARS))
    elif shell.writes_file(command) or (any(map(_CHANGES.fullmatch, doings)) and not _LEAVES_FILES.search(command)):
        yield Change(position, step, "command", shortened(shown, COMMAND_CHARS))


def file_changes(material: Material, edit: Step, result: Step | None = None) -> list[FileChange]:
    """The files an edit changed, and how; with its result, in which lines."""
    answer = material.payloads.get(result.event_uid) if result is not None else None
    return get_adapter(material.agent).changes(material.payloads.get(edit.event_uid, {}), answer)


def inside(path: str, cwd: str | None) -> str:
    """A path as seen from the session's folder."""
    return path.removeprefix(f"{cwd.rstrip('/')}/") if cwd else path


UNDOES = re.compile(r"\bgit (?:-C \S+ )?(?:checkout|restore|reset|stash|(?:rebase|merge|cherry-pick) --abort)\b")
_OF_ALL_FILES = re.compile(r"--hard\b|(?:checkout|restore)(?: HEAD)?(?: --)? \.(?:\s|$)")


def standing(material: Material, made: Sequence[Change], changes: Sequence[Change]) -> list[Change]:
    """The changes that nobody took back later in the session, as what became of the lines that were there at first.

    Their lines are numbered as before the first of them: by those numbers an error knows the file.
    """
    left = []
    for change in _rejoined(_placed(made)):
        if change.kind == "edit" and change.edit is not None and change.edit.hunks:
            later = [other for other in changes if other.position > change.position]
            after = [block for other in later if other.name == change.name for block in other.blocks]
            put_back = {(other.added, other.removed) for other in after if other.added}
            blocks = tuple(block for block in change.blocks if (block.removed, block.added) not in put_back)
            if blocks and not _is_restored(material, change, later):
                left.append(replace(change, blocks=blocks))
        else:
            left.append(change)
    return left


def _rejoined(changes: Iterable[Change]) -> list[Change]:
    """The changes without blocks that were written anew: these are part of what was written last."""
    joined: list[Change] = []
    for change in changes:
        blocks = []
        for block in change.blocks:
            for index, earlier in enumerate(joined):
                parts = [part for part in earlier.blocks if earlier.name == change.name and _goes_on(block, part)]
                if parts:
                    kept = tuple(line for line in block.removed if line not in parts[0].added)
                    block = Block(parts[0].removed + kept, block.added, parts[0].line)
                    rest = tuple(part for part in earlier.blocks if part is not parts[0])
                    joined[index] = replace(earlier, blocks=rest)
            if block.removed != block.added:
                blocks.append(block)
        joined.append(replace(change, blocks=tuple(blocks)))
    return joined


def _goes_on(block: Block, earlier: Block) -> bool:
    """Whether a block rewrites all that an earlier one wrote, or writes where that one only took away."""
    if written := set(filter(None, earlier.added)):
        return written <= set(block.removed)
    return not block.removed and earlier.line is not None and earlier.line == block.line


def _placed(made: Sequence[Change]) -> Iterator[Change]:
    """The changes with the lines of their blocks as they were numbered before the first of them."""
    moves: dict[str, list[tuple[int, int]]] = defaultdict(list)  # from which line on, and by how many
    for change in made:
        placed = []
        for block in change.blocks:
            if (line := block.line) is not None:
                for start, count in reversed(moves[change.name]):
                    line = max(start, line - count) if line > start else line
            placed.append(replace(block, line=line))
        yield replace(change, blocks=tuple(placed))
        moves[change.name] += [
            (block.line, len(block.added) - len(block.removed))
            for block in reversed(change.blocks)
            if block.line is not None
        ]


def _is_restored(material: Material, change: Change, later: Sequence[Change]) -> bool:
    """Whether git brought the file back before the change was committed."""
    committed = [call.seq for call, _ in material.trace.commits if call.seq > change.step.seq]
    file = change.name.rpartition("/")[2]
    undoing = (other for other in later if other.kind == "command" and UNDOES.search(other.name))
    restored = [other.step.seq for other in undoing if file in other.name or _OF_ALL_FILES.search(other.name)]
    return bool(restored) and restored[0] < min(committed, default=restored[0] + 1)
