"""The rows of sessions that changed: which events are copies, what they add up to, which repository they worked in."""

from collections.abc import Callable, Mapping, Sequence

from recollect.sessions import AccountRules
from recollect.sessions.account import account_for
from recollect.sessions.groups import assign_groups
from recollect.sessions.relations import mark_copies
from recollect.sessions.repos import name_repos
from recollect.store import Store, StoredSession
from recollect.text import Progress


def settle_sessions(
    store: Store,
    rules: AccountRules,
    domains: Mapping[str, str],
    progress: Progress,
    then: Callable[[Sequence[StoredSession]], None] = lambda sessions: None,
    *,
    is_all_read: bool = True,
) -> int:
    """Make the rows of sessions that changed, or of all if the user's rules did.

    `then` gets the sessions whose rows are stored, some at a time, so that nobody has to read their events again.
    Returns how many events were dropped because they only stood in for others that are held by now.
    """
    if has_new_rules := store.rules.text() != rules.text(domains):
        store.streams.set_dirty()
    if not store.streams.dirty():
        return 0
    dropped = store.drop_stand_ins()
    mark_copies(store)
    accounted = account_for(store, rules, lambda done, total: progress("sessions", done, total), then)
    emptied = store.streams.emptied(accounted.empty)
    if is_all_read:
        store.session_rows.drop(emptied)
    if has_moved := has_new_rules or store.rules.has_moved():
        name_repos(store, domains)
    if has_moved or store.groups.all():  # a session's file may have been read in a group's home for the first time
        assign_groups(store)
    if has_moved:
        store.rules.set(rules.text(domains))
    # A session without events, or without its beginning, stays dirty until all is read: another file may hold it.
    unread = set() if is_all_read else {*emptied, *accounted.torn}
    store.streams.set_dirty(set(store.streams.dirty()) - unread, False)
    return dropped
