"""The files a store was read from, as a quick look at them needs: loads nothing else."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

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

    def roots(self, host: str, roots: Mapping[str, Iterable[Path]]) -> dict[str, list[str]]:
        """The agents' homes, links resolved, below which files are known; by agent."""
        resolved = {agent: sorted({os.path.realpath(path) for path in paths}) for agent, paths in roots.items()}
        return {
            agent: [path for path in paths if self._has_any(host, agent, path)] for agent, paths in resolved.items()
        }

    def _has_any(self, host: str, agent: str, root: str) -> bool:
        sql = "SELECT 1 FROM sources WHERE host = ? AND agent = ? AND path > ? AND path < ? LIMIT 1"
        root = os.fsencode(root).decode("utf-8", "backslashreplace")
        return self._database.value(sql, (host, agent, f"{root}/", f"{root}0")) is not None  # `0` comes after `/`
