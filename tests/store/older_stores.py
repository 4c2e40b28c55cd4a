"""Writes the stores below `tests/data/stores`: run by the version that such a store is to be of.

    python -m tests.store.older_stores tests/data/stores/0.1.0.tar.xz

Only calls that every version has are used. Beside the store, the archive has the agents' files as they were then, and
`shown.json`: what that version showed of the store.
"""

import dataclasses
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from recollect.api import Memory, open_memory
from recollect.lifecycle import Limits
from recollect.live import Live
from recollect.model.errors import NotFound
from recollect.model.schema import Session, to_json
from tests import logs
from tests.conftest import REPOSITORY, with_key

SAMPLES = REPOSITORY / "src" / "recollect" / "samples"
ROOTS = ("claude", "codex", "grok")
GENEROUS = Limits(raw_soft_cap=1 << 40, raw_hard_cap=1 << 40, raw_max_age_days=100_000)

EVICTED, GROWN, FORGOTTEN, GROUPED, PLAIN = (logs.session_id(number) for number in range(1, 6))
FORGOTTEN_WORD, LIVE_KEY = "xxxxforgottenferret", "telegram:42"
WORDS = {EVICTED: "evictedegret", GROWN: "growngecko", GROUPED: "groupedgoose", PLAIN: "plainplover"}

# Fields of a session, its digest and a line of statistics that must be the same in every later version.
_OF_SESSION = (
    *("session_uid", "root_session_uid", "parent_session_uid", "base_session_uid", "class", "group", "repo", "cwd"),
    *("git_branch", "model", "title", "started_at", "ended_at", "outcome", "message_count", "event_count"),
)
_OF_DIGEST = (
    *("requests", "request_count", "final_answer", "files", "file_count", "commands", "tools", "tests"),
    *("error_count", "intervention_count", "decisions", "models", "tokens", "usd", "started_at", "ended_at"),
)
_OF_LINE = ("name", "sessions", "sub_agents", "turns", "input_tokens", "output_tokens", "usd", "uses", "failures")
_QUERIES = ("subtract", "calc", LIVE_KEY.partition(":")[0], "lemur", FORGOTTEN_WORD, *WORDS.values())


def opened(folder: Path, *, group: str | None = None, **limits: int) -> Memory:
    """The store in `folder` with the agents' files beside it; nothing is too old or too large unless told."""
    memory = open_memory(folder / "store", [f"{agent}={folder / 'home' / agent}" for agent in ROOTS], group=group)
    if group is None:
        memory.settings = memory.settings._replace(limits=dataclasses.replace(GENEROUS, **limits))
    return memory


def shown(memory: Memory) -> dict[str, Any]:
    """What a store shows of its sessions."""
    listed = sorted(memory.sessions(), key=lambda session: session.session_uid)
    return json.loads(
        json.dumps(
            {
                "sessions": [_session(session.to_json()) for session in listed],
                "digests": {session.session_uid: _digest(memory, session) for session in listed},
                "exchanges": {session.session_uid: len(memory.exchanges(session)) for session in listed},
                "events": {session.session_uid: len(memory.events(session)) for session in listed},
                "hits": {query: _hits(memory, query) for query in _QUERIES},
                "decisions": sorted(fact.text for fact in memory.knowledge.decisions(everything=True)),
                "notes": {session.session_uid: to_json(memory.annotations.of(session)) for session in listed},
                "bookmarks": sorted((mark.name, mark.session_uid) for mark in memory.groups.bookmarks("geese")),
                "by agent": _lines(memory, "agent"),
                "by tool": _lines(memory, "tool"),
            }
        )
    )


def _session(session: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: session[name] for name in _OF_SESSION},
        "cost": session["cost"],
        "is_evicted": bool(session["evicted_at"]),
    }


def _digest(memory: Memory, session: Session) -> Any:
    try:
        digest = to_json(memory.digest(session))
    except NotFound:  # it is too small for one
        return None
    return {name: digest[name] for name in _OF_DIGEST}


def _lines(memory: Memory, by: str) -> list[dict[str, Any]]:
    lines = [to_json(line) for line in memory.stats(by).lines]
    return [{name: line[name] for name in _OF_LINE} for line in lines]


def _hits(memory: Memory, query: str) -> list[str]:
    return sorted(hit.session_uid for hit in memory.search(query, limit=100, exclude=[]))


def conversation(session: str, word: str, first: int = 1) -> list[logs.Record]:
    """A request, a command that fails, what was decided, and thanks."""
    return [
        logs.claude_user(session, first, f"please look at the {word} in calc.py"),
        logs.claude_call(session, first + 1, f"pytest tests/test_{word}.py"),
        logs.claude_result(session, first + 2, f"FAILED test_{word} AssertionError: the {word} is broken"),
        logs.claude_answer(session, first + 3, f"I will use the {word} table instead of the cache."),
        logs.claude_user(session, first + 4, f"We decided to use {word} tables, not caches."),
        logs.claude_answer(session, first + 5, f"The {word} works now, part {first}."),
    ]


def make(folder: Path) -> None:
    """A store with a session in each state that lasts."""
    claude = folder / "home" / "claude"
    with_key(folder / "store")
    for session in (EVICTED, GROWN):
        logs.CLAUDE.write(claude, logs.lines(conversation(session, WORDS[session])), session)
    with opened(folder, raw_soft_cap=1) as memory:
        memory.sweep()
    grown = conversation(GROWN, WORDS[GROWN]) + conversation(GROWN, WORDS[GROWN], 7)
    logs.CLAUDE.write(claude, logs.lines(grown), GROWN)
    shutil.copytree(SAMPLES, folder / "home", dirs_exist_ok=True, ignore=shutil.ignore_patterns("README.md"))
    logs.CLAUDE.write(claude, logs.lines(conversation(PLAIN, WORDS[PLAIN])), PLAIN)
    logs.CLAUDE.write(claude, logs.lines(conversation(FORGOTTEN, FORGOTTEN_WORD)), FORGOTTEN)
    (folder / "work").mkdir()
    of_group = [record | {"cwd": str(folder / "work")} for record in conversation(GROUPED, WORDS[GROUPED])]
    logs.CLAUDE.write(folder / "home" / "geese", logs.lines(of_group), GROUPED)
    with opened(folder) as memory:
        memory.groups.add("geese", folder / "work", home=folder / "home" / "geese")
        assert memory.sweep().failures == []
        memory.groups.sessions("geese").set(f"claude:{GROUPED}")
        memory.groups.sessions("geese").archive("the first goose")
        live = Live(memory)
        live.append_message(LIVE_KEY, "user", "please feed the lemur")
        live.append_message(LIVE_KEY, "assistant", "the lemur is fed")
        noted = memory.session(PLAIN)
        memory.annotations.note(noted, "look here for plovers")
        memory.annotations.star(noted)
        memory.annotations.tag(noted, "birds")
        memory.annotations.rename(noted, "The plover")
        memory.knowledge.record("Use tabs in calc.py", repo="calc-demo", why="the teacher said so")
        memory.forget(memory.plan_forgetting(FORGOTTEN))
        assert memory.sweep().failures == []


def write(archive: Path) -> None:
    """Make a store and pack it with what it shows; paths in it are those of a folder that is gone then."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make(folder)
        with opened(folder) as memory:
            (folder / "shown.json").write_text(json.dumps(shown(memory), indent=1, sort_keys=True))
        with tarfile.open(archive, "w:xz") as packed:
            for path in sorted(folder.iterdir()):
                packed.add(path, path.name, filter=_small)


def _small(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    is_made_again = member.name.endswith((".hs", "/ballast"))  # large, and no part of what is kept
    return None if is_made_again else member


if __name__ == "__main__":
    write(Path(sys.argv[1]))
