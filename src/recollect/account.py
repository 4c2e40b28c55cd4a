"""The lasting row of a session: what its sources tell, and what its events add up to."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from recollect.clock import now_ms
from recollect.derive import Marks, changes, derive
from recollect.kinship import Kinship
from recollect.pricing import estimate_usd
from recollect.schema import (
    ASSISTANT_MSG,
    HUMAN,
    LIFECYCLE,
    PROMPTS_ONLY,
    SCHEMA_VERSION,
    SUB_AGENT,
    UNKNOWN,
    USER_MSG,
    WARM_UP,
)
from recollect.store import Store
from recollect.store.evictions import Base
from recollect.store.sessions import SessionRow, SourceOfSession
from recollect.store.streams import EventMark, StreamName, UsageMark
from recollect.text import cut_short

TITLE_CHARS = 80
DEFAULT_TASK_PATTERNS = (
    # Branch names join words with `_`, which `\b` takes for a part of the word.
    r"(?<![^\W_])(?!(?:UTF|ISO|SHA|RFC|GPT|MD|CVE|X)-)[A-Z][A-Z0-9]+(?:-[A-Z0-9]+)*-\d+(?:-T\d+)?(?![^\W_])",
    r"(?<![\w/&])#\d+\b",
)
_ROWS_AT_ONCE = 200
_MESSAGES = (USER_MSG, ASSISTANT_MSG)  # a completion is an assistant_msg at base


@dataclass(frozen=True, slots=True)
class AccountRules:
    """The settings that shape a session's row."""

    task_patterns: tuple[re.Pattern[str], ...] = field(
        default_factory=lambda: tuple(re.compile(pattern) for pattern in DEFAULT_TASK_PATTERNS)
    )


def account_for(store: Store, rules: AccountRules, advance: Callable[[int, int], None]) -> None:
    """Bring the row of every dirty session up to date. They stay dirty, for their repositories are named next."""
    kinship = Kinship(store)
    _mark_copies_of_evicted(store, kinship)
    dirty = _with_relatives(store, kinship)
    for start in range(0, len(dirty), _ROWS_AT_ONCE):
        streams = dirty[start : start + _ROWS_AT_ONCE]
        accounts = [account for stream in streams if (account := _account(store, kinship, rules, stream)) is not None]
        store.streams.set_marks([mark for account in accounts for mark in account.marks])
        store.sessions.put([(account.row, account.sources) for account in accounts])
        advance(start + len(streams), len(dirty))


def _with_relatives(store: Store, kinship: "Kinship") -> list[StreamName]:
    """Dirty sessions with their sub-agents and roots: money and names are shared among them."""
    dirty = store.streams.dirty()
    related = {relative for stream in dirty for relative in kinship.household(stream)}
    related -= {stream.id for stream in dirty}
    if related:
        store.streams.set_dirty(related, True)
    return store.streams.dirty()


def _mark_copies_of_evicted(store: Store, kinship: "Kinship") -> None:
    """What a fork has copied from a session whose events are gone was counted there."""
    evicted = store.evictions.names()
    for stream in store.streams.dirty() if evicted else ():
        told = kinship.relations(stream.agent, stream.native_id)
        for owner in {told.parent, told.base} - {None, stream.native_id}:
            if (stream.agent, owner) in evicted:
                store.evictions.mark_copies(stream.id, stream.agent, str(owner))


@dataclass(slots=True)
class _Facts:
    """What all sources of a session tell together."""

    first: dict[str, Any]
    last: dict[str, Any]

    @property
    def title(self) -> str | None:
        return next((title for rank in (3, 2, 1) if (title := self.last.get(f"title_{rank}"))), None)


def _facts(infos: Sequence[dict[str, Any]]) -> _Facts:
    """Merge the sources' tellings; a prompt history only fills what nobody else says."""
    told = [info for info in infos if info["last"].get("session_class") != PROMPTS_ONLY]
    aside = [info for info in infos if info["last"].get("session_class") == PROMPTS_ONLY]
    first: dict[str, Any] = {}
    for info in reversed([*told, *aside]):
        first.update(info["first"])
    last: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for info in [*aside, *told]:
        last.update(info["last"])
        metadata.update(info["last"].get("metadata") or {})
    return _Facts(first, last | {"metadata": metadata})


class _Tokens(NamedTuple):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(slots=True)
class _Money:
    tokens: _Tokens
    usd: float | None
    is_estimate: bool

    def columns(self) -> dict[str, Any]:
        """As a session's row has them."""
        return {**self.tokens._asdict(), "usd": self.usd, "usd_is_estimate": self.is_estimate}


@dataclass(slots=True)
class _Held:
    """All that is held of one session, from which its row is made."""

    stream: StreamName
    facts: _Facts
    events: list[EventMark]
    counted: list[EventMark]  # without copies: a session of nothing else has no work of its own to count
    marks: Marks
    money: _Money
    sources: list[SourceOfSession]

    @property
    def own(self) -> list[EventMark]:
        """What it is described by: a session of copies only, by these."""
        return self.counted or self.events

    def span(self) -> tuple[int | None, int | None]:
        """When it began and ended."""
        times = [event.ts_ms for event in self.own if event.ts_ms is not None]
        return (min(times), max(times)) if times else (None, None)


class _Account(NamedTuple):
    """A session's new row, its sources, and what must be marked on its events."""

    row: SessionRow
    sources: list[SourceOfSession]
    marks: list[tuple[str, str | None, bool, bool, int]]


def _account(store: Store, kinship: Kinship, rules: AccountRules, stream: StreamName) -> _Account | None:
    events = store.streams.events(stream.id)
    base = store.evictions.base(stream.agent, stream.native_id, stream.id)
    if not events and base is None:
        return None
    marks = derive(events)
    if base is not None:  # an import may bring back what was dropped: it is counted already
        events = [event for event in events if not base.keys.hold(event.event_uid, event.payload_hash)]
    facts = _facts(store.streams.infos(stream.agent, stream.native_id))
    counted = [event for event in events if event.copy_of is None]
    told = store.streams.sources(stream.id)
    sources = [SourceOfSession(mark.host, mark.path, mark.size, mark.gone_ms) for mark in told]
    money = _money(store, kinship, stream, counted or events)
    row = _session_row(kinship, rules, _Held(stream, facts, events, counted, marks, money, sources))
    if base is not None:
        row = _extended(base, row, facts)
    return _Account(row, sources, changes(events, marks))


def _extended(base: Base, row: SessionRow, facts: _Facts) -> SessionRow:
    """The row of a session that was evicted once: as it was then, and what it did since."""
    old = base.row
    started, ended = _least(old.started_ms, row.started_ms), _most(old.ended_ms, row.ended_ms)
    absent = [name for name in SessionRow._fields if name != "usd" and getattr(row, name) is None]
    row = row._replace(**{name: getattr(old, name) for name in absent})
    return row._replace(
        **({} if base.is_usage_held else _spent(old, row)),
        outcome=old.outcome,
        title=facts.title or old.title or row.title,
        task_ref=old.task_ref or row.task_ref,
        started_ms=started,
        ended_ms=ended,
        updated_ms=_most(old.updated_ms, row.updated_ms),
        wall_clock_ms=ended - started if started is not None and ended is not None else None,
        turns=old.turns + row.turns,
        retries=old.retries + row.retries,
        message_count=old.message_count + row.message_count,
        event_count=old.event_count + row.event_count,
        content_hash=_joined_hash(old.content_hash, row) if row.event_count else old.content_hash,
        discovered_ms=_least(old.discovered_ms, row.discovered_ms),
        ingested_ms=row.ingested_ms if row.event_count else old.ingested_ms,
    )


def _spent(old: SessionRow, row: SessionRow) -> dict[str, Any]:
    """Tokens and money where it is not known whether all responses are held: never less than they were."""
    names = [name for name in SessionRow._fields if name.endswith("_tokens")]
    is_more = (row.usd or 0.0) >= (old.usd or 0.0)
    usd, is_estimate = (row.usd, row.usd_is_estimate) if is_more else (old.usd, bool(old.usd_is_estimate))
    return {name: max(getattr(old, name), getattr(row, name)) for name in names} | {
        "usd": usd,
        "usd_is_estimate": is_estimate,
    }


def _joined_hash(old: str | None, row: SessionRow) -> str:
    """Of what is held and what was: the old one cannot be made again."""
    return blake2b(f"{old}{row.content_hash}".encode(), digest_size=16).hexdigest()


def _least(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _most(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _session_row(kinship: Kinship, rules: AccountRules, held: _Held) -> SessionRow:
    agent, native_id = held.stream.agent, held.stream.native_id
    first, last = held.facts.first, held.facts.last
    started, ended = held.span()
    parent, base = kinship.relations(agent, native_id).parent, first.get("base_native_id")
    prompt = _first_prompt(held.events)
    return SessionRow(
        agent=agent,
        native_session_id=native_id,
        session_uid=kinship.uid(agent, native_id),
        root_session_uid=kinship.uid(agent, kinship.root(agent, native_id)),
        parent_session_uid=kinship.uid(agent, parent) if parent else None,
        base_session_uid=kinship.uid(agent, base) if base else None,
        base_end=first.get("base_end"),
        session_class=_session_class(held.facts, parent),
        group="main",
        host=held.sources[0].host if held.sources else None,
        repo=None,
        domain=None,
        cwd=first.get("cwd"),
        git_root=last.get("git_root"),
        git_remote=last.get("git_remote"),
        git_branch=last.get("git_branch"),
        model=_model(held.own) or last.get("model"),
        provider=last.get("provider"),
        agent_version=last.get("agent_version"),
        title=held.facts.title or (cut_short(prompt, TITLE_CHARS) if prompt else None),
        instructions=orjson.dumps(last.get("instructions") or []).decode(),
        started_ms=started,
        ended_ms=ended,
        updated_ms=max((event.ts_ms for event in held.events if event.ts_ms is not None), default=None),
        outcome=UNKNOWN,
        **held.money.columns(),
        wall_clock_ms=ended - started if started is not None and ended is not None else None,
        turns=sum(event.base_kind == USER_MSG for event in held.counted),
        retries=sum(held.marks.is_retry(event) for event in held.counted),
        message_count=sum(event.base_kind in _MESSAGES for event in held.events),
        event_count=len(held.events),
        task_ref=_task_ref(rules, last.get("git_branch"), held.events, prompt),
        content_hash=content_hash(held.events),
        spawn_call_id=first.get("spawn_call_id"),
        schema_version=SCHEMA_VERSION,
        discovered_ms=held.stream.discovered_ms,
        ingested_ms=now_ms(),
        metadata=orjson.dumps(last["metadata"]).decode(),
    )


def _session_class(facts: _Facts, parent: str | None) -> str:
    """As told; but what a call spawned did its work, however little it wrote."""
    told = facts.last.get("session_class") or (SUB_AGENT if parent else HUMAN)
    return SUB_AGENT if told == WARM_UP and facts.first.get("spawn_call_id") else told


def content_hash(events: Iterable[EventMark]) -> str:
    """The same for the same events, whatever order and size of pieces they were read in."""
    digest = blake2b(digest_size=16)
    for pair in sorted(event.event_uid + event.payload_hash for event in events):
        digest.update(pair)
    return digest.hexdigest()


def _first_prompt(events: list[EventMark]) -> str | None:
    """What the session was asked first; where nothing was, the command it was begun with."""
    requests = (event.summary for event in events if event.base_kind == USER_MSG and event.summary)
    commands = (event.summary for event in events if event.base_kind == LIFECYCLE and event.summary.startswith("/"))
    return next(requests, None) or next(commands, None)


def _model(own: list[EventMark]) -> str | None:
    return next((event.model for event in reversed(own) if event.model and not event.model.startswith("<")), None)


def _task_ref(rules: AccountRules, branch: str | None, events: list[EventMark], prompt: str | None) -> str | None:
    """The first match in the branch, then in a commit message the session wrote, then in the first prompt."""
    commits = (event.summary for event in events if event.tool and "git commit" in event.summary)
    for text in (branch, *commits, prompt):
        for pattern in rules.task_patterns:
            if text and (match := pattern.search(text)):
                return match[0]
    return None


def _money(store: Store, kinship: Kinship, stream: StreamName, own: list[EventMark]) -> _Money:
    usage = _paid(store, stream.id)
    below: list[UsageMark] = []
    if any(mark.includes_sub_agents for mark in usage):
        below = [mark for child in kinship.spawned(stream) for mark in _paid(store, child)]
    tokens = _Tokens(*(max(0, mine - theirs) for mine, theirs in zip(_tokens(usage), _tokens(below), strict=True)))
    root = kinship.find(stream.agent, kinship.root(stream.agent, stream.native_id))
    if root is not None and root != stream.id and store.streams.cost_totals(root):
        return _Money(tokens, None, False)  # the root's own figure has it already
    told = _told_usd(store, kinship, stream, own)
    return _Money(tokens, told, False) if told is not None else _Money(tokens, *_estimated_usd(usage, below))


def _estimated_usd(usage: list[UsageMark], below: list[UsageMark]) -> tuple[float | None, bool]:
    """(money, whether any of it is estimated) of a session's responses, without those of its sub-agents."""
    usd, is_estimate = _usd_of(usage)
    taken, is_taken_estimate = _usd_of(below)
    if usd is None or taken is None:
        return usd, is_estimate
    return max(0.0, round(usd - taken, 9)), is_estimate or is_taken_estimate


def _paid(store: Store, stream: int) -> list[UsageMark]:
    return [mark for mark in store.streams.usage(stream) if not mark.is_copy]


def _tokens(usage: list[UsageMark]) -> _Tokens:
    return _Tokens(*(sum(map(attrgetter(name), usage)) for name in _Tokens._fields))


def _told_usd(store: Store, kinship: Kinship, stream: StreamName, own: list[EventMark]) -> float | None:
    """The agent's running totals, less what they had reached in the session this one was forked from."""
    totals = store.streams.cost_totals(stream.id)
    if not totals:
        return None
    highest: dict[str, float] = {}
    for total in totals:
        highest[total.ledger] = max(total.usd, highest.get(total.ledger, 0.0))
    begun = min((event.ts_ms for event in own if event.ts_ms is not None), default=0)
    taken: dict[str, float] = {}
    for original in kinship.originals(stream):
        for total in store.streams.cost_totals(original):
            if total.ts_ms is not None and total.ts_ms <= begun:
                taken[total.ledger] = max(total.usd, taken.get(total.ledger, 0.0))
    return round(sum(usd - min(usd, taken.get(ledger, 0.0)) for ledger, usd in highest.items()), 9)


def _usd_of(usage: list[UsageMark]) -> tuple[float | None, bool]:
    """(money, whether any of it is estimated); None when no response has a known price."""
    prices = [mark.usd if mark.usd is not None else _estimate(mark) for mark in usage]
    known = [price for price in prices if price is not None]
    if not known:
        return None, False
    return round(sum(known), 9), any(mark.usd is None for mark in usage)


def _estimate(mark: UsageMark) -> float | None:
    return estimate_usd(
        mark.model,
        mark.ts_ms,
        input_tokens=mark.input_tokens,
        output_tokens=mark.output_tokens,
        cache_read_tokens=mark.cache_read_tokens,
        cache_write_tokens=mark.cache_write_tokens,
    )
