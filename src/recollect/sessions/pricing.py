"""What sessions cost: as the agent says, else tokens times the price list, which is always marked as an estimate.

Each request is priced by itself, at the price of its day and the tier of its own context.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from recollect.store import Response

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice
from collections.abc import Iterable, Sequence

from recollect.model.kinds import SessionKey
from recollect.sessions.relations import Relations
from recollect.store import CostTotalRow, Store, StoredSession

# (input tokens above which it holds, USD per million tokens), ascending: crossing a tier prices all tokens by it.
Rate = tuple[tuple[int, float], ...]

_DAY_MS = 86_400_000
_MILLION = 1_000_000
_FREE: Rate = ((0, 0.0),)
# What the list lacks, by its own name of the model after the family: tiers on top of its prices. Sonnet 4 takes a
# context of a million tokens at the price that the list has for Sonnet 4.5.
_MISSING_TIERS: dict[str, dict[str, tuple[int, float]]] = {
    "sonnet-4-0": {
        "input_mtok": (200_000, 6.0),
        "output_mtok": (200_000, 22.5),
        "cache_read_mtok": (200_000, 0.6),
        "cache_write_mtok": (200_000, 7.5),
        "cache_write_1h_mtok": (200_000, 12.0),
    }
}


def price_of(response: Response) -> float | None:
    """What a response cost, in US dollars; None if the price list does not know its model.

    A turn that its log sums up is priced as that many equal requests.
    """
    model, ts_ms = response.model, response.ts_ms
    rates = None if model is None else _rates(model, None if ts_ms is None else ts_ms // _DAY_MS)
    if rates is None:
        return None
    fresh, written = response.input_tokens, response.cache_write_tokens
    context = (fresh + response.cache_read_tokens + written) / response.requests
    of_fresh, of_read, of_written, of_written_1h, of_output = rates.at(context)
    usd = fresh * of_fresh + response.cache_read_tokens * of_read + response.output_tokens * of_output
    usd += (written - response.cache_write_1h_tokens) * of_written + response.cache_write_1h_tokens * of_written_1h
    return usd / _MILLION + response.web_searches * rates.search


class _Rates(NamedTuple):
    """Rates of fresh input, cache reads, cache writes for minutes and for an hour, and output; and of a web search.

    `tiers` begin with the highest: the tokens of input above which it holds, and the rates.
    """

    tiers: tuple[tuple[int, tuple[float, ...]], ...]
    search: float

    def at(self, context: float) -> tuple[float, ...]:
        """The rates for a request with so many tokens of input."""
        for start, rates in self.tiers:
            if context > start:
                return rates
        return self.tiers[-1][1]


@cache
def _rates(model: str, day: int | None) -> _Rates | None:
    """The rates of a day (days since 1970; None is today)."""
    info = _model(model)
    if info is None:
        return None
    noon = datetime.now(UTC) if day is None else datetime(1970, 1, 1, 12, tzinfo=UTC) + timedelta(days=day)
    prices, gaps = info.get_prices(noon), _MISSING_TIERS.get(info.id.partition("-")[2], {})
    fresh = _rate(prices, gaps, "input_mtok") or _FREE
    # What has no price of its own is billed as the input it is part of.
    read, written = (_rate(prices, gaps, name) or fresh for name in ("cache_read_mtok", "cache_write_mtok"))
    written_1h = _rate(prices, gaps, "cache_write_1h_mtok") or written
    search: Any = prices.web_searches_kcount
    tiers = _tiers(fresh, read, written, written_1h, _rate(prices, gaps, "output_mtok") or _FREE)
    return _Rates(tiers, float(search or 0) / 1000)


def _tiers(*rates: Rate) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """Rates that each have tiers of their own as tiers of all rates, the highest first."""
    starts = sorted({start for rate in rates for start, _ in rate}, reverse=True)
    return tuple(
        (tier, tuple([price for start, price in rate if start <= tier][-1] for rate in rates)) for tier in starts
    )


def _rate(prices: "ModelPrice", gaps: dict[str, tuple[int, float]], name: str) -> Rate | None:
    price: Any = getattr(prices, name)
    if price is None:
        return None
    tiers = [(tier.start, float(tier.price)) for tier in getattr(price, "tiers", ())]
    return ((0, float(getattr(price, "base", price))), *(tiers or ([gaps[name]] if name in gaps else ())))


@cache
def _model(model: str) -> "ModelInfo | None":
    # Importing the list takes a quarter of a second, so only a sweep that needs it pays.
    from genai_prices import Usage, calc_price

    try:
        return calc_price(Usage(input_tokens=1), model_ref=model).model
    except LookupError:
        return None


TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_FIRST = Response._fields.index(TOKENS[0])
MINUTE_MS = 60_000
PICO = 10**12
_ROUNDING = 1e-6
# Money in doubt: partly from the price list; of some requests the price is not known. A session's row has the number.
EXACT, ESTIMATE, INCOMPLETE = range(3)


class Used(NamedTuple):
    """What responses of one model used in one minute. Whole numbers, so that any order of adding gives the same."""

    minute: int | None
    model: str | None
    responses: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    priced: int  # responses whose price is known
    picodollars: int  # of these
    unstated: int  # responses of which the agent does not say what they cost
    with_sub_agents: int  # responses whose figures include those of sub-agents


def add_up(responses: Iterable[Response], before: Iterable[Used] = ()) -> list[Used]:
    """What responses used by minute and model, together with what was used before."""
    sums: dict[tuple[int | None, str | None], tuple[int, ...]] = {used[:2]: used[2:] for used in before}
    for response in responses:
        key = None if response.ts_ms is None else response.ts_ms // MINUTE_MS, response.model
        new, old = _figures(response), sums.get(key)
        sums[key] = new if old is None else tuple(map(int.__add__, old, new))
    used = (Used(*key, *figures) for key, figures in sums.items())
    return sorted(used, key=lambda one: (one.minute is not None, one.minute or 0, one.model or ""))


@lru_cache(maxsize=10_000)  # a session is added up for its row, and again for its digest
def _figures(response: Response) -> tuple[int, ...]:
    usd = response.usd if response.usd is not None else price_of(response)
    tokens: tuple[Any, ...] = response[_FIRST : _FIRST + len(TOKENS)]
    is_priced, is_unstated = int(usd is not None), int(response.usd is None)
    return 1, *tokens, is_priced, round((usd or 0.0) * PICO), is_unstated, int(bool(response.includes_sub_agents))


def tokens_of(used: Sequence[Used]) -> list[int]:
    """Tokens of each sort."""
    return [sum(getattr(one, name) for one in used) for name in TOKENS]


def usd_of(used: Sequence[Used]) -> tuple[float | None, int]:
    """Money, and in what doubt it is; None when no response has a known price."""
    is_incomplete = any(one.priced < one.responses and any(tokens_of([one])) for one in used)
    doubt = INCOMPLETE if is_incomplete else ESTIMATE if any(one.priced and one.unstated for one in used) else EXACT
    if not any(one.priced for one in used):
        return None, doubt
    return round(sum(one.picodollars for one in used) / PICO, 9), doubt


def main_model(used: Sequence[Used]) -> str | None:
    """The model that used the most tokens."""
    sums: Counter[str] = Counter()
    for one in used:
        sums[one.model or ""] += sum(tokens_of([one]))
    return max(sums, key=lambda model: (sums[model], model), default=None) or None


class Payments:
    """What other sessions' figures contribute to the cost of these."""

    def __init__(
        self, store: Store, relations: Relations, sessions: Sequence[tuple[StoredSession, Sequence[Used]]]
    ) -> None:
        self._relations = relations
        below = {key for session, used in sessions for key in self._included(session, used)}
        # What was kept of closed parts is a sum of hours, and a total may begin within one.
        summed = {session.key for session, _ in sessions if session.totals and session.kept}
        self._responses = store.steps.responses(below | summed) if below or summed else {}
        originals = (relations.originals(session.key) for session, _ in sessions if session.totals)
        self._totals = store.steps.totals(set().union(*originals))

    def _included(self, session: StoredSession, used: Sequence[Used]) -> set[SessionKey]:
        """The sub-agents whose money is part of what the agent says of this session."""
        if session.totals:
            return self._relations.all_spawned(session.key)
        if any(one.with_sub_agents for one in used):
            return self._relations.spawned(session.key)  # whose own figures include those below them
        return set()

    def money(self, session: StoredSession, used: Sequence[Used], started_ms: int | None) -> dict[str, Any]:
        """Return the columns of a session that used this in all, without its sub-agents; it began its own work then."""
        included = sorted(self._included(session, used))
        below = [response for key in included for response in self._responses.get(key, ())]
        (usd, doubt), tokens = usd_of(used), tokens_of(used)
        if session.totals:
            usd, doubt = self._usd_of_totals(session, below, started_ms or 0)
        else:
            of_sub_agents = add_up(below)
            tokens = [max(0, mine - theirs) for mine, theirs in zip(tokens, tokens_of(of_sub_agents), strict=True)]
            if usd is not None:
                taken, taken_doubt = usd_of(of_sub_agents)
                usd, doubt = max(0.0, round(usd - (taken or 0.0), 9)), max(doubt, min(taken_doubt, ESTIMATE))
        return {**dict(zip(TOKENS, tokens, strict=True)), "usd": usd, "usd_is_estimate": doubt}

    def _usd_of_totals(self, session: StoredSession, below: Sequence[Response], begun_ms: int) -> tuple[float, int]:
        """What the agent's totals say, and the list of what they leave out; and in what doubt that is.

        A total begins at 0 after an older version or a run that was killed, which wrote none, and no total has what
        follows the last. A run that was killed between two shows only as requests that cost more than they differ by.
        """
        ledgers = _ledgers(session.totals)
        own = self._responses.get(session.key, ()) if session.kept else session.responses
        left_out = [response for response in own if not any(ledger.covers(response) for ledger in ledgers)]
        inside = [response for response in below if any(ledger.covers(response) for ledger in ledgers)]
        (rest, doubt), (taken, taken_doubt) = usd_of(add_up(left_out)), usd_of(add_up(inside))
        killed = sum(ledger.missing([*own, *inside]) for ledger in ledgers)
        usd = max(0.0, self._stated_usd(session, begun_ms) + killed - (taken or 0.0)) + (rest or 0.0)
        return round(usd, 9), max(doubt, min(taken_doubt, ESTIMATE), ESTIMATE if killed else EXACT)

    def _stated_usd(self, session: StoredSession, begun_ms: int) -> float:
        """The agent's running totals, less what they had reached in the session this one was forked from."""
        originals = self._relations.originals(session.key)
        before = (total for key in originals for total in self._totals.get(key, ()))
        taken = _highest(total for total in before if total.ts_ms is not None and total.ts_ms <= begun_ms)
        highest = _highest(session.totals)
        return round(sum(usd - min(usd, taken.get(ledger, 0.0)) for ledger, usd in highest.items()), 9)


class _Ledger(NamedTuple):
    """A running total: when it began to count, and what it was first and last."""

    since_ms: float
    first_ms: float
    first_usd: float
    last_ms: float
    last_usd: float

    def covers(self, response: Response) -> bool:
        """Whether a response was made while the total ran; one without a time was."""
        return response.ts_ms is None or self.since_ms <= response.ts_ms <= self.last_ms

    def missing(self, responses: Iterable[Response]) -> float:
        """What the responses between the first total and the last cost more than these differ by."""
        between = (response for response in responses if self.first_ms < (response.ts_ms or 0) <= self.last_ms)
        missing = (usd_of(add_up(between))[0] or 0.0) - (self.last_usd - self.first_usd)
        return missing if missing > _ROUNDING else 0.0


def _ledgers(totals: Iterable[CostTotalRow]) -> list[_Ledger]:
    """The running totals of a session, from its totals with the least first."""
    ledgers: dict[str, _Ledger] = {}
    for name, usd, ts_ms in totals:
        since_ms, at_ms = int(name) if name.isdecimal() else 0, inf if ts_ms is None else ts_ms
        begun = ledgers.get(name, _Ledger(since_ms, at_ms, usd, at_ms, usd))
        ledgers[name] = begun._replace(last_ms=max(begun.last_ms, at_ms), last_usd=usd)
    return list(ledgers.values())


def _highest(totals: Iterable[CostTotalRow]) -> dict[str, float]:
    """The highest total of each ledger."""
    highest: dict[str, float] = {}
    for total in totals:
        highest[total.ledger] = max(total.usd, highest.get(total.ledger, 0.0))
    return highest
