"""Bringing an evicted session's raw detail back from the agent's own file."""

import os

from recollect.config import Settings
from recollect.errors import NotFound
from recollect.redact import OPENING
from recollect.retention import finish_evictions
from recollect.schema import Session
from recollect.store import Store, sweep_lock
from recollect.sweep import SweepReport, sweep
from recollect.text import Progress


def rehydrate_session(store: Store, settings: Settings, session: Session, progress: Progress) -> SweepReport:
    """Read an evicted session again; raises NotFound if it is not evicted, or if its file is gone.

    Whatever stops it, the session is evicted and found by its digest until its events are held again.
    """
    name = (session.agent, session.native_session_id)
    if name not in store.evictions.names():
        raise NotFound(f"Not evicted, nothing to bring back: {session.session_uid}", "`recollect show` shows it")
    with sweep_lock(store.folder):
        finish_evictions(store)
        # Of a path that held a secret only the sweep can say whether there is a file.
        logs = store.sizes.logs(name, settings.host)
        paths = [path for path in logs if OPENING.decode() in path or os.access(path, os.R_OK)]
        if not paths:
            raise NotFound(
                f"The agent has deleted its file, so the raw detail is gone: {session.session_uid}",
                "`recollect digest` shows what is kept",
            )
    with store.evictions.awaiting(name):
        report = sweep(store, settings, progress)
    if name in store.evictions.names():
        raise NotFound(
            f"The sweep did not read this file: {paths[0]}",
            "it is outside the folders that are swept (`--root`), or exceeds the budget (`recollect retention`)",
        )
    return report
