"""The files a store was read from, as a quick look at them needs: loads nothing else."""

from recollect.store.sqlite.database import Database


class KnownFiles:
    """Paths, sizes and times of sources."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def latest(self, host: str, limit: int) -> list[tuple[str, int, int]]:
        """Path, size and mtime_ns of the files that were written last, as they were when they were read."""
        return self._database.rows(
            "SELECT path, size, mtime_ns FROM sources WHERE host = ? AND gone_ms IS NULL"
            " ORDER BY mtime_ns DESC LIMIT ?",
            (host, limit),
        )

    def folders(self, host: str) -> set[str]:
        """The folders in which files were read, with a slash at their end."""
        paths = self._database.iter_rows("SELECT path FROM sources WHERE host = ?", (host,))
        return {path.rpartition("/")[0] + "/" for (path,) in paths}
