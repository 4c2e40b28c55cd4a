"""Sessions that a host has as JSON lines, taken into the store: explicitly, once, and with a report."""

from collections.abc import Iterator
from pathlib import Path

from recollect.errors import NotFound, SourceUnreadable
from recollect.live.host import Live
from recollect.live.jsonl import SUFFIX, SessionFile, read_file
from recollect.live.records import FileStatus, ImportReport

IN_STEP, FILE_BEHIND, STORE_BEHIND, NOT_IMPORTED = "in step", "file behind", "store behind", "not imported"
_SHOWN_AT_ONCE = 500


class Backfill:
    """Takes files into the store. A message that is stored is left alone, so that doing it again writes nothing."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def run(self, folder: Path, *, dry_run: bool = False) -> ImportReport:
        """Store what only the files of a folder have."""
        report = ImportReport(dry_run)
        waiting: list[str] = []
        for found in self._files(folder, report):
            is_new = self._live.find(found.key) is None
            new = self.take(found, dry_run=dry_run, is_shown=False)
            report.files += 1
            report.sessions_new += is_new and new > 0
            report.messages_new += new
            report.messages_known += len(found.lines) - new
            report.bad_lines += len(found.skipped)
            report.skipped += [(str(found.path), number, reason) for number, reason, _, _ in found.skipped]
            waiting += [found.key] if new and not dry_run else []
            if len(waiting) >= _SHOWN_AT_ONCE:
                self._live.show(waiting)
                waiting = []
        self._live.show(waiting)
        return report

    def _files(self, folder: Path, report: ImportReport) -> Iterator[SessionFile]:
        if not folder.is_dir():
            raise NotFound(f"No such folder: {folder}", "name the folder that holds the `.jsonl` files")
        for path in sorted(folder.rglob(f"*{SUFFIX}")):
            try:
                yield read_file(path, root=folder)
            except (OSError, SourceUnreadable) as error:
                report.failures.append((str(path), getattr(error, "strerror", None) or str(error)))

    def take(self, found: SessionFile, *, dry_run: bool = False, is_shown: bool = True) -> int:
        """Store the messages that only a file has, in one transaction; returns how many."""
        known = self._live.known_ids(found.key)
        lines = [line for line in {line.id: line for line in found.lines}.values() if line.id not in known]
        if lines and not dry_run:
            self._live.append_lines(found.key, lines, found.facts, is_shown=is_shown)
        return len(lines)

    def status(self, folder: Path) -> list[FileStatus]:
        """How far each file is behind the store, or the store behind it."""
        return [self._status(found) for found in self._files(folder, ImportReport(True))]

    def _status(self, found: SessionFile) -> FileStatus:
        in_file = {line.id for line in found.lines}
        session = self._live.find(found.key)
        in_store = {message.id for message in self._live.all_messages(found.key)} if session else set()
        known = self._live.known_ids(found.key)
        only_in_file = len(in_file - known)
        only_in_store = len(in_store - in_file)
        state = STORE_BEHIND if only_in_file else FILE_BEHIND if only_in_store else IN_STEP
        return FileStatus(
            str(found.path),
            found.key,
            NOT_IMPORTED if in_file and not in_file & known else state,
            len(in_file),
            len(in_store),
            only_in_file,
            only_in_store,
            len(found.skipped),
        )
