"""Who wrote a line, and what for: the commit that git blames it on, and the session whose edit brought it."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from recollect.clock import rfc3339
from recollect.recall.candidates import Sessions
from recollect.recall.file_history import EditStep, FileEdit, evicted_edits, file_edit, file_steps
from recollect.sessions.git import BlamedLine, blame_line, checkout_of
from recollect.store import Store

_SECONDS = 5.0  # for each question to git
_SLACK_MS = 60_000  # clocks of agents and commits
_LEAST_WORD_CHARS = 6  # of a line that is hardly written twice
_LEAST_SURE = 0.5
_WORD_CHARS = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class LineOrigin:
    """A line, its commit (None if it is not committed), and the edit of a session that wrote it if one did.

    `request` of the edit is what the user had asked for. `evicted_edits` is how many sessions edited the file whose
    edits are gone.
    """

    path: str
    line: int
    text: str
    commit: str | None
    commit_subject: str | None
    committed_at: str | None
    edit: FileEdit | None
    confidence: float
    evicted_edits: int


class _Candidate(NamedTuple):
    step: EditStep
    is_timely: bool  # made between the commit before and the line's own
    around: int  # neighbours of the line that the edit has, too

    @property
    def rank(self) -> tuple[bool, int, int, int]:
        return self.is_timely, self.around, self.step.event.ts_ms or 0, self.step.event.id


def line_origin(store: Store, path: str, line: int, repos: Collection[str]) -> LineOrigin | None:
    """Where a line of a file on this machine comes from; None if git does not know the line.

    `repos` are the names of its repository: edits of sessions in its other checkouts count, too.
    """
    checkout = checkout_of(path, seconds=_SECONDS)
    blamed = blame_line(*checkout, line, seconds=_SECONDS) if checkout else None
    if checkout is None or blamed is None:
        return None
    found = _candidates(store, checkout[0], blamed, {checkout[1], blamed.path}, repos)
    candidates = sorted(found, key=lambda candidate: candidate.rank)
    edit, confidence = None, 0.0
    if candidates:
        confidence = _confidence(candidates, blamed)
        sessions, best = Sessions(store), candidates[-1].step
        sessions.load({best.event.stream})
        edit = file_edit(store, sessions.header(best.event.stream), best) if confidence >= _LEAST_SURE else None
    return LineOrigin(
        path=checkout[1],
        line=line,
        text=blamed.text,
        commit=blamed.commit,
        commit_subject=blamed.summary if blamed.commit else None,
        committed_at=rfc3339(blamed.until_ms) if blamed.commit else None,
        edit=edit,
        confidence=confidence if edit else 0.0,
        evicted_edits=evicted_edits(store, checkout[1]),
    )


def _candidates(
    store: Store, root: str, blamed: BlamedLine, paths: Collection[str], repos: Collection[str]
) -> Iterator[_Candidate]:
    """Edits of the file, made before the commit, whose new text has the line."""
    sessions, seen = Sessions(store), set()
    for path in paths:
        for step in file_steps(store, path):
            made_ms = step.event.ts_ms
            if step.event.id in seen or made_ms is None or made_ms > blamed.until_ms + _SLACK_MS:
                continue
            seen.add(step.event.id)
            sessions.load({step.event.stream})
            if not step.change.path.startswith(f"{root}/") and sessions.header(step.event.stream).repo not in repos:
                continue
            lines = [said for hunk in step.change.hunks for said in hunk.lines]
            if any(said[:1] == "+" and said[1:].strip() == blamed.text for said in lines):
                after = {said[1:].strip() for said in lines if said[:1] in "+ "}
                is_timely = blamed.since_ms is None or made_ms >= blamed.since_ms - _SLACK_MS
                yield _Candidate(step, is_timely, sum(said in after for said in blamed.around))


def _confidence(candidates: list[_Candidate], blamed: BlamedLine) -> float:
    """How sure it is that the last of these edits brought the line."""
    best = candidates[-1]
    rivals = {
        other.step.event.stream
        for other in candidates[:-1]
        if other.rank[:2] == best.rank[:2] and other.step.event.stream != best.step.event.stream
    }
    is_common = len(_WORD_CHARS.findall(blamed.text)) < _LEAST_WORD_CHARS
    confidence = 0.95 if best.is_timely else 0.7
    confidence -= (0.1 if best.around else 0.35) if is_common else 0.0
    confidence -= 0.15 if rivals else 0.0
    return round(confidence, 2)
