"""Which exchanges become episodes, which facts are pushed as they are, and what a model will take for it.

The budget of tokens holds whatever happens: what a call may cost at most is on the disk before it is made.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from statistics import mean

from recollect.digest import Exchange, ExchangeRules, estimate_tokens, excerpt
from recollect.knowledge.asking import fact_of, fact_of_note, with_ends
from recollect.knowledge.records import Fact
from recollect.knowledge.workflows import follow_facts
from recollect.model.clock import as_datetime
from recollect.model.schema import Session
from recollect.store import SessionFilter, Store, note_tokens, read_tokens

# What was said, what was done in a line each, and what failed; reasoning would cost as much again and tell little more.
RULES = ExchangeRules(keep_reasoning=False, max_result_chars=0, max_error_chars=200)
_TELLING = ("Agent: ", "Action: ", "User ran: ", "User decided: ")
_BODY_CHARS = 6_000  # of a longer exchange the beginning and the end
_QUIET = timedelta(hours=1)  # after which nothing is added to a session's last exchange
_RATE_DAYS = 30
# Measured (docs/graphiti.md): the instructions and schemas of all calls, and how often a body is part of one.
_FIXED_TOKENS, _TIMES_READ = 10_500, 4.0
_OUTPUT_SHARE = 0.1  # of the tokens
_LATEST = 1_000  # exchanges that workflows are found in


@dataclass(frozen=True, slots=True)
class Episode:
    """An exchange as it is given to Graphiti."""

    session_uid: str
    group: str
    saga: str
    name: str
    at: datetime
    description: str
    body: str

    @property
    def forecast_tokens(self) -> int:
        return int(_FIXED_TOKENS + _TIMES_READ * estimate_tokens(self.body))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the exchanges that are not in the graph yet will take, and what a day and a month of work take.

    All of it is an estimate in tokens; a day is a thirtieth of what was exchanged in the last 30 days. Money is at list
    prices; None if the price of the model is not known.
    """

    exchanges: int
    sessions: int
    tokens: int
    tokens_per_exchange: int
    tokens_per_session: int
    tokens_per_day: int
    tokens_per_month: int
    by_session: dict[str, int]
    usd: float | None = None
    usd_per_month: float | None = None


def saga_name(native_session_id: str) -> str:
    return f"session-{native_session_id}"


def iter_episodes(session: Session, exchanges: Sequence[Exchange], now: datetime) -> Iterator[Episode]:
    """The exchanges of a session that are complete and its own: no copies, nothing that was rewound.

    One in which only the model's service failed is none; a line that comes several times in a row is there once.
    """
    ended = as_datetime(session.ended_at)
    is_quiet = ended is None or now - ended > _QUIET
    of_repo = f", repository {session.repo}" if session.repo else ""
    on_branch = f", branch {session.git_branch}" if session.git_branch else ""
    description = f"coding session with the agent {session.agent}{of_repo}{on_branch}"
    whole = {number: list(parts) for number, parts in groupby(exchanges, lambda exchange: exchange.number)}
    saga = saga_name(session.native_session_id)
    for number, parts in whole.items():
        at = as_datetime(parts[0].started_at or session.started_at)
        is_complete = is_quiet or number != max(whole)
        if at and is_complete and not parts[0].is_copy and not parts[0].is_abandoned:
            lines = [line for line, _ in groupby("\n".join(part.body for part in parts).split("\n"))]
            has_failed_only = "Error: " in "\n".join(lines) and not any(line.startswith(_TELLING) for line in lines)
            body = excerpt("\n".join(lines), _BODY_CHARS)
            if not has_failed_only:
                name = f"{saga}-{number}"
                yield Episode(session.session_uid, session.group, saga, name, at, description, body)


def make_forecast(
    waiting: Sequence[Episode], known: Iterable[Episode], price: Callable[[int, int], float | None] | None = None
) -> Forecast:
    """What `waiting` will take; `known` are all, pushed or not. `price` is of tokens of input and of output."""
    by_session: dict[str, int] = {}
    for episode in waiting:
        by_session[episode.session_uid] = by_session.get(episode.session_uid, 0) + episode.forecast_tokens
    since = datetime.now(UTC) - timedelta(days=_RATE_DAYS)
    month = sum(episode.forecast_tokens for episode in known if episode.at >= since)
    total = sum(by_session.values())
    return Forecast(
        exchanges=len(waiting),
        sessions=len(by_session),
        tokens=total,
        tokens_per_exchange=total // len(waiting) if waiting else 0,
        tokens_per_session=int(mean(by_session.values())) if by_session else 0,
        tokens_per_day=month // _RATE_DAYS,
        tokens_per_month=month,
        by_session=by_session,
        usd=_usd(total, price),
        usd_per_month=_usd(month, price),
    )


def _usd(tokens: int, price: Callable[[int, int], float | None] | None) -> float | None:
    output = int(_OUTPUT_SHARE * tokens)
    return price(tokens - output, output) if price else None


def facts_by_group(store: Store) -> dict[str, list[Fact]]:
    """All facts that nobody rejected, in time, and what follows what in workflows; of each group by its own evidence.

    What several sessions say alike is one fact with the evidence of all.
    """
    groups: dict[str, list[Fact]] = defaultdict(list)
    for stored in store.facts.select():
        groups[stored.group].append(fact_of(stored))
    for note, verdict in store.facts.notes():
        if verdict != "rejected":
            groups[note.group_name].append(fact_of_note(note, verdict))
    merged_groups = {}
    for group, facts in groups.items():
        exchanges = store.facts.exchanges(SessionFilter(chosen=(("group", (group,)),)), _LATEST)
        merged_groups[group] = merged([*with_ends(facts), *follow_facts(exchanges)])
    return merged_groups


def merged(facts: Iterable[Fact]) -> list[Fact]:
    """Facts, each once that says the same of the same two things: the first, with the evidence of all."""
    same: dict[Hashable, list[Fact]] = defaultdict(list)
    for fact in facts:
        ends = (fact.subject_kind, fact.subject, fact.predicate, fact.object_kind, fact.object)
        same[ends, fact.repo, fact.invalid_at].append(fact)
    kept = {other.fact_uid: said[0].fact_uid for said in same.values() for other in said}
    return [
        replace(
            said[0],
            confidence=max(fact.confidence for fact in said),
            superseded_by=kept.get(said[0].superseded_by or "", said[0].superseded_by),
            evidence=tuple(dict.fromkeys(shown for fact in said for shown in fact.evidence)),
        )
        for said in same.values()
    ]


class BudgetReached(Exception):
    """The next call might cost more than is left."""


class TokenMeter:
    """Counts the tokens of a push. Without a `budget`, what today's other pushes left of `tokens_per_day`."""

    def __init__(self, folder: Path, tokens_per_day: int, budget: int | None = None) -> None:
        self._folder = folder
        self._days = read_tokens(folder)
        self._day = datetime.now(UTC).date().isoformat()
        self._before = self._days.get(self._day, 0)
        self._reserved = 0
        self.budget = max(0, tokens_per_day - self._before) if budget is None else budget
        self.calls = self.input_tokens = self.output_tokens = self.unaccounted_tokens = 0
        self.is_spent = False

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.unaccounted_tokens

    @property
    def today(self) -> int:
        return self._before + self.tokens

    @property
    def this_month(self) -> int:
        earlier = sum(tokens for day, tokens in self._days.items() if day[:7] == self._day[:7] and day != self._day)
        return earlier + self.today

    def reserve(self, most: int) -> None:
        """Set aside what a call costs at most. Raises BudgetReached, from then on for every call of this push."""
        if self.is_spent or self.tokens + self._reserved + most > self.budget:
            self.is_spent = True
            raise BudgetReached("The next call might exceed the token budget")
        self._reserved += most
        self._note()

    def settle(self, most: int, usage: Mapping[str, int] | None) -> None:
        """Count what a call did cost: nothing if it was refused (`usage` is empty), all of it if nobody says."""
        self._reserved -= most
        if usage is None:
            self.unaccounted_tokens += most
        else:
            self.input_tokens += usage.get("prompt_tokens", 0)
            self.output_tokens += usage.get("completion_tokens", 0)
        self.calls += 1
        self._note()

    def _note(self) -> None:
        note_tokens(self._folder, self._days | {self._day: self.today + self._reserved})
