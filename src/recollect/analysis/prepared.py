"""What agents show and get without asking, prepared after a sweep so that no agent waits for the store.

Fixes of errors are in small files by the error's fingerprint, requests in one for each repository; briefs are in
`recall/brief`.
"""

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import orjson

from recollect.knowledge import (
    FIXED_BY,
    LEAST_CONFIDENCE,
    PREFERS,
    STANDING,
    Fact,
    Fix,
    find_decisions,
    fix_lines,
    fixes_of,
)
from recollect.model.clock import as_datetime, now_ms
from recollect.model.files import replace_file
from recollect.model.home import PREPARED_NAME
from recollect.model.kinds import SessionKey
from recollect.model.text import cut_short
from recollect.recall import (
    HOOK_DEFAULTS,
    files_path,
    fixes_path,
    renew_briefs,
    requests_path,
    switches_path,
    write_briefs,
    write_snapshot,
)
from recollect.store import ANY_SESSION, MAIN_GROUP, PINNED, PROMOTED, SessionFilter, Store, StoredFact

_MOST_REQUESTS, _REQUEST_CHARS = 200, 600  # of a repository
_MOST_DECISIONS, _SETTLED_CHARS = 100, 400  # of a repository that may be about a file, and what is said of one
_WORK, _WORK_MS = ("plan", "agreement", "pick"), 10 * 86_400_000  # what was to be done then, and how long it is news
_MOST_SINCE = 8  # sessions that edited a file after something was settled about it
_SETTLED_AS = {
    "answer": "the user chose",
    "pick": "the user picked",
    "plan": "the user approved",
    "agreement": "the user agreed to",
    "recap": "the user let stand",
}
# What led to a decision is none, and neither is the offer that the user took.
_ASIDE = re.compile(
    r"\((?:asked|agreed, on|picked from)[^“)]*(?:“[^”]*”)?\)|(?:Want|Would you like) me to (?:(?:\w+ ){1,4}\w+\?)?"
    r"|^Plan (?:to implement|approved): "
)
_FILE_NAME = re.compile(r"[\w@+-]*(?:[./][\w@+-]+)*\.[a-zA-Z]\w{0,9}\b")
_CODE_NAME = re.compile(r"`([^`\s]{5,60})`|\b([A-Za-z]\w{3,}[a-z0-9][A-Z]\w{3,})\b")
_LINES = re.compile(r"\w:\d+|\blines? \d")
_MOST_SESSIONS = 5_000  # whose requests are read when nothing is prepared yet


def prepare(
    store: Store, roots: Mapping[str, Sequence[str]], changed: Collection[SessionKey], *, is_all: bool = False
) -> None:
    """Renew what depends on these sessions; everything if nothing is there, or with `is_all`, as after an upgrade.

    `roots` are the agents' homes.
    """
    write_snapshot(store, roots)
    if is_all:
        shutil.rmtree(store.folder / PREPARED_NAME, ignore_errors=True)
    is_new = not (store.folder / PREPARED_NAME).exists()
    headers = store.sessions.of(changed).values()
    uids = frozenset(header.session_uid for header in headers)
    criteria = ANY_SESSION if is_new else SessionFilter(uids=uids)
    signatures = {fact.subject for fact in store.facts.select((FIXED_BY,), criteria) if fact.subject_kind == "error"}
    decisions = cache(partial(_decisions, store))
    with suppress(OSError):  # a disk without room for this has been reported, or will be
        write_briefs(store, changed, lambda repo: _decided(decisions(repo)))
        fixes: dict[str, dict[str, Any]] = defaultdict(dict)
        for signature in signatures:
            fixes[fixes_path(str(store.folder), signature)][signature] = _surest(fixes_of(store, signature))
        for path, news in fixes.items():
            _update(Path(path), news)
        _write_requests(store, criteria)
        repos = set(store.sessions.names("repo")) if is_new else {h.repo for h in headers if h.repo}
        for repo in repos:
            _write_settled(store, repo, decisions(repo)[:_MOST_DECISIONS])


def write_switches(folder: Path, hooks: Mapping[str, bool | Sequence[str]]) -> None:
    """Pass the settings of hooks on to them."""
    path = Path(switches_path(str(folder)))
    text = json.dumps(dict(hooks))
    if hooks == HOOK_DEFAULTS:
        path.unlink(missing_ok=True)
    elif not path.exists() or path.read_text("utf-8") != text:
        replace_file(path, text.encode(), is_durable=False)


def renew_brief(store: Store, repo: str) -> None:
    """Put what the user just recorded into the brief of a repository, without waiting for the next sweep."""
    with suppress(OSError):
        if (store.folder / PREPARED_NAME).exists():
            renew_briefs(store, [repo], lambda repo: _decided(_decisions(store, repo)))


# Choices of how to go about the work, which say nothing of its result.
_OF_PROCESS = re.compile(
    r"^(?:quick (?:fix|win)|new commit|skip|later|only new|include it|yes|no|all of the above|\d+ PRs?)\b"
    r"|\b(?:be committed|write the plan|PR split|linear (?:comment|issue))\b",
    re.IGNORECASE,
)
_SAID_BY_USER = {"answer": "you chose", "pick": "you picked", "plan": "you approved", "recap": "you agreed"}


def _decisions(store: Store, repo: str) -> list[Fact]:
    sessions = SessionFilter(chosen=(("repo", (repo,)), ("group", (MAIN_GROUP,))))
    return find_decisions(store, sessions, [repo], now_ms(), with_commits=False)


def _decided(decisions: Iterable[Fact]) -> list[str]:
    """List what holds, each with who said so and when: what the user pinned or had remembered first, then chosen
    answers, approved plans and picks, then standing rules, the newest first."""
    facts = list(filter(_is_told, decisions))
    facts.sort(key=lambda fact: (fact.verdict != PINNED, fact.session_uid is not None, fact.predicate == PREFERS))
    said = (
        f"{(fact.valid_at or fact.recorded_at)[:10]}, {_SAID_BY_USER.get(fact.method, 'you said')}: {fact.text}"
        for fact in facts
    )
    return list(dict.fromkeys(said))


def _is_told(fact: Fact) -> bool:
    """Whether an agent that begins may read it unasked: the user said or chose it, and it is meant to last."""
    if fact.verdict in (PINNED, PROMOTED) or fact.session_uid is None:
        return fact.by == "user" or fact.verdict is not None
    if fact.method in _SAID_BY_USER and fact.by == "user":
        is_whole = fact.method != "pick" or "asked: " in fact.text  # an option by itself seldom says of what
        return is_whole and _OF_PROCESS.search(fact.text) is None
    return fact.predicate == PREFERS and fact.confidence >= STANDING


def _write_requests(store: Store, criteria: SessionFilter) -> None:
    """Keep what each session was asked first; of those in groups nothing, because any agent may get them."""
    files: dict[str, dict[str, Any]] = defaultdict(dict)
    sessions = store.sessions.recent(
        _MOST_SESSIONS, criteria._replace(chosen=(*criteria.chosen, ("group", (MAIN_GROUP,))))
    )
    for session in reversed(sessions):
        requests = orjson.loads(store.digests.text(session.key) or "{}").get("requests")
        is_users = session.session_uid == session.root_session_uid  # agents ask their sub-agents
        if session.repo and requests and is_users:
            asked = {"session": session.session_uid, "repo": session.repo, "text": requests[0]["text"][:_REQUEST_CHARS]}
            files[requests_path(str(store.folder), session.repo)][session.session_uid] = asked
    for path, news in files.items():
        _update(Path(path), news, _MOST_REQUESTS)


def _write_settled(store: Store, repo: str, decisions: Iterable[Fact]) -> None:
    """Keep what users settled about files of a repository, for each file the newest.

    A decision applies to a file if it names the file and its session then edited it, since many files share a name.
    One that cites line numbers is skipped: they are soon wrong. Hooks show it before an edit that has one of its names.
    """
    edits_of = cache(lambda name: store.facts.select(file=name))
    settled: dict[str, dict[str, Any]] = {}
    for fact in decisions:
        said = _ASIDE.sub("", fact.text).strip()
        is_heading = said.endswith(":") or (fact.method == "plan" and "(" not in said)
        if fact.method not in _SETTLED_AS or is_heading or _LINES.search(said):
            continue
        for name in dict.fromkeys(_FILE_NAME.findall(said)):
            for path in _edited_as(edits_of(name.rpartition("/")[2]), fact, name):
                settled.setdefault(path, _settlement(fact, repo, said))
    prepared = Path(files_path(str(store.folder), repo))
    if settled or prepared.exists():
        _replace(prepared, settled)


def _edited_as(edits: Sequence[StoredFact], fact: Fact, name: str) -> set[str]:
    """The path, seen from the session's folder, of the file of this name that the session of a fact edited.

    None if it edited several, or if many sessions have edited the file since: by then it is another one.
    """
    own = [edit for edit in edits if _root(edit.session_uid) == fact.session_uid]
    paths = {edit.object.lstrip("/") for edit in own if f"/{edit.details['path']}".endswith(f"/{name.lstrip('./')}")}
    if len(paths) != 1:
        return set()
    ending, until_ms = f"/{min(paths)}", max(edit.since_ms or 0 for edit in own)
    since = [edit for edit in edits if (edit.since_ms or 0) > until_ms and edit.details["path"].endswith(ending)]
    return paths if len({_root(edit.session_uid) for edit in since}) <= _MOST_SINCE else set()


def _root(session_uid: str) -> str:
    """The session of a sub-agent."""
    return session_uid.partition("/")[0]


def _settlement(fact: Fact, repo: str, said: str) -> dict[str, Any]:
    at = as_datetime(fact.valid_at)
    at_ms = round(at.timestamp() * 1000) if at else None
    text = f"{_SETTLED_AS[fact.method]}: {cut_short(' '.join(said.split()), _SETTLED_CHARS).rstrip(' ?')}"
    coded = {name.rstrip("()") for found in _CODE_NAME.findall(said) for name in found if name}
    names = sorted(name for name in coded if not _FILE_NAME.fullmatch(name))
    until_ms = at_ms + _WORK_MS if at_ms and fact.method in _WORK else None
    record = {"session": fact.session_uid, "repo": repo, "text": text, "names": names}
    return record | {"at_ms": at_ms, "until_ms": until_ms}


def _update(path: Path, news: dict[str, Any], most: int | None = None) -> None:
    """Change what a file holds, and keep the `most` that were added last."""
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        known = json.loads(path.read_bytes())
    content = {key: record for key, record in list((known | news).items())[-(most or 0) :] if record}
    if content != known:
        _replace(path, content)


def _replace(path: Path, content: dict[str, Any]) -> None:
    for made in (path.parent.parent, path.parent):  # one by one: a mode is given to the last only
        made.mkdir(mode=0o700, exist_ok=True)
    replace_file(path, json.dumps(content).encode(), is_durable=False)


def _surest(fixes: Sequence[Fix]) -> dict[str, Any] | None:
    """The surest of these fixes, as hooks need it; None if none is sure enough."""
    sure = [fix for fix in fixes if fix.confidence >= LEAST_CONFIDENCE]
    if not sure:
        return None
    fix = max(sure, key=lambda fix: (fix.confidence, fix.fixed_at or ""))
    fixed = as_datetime(fix.fixed_at)
    return {
        "session": fix.session_uid,
        "sessions": len(fix.sessions),
        "returns": fix.returns,
        "confidence": fix.confidence,
        "text": "\n".join(fix_lines(fix)),
        "at_ms": round(fixed.timestamp() * 1000) if fixed else None,
        "repo": fix.repo,
    }
