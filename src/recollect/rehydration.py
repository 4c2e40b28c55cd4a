"""Bringing an evicted session's raw detail back from the agent's own file."""

import os

from recollect.budget import finish_evictions
from recollect.config import Settings
from recollect.errors import NotFound
from recollect.progress import Progress
from recollect.redact.marks import OPENING
from recollect.schema import Session
from recollect.store import Store
from recollect.store.locks import sweep_lock
from recollect.sweep import SweepReport, sweep


def rehydrate(store: Store, settings: Settings, session: Session, progress: Progress) -> SweepReport:
    """Read an evicted session again; raises NotFound if it is not evicted, or if its file is gone.

    Whatever stops it, the session is evicted and found by its digest until its events are held again.
    """
    name = (session.agent, session.native_session_id)
    if name not in store.evictions.names():
        raise NotFound(f"Not evicted, so there is nothing to bring back: {session.session_uid}", "`recollect show` it")
    with sweep_lock(store.folder):
        finish_evictions(store)
        paths = [path for path in store.tiers.logs(name, settings.host) if _may_be_read(path)]
        if not paths:
            raise NotFound(
                f"The agent's own file is gone, and with it the raw detail: {session.session_uid}",
                "`recollect digest` shows what is kept of it",
            )
    with store.evictions.awaiting(name):
        report = sweep(store, settings, progress)
    if name in store.evictions.names():
        raise NotFound(
            f"The sweep did not read it: {paths[0]}",
            "it lies in no folder that is swept (`--root`), or it did not fit into the budget (`recollect retention`)",
        )
    return report


def _may_be_read(path: str) -> bool:
    """Whether a file is there; of a path that held a secret only the sweep can say."""
    return OPENING.decode() in path or os.access(path, os.R_OK)
