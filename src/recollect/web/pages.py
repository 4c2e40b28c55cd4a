"""What each page shows, as records: the same for people, as HTML, and for programs, as JSON."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, urlencode

from recollect import api, redact
from recollect.api import VIEW_FIELDS, Filters, Memory
from recollect.care import Overview
from recollect.hooks import NOT_MET_AGAIN, read_hook_log
from recollect.model.errors import NotFound
from recollect.model.kinds import KINDS, OUTCOMES
from recollect.recall import BREAKDOWNS

ROWS = 50
_HITS, _MOST_NODES, _MOST_DECISIONS = 10, 60, 5
_MOST_KNOWN, _MOST_FIXED = 500, 20
_LATEST_FACTS, _LATEST_EXCHANGES = 2_000, 1_000  # that a picture is drawn of, and that workflows are found in
_FIRST_ROWS, _MOST_ROWS = 8, 128  # of a file's history
_RECENT_SESSIONS, _FILES_OF_SESSION, _RECENT_FILES = 20, 5, 20
_RUNNING = timedelta(minutes=2)
_LATELY, _MOST_ENTRIES = timedelta(days=30), 200
_COMPARED = ("repo", "agent", "model")  # what the statistics put beside another of its kind
_STALE = timedelta(days=2)
_MOST_NAMES = 12
_UNCHANGED_S, _MOST_UNCHANGED = 60.0, 32
_UNFINISHED_WORD = re.compile(r"\w{3,}$")  # which may still be typed
_FACETS = ("agent", "repo", "branch", "model")
_DAYS = {"today": 1, "7d": 7, "30d": 30, "90d": 90, "1y": 365}
PERIODS = {"today": "Today", "7d": "7 days", "30d": "30 days", "1y": "Year"}

Records = dict[str, Any]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Params:
    """What a request asks for: the parts of its path, and its query."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        return self.query.get(name, default).strip()

    def number(self, name: str, default: int = 0) -> int:
        value = self.query.get(name, "")
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else default

    @property
    def filters(self) -> Filters:
        given = {name: value for name in Filters._fields if name != "is_starred" and (value := self.text(name))}
        return Filters(**given, is_starred=self.text("is_starred") == "1" or None)


class Unchanged:
    """Answers that stay right until something is stored, or for a minute."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[tuple[int, ...], float, Any]] = {}

    def get(self, memory: Memory, name: str, read: Callable[[], _T]) -> _T:
        commits, now = memory.commits(), monotonic()
        known = self._held.get(name)
        if known is None or known[0] != commits or now - known[1] > _UNCHANGED_S:
            if len(self._held) >= _MOST_UNCHANGED:
                self._held.clear()
            known = self._held[name] = (commits, now, read())
        return cast(_T, known[2])


_UNCHANGED = Unchanged()


def home(memory: Memory, params: Params) -> Records:
    """The last sessions, what runs now, what is open, what needs attention."""
    recent = memory.sessions(Filters(session_class="human"), roots_only=True, is_idle=False, limit=8)
    overview = _UNCHANGED.get(memory, "overview", memory.overview)
    return {
        "recent": recent,
        "running": [
            session for session in recent if session.updated and datetime.now(UTC) - session.updated < _RUNNING
        ],
        "candidates": _UNCHANGED.get(memory, "candidates", memory.knowledge.candidates),
        "open": _UNCHANGED.get(memory, "open", partial(memory.unfinished, Filters(since="30d"), limit=6)),
        "spending": memory.spending(),
        "activity": _UNCHANGED.get(memory, "activity", partial(memory.breakdown, "day", Filters(since="84d"))),
        "warnings": list(_warnings(overview)),
        "overview": overview,
    }


def _warnings(overview: Overview) -> Iterator[dict[str, str]]:
    """What the user should know of, each with a command or page that says more."""
    for alarm in overview.alarms:
        yield {"text": alarm, "action": "recollect doctor --repair"}
    for loss, count in overview.losses.items():
        yield {"text": f"{loss.replace('_', ' ').capitalize()}: {count}", "action": "recollect retention"}
    if problems := overview.sources.bad_lines + overview.sources.sources_failed:
        yield {"text": f"Could not read {problems} lines or files", "action": "recollect status --problems"}
    if overview.swept_at and datetime.now(UTC) - datetime.fromisoformat(overview.swept_at) > _STALE:
        yield {"text": "The last sweep is more than two days old", "action": "recollect sweep"}


def lately(memory: Memory, params: Params) -> Records:
    """What this memory did for the agents in the last days."""
    begin = (datetime.now(UTC) - _LATELY).isoformat()
    entries = [item for item in read_hook_log(_MOST_ENTRIES) if (item.at or "") >= begin]
    fixes = [item for item in entries if item.error]
    return {
        "days": _LATELY.days,
        "briefs": len(entries) - len(fixes),
        "fixes": len(fixes),
        "solved": sum(item.then == NOT_MET_AGAIN for item in fixes),
    }


def search(memory: Memory, params: Params) -> Records:
    """Sessions that match a query, each with its best matches in context."""
    query, filters = params.text("q"), params.filters
    is_asked = bool(query or filters != Filters())
    offset = params.number("offset")
    ask = partial(memory.answer, filters=filters, limit=_HITS, offset=offset, context=0, exclude=())
    answer = ask(query)
    if not answer.hits and _UNFINISHED_WORD.search(query):
        answer = ask(f"{query}*")._replace(query=query)
    return {
        "answer": answer,
        "is_asked": is_asked,
        "facets": _known_facets(memory),
    }


def _known_facets(memory: Memory) -> dict[str, list[str]]:
    return _UNCHANGED.get(memory, "facets", partial(_facets, memory))


def _facets(memory: Memory) -> dict[str, list[str]]:
    """What a search can be narrowed to."""
    names = {name: memory.names(name)[:_MOST_NAMES] for name in _FACETS}
    return names | {"outcome": list(OUTCOMES), "kind": list(KINDS), "tag": memory.annotations.tags()[:_MOST_NAMES]}


def sessions(memory: Memory, params: Params) -> Records:
    """Sessions that match every filter; automation and sessions without work are left out unless asked for."""
    shows_all = params.text("all") == "1"
    filters, text = params.filters, params.text("title") or None
    if not shows_all and filters.session_class is None:
        filters = filters._replace(session_class="human")
    is_idle = None if shows_all else False
    sort, offset = params.text("sort", "recent"), params.number("offset")
    listed = memory.sessions(filters, text=text, roots_only=True, is_idle=is_idle, sort=sort, limit=ROWS, offset=offset)
    count = partial(_count, memory, text)
    total, every = count(filters, is_idle), count(params.filters, None)
    return {
        "sessions": listed,
        "total": total,
        "hidden": every - total,
        "next_offset": offset + ROWS if offset + len(listed) < total else None,
        "facets": _known_facets(memory),
        **views(memory, Params(query={"query": urlencode(params.query)})),
    }


def _count(memory: Memory, text: str | None, filters: Filters, is_idle: bool | None) -> int:
    read = partial(memory.count_sessions, filters, text=text, roots_only=True, is_idle=is_idle)
    return _UNCHANGED.get(memory, f"count {text} {filters} {is_idle}", read)


def agents(memory: Memory) -> list[str]:
    """The agents that there are sessions of."""
    return _UNCHANGED.get(memory, "agents", partial(memory.names, "agent"))


def views(memory: Memory, params: Params) -> Records:
    """The saved lists of sessions, and which list is shown now."""
    shown = {name: value for name, value in parse_qsl(params.text("query")) if name in VIEW_FIELDS}
    return {"views": memory.annotations.views(), "shown": urlencode(sorted(shown.items()))}


def repository(memory: Memory, params: Params) -> Records:
    """A repository: its sessions, usual commands with their failure rates, open work, money."""
    name = params.path["name"]
    (repo, *_) = memory.repos_named(name) or [name]
    filters = Filters(repo=repo)
    listed = memory.sessions(filters, roots_only=True, is_idle=False, limit=ROWS)
    if not listed:
        raise NotFound(f"No sessions of this repository: {name}", "`recollect sessions` lists repositories")
    return {
        "repo": repo,
        "sessions": listed,
        "total": memory.count_sessions(filters, roots_only=True, is_idle=False),
        "open": memory.unfinished(filters._replace(since="90d"), limit=8),
        "decisions": memory.knowledge.decisions(filters, limit=_MOST_DECISIONS),
        "weeks": memory.breakdown("day", filters._replace(since="1y")),
        "commands": memory.breakdown("command", filters),
        "tools": memory.breakdown("tool", filters),
        "agents": memory.stats("agent", filters),
        "spending": memory.spending(filters),
    }


def file(memory: Memory, params: Params) -> Records:
    """A file: the sessions that touched or discussed it, and the edits to it; without one, the files edited last."""
    path, rows = params.text("path"), min(params.number("rows", _FIRST_ROWS), _MOST_ROWS)
    visits = memory.files(path, limit=rows + 1) if path else []
    edits = memory.blame(path, limit=rows + 1) if path else []
    return {
        "path": path,
        "visits": visits[:rows],
        "edits": edits[:rows],
        "more_rows": 4 * rows if max(len(visits), len(edits)) > rows and rows < _MOST_ROWS else None,
        "evicted_edits": memory.evicted_edits(path) if path else 0,
        "recent": [] if path else _UNCHANGED.get(memory, "recent files", partial(_recent_files, memory)),
    }


def _recent_files(memory: Memory) -> list[dict[str, Any]]:
    """The files that the last sessions edited, each with the last of these sessions."""
    files: dict[str, dict[str, Any]] = {}
    for session in memory.sessions(roots_only=True, is_idle=False, limit=_RECENT_SESSIONS):
        with suppress(NotFound):
            for file in memory.digest(session).files[:_FILES_OF_SESSION]:
                files.setdefault(file.name, {"path": file.name, "session": session})
    return list(files.values())[:_RECENT_FILES]


def fixes(memory: Memory, params: Params) -> Records:
    """How an error was fixed before; without one, errors that were fixed, and those that sessions met repeatedly."""
    error = params.text("error")
    return {
        "error": error,
        "fixes": memory.knowledge.fixes(error, limit=10) if error else [],
        "fixed": [] if error else _UNCHANGED.get(memory, "fixed", partial(_fixed, memory)),
        "met": [] if error else memory.signals(signal="repeated_error", limit=20),
    }


def _fixed(memory: Memory) -> list[dict[str, Any]]:
    """Errors with what fixed them, the most frequent first."""
    graph = memory.knowledge.graph(limit=_MOST_KNOWN, latest=_LATEST_FACTS)
    names = {node.id: node.name for node in graph.nodes}
    fixed: dict[str, dict[str, Any]] = {}
    for edge in graph.edges:
        if edge.predicate == "fixed_by":
            entry = fixed.setdefault(edge.source, {"error": names[edge.source], "by": [], "times": 0})
            entry["by"].append(names[edge.target])
            entry["times"] += len(edge.fact_uids)
    return sorted(fixed.values(), key=lambda entry: -entry["times"])[:_MOST_FIXED]


def decisions(memory: Memory, params: Params) -> Records:
    """What was decided and holds, or held on a day; with `history` what was superseded, too."""
    as_of, history = params.text("as_of"), params.text("history") == "1"
    rows, filters = max(params.number("rows", ROWS), 1), Filters(repo=params.text("repo") or None)
    known = memory.knowledge.decisions(filters, as_of=as_of or None, history=history, limit=rows + 1)
    more_rows = 4 * rows if len(known) > rows else None
    return {
        "decisions": known[:rows],
        "more_rows": more_rows,
        "as_of": as_of,
        "history": history,
        "facets": _known_facets(memory),
    }


def fact(memory: Memory, params: Params) -> Records:
    """One fact, whatever the user said of it."""
    return {"fact": memory.knowledge.fact(params.path["uid"])}


def graph(memory: Memory, params: Params) -> Records:
    """What is known as a picture: around an entity, of a repository, or of everything."""
    around, repo = params.text("around"), params.text("repo")
    chosen = partial(memory.knowledge.graph, Filters(repo=repo or None), around=around or None)
    read = partial(chosen, limit=_MOST_NODES, latest=_LATEST_FACTS)
    known = _UNCHANGED.get(memory, f"graph {repo} {around}", read)
    picture = memory.knowledge.graph_svg(known, lambda node: f"/graph?{urlencode({'around': node.name})}")
    return {"graph": known, "svg": picture, "facets": _known_facets(memory)}


def workflows(memory: Memory, params: Params) -> Records:
    """Sequences of steps that work, and commands that fail."""
    filters = Filters(repo=params.text("repo") or None)
    read = partial(memory.knowledge.workflows, filters, latest=_LATEST_EXCHANGES)
    found = _UNCHANGED.get(memory, f"workflows {filters.repo}", read)
    drawn = partial(memory.knowledge.workflow_graph, filters, latest=_LATEST_EXCHANGES)
    picture = memory.knowledge.graph_svg(_UNCHANGED.get(memory, f"workflow graph {filters.repo}", drawn))
    return {"workflows": found, "svg": picture, "facets": _known_facets(memory)}


def told(memory: Memory, params: Params) -> Records:
    """What hooks told agents, and when."""
    return {"told": read_hook_log(ROWS)}


def stats(memory: Memory, params: Params) -> Records:
    """Tokens, money and work by a breakdown of choice, by day, and compared with the period before."""
    filters = params.filters if params.filters.since else params.filters._replace(since="30d")
    by = params.text("by", "repo")
    days = _DAYS.get(str(filters.since))
    before = filters._replace(since=f"{2 * days}d", before=f"{days}d") if days else None
    read = partial(_counted, memory)
    chosen = next((name for name in _COMPARED if getattr(filters, name)), None)
    other = params.text("other") if chosen else ""
    other_filter: dict[str, Any] = {chosen: other} if chosen and other else {}
    beside = filters._replace(**other_filter) if other_filter else before
    return {
        "by": by,
        "breakdown": read(memory.breakdown, by, filters),
        "days": read(memory.breakdown, "day", filters),
        "agents": read(memory.stats, "agent", filters),
        "chosen": chosen,
        "other": other,
        "beside": read(memory.stats, "agent", beside).total if beside else None,
        "facets": _known_facets(memory),
        "spending": memory.spending(params.filters._replace(since=None, before=None)),  # it has months of its own
        "breakdowns": [name for name in BREAKDOWNS if name not in ("day", "block")],
        "since": filters.since,
        "length": days,
    }


def _counted(memory: Memory, count: Callable[[str, Filters], Any], by: str, filters: Filters) -> Any:
    """A part of the statistics; another breakdown of the same period has most of them in common."""
    return _UNCHANGED.get(memory, f"{count.__name__} {by} {filters}", partial(count, by, filters))


def care(memory: Memory, params: Params) -> Records:
    """The size of the store, what eviction would take next, what could not be read."""
    return {
        "status": _UNCHANGED.get(memory, "status", memory.status),
        "outlook": _UNCHANGED.get(memory, "outlook", memory.outlook),
        "problems": memory.problems()[:ROWS],
    }


def doctor(memory: Memory, params: Params) -> Records:
    """What stands in the way of a complete memory. It looks at the agents' homes, which takes a moment."""
    return {"findings": api.doctor(memory.settings.folder)}


def secrets(memory: Memory, params: Params) -> Records:
    """In how many sessions each rule replaced a secret; never a value. A search for each rule takes a moment."""
    return {"rules": _UNCHANGED.get(memory, "secrets", partial(_replaced, memory))}


def _replaced(memory: Memory) -> list[dict[str, Any]]:
    names = {
        rule.name: rule.finds for rule in reversed(redact.RULES)
    }  # of several by one name the first is the plainest
    names |= dict.fromkeys(memory.settings.redaction.rules, "your own rule")
    find = partial(memory.answer, limit=1, matches=1, context=0, exclude=())
    if not find('"REDACTED"').hits:
        return []
    found = [(name, finds, find(f"[REDACTED:{name}:", mode="substring")) for name, finds in names.items()]
    rules = [{"rule": name, "finds": finds, "sessions": answer.total} for name, finds, answer in found if answer.total]
    return sorted(rules, key=lambda rule: -rule["sessions"])


def settings(memory: Memory, params: Params) -> Records:
    """Every setting in force, and whether it is the default."""
    return {"settings": api.settings_in_force()}
