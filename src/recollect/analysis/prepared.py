"""What agents show and are told without asking, prepared after a sweep so that no agent waits for the store.

Fixes of errors are in small files by the error's fingerprint, requests in one for each repository; briefs are in
`recall/brief`.
"""

import json
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
    Fact,
    Fix,
    find_decisions,
    fix_lines,
    fixes_of,
    is_clear,
    is_literal,
    is_standing,
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
from recollect.store import ANY_SESSION, MAIN_GROUP, PINNED, PROMOTED, HeaderFilter, Store

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
    """Have hooks know what the settings say about them."""
    path = Path(switches_path(str(folder)))
    text = json.dumps(dict(hooks))
    if hooks == HOOK_DEFAULTS:
        path.unlink(missing_ok=True)
    elif not path.exists() or path.read_text("utf-8") != text:
        _write(path, text)


def renew_brief(store: Store, repo: str) -> None:
    """Have the next session in a repository hear of what the user just said; a later sweep does it otherwise."""
    with suppress(OSError):
        if (store.folder / PREPARED_NAME).exists():
            renew_briefs(store, [repo], partial(_decided, store))


def _decided(store: Store, repo: str) -> list[str]:
    """What holds in a repository, in the user's words or promoted by the user: what the user pinned first, then what
    the user had remembered, then standing wishes ("always …"), the newest first."""
    sessions = HeaderFilter(chosen=(("repo", (repo,)), ("group", (MAIN_GROUP,))))
    facts = find_decisions(store, sessions, [repo], now_ms(), with_weak=False)
    facts.sort(key=lambda fact: (fact.verdict != PINNED, fact.session_uid is not None, not is_standing(fact.object)))
    return list(dict.fromkeys(text for fact in facts if (text := _brief_text(fact))))


def _brief_text(fact: Fact) -> str | None:
    """What a brief may say of a decision: an agent that begins must not read what another agent made up."""
    if fact.verdict in (PINNED, PROMOTED):
        return fact.text
    is_sure = fact.session_uid is None or (fact.predicate == PREFERS and fact.confidence >= LEAST_CONFIDENCE)
    is_own = fact.by == "user" and is_sure
    is_shown = is_own and (fact.session_uid is None or is_clear(fact.object))
    return fact.object if is_shown else None


def _write_fixes(store: Store, signatures: Collection[str]) -> None:
    files: dict[str, dict[str, Any]] = defaultdict(dict)
    for signature in sorted(signatures):  # lines may be shared: the same one wins each time
        sure = [fix for fix in fixes_of(store, signature) if fix.confidence >= LEAST_CONFIDENCE]
        best = max(sure, key=lambda fix: (fix.confidence, fix.fixed_at or ""), default=None)
        for known_by in (signature, *_sure_lines(store, signature)):
            files[fixes_path(str(store.folder), known_by)].setdefault(known_by, best and _record(best))
    for path, news in files.items():
        _update(Path(path), news)


def _write_requests(store: Store, criteria: HeaderFilter) -> None:
    """Keep what each session was asked first; of those in groups nothing, because any agent may be told of it."""
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


def _sure_lines(store: Store, error: str) -> list[str]:
    """What else an error is known by, and no other error."""
    facts = store.facts.about("error", error, (FIXED_BY,))
    lines = dict.fromkeys(line for fact in facts for line in fact.details.get("lines", ()))
    return [line for line in lines if not is_literal(line) and store.facts.errors_showing([line]) == [error]]


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
    _write(path, json.dumps(content))


def _write(path: Path, text: str) -> None:
    unfinished = path.with_suffix(".new")
    unfinished.touch(mode=0o600)
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _record(fix: Fix) -> dict[str, Any]:
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
