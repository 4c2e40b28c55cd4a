"""All rules over one session: what it teaches, as facts with evidence, and the steps of its exchanges.

The simplest are here: which request changed which file, with hashes of the lines that were written; which commits,
branches and pull requests it made, and which packages it took. They outlive the events, so that a line can still be
traced to its request when its edit is gone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from recollect import schema
from recollect.agentkit.calls import line_hash
from recollect.distill import shortened, words
from recollect.knowledge.decisions import decisions
from recollect.knowledge.facts import Finding, Material, Turn, distinct, fact_rows, turns_of
from recollect.knowledge.records import REQUIRES, TOUCHES
from recollect.knowledge.resolutions import resolutions
from recollect.knowledge.runs import Change, Run, changes_of, runs_of
from recollect.knowledge.statements import causes_found, statements
from recollect.knowledge.workflows import exchange_rows
from recollect.store import ExchangeRow, FactRow, Step

RULE, GIT, INSTALL = "edit", "git", "install"
_COMMITTED = re.compile(
    r"\[(?P<branch>[^\s\[\]]+)(?: \(root-commit\))? (?P<commit>[0-9a-f]{7,40})\]"
)  # git's own words
_INSTALLS = re.compile(
    r"(?:^|[;&(\n]|\s)(?:pip3?|uv|npm|pnpm|yarn|bun|cargo|go|brew|apt(?:-get)?|gem|poetry|pdm|conda|composer)"
    r" (?:install|i|add|get|require)\b(?P<rest>[^;&|<>\n]*(?:[<>]=?[\d.]+[^;&|<>\n]*)*)"
)
_OF_OPTION = re.compile(
    r"(?:^|\s)(?:-[rceti]|--(?:requirement|constraint|editable|target|(?:extra-)?index-url|registry|prefix))[ =]\S+"
)
_PACKAGE = re.compile(
    r"[\"']?(?P<name>@?[A-Za-z][\w.-]*(?:/[\w.-]+)*)(?:\[[\w,-]+\])?(?:[=<>~!@^][\w.*=<>!,^-]*)?[\"']?"
)
_MOST_LINES = 2_000  # of an exchange in one file
_REQUEST_CHARS = 300
_COMMAND_CHARS = 120


def touches(material: Material, turns: Sequence[Turn], changes: Sequence[Change]) -> Iterator[Finding]:
    """Each file that an exchange edited, once."""
    edits = [change for change in changes if change.edit is not None and not change.step.is_abandoned]
    for turn in turns:
        by_path: dict[str, list[Change]] = {}
        for change in edits:
            if turn.start <= change.position < turn.end:
                by_path.setdefault(change.name, []).append(change)
        for name, made in by_path.items():
            yield _touched(material, turn, name, made)


def _touched(material: Material, turn: Turn, name: str, made: Sequence[Change]) -> Finding:
    asked = turn.request.summary if turn.request is not None else ""
    goal = _goal(turn)
    cwd = (material.subject.cwd or "").rstrip("/")
    details: dict[str, Any] = {
        "path": name if name.startswith("/") or not cwd else f"{cwd}/{name}",
        "request": shortened(asked, _REQUEST_CHARS) or None,
        "request_seq": turn.request.seq if turn.request is not None else None,
        "edits": [_window(change) for change in made],
    }
    evidence = [(made[0].step, made[0].step.summary)]
    return Finding(RULE, TOUCHES, ("task", goal), ("file", name), f"“{goal}” changed {name}", 0.95, evidence, details)


def git_work(material: Material, turns: Sequence[Turn]) -> Iterator[Finding]:
    """What an exchange made in git, as git and the forge answered: commits with their branch, and pull requests."""
    calls = {commit.call.call_id for commit in material.trace.commits}
    for turn in turns:
        for step in turn.steps:
            made = (
                _COMMITTED.search(step.summary) if step.kind == schema.TOOL_RESULT and step.call_id in calls else None
            )
            if made is not None:
                yield _made(turn, "commit", made["commit"], step, step.summary)
                yield _made(turn, "branch", made["branch"], step, step.summary)
        for call, address, title in material.trace.pull_requests:
            if turn.has(call):
                yield _made(turn, "pull request", address, call, title or address)


def installs(turns: Sequence[Turn], runs: Sequence[Run]) -> Iterator[Finding]:
    """The packages that an exchange installed by name."""
    for turn in turns:
        for run in runs:
            if turn.start <= run.position < turn.end and run.has_failed is False:
                for name in _packages(run.command):
                    goal, command = _goal(turn), shortened(run.command, _COMMAND_CHARS)
                    text = f"“{goal}” took the package {name}: `{command}`"
                    pair = ("task", goal), ("package", name)
                    yield Finding(INSTALL, REQUIRES, *pair, text, 0.8, [(run.call, f"ran {command}")])


def _packages(command: str) -> list[str]:
    words = (word for match in _INSTALLS.finditer(command) for word in _OF_OPTION.sub(" ", match["rest"]).split())
    return list(dict.fromkeys(match["name"] for word in words if (match := _PACKAGE.fullmatch(word))))


def _made(turn: Turn, kind: str, name: str, step: Step, quote: str) -> Finding:
    goal = _goal(turn)
    return Finding(GIT, TOUCHES, ("task", goal), (kind, name), f"“{goal}” made {kind} {name}", 0.95, [(step, quote)])


def _goal(turn: Turn) -> str:
    asked = turn.request.summary if turn.request is not None else ""
    return shortened(words.gist(asked), 120) if asked else "no request"


def _window(change: Change) -> dict[str, Any]:
    """An edit as hashes: of the lines that it wrote, and of those it left around them."""
    assert change.edit is not None
    lines = [(line[0], text) for hunk in change.edit.hunks for line in hunk.lines if (text := line[1:].strip())]
    lines = lines[:_MOST_LINES]
    return {
        "event_uid": change.step.uid,
        "at_ms": change.step.ts_ms,
        "seq": change.step.seq,
        "renamed_from": change.edit.renamed_from,
        "added": sum(hunk.added for hunk in change.edit.hunks),
        "removed": sum(hunk.removed for hunk in change.edit.hunks),
        "wrote": "".join([line_hash(text) for sign, text in lines if sign == "+"]),
        "left": "".join([line_hash(text) for sign, text in lines if sign == " "]),
    }


@dataclass(frozen=True, slots=True)
class Lessons:
    """What a session teaches, or a part of one."""

    facts: tuple[FactRow, ...] = ()
    exchanges: tuple[ExchangeRow, ...] = ()

    def __add__(self, later: "Lessons") -> "Lessons":
        return Lessons(distinct(self.facts + later.facts), self.exchanges + later.exchanges)


def derive(material: Material) -> Lessons:
    """The lessons of a session; none of one that only copies another."""
    if not material.trace.has_own:
        return Lessons()
    turns, runs, changes = turns_of(material.trace), runs_of(material), changes_of(material)
    facts = fact_rows(
        [
            *resolutions(material, turns, runs, changes),
            *causes_found(material, turns),
            *decisions(material, turns, changes),
            *statements(material, turns, changes),
            *touches(material, turns, changes),
            *git_work(material, turns),
            *installs(turns, runs),
        ],
        material.subject.started_ms,
    )
    return Lessons(distinct(facts), tuple(exchange_rows(material, turns, runs)))
