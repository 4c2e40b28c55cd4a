"""Which exchanges become episodes, and what a model will take for them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from statistics import mean

from recollect.clock import as_datetime
from recollect.distill import Exchange, ExchangeRules, estimate_tokens, excerpt
from recollect.schema import Session

# What was said and what failed; calls and reasoning would cost several times as much and tell little more.
RULES = ExchangeRules(keep_reasoning=False, keep_tool_calls=False)
_BODY_CHARS = 6_000  # of a longer exchange the beginning and the end
_QUIET = timedelta(hours=1)  # after which nothing is added to a session's last exchange
_RATE_DAYS = 30
# Measured (docs/graphiti.md): the instructions and schemas of all calls, and how often a body is part of one.
_FIXED_TOKENS, _TIMES_READ = 10_500, 4.0


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

    All of it is an estimate in tokens; a day is a thirtieth of what was exchanged in the last 30 days.
    """

    exchanges: int
    sessions: int
    tokens: int
    tokens_per_exchange: int
    tokens_per_session: int
    tokens_per_day: int
    tokens_per_month: int
    by_session: dict[str, int]


def saga_name(native_session_id: str) -> str:
    return f"session-{native_session_id}"


def iter_episodes(session: Session, exchanges: Sequence[Exchange], now: datetime) -> Iterator[Episode]:
    """The exchanges of a session that are complete and its own: no copies, nothing that was rewound."""
    ended = as_datetime(session.ended_at)
    is_quiet = ended is None or now - ended > _QUIET
    whole = {number: list(parts) for number, parts in groupby(exchanges, lambda exchange: exchange.number)}
    saga = saga_name(session.native_session_id)
    for number, parts in whole.items():
        at = as_datetime(parts[0].started_at or session.started_at)
        is_complete = is_quiet or number != max(whole)
        if at and is_complete and not parts[0].is_copy and not parts[0].is_abandoned:
            body = excerpt("\n".join(part.body for part in parts), _BODY_CHARS)
            yield Episode(session.session_uid, session.group, saga, f"{saga}-{number}", at, _description(session), body)


def _description(session: Session) -> str:
    of_repo = f", repository {session.repo}" if session.repo else ""
    on_branch = f", branch {session.git_branch}" if session.git_branch else ""
    return f"coding session with the agent {session.agent}{of_repo}{on_branch}"


def make_forecast(waiting: Sequence[Episode], known: Iterable[Episode]) -> Forecast:
    """What `waiting` will take; `known` are all, pushed or not."""
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
    )
