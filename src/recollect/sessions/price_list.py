"""What a request costs by the price list: each by itself, at the price of its day and the tier of its own context."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from recollect.store import Response

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

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
    of_fresh, of_read, of_written, of_written_1h, of_output = rates.flat or rates.at(context)
    usd = fresh * of_fresh + response.cache_read_tokens * of_read + response.output_tokens * of_output
    usd += (written - response.cache_write_1h_tokens) * of_written + response.cache_write_1h_tokens * of_written_1h
    return usd / _MILLION + response.web_searches * rates.search


class _Rates(NamedTuple):
    """Rates of fresh input, cache reads, cache writes for minutes and for an hour, and output; and of a web search.

    `flat` are the rates if none of them has tiers, as for most models.
    """

    tiered: tuple[Rate, ...]
    flat: tuple[float, ...] | None
    search: float

    def at(self, context: float) -> tuple[float, ...]:
        """The rates for a request with so many tokens of input."""
        return tuple(next(price for start, price in reversed(rate) if context > start or not start) for rate in self[0])


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
    tiered = (fresh, read, written, written_1h, _rate(prices, gaps, "output_mtok") or _FREE)
    is_flat = all(len(rate) == 1 for rate in tiered)
    search: Any = prices.web_searches_kcount
    return _Rates(tiered, tuple(rate[0][1] for rate in tiered) if is_flat else None, float(search or 0) / 1000)


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
