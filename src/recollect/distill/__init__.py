"""What outlives the raw: exchanges, digest, outcome, signals and activity of a session, made without a model.

Everything here is pure: a session's row, its events and a few payloads in, records out. No agent is known here, only
kinds, roles, statuses, tools and texts, so that all agents are judged alike. `recollect.analysis` reads and stores.
"""

from dataclasses import dataclass

from recollect.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes long to load

VERSION = 12  # of what is distilled: digests of another one are made again


@dataclass(frozen=True, slots=True)
class ExchangeRules:
    """The settings of `[exchanges]`."""

    max_tokens: int = 1000
    max_result_chars: int = 200
    max_error_chars: int = 500
    keep_reasoning: bool = True
    keep_tool_calls: bool = True


_NAMES = """
recollect.distill: shell words
recollect.distill.digest: Part Subject activity_of closed extend join make_part
recollect.distill.exchanges: Exchange cut
recollect.distill.markdown: brief_digest inert inert_lines parse_digest render_digest searchable write_digest
recollect.distill.outcome: asks_back is_work refusal_reason weighed
recollect.distill.texts: estimate_tokens excerpt one_line payload_text sentences shortened word_set
recollect.distill.trace: CALLS PAUSE_MS Payloads SuiteRun Trace read_trace
"""
if TYPE_CHECKING:
    from recollect.distill import shell, words
    from recollect.distill.digest import Part, Subject, activity_of, closed, extend, join, make_part
    from recollect.distill.exchanges import Exchange, cut
    from recollect.distill.markdown import (
        brief_digest,
        inert,
        inert_lines,
        parse_digest,
        render_digest,
        searchable,
        write_digest,
    )
    from recollect.distill.outcome import asks_back, is_work, refusal_reason, weighed
    from recollect.distill.texts import estimate_tokens, excerpt, one_line, payload_text, sentences, shortened, word_set
    from recollect.distill.trace import CALLS, PAUSE_MS, Payloads, SuiteRun, Trace, read_trace

else:
    __getattr__ = lazy_names(__name__, _NAMES)
