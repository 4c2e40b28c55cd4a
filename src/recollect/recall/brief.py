"""Prepare what a new session should know of the last ones: after a sweep, a small file for each folder worked in.

A hook reads the file, so that an agent's start does not wait for the store. Free text in it is what the user wrote;
of what agents and tools wrote it has numbers and names only, because it is read before anything was asked.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from recollect.model.clock import rfc3339
from recollect.model.files import replace_file
from recollect.model.home import PREPARED_NAME
from recollect.model.kinds import HANDED_PLAN, SessionKey
from recollect.model.text import cut_short, plural
from recollect.recall.fence import USER
from recollect.recall.prepared import brief_path
from recollect.sessions import has_subject
from recollect.store import MAIN_GROUP, SessionFilter, SessionHeader, Store

_SESSIONS = 3
_REQUEST_CHARS = 400
_UNANSWERED_CHARS = 160
# By the note of an open request; "interrupted work" says it of the last one already.
_LEFT_AS = {None: "unanswered", "failed": "failed", "not finished": "unfinished", "interrupted": ""}
_SAME_CHARS = 30  # letters that two requests begin with if they ask the same
_MOST_DECISIONS, _DECISION_CHARS = 4, 260


def write_briefs(store: Store, changed: Collection[SessionKey], decided: Callable[[str], Sequence[str]]) -> None:
    """Prepare the briefs of the repositories of these sessions; of all if there are none at all.

    `decided` gives what was decided in a repository and still holds, in words that an agent may get unasked.
    """
    folder = store.folder / PREPARED_NAME
    is_new = not folder.exists()
    if not is_new and not changed:
        return
    headers = store.sessions.of(changed).values()
    repos = set(store.sessions.names("repo")) if is_new else {header.repo for header in headers if header.repo}
    renew_briefs(store, repos, decided)


def renew_briefs(store: Store, repos: Collection[str], decided: Callable[[str], Sequence[str]]) -> None:
    """Prepare the briefs of these repositories."""
    folders = defaultdict(set)
    for path, repo in store.sessions.folders() if repos else ():
        folders[repo].add(path.rstrip("/"))
    folder = store.folder / PREPARED_NAME
    for made in (folder, folder / "briefs"):  # one by one: a mode is given to the last only
        made.mkdir(mode=0o700, exist_ok=True)
    for repo in repos:
        brief = make_brief(store, repo, decided(repo))
        for name in folders[repo]:
            content = json.dumps({"folder": name, "records": brief}).encode()
            replace_file(Path(brief_path(str(store.folder), name)), content, is_durable=False)


def make_brief(store: Store, repo: str, decided: Sequence[str]) -> list[dict[str, Any]]:
    """The records of a repository's brief, the most important first; none if nothing was done there."""
    criteria = SessionFilter(chosen=(("repo", (repo,)), ("group", (MAIN_GROUP,))))
    sessions = store.sessions.recent(_SESSIONS, criteria)
    if not sessions:
        return []
    digests = [orjson.loads(store.digests.text(session.key) or "{}") for session in sessions]
    records = [_last(sessions[0], digests[0])]
    if decided:
        lines = [f"- {cut_short(' '.join(text.split()), _DECISION_CHARS)}" for text in decided[:_MOST_DECISIONS]]
        heading = "Decided here (options are in the agent's words); `recall_decisions` lists everything:"
        records.append({"origin": USER, "heading": heading, "text": "\n".join(lines), "at_ms": None, "repo": None})
    said = {_key(records[0]["text"])}
    for session, digest, after in zip(sessions[1:], digests[1:], digests, strict=False):
        if not _takes_over(after):
            records += _open(session, digest, said)
    return records


def _last(session: SessionHeader, digest: dict[str, Any]) -> dict[str, Any]:
    requests = digest.get("requests") or []
    tests, left = digest.get("tests", {}).get("last"), _left(digest)
    stopped = digest.get("outcome", {}).get("stopped_by")
    facts = [
        f"outcome {session.outcome}",
        f"stopped: {stopped}" if stopped else None,
        f"last test run {tests}" if tests else None,
    ]
    facts += [f"left open: {' and '.join(left)}"] if left else []
    heading = (
        f"The last session here was {_named(session)}: {', '.join(fact for fact in facts if fact)}. Its last request:"
    )
    asked = requests[-1]["text"] if requests else session.title or ""
    return _record(heading, asked[:_REQUEST_CHARS], session)


def _left(digest: dict[str, Any]) -> list[str]:
    """What a session left open, counted."""
    left = digest.get("open", {})
    counts = [("to-do", "todos"), ("next step", "next_steps")]
    found = [plural(len(left[key]), name) for name, key in counts if left.get(key)]
    found += ["failing tests"] if left.get("failing_tests") else []
    found += ["interrupted work"] if left.get("interruption") else []
    requests = Counter(_LEFT_AS.get(quote.get("note"), "stopped") for quote in _open_requests(digest))
    return found + [plural(count, f"{how} request") for how, count in requests.items() if how]


def _open_requests(digest: dict[str, Any]) -> list[dict[str, Any]]:
    """Requests without an answer, or not done; `/init` or `continue` by itself asks for nothing."""
    quotes = digest.get("open", {}).get("unanswered") or []
    return [quote for quote in quotes if has_subject(quote["text"])]


def _takes_over(digest: dict[str, Any]) -> bool:
    """Whether a session carries out a plan: then the one before it ended with that plan, and left nothing open."""
    requests = digest.get("requests") or [{"text": ""}]
    return str(requests[0]["text"]).startswith((HANDED_PLAN, "Implement the following plan"))


def _open(session: SessionHeader, digest: dict[str, Any], said: set[str]) -> Iterator[dict[str, Any]]:
    """Requests that an earlier session left open, unless a later one was asked the same; a bare count helps nobody."""
    requests = [quote["text"][:_UNANSWERED_CHARS] for quote in _open_requests(digest)]
    requests = [text for text in requests if _key(text) not in said][:2]
    said.update(map(_key, requests))
    if requests:
        left = " and ".join(_left(digest))
        yield _record(f"Left open by {_named(session)}: {left}.", "\n".join(requests), session)


def _key(text: str) -> str:
    """By what a request is known when it is made again, in other words at its end at most."""
    return "".join(filter(str.isalnum, text.lower()))[:_SAME_CHARS]


def _record(heading: str, text: str, session: SessionHeader) -> dict[str, Any]:
    return {"origin": USER, "heading": heading, "text": text, "at_ms": session.ended_ms, "repo": session.repo}


def _named(session: SessionHeader) -> str:
    ended = rfc3339(session.ended_ms)
    return f"{session.session_uid} ({ended[:10]})" if ended else session.session_uid
