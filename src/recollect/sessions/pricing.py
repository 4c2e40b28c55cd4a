"""What sessions cost: as the agent says, else tokens times the price list, which is always marked as an estimate."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from recollect.sessions.relations import Relations
from recollect.store import Response, RunningTotal, Step, Store, StoredSession

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

# (input tokens from which it holds, USD per million tokens), ascending: crossing a tier prices all tokens by it.
Rate = tuple[tuple[int, float], ...]

_DAY_MS = 86_400_000
_MILLION = 1_000_000
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_FIRST = Response._fields.index(TOKENS[0])


@dataclass(frozen=True, slots=True)
class Money:
    """What a session used itself."""

    tokens: tuple[int, ...]
    usd: float | None
    is_estimate: bool

    def columns(self) -> dict[str, Any]:
        """As a session's row has them."""
        return {**dict(zip(TOKENS, self.tokens, strict=True)), "usd": self.usd, "usd_is_estimate": self.is_estimate}


class Payments:
    """What must be known of other sessions to tell what some cost."""

    def __init__(self, store: Store, relations: Relations, sessions: Sequence[StoredSession]) -> None:
        self._relations = relations
        including = [session.key for session in sessions if any(one.includes_sub_agents for one in session.responses)]
        below = {child for key in including for child in relations.spawned(key)}
        self._below = store.steps.responses(below) if below else {}
        keys = [session.key for session in sessions]
        others = {relations.root(key) for key in keys}.union(*(relations.originals(key) for key in keys))
        self._totals = store.steps.totals(others)

    def money(self, session: StoredSession, own: Sequence[Step]) -> Money:
        """What a session cost, without its sub-agents; `own` are the events that it did not copy."""
        below: list[Response] = []
        if any(response.includes_sub_agents for response in session.responses):
            children = self._relations.spawned(session.key)
            below = [response for child in sorted(children) for response in self._below.get(child, ())]
        pairs = zip(_tokens(session.responses), _tokens(below), strict=True)
        tokens = tuple(max(0, mine - theirs) for mine, theirs in pairs)
        root = self._relations.root(session.key)
        if root != session.key and root in self._totals:
            return Money(tokens, None, False)  # the root's own figure has it already
        if session.totals:
            return Money(tokens, self._stated_usd(session, own), False)
        return Money(tokens, *_estimated_usd(session.responses, below))

    def _stated_usd(self, session: StoredSession, own: Sequence[Step]) -> float:
        """The agent's running totals, less what they had reached in the session this one was forked from."""
        begun = min((event.ts_ms for event in own if event.ts_ms is not None), default=0)
        originals = self._relations.originals(session.key)
        before = (total for key in originals for total in self._totals.get(key, ()))
        taken = _highest(total for total in before if total.ts_ms is not None and total.ts_ms <= begun)
        highest = _highest(session.totals)
        return round(sum(usd - min(usd, taken.get(ledger, 0.0)) for ledger, usd in highest.items()), 9)


def _highest(totals: Iterable[RunningTotal]) -> dict[str, float]:
    """The highest total of each ledger."""
    highest: dict[str, float] = {}
    for total in totals:
        highest[total.ledger] = max(total.usd, highest.get(total.ledger, 0.0))
    return highest


def _tokens(responses: Sequence[Response]) -> list[int]:
    """Their tokens of each sort."""
    columns = list(zip(*responses, strict=True))[_FIRST : _FIRST + len(TOKENS)]
    return [sum(column) for column in columns] or [0] * len(TOKENS)


def _estimated_usd(responses: Sequence[Response], below: Sequence[Response]) -> tuple[float | None, bool]:
    """(money, whether any of it is estimated) of a session's responses, without those of its sub-agents."""
    usd, is_estimate = _usd_of(responses)
    taken, is_taken_estimate = _usd_of(below)
    if usd is None or taken is None:
        return usd, is_estimate
    return max(0.0, round(usd - taken, 9)), is_estimate or is_taken_estimate


def _usd_of(responses: Sequence[Response]) -> tuple[float | None, bool]:
    """(money, whether any of it is estimated); None when no response has a known price."""
    prices = [response.usd if response.usd is not None else price_of(response) for response in responses]
    known = [price for price in prices if price is not None]
    if not known:
        return None, False
    return round(sum(known), 9), any(response.usd is None for response in responses)


def price_of(response: Response) -> float | None:
    """What a response cost by the price list, or None if that does not know its model."""
    return estimate_usd(
        response.model,
        response.ts_ms,
        input_tokens=response.input_tokens,
        output_tokens=response.output_tokens,
        cache_read_tokens=response.cache_read_tokens,
        cache_write_tokens=response.cache_write_tokens,
    )


def estimate_usd(
    model: str | None,
    ts_ms: int | None,
    *,
    input_tokens: int,
    output_tokens: int,
    cache_read_tokens: int,
    cache_write_tokens: int,
) -> float | None:
    """What one response cost, or None if the price list does not know its model."""
    rates = None if model is None else _rates(model, None if ts_ms is None else ts_ms // _DAY_MS)
    if rates is None:
        return None
    fresh, read, written, output = rates.flat or rates.at(input_tokens + cache_read_tokens + cache_write_tokens)
    usd = input_tokens * fresh + cache_read_tokens * read
    usd += cache_write_tokens * written + output_tokens * output
    return usd / _MILLION


class _Rates(NamedTuple):
    """Rates of fresh input, cache reads, cache writes and output; `flat` if none of them has tiers, as for most."""

    rates: tuple[Rate, Rate, Rate, Rate]
    flat: tuple[float, ...] | None

    def at(self, context: int) -> Iterator[float]:
        """The rates for a response with so many tokens of input."""
        return (next(price for start, price in reversed(rate) if context > start or not start) for rate in self.rates)


@cache
def _rates(model: str, day: int | None) -> _Rates | None:
    """Rates of fresh input, cache reads, cache writes and output on a day (days since 1970; None is today)."""
    info = _model(model)
    if info is None:
        return None
    noon = datetime.now(UTC) if day is None else datetime(1970, 1, 1, 12, tzinfo=UTC) + timedelta(days=day)
    prices = info.get_prices(noon)
    fresh = _rate(prices, "input_mtok") or ((0, 0.0),)
    # What has no price of its own is billed as the input it is part of.
    read, written = (_rate(prices, name) or fresh for name in ("cache_read_mtok", "cache_write_mtok"))
    rates = (fresh, read, written, _rate(prices, "output_mtok") or ((0, 0.0),))
    return _Rates(rates, tuple(rate[0][1] for rate in rates) if all(len(rate) == 1 for rate in rates) else None)


def _rate(prices: "ModelPrice", name: str) -> Rate | None:
    price: Any = getattr(prices, name)
    if price is None:
        return None
    tiers = [(tier.start, float(tier.price)) for tier in getattr(price, "tiers", ())]
    return ((0, float(getattr(price, "base", price))), *tiers)


@cache
def _model(model: str) -> "ModelInfo | None":
    # Importing the list takes a quarter of a second, so only a sweep that needs it pays.
    from genai_prices import Usage, calc_price

    try:
        return calc_price(Usage(input_tokens=1), model_ref=model).model
    except LookupError:
        return None
