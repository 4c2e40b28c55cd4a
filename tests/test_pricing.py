"""What tokens cost by the price list."""

from typing import Any

import pytest

from recollect.sessions.pricing import estimate_usd
from tests.builders import BEGIN_MS, KNOWN_MODEL


def _estimate(model: str | None = KNOWN_MODEL, *, ts_ms: int | None = BEGIN_MS, **tokens: Any) -> float | None:
    counts = dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), 0)
    return estimate_usd(model, ts_ms, **(counts | tokens))


@pytest.mark.parametrize(
    ("sort", "dollars_per_million"),
    [("input_tokens", 3.0), ("output_tokens", 15.0), ("cache_read_tokens", 0.3), ("cache_write_tokens", 3.75)],
)
def test_each_sort_of_token_has_its_own_price(sort: str, dollars_per_million: float) -> None:
    assert _estimate(KNOWN_MODEL, **{sort: 10_000}) == pytest.approx(dollars_per_million / 100)


def test_sorts_of_tokens_add_up() -> None:
    parts = [_estimate(input_tokens=700), _estimate(output_tokens=90), _estimate(cache_read_tokens=5000)]

    whole = _estimate(input_tokens=700, output_tokens=90, cache_read_tokens=5000)

    assert whole == pytest.approx(sum(part or 0 for part in parts))


def test_a_long_context_is_charged_at_its_higher_price() -> None:
    short, long = _estimate(input_tokens=100_000), _estimate(input_tokens=300_000)

    assert short is not None
    assert long is not None
    assert long >= 3 * short


def test_no_tokens_cost_nothing() -> None:
    assert _estimate() == 0


@pytest.mark.parametrize("model", [None, "", "nobody-knows-it-1", "<synthetic>"])
def test_an_unknown_model_has_no_price(model: str | None) -> None:
    assert _estimate(model, output_tokens=1000) is None


@pytest.mark.parametrize("tokens", [1_000, 500_000])
def test_a_response_without_a_time_has_todays_price(tokens: int) -> None:
    assert _estimate(ts_ms=None, input_tokens=tokens) is not None
