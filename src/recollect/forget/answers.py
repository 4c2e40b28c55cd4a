"""What agents in sandboxes were answered and shown. It quotes sessions outside the databases, so none of it stays."""

from collections.abc import Iterator
from contextlib import suppress

from recollect.errors import UsageError
from recollect.sessions import GROUPS_FOLDER
from recollect.shared_folder import ANSWERS, HISTORY_NAME, TASKS_NAME, SharedFolder, open_shared
from recollect.store import Store

ANSWERS_KEPT_MS = 24 * 3_600_000


def count_answers(store: Store) -> int:
    """How many answers are held, as files or with their requests."""
    held = set(store.groups.answered())
    for group, _, answers in _folders(store):
        held |= {(group, name.removesuffix(".json")) for name in answers.names()}
    return len(held)


def expire_answers(store: Store, before_ms: int | None = None) -> None:
    """Delete the answers given before then; without a time all of them, and the snapshots.

    A request stays known with its outcome, so that it is not done again.
    """
    store.groups.expire_answers(before_ms)
    for _, ipc, answers in _folders(store):
        answers.drop(before_ms)
        for name in (HISTORY_NAME, TASKS_NAME) if before_ms is None else ():
            ipc.remove(name)


def _folders(store: Store) -> Iterator[tuple[str, SharedFolder, SharedFolder]]:
    """The IPC folder of each group with its answers, those of removed groups too; other things are passed over."""
    for path in sorted((store.folder / GROUPS_FOLDER).glob("*/ipc")):
        with suppress(UsageError), open_shared(path) as ipc, ipc.below(ANSWERS) as answers:
            yield path.parent.name, ipc, answers
