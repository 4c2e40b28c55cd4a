"""What outlives the raw: exchanges, digest, outcome, signals and activity of a session, made without a model.

Everything here is pure: a session's row, its events and a few payloads in, records out. No agent is known here, only
kinds, roles, statuses, tools and texts, so that all agents are judged alike. `recollect.analysis` reads and stores.
"""

from dataclasses import dataclass

VERSION = 8  # of what is distilled: digests of another one are made again


@dataclass(frozen=True, slots=True)
class ExchangeRules:
    """The settings of `[exchanges]`."""

    max_tokens: int = 1000
    max_result_chars: int = 200
    max_error_chars: int = 500
    keep_reasoning: bool = True
    keep_tool_calls: bool = True
