"""The rows of sessions that changed: which events are copies, what they add up to, which repository they worked in."""

from collections.abc import Mapping

from recollect.progress import Progress
from recollect.sessions import AccountRules, is_settled
from recollect.sessions.account import Then, account_for
from recollect.sessions.groups import assign_groups
from recollect.sessions.relations import mark_copies
from recollect.sessions.repos import name_repos
from recollect.store import Store


def settle_sessions(
    store: Store,
    rules: AccountRules,
    domains: Mapping[str, str],
    progress: Progress,
    then: Then = lambda sessions: (),
    *,
    is_all_read: bool = True,
) -> int:
    """Make the rows of sessions that changed, or of all if the user's rules did.

    Safe to interrupt at any time: each session that was settled stays settled. `then` gets the sessions whose rows are
    stored, some at a time, so that nobody has to read their events again, and returns what it keeps of them.
    Returns how many events were dropped because they only stood in for others that are held by now.
    """
    if store.rules.text() != rules.text(domains):
        store.streams.set_all_dirty()
        store.rules.set(rules.text(domains), is_named=False)
    if is_settled(store, rules, domains):
        return 0
    dropped = store.drop_stand_ins()
    mark_copies(store)
    accounted = account_for(store, rules, lambda done, total: progress("sessions", done, total), then)
    emptied = store.streams.emptied(accounted.empty)
    if is_all_read:
        store.sessions.drop(emptied)
    if has_moved := store.rules.has_moved():
        name_repos(store, domains)
    if has_moved or store.groups.all():  # a session's file may have been read in a group's home for the first time
        assign_groups(store)
    if has_moved:
        store.rules.set(rules.text(domains), is_named=True)
    # A session without events, or without its beginning, stays dirty until all is read: another file may hold it.
    unread = set() if is_all_read else {*emptied, *accounted.torn}
    store.streams.set_dirty(set(store.streams.dirty()) - unread, False)
    return dropped
