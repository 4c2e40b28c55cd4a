"""What agents show and get without asking, prepared after a sweep so that no agent waits for the store.

Fixes of errors are in small files by the error's fingerprint, requests in one for each repository; briefs are in
`recall/brief`.
"""

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from recollect.clock import as_datetime, now_ms
from recollect.home import PREPARED_NAME
from recollect.kinds import SessionKey
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
from recollect.recall import (
    HOOK_DEFAULTS,
    fixes_path,
    renew_briefs,
    requests_path,
    switches_path,
    write_briefs,
    write_snapshot,
)
from recollect.store import ANY_SESSION, MAIN_GROUP, PINNED, PROMOTED, HeaderFilter, Store, replace_file

_MOST_REQUESTS, _REQUEST_CHARS = 200, 600  # of a repository
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
    uids = frozenset(header.session_uid for header in store.session_headers.of(changed).values())
    criteria = ANY_SESSION if is_new else HeaderFilter(uids=uids)
    signatures = {fact.subject for fact in store.facts.select((FIXED_BY,), criteria) if fact.subject_kind == "error"}
    with suppress(OSError):  # a disk without room for this has been reported, or will be
        write_briefs(store, changed, partial(_decided, store))
        _write_fixes(store, signatures)
        _write_requests(store, criteria)


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
            renew_briefs(store, [repo], partial(_decided, store))


# Choices of how to go about the work, which say nothing of its result.
_OF_PROCESS = re.compile(
    r"^(?:quick (?:fix|win)|new commit|skip|later|only new|include it|yes|no|all of the above|\d+ PRs?)\b"
    r"|\b(?:be committed|write the plan|PR split|linear (?:comment|issue))\b",
    re.IGNORECASE,
)
_SAID_BY_USER = ("answer", "plan", "pick", "recap")


def _decided(store: Store, repo: str) -> list[str]:
    """What holds in a repository, each with who said so and when: what the user pinned or had remembered first, then
    chosen answers, approved plans and picks, then standing rules, the newest first."""
    sessions = HeaderFilter(chosen=(("repo", (repo,)), ("group", (MAIN_GROUP,))))
    facts = [fact for fact in find_decisions(store, sessions, [repo], now_ms(), with_weak=False) if _is_told(fact)]
    facts.sort(key=lambda fact: (fact.verdict != PINNED, fact.session_uid is not None, fact.predicate == PREFERS))
    return list(dict.fromkeys(map(_told, facts)))


def _is_told(fact: Fact) -> bool:
    """Whether an agent that begins may read it unasked: the user said or chose it, and it is meant to last."""
    if fact.verdict in (PINNED, PROMOTED) or fact.session_uid is None:
        return fact.by == "user" or fact.verdict is not None
    if fact.method in _SAID_BY_USER and fact.by == "user":
        is_whole = fact.method != "pick" or "asked: " in fact.text  # an option by itself seldom says of what
        return is_whole and _OF_PROCESS.search(fact.text) is None
    return fact.predicate == PREFERS and fact.confidence >= STANDING


def _told(fact: Fact) -> str:
    said = {"answer": "you chose", "pick": "you picked", "plan": "you approved", "recap": "you agreed"}.get(
        fact.method, "you said"
    )
    return f"{(fact.valid_at or fact.recorded_at)[:10]}, {said}: {fact.text}"


def _write_fixes(store: Store, signatures: Collection[str]) -> None:
    files: dict[str, dict[str, Any]] = defaultdict(dict)
    for signature in signatures:
        files[fixes_path(str(store.folder), signature)][signature] = _surest(fixes_of(store, signature))
    for path, news in files.items():
        _update(Path(path), news)


def _write_requests(store: Store, criteria: HeaderFilter) -> None:
    """Keep what each session was asked first; of those in groups nothing, because any agent may get them."""
    files: dict[str, dict[str, Any]] = defaultdict(dict)
    sessions = store.session_headers.recent(
        _MOST_SESSIONS, criteria._replace(chosen=(*criteria.chosen, ("group", (MAIN_GROUP,))))
    )
    for session in reversed(sessions):
        requests = orjson.loads(store.session_headers.digest(session.key) or "{}").get("requests")
        is_users = session.session_uid == session.root_session_uid  # agents ask their sub-agents
        if session.repo and requests and is_users:
            asked = {"session": session.session_uid, "repo": session.repo, "text": requests[0]["text"][:_REQUEST_CHARS]}
            files[requests_path(str(store.folder), session.repo)][session.session_uid] = asked
    for path, news in files.items():
        _update(Path(path), news, _MOST_REQUESTS)


def _update(path: Path, news: dict[str, Any], most: int | None = None) -> None:
    """Change what a file holds, and keep the `most` that were added last."""
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        known = json.loads(path.read_bytes())
    content = {key: record for key, record in list((known | news).items())[-(most or 0) :] if record}
    if content == known:
        return
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
