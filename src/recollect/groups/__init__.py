"""Groups: workspaces with their own folder, agent home, active session, bookmarks, archives and IPC folder."""
