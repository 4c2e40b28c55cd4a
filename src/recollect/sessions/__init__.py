"""What is known of whole sessions: their rows, how they are related, where they worked, what they cost."""

from recollect.model.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes long to load

_NAMES = """
recollect.sessions.account: account_for settle_sessions
recollect.sessions.parts: Parts boundary_of content_hash cuts_ms decode_totals split until
recollect.sessions.pricing: MINUTE_MS TOKENS Used add_up tokens_of usd_of
recollect.sessions.relations: GROUPS_FOLDER all_reached assign_groups group_folder homes_of with_group_homes
recollect.sessions.repos: BlamedLine Checkouts blame_line changed_since checkout_of find_checkout folded main_checkout
recollect.sessions.repos: name_repos normal_remote normal_root read_origin read_text remote_of uncommitted_lines
recollect.sessions.repos: windows_path
recollect.sessions.rules: AccountRules is_settled
recollect.sessions.titles: has_subject
recollect.sessions.transcript: TranscriptItem find_spawned iter_payloads iter_transcript read_events read_window
"""
if TYPE_CHECKING:
    from recollect.sessions.account import account_for, settle_sessions
    from recollect.sessions.parts import Parts, boundary_of, content_hash, cuts_ms, decode_totals, split, until
    from recollect.sessions.pricing import MINUTE_MS, TOKENS, Used, add_up, tokens_of, usd_of
    from recollect.sessions.relations import (
        GROUPS_FOLDER,
        all_reached,
        assign_groups,
        group_folder,
        homes_of,
        with_group_homes,
    )
    from recollect.sessions.repos import (
        BlamedLine,
        Checkouts,
        blame_line,
        changed_since,
        checkout_of,
        find_checkout,
        folded,
        main_checkout,
        name_repos,
        normal_remote,
        normal_root,
        read_origin,
        read_text,
        remote_of,
        uncommitted_lines,
        windows_path,
    )
    from recollect.sessions.rules import AccountRules, is_settled
    from recollect.sessions.titles import has_subject
    from recollect.sessions.transcript import (
        TranscriptItem,
        find_spawned,
        iter_payloads,
        iter_transcript,
        read_events,
        read_window,
    )

else:
    __getattr__ = lazy_names(__name__, _NAMES)
