"""Who wrote a line, and what for: the commit that git blames it on, and the session whose edit brought it."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from recollect.agentkit.calls import LINE_HASH_CHARS, line_hash
from recollect.model.clock import rfc3339
from recollect.recall.file_history import FileEdit, evicted_edits, file_edit, file_steps
from recollect.recall.hits import identity
from recollect.recall.ranking import Sessions, nameless
from recollect.sessions import BlamedLine, blame_line, checkout_of, uncommitted_lines
from recollect.store import Store, StoredFact

_SECONDS = 5.0  # for each question to git
_SLACK_MS = 60_000  # clocks of agents and commits
_LEAST_WORD_CHARS = 6  # of a line that is hardly written twice
_ELSEWHERE_SURE = 0.5  # the same name and text in what may be another repository
_WORD_CHARS = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class LineOrigin:
    """A line, its commit (None if it is not committed), and the edit of a session that wrote it if one did.

    `request` of the edit is what the user had asked for. `is_elsewhere`: the edit was made in what may be another
    repository. `evicted_edits` is how many sessions edited the file whose edits are gone.
    """

    path: str
    line: int
    text: str
    commit: str | None
    commit_subject: str | None
    committed_at: str | None
    edit: FileEdit | None
    confidence: float
    is_elsewhere: bool
    evicted_edits: int
    cause: str | None = None  # what the edit fixed, if that is known


@dataclass(frozen=True, slots=True)
class ChangeOrigin:
    """A session and what of an uncommitted change it wrote: how many `lines`, and its latest edit of each file."""

    session_uid: str
    lines: int
    edits: tuple[FileEdit, ...]


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """The change of a checkout since its last commit: its lines, and the sessions that wrote them, the most first."""

    root: str
    files: int
    lines: int
    sessions: tuple[ChangeOrigin, ...]


class _Candidate(NamedTuple):
    session: str
    edit: Callable[[], FileEdit]
    made_ms: int
    order: int  # of edits at the same time
    is_own: bool  # in this checkout or another one of its repository, as far as the logs tell
    is_timely: bool  # made between the commit before and the line's own
    around: int  # neighbours of the line that the edit has, too

    @property
    def rank(self) -> tuple[bool, bool, int, int, int]:
        return self.is_own, self.is_timely, self.around, self.made_ms, self.order


def line_origin(store: Store, path: str, line: int, repos: Collection[str]) -> LineOrigin | None:
    """Where a line of a file on this machine comes from; None if git does not know the line.

    `repos` are the names of its repository: edits of sessions in its other checkouts count, too. So do those in a
    folder of the checkout's name whose remote the logs do not tell; edits of the same path elsewhere are a last resort.
    """
    checkout = checkout_of(path, seconds=_SECONDS)
    blamed = blame_line(*checkout, line, seconds=_SECONDS) if checkout else None
    if checkout is None or blamed is None:
        return None
    paths, live = {checkout[1], blamed.path}, set[str]()
    found = [*_candidates(store, checkout[0], blamed, paths, repos, live)]
    found += _kept_candidates(store, checkout[0], blamed, paths, repos, live)
    candidates = sorted(found, key=lambda candidate: candidate.rank)
    return LineOrigin(
        path=checkout[1],
        line=line,
        text=blamed.text,
        commit=blamed.commit,
        commit_subject=blamed.summary if blamed.commit else None,
        committed_at=rfc3339(blamed.until_ms) if blamed.commit else None,
        edit=candidates[-1].edit() if candidates else None,
        confidence=_confidence(candidates, blamed) if candidates else 0.0,
        is_elsewhere=bool(candidates) and not candidates[-1].is_own,
        evicted_edits=evicted_edits(store, checkout[1]),
    )


def find_uncommitted(store: Store, folder: str, repos: Collection[str], most_files: int | None) -> Uncommitted | None:
    """Which sessions wrote what a checkout has not committed yet; None where there is no checkout.

    A line belongs to the last edit of its file that has it. Lines of punctuation alone say nothing.
    """
    changed = uncommitted_lines(folder, seconds=_SECONDS)
    if changed is None:
        return None
    root, by_path = changed
    lines = {path: {line for line in added if _WORD_CHARS.search(line)} for path, added in by_path.items()}
    largest = sorted(lines, key=lambda path: -len(lines[path]))[:most_files]
    sessions, counts = Sessions(store), Counter[str]()
    edits: dict[str, dict[str, FileEdit]] = {}
    for path in largest:
        missing = set(lines[path])
        for step in file_steps(store, path) if missing else ():
            header = sessions.header(step.event.stream)
            if not _is_own(step.change.path, header.repo, root, repos):
                continue
            wrote = {said[1:].strip() for hunk in step.change.hunks for said in hunk.lines if said[:1] == "+"} & missing
            if wrote:
                missing -= wrote
                uid = sessions.root(step.event.stream).session_uid
                counts[uid] += len(wrote)
                edits.setdefault(uid, {}).setdefault(path, file_edit(store, header, step))
    origins = (ChangeOrigin(uid, count, tuple(edits[uid].values())) for uid, count in counts.most_common())
    return Uncommitted(root, len(by_path), sum(map(len, lines.values())), tuple(origins))


def _candidates(
    store: Store, root: str, blamed: BlamedLine, paths: Collection[str], repos: Collection[str], live: set[str]
) -> Iterator[_Candidate]:
    """Edits of the file, made before the commit, whose new text has the line. `live` gets all events that are held."""
    sessions, seen = Sessions(store), set()
    for path in paths:
        for step in file_steps(store, path):
            made_ms = step.event.ts_ms
            live.add(step.event.event_uid.hex())
            if step.event.id in seen or not _is_before(made_ms, blamed):
                continue
            seen.add(step.event.id)
            header = sessions.header(step.event.stream)
            is_own = _is_own(step.change.path, header.repo, root, repos)
            lines = [said for hunk in step.change.hunks for said in hunk.lines]
            if any(said[:1] == "+" and said[1:].strip() == blamed.text for said in lines):
                after = {said[1:].strip() for said in lines if said[:1] in "+ "}
                around = sum(said in after for said in blamed.around)
                edit = partial(file_edit, store, header, step)
                is_timely = _is_timely(made_ms, blamed)
                yield _Candidate(header.session_uid, edit, made_ms or 0, step.event.id, is_own, is_timely, around)


def _kept_candidates(
    store: Store, root: str, blamed: BlamedLine, paths: Collection[str], repos: Collection[str], live: Collection[str]
) -> Iterator[_Candidate]:
    """The same of edits whose events are gone, by the hashes that were kept of their lines."""
    wanted, around = line_hash(blamed.text), [line_hash(line) for line in blamed.around]
    names, checked = [(path, None) for path in paths], set[str]()
    for path, until_ms in names:  # grows on the way
        for fact in store.facts.select(file=path.rpartition("/")[2]):
            kept, name = fact.details["path"], path.removeprefix(f"{root}/")
            if kept != path and not kept.endswith(f"/{name}"):
                continue
            is_own = _is_own(kept, fact.repo, root, repos)
            for order, edit in enumerate(fact.details["edits"]):
                if is_own and edit["renamed_from"] and edit["renamed_from"] not in (name for name, _ in names):
                    names.append((edit["renamed_from"], edit["at_ms"]))
                uid, made_ms = edit["event_uid"], edit["at_ms"]
                is_late = until_ms is not None and (made_ms or 0) > until_ms
                if uid in live or uid in checked or is_late or not _is_before(made_ms, blamed):
                    continue
                checked.add(uid)
                wrote, left = _hashes(edit["wrote"]), _hashes(edit["left"])
                if wanted in wrote:
                    shared = sum(one in wrote or one in left for one in around)
                    made = partial(_kept_edit, store, fact, edit)
                    is_timely = _is_timely(made_ms, blamed)
                    yield _Candidate(fact.session_uid, made, made_ms, order, is_own, is_timely, shared)


def _is_own(path: str, repo: str | None, root: str, repos: Collection[str]) -> bool:
    """True if a path is in the checkout, or in another one of its repository.

    The repository is known by its names, or by the folder's name if the logs name no remote.
    """
    folder = PurePosixPath(repo or "")
    is_remote = not folder.is_absolute() and len(folder.parts) > 1  # host/owner/name
    is_same = repo in repos or (not is_remote and folder.name == PurePosixPath(root).name)
    return path.startswith(f"{root}/") or is_same


def _hashes(joined: str) -> set[str]:
    return {joined[start : start + LINE_HASH_CHARS] for start in range(0, len(joined), LINE_HASH_CHARS)}


def _is_before(made_ms: int | None, blamed: BlamedLine) -> bool:
    return made_ms is not None and made_ms <= blamed.until_ms + _SLACK_MS


def _is_timely(made_ms: int | None, blamed: BlamedLine) -> bool:
    return blamed.since_ms is None or (made_ms or 0) >= blamed.since_ms - _SLACK_MS


def _kept_edit(store: Store, fact: StoredFact, edit: Mapping[str, Any]) -> FileEdit:
    header = Sessions(store).named({fact.session_uid}).get(fact.session_uid) or nameless(fact.session_uid)
    return FileEdit(
        **identity(header),
        ts=rfc3339(edit["at_ms"]),
        event_uid=edit["event_uid"],
        seq=edit["seq"],
        path=fact.details["path"],
        renamed_from=edit["renamed_from"],
        added=edit["added"],
        removed=edit["removed"],
        summary=f"edited {fact.details['path']}",
        request=fact.details["request"],
        request_seq=fact.details["request_seq"],
    )


def _confidence(candidates: list[_Candidate], blamed: BlamedLine) -> float:
    """How sure it is that the last of these edits brought the line."""
    best = candidates[-1]
    rivals = {
        other.session for other in candidates[:-1] if other.rank[:3] == best.rank[:3] and other.session != best.session
    }
    is_common = len(_WORD_CHARS.findall(blamed.text)) < _LEAST_WORD_CHARS
    confidence = 0.95 if best.is_timely else 0.7
    confidence -= (0.1 if best.around else 0.35) if is_common else 0.0
    confidence -= 0.15 if rivals else 0.0
    return round(confidence if best.is_own else min(confidence, _ELSEWHERE_SURE), 2)
