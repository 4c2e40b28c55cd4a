"""What outlives the raw: exchanges, digest, outcome, signals and activity of a session, made without a model.

Everything here is pure: a session's row, its events and a few payloads in, records out. No agent is known here, only
kinds, roles, statuses, tools and texts, so that all agents are judged alike. `recollect.analysis` reads and stores.
"""

from dataclasses import dataclass

from recollect.model.lazy import lazy_names

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
recollect.digest: shell words
recollect.digest.digest: Part Subject activity_of closed extend join make_part
recollect.digest.exchanges: Exchange cut
recollect.digest.markdown: brief_digest inert inert_lines parse_digest render_digest searchable write_digest
recollect.digest.outcome: asks_back is_work refusal_reason weighed
recollect.digest.texts: estimate_tokens excerpt one_line payload_text sentences shortened word_set
recollect.digest.trace: CALLS PAUSE_MS Payloads SuiteRun Trace read_trace
"""
if TYPE_CHECKING:
    from recollect.digest import shell, words
    from recollect.digest.digest import Part, Subject, activity_of, closed, extend, join, make_part
    from recollect.digest.exchanges import Exchange, cut
    from recollect.digest.markdown import (
        brief_digest,
        inert,
        inert_lines,
        parse_digest,
        render_digest,
        searchable,
        write_digest,
    )
    from recollect.digest.outcome import asks_back, is_work, refusal_reason, weighed
    from recollect.digest.texts import estimate_tokens, excerpt, one_line, payload_text, sentences, shortened, word_set
    from recollect.digest.trace import CALLS, PAUSE_MS, Payloads, SuiteRun, Trace, read_trace

else:
    __getattr__ = lazy_names(__name__, _NAMES)
