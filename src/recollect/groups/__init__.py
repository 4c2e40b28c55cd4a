"""Groups: workspaces with their own folder, agent home, active session, bookmarks, archives and IPC folder."""

from recollect.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from recollect.groups.group import (
        Group,
        Mount,
        add_group,
        all_groups,
        get_group,
        global_file,
        home_of,
        instructions_file,
        mounts_of,
        new_group,
        remove_group,
        with_paragraph,
    )
    from recollect.groups.ipc import (
        Answered,
        Host,
        Request,
        Snapshot,
        answer_requests,
        ask,
        bookmark_history,
        has_requests,
        write_snapshots,
    )
    from recollect.groups.runner import Run, RunReport, prepare_home, run_agent
    from recollect.groups.sessions import (
        ActiveSession,
        Bookmark,
        Cleared,
        GroupSessions,
        Resumed,
        active_of,
        clear_session,
        key_of,
        resume_session,
    )
else:
    __getattr__ = lazy_names(__name__, __file__)
