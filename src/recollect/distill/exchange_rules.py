"""The settings of `[exchanges]`, apart from what cuts exchanges: every command that reads the settings loads them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExchangeRules:
    """The settings of `[exchanges]`."""

    max_tokens: int = 1000
    max_result_chars: int = 200
    max_error_chars: int = 500
    keep_reasoning: bool = True
    keep_tool_calls: bool = True
