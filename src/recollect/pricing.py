"""Money where the agent names none: tokens times the price list, always marked as an estimate."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

# (input tokens from which it holds, USD per million tokens), ascending: crossing a tier prices all tokens by it.
Rate = tuple[tuple[int, float], ...]

_DAY_MS = 86_400_000
_MILLION = 1_000_000


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
    fresh, read, written, output = rates
    context = input_tokens + cache_read_tokens + cache_write_tokens
    usd = input_tokens * _rate_at(fresh, context) + cache_read_tokens * _rate_at(read, context)
    usd += cache_write_tokens * _rate_at(written, context) + output_tokens * _rate_at(output, context)
    return usd / _MILLION


def _rate_at(rate: Rate, context: int) -> float:
    if len(rate) == 1:
        return rate[0][1]
    return next(price for start, price in reversed(rate) if context > start or start == 0)


@cache
def _rates(model: str, day: int | None) -> tuple[Rate, Rate, Rate, Rate] | None:
    """Rates of fresh input, cache reads, cache writes and output on a day (days since 1970; None is today)."""
    info = _model(model)
    if info is None:
        return None
    noon = datetime.now(UTC) if day is None else datetime(1970, 1, 1, 12, tzinfo=UTC) + timedelta(days=day)
    prices = info.get_prices(noon)
    fresh = _rate(prices, "input_mtok") or ((0, 0.0),)
    # What has no price of its own is billed as the input it is part of.
    read, written = (_rate(prices, name) or fresh for name in ("cache_read_mtok", "cache_write_mtok"))
    return fresh, read, written, _rate(prices, "output_mtok") or ((0, 0.0),)


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
