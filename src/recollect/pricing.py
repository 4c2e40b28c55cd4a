"""Money where the agent names none: tokens times the price list, always marked as an estimate."""

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genai_prices import Usage

LONG_CONTEXT_TOKENS = 100_000  # below this no model of the list charges a higher tier


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
    if model is None:
        return None
    counts = (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens)
    if input_tokens + cache_read_tokens + cache_write_tokens > LONG_CONTEXT_TOKENS:
        return _price(model, _day(ts_ms), counts)
    units = _unit_prices(model, _day(ts_ms))
    return None if units is None else sum(count * unit for count, unit in zip(counts, units, strict=True))


def _day(ts_ms: int | None) -> str | None:
    return None if ts_ms is None else f"{datetime.fromtimestamp(ts_ms / 1000, UTC):%Y-%m-%d}"


@cache
def _unit_prices(model: str, day: str | None) -> tuple[float, ...] | None:
    """Price of one token of each sort; the list is asked once per model and day, it takes 0.1 ms a question."""
    probe = 1000
    prices = [_price(model, day, tuple(probe if i == n else 0 for i in range(4))) for n in range(4)]
    return (
        None
        if any(price is None for price in prices)
        else tuple(price / probe for price in prices if price is not None)
    )


def _price(model: str, day: str | None, counts: tuple[int, ...]) -> float | None:
    # Importing the list takes a quarter of a second, so only a sweep that needs it pays.
    from genai_prices import calc_price

    try:
        when = datetime.fromisoformat(f"{day}T12:00:00+00:00") if day else None
        return float(calc_price(_usage(counts), model_ref=model, genai_request_timestamp=when).total_price)
    except LookupError:
        return None


def _usage(counts: tuple[int, ...]) -> "Usage":
    from genai_prices import Usage

    fresh, output, read, written = counts
    return Usage(
        input_tokens=fresh + read + written,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
