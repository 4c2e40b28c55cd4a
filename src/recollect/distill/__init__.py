"""What outlives the raw: exchanges, digest, outcome, signals and activity of a session, made without a model.

Everything here is pure: a session's row, its events and a few payloads in, records out. No agent is known here, only
kinds, roles, statuses, tools and texts, so that all agents are judged alike. `recollect.analysis` reads and stores.
"""

from recollect.lazy import lazy_names

VERSION = 12  # of what is distilled: digests of another one are made again

_NAMES = """
recollect.distill: shell words
recollect.distill.digest: Subject extend
recollect.distill.exchange_rules: ExchangeRules
recollect.distill.exchanges: Exchange cut
recollect.distill.markdown: brief_digest inert inert_lines render_digest
recollect.distill.part: LINE_CHARS Around Part activity_of closed join make_part
recollect.distill.signals: asks_back refusal_reason weighed
recollect.distill.stored: parse_digest searchable write_digest
recollect.distill.texts: estimate_tokens excerpt one_line payload_text sentences shortened word_set
recollect.distill.trace: CALLS PAUSE_MS Payloads SuiteRun Trace read_trace
"""
TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from recollect.distill import shell, words
    from recollect.distill.digest import Subject, extend
    from recollect.distill.exchange_rules import ExchangeRules
    from recollect.distill.exchanges import Exchange, cut
    from recollect.distill.markdown import brief_digest, inert, inert_lines, render_digest
    from recollect.distill.part import LINE_CHARS, Around, Part, activity_of, closed, join, make_part
    from recollect.distill.signals import asks_back, refusal_reason, weighed
    from recollect.distill.stored import parse_digest, searchable, write_digest
    from recollect.distill.texts import estimate_tokens, excerpt, one_line, payload_text, sentences, shortened, word_set
    from recollect.distill.trace import CALLS, PAUSE_MS, Payloads, SuiteRun, Trace, read_trace
else:
    __getattr__ = lazy_names(__name__, _NAMES)
