"""Groups: workspaces with their own folder, agent home, active session, bookmarks, archives and IPC folder."""

from recollect.model.lazy import lazy_names

_NAMES = """
recollect.groups.group: ActiveSession Bookmark Cleared Group GroupSessions Mount Resumed active_of add_group all_groups
recollect.groups.group: clear_session get_group global_file home_of instructions_file key_of mounts_of new_group
recollect.groups.group: remove_group resume_session with_paragraph
recollect.groups.ipc: Answered Host Request answer_requests ask bookmark_history has_requests write_snapshots
recollect.groups.runner: Run RunReport prepare_home run_agent
"""
TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from recollect.groups.group import (
        ActiveSession,
        Bookmark,
        Cleared,
        Group,
        GroupSessions,
        Mount,
        Resumed,
        active_of,
        add_group,
        all_groups,
        clear_session,
        get_group,
        global_file,
        home_of,
        instructions_file,
        key_of,
        mounts_of,
        new_group,
        remove_group,
        resume_session,
        with_paragraph,
    )
    from recollect.groups.ipc import (
        Answered,
        Host,
        Request,
        answer_requests,
        ask,
        bookmark_history,
        has_requests,
        write_snapshots,
    )
    from recollect.groups.runner import Run, RunReport, prepare_home, run_agent
else:
    __getattr__ = lazy_names(__name__, _NAMES)
