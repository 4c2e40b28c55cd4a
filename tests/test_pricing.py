"""What responses cost by the price list."""

from datetime import UTC, datetime
from typing import Any

import pytest

from recollect.sessions.pricing import add_up, main_model, price_of
from recollect.store import Response
from tests.builders import BEGIN_MS, KNOWN_MODEL

SONNET_4 = "claude-sonnet-4-20250514"


def _price(model: str | None = KNOWN_MODEL, *, ts_ms: int | None = BEGIN_MS, **fields: Any) -> float | None:
    return price_of(Response(ts_ms, model, 0, 0, 0, 0, 0)._replace(**fields))


@pytest.mark.parametrize(
    ("sort", "dollars_per_million"),
    [("input_tokens", 3.0), ("output_tokens", 15.0), ("cache_read_tokens", 0.3), ("cache_write_tokens", 3.75)],
)
def test_each_sort_of_token_has_its_own_price(sort: str, dollars_per_million: float) -> None:
    assert _price(**{sort: 10_000}) == pytest.approx(dollars_per_million / 100)


def test_a_cache_write_for_an_hour_costs_twice_the_input() -> None:
    assert _price(cache_write_tokens=10_000, cache_write_1h_tokens=10_000) == pytest.approx(0.06)
    assert _price(cache_write_tokens=10_000, cache_write_1h_tokens=4_000) == pytest.approx(0.024 + 0.0225)


def test_web_searches_are_billed_by_number() -> None:
    assert _price(web_searches=3) == pytest.approx(0.03)


def test_sorts_of_tokens_add_up() -> None:
    parts = [_price(input_tokens=700), _price(output_tokens=90), _price(cache_read_tokens=5000)]

    whole = _price(input_tokens=700, output_tokens=90, cache_read_tokens=5000)

    assert whole == pytest.approx(sum(part or 0 for part in parts))


@pytest.mark.parametrize("model", [KNOWN_MODEL, SONNET_4])
def test_a_long_context_is_charged_at_its_higher_price(model: str) -> None:
    assert _price(model, input_tokens=200_000, output_tokens=1_000) == pytest.approx(0.6 + 0.015)
    assert _price(model, input_tokens=200_001, output_tokens=1_000) == pytest.approx(1.200006 + 0.0225)
    assert _price(model, cache_read_tokens=300_000) == pytest.approx(0.18)
    assert _price(model, cache_write_tokens=300_000, cache_write_1h_tokens=100_000) == pytest.approx(1.5 + 1.2)


def test_a_turn_of_many_requests_has_no_long_context() -> None:
    assert _price(input_tokens=300_000, requests=3) == pytest.approx(0.9)


def test_a_request_has_the_price_of_its_day() -> None:
    before, after = (round(datetime(2026, 3, day, tzinfo=UTC).timestamp() * 1000) for day in (1, 20))

    assert _price("claude-opus-4-6", ts_ms=before, input_tokens=300_000) == pytest.approx(3.0)
    assert _price("claude-opus-4-6", ts_ms=after, input_tokens=300_000) == pytest.approx(1.5)


def test_no_tokens_cost_nothing() -> None:
    assert _price() == 0


@pytest.mark.parametrize("model", [None, "", "nobody-knows-it-1", "<synthetic>"])
def test_an_unknown_model_has_no_price(model: str | None) -> None:
    assert _price(model, output_tokens=1000) is None


@pytest.mark.parametrize("tokens", [1_000, 500_000])
def test_a_response_without_a_time_has_todays_price(tokens: int) -> None:
    assert _price(ts_ms=None, input_tokens=tokens) is not None


def test_the_main_model_used_the_most_tokens() -> None:
    few, many = (Response(BEGIN_MS, model, 0, count, 0, 0, 0) for model, count in ((KNOWN_MODEL, 1), (SONNET_4, 9)))

    assert main_model(add_up([few, many, few])) == SONNET_4
    assert main_model([]) is None
