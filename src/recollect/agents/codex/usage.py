"""Tokens of a Codex rollout: by response, or as running totals."""

from typing import Any

import msgspec

from recollect.agentkit.protocol import Usage
from recollect.agentkit.values import as_mapping, positive_int
from recollect.agents.codex.rollout import Rollout, bounded

_FIGURES = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)


class UsageRecord(msgspec.Struct, gc=False):
    response_id: Any = None
    usage: Any = None


class TokenCount(msgspec.Struct, gc=False):
    info: Any = None


def add_record(rollout: Rollout, record: UsageRecord) -> None:
    _add(rollout, _figures(record.usage), bounded(record.response_id) or rollout.here)


def _figures(usage: Any) -> list[int]:
    get = as_mapping(usage).get
    return [positive_int(get(name)) for name in _FIGURES]


def _add(rollout: Rollout, figures: list[int], usage_id: str) -> None:
    """Tokens of one response; the log counts cached input as input, the schema does not."""
    if not any(figures):
        return
    state = rollout.state
    sent, cached, written, output, reasoning = figures
    sent = max(0, sent - cached - written)
    model, provider = state.model, state.provider
    rollout.out.append(
        Usage(state.thread, usage_id, rollout.ts_ms, model, provider, sent, output, cached, written, reasoning)
    )


def add_totals(rollout: Rollout, record: TokenCount) -> None:
    """Tokens since the last total. The first total, and one that is smaller than the last, is a start of its own."""
    state, info = rollout.state, as_mapping(record.info)
    totals = as_mapping(info.get("total_token_usage"))
    if not totals:
        return
    now = _figures(totals)
    last, state.totals = state.totals, now
    if last == now:
        return
    if last and all(new >= old for new, old in zip(now, last, strict=True)):
        spent = [new - old for new, old in zip(now, last, strict=True)]
    elif response := as_mapping(info.get("last_token_usage")):
        spent = _figures(response)
    else:
        spent = now
    _add(rollout, spent, f"{state.origin}:total:{now[0]}/{now[3]}")
