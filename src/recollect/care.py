"""What looks after a store from outside, where it may be damaged, full, or not there yet."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.config import load_settings
from recollect.doctor import PROBLEM, Finding, examine
from recollect.errors import BadConfig, StoreTooNew, StoreUnwritable
from recollect.progress import Progress, silent
from recollect.removal import FINISHES_FORGETTING
from recollect.store import MEMORY_NAME

if TYPE_CHECKING:
    from recollect.backup import RestoreReport
    from recollect.repairs import RepairReport
    from recollect.schedule import Schedule


@dataclass(frozen=True, slots=True)
class CheckedText:
    """A text as it would be stored; `replaced` counts by rule."""

    text: str
    replaced: dict[str, int]


def make_room(folder: str | PathLike[str] | None = None) -> None:
    """Give up the ballast of a store whose disk is full, so that it can be written, be it only to delete."""
    from recollect.store import ballast
    from recollect.store.access import is_full

    place = load_settings(folder).folder
    if place.exists() and is_full(place):
        ballast.drop(place)


def own_schedule(*, is_removal: bool = False) -> "Schedule":
    """What would have sweeps run by themselves on this machine, or did before the cadence was changed."""
    from platformdirs import user_config_path

    from recollect.schedule import Host, plan_schedule

    settings = load_settings()
    host = Host(sys.platform, Path.home(), user_config_path(), Path("/run/systemd/system").exists())
    is_moved = settings.config_path.parent == settings.folder
    variables = {"RECOLLECT_HOME": str(settings.folder)} if is_moved else {}
    cadence = "daily" if is_removal else settings.limits.cadence
    return plan_schedule(host, cadence, (sys.executable, "-m", "recollect", "sweep"), variables)


def check_text(text: str, folder: str | PathLike[str] | None = None) -> CheckedText:
    """What the rules of redaction make of a text. Where there is no store yet, marks are not those it will have."""
    from recollect.protection import Protection
    from recollect.redact.marks import KEY_BYTES
    from recollect.redact.redactor import Redactor

    settings = load_settings(folder)
    if (settings.folder / MEMORY_NAME).exists():
        redactor = Protection(settings.folder, settings.redaction).redactor()
    else:
        redactor = Redactor(settings.redaction, bytes(KEY_BYTES))
    return CheckedText(redactor.text(text), dict(sorted(redactor.replaced.items())))


def doctor(
    folder: str | PathLike[str] | None = None,
    roots: Sequence[str] = (),
    *,
    deep: bool = False,
    max_seconds: float | None = None,
    progress: Progress = silent,
) -> list[Finding]:
    """Look for what stands in the way: homes, permissions, settings, damage. Works without a store.

    `deep` looks at every stored byte and compares it with the agents' files, for `max_seconds` at most.
    """
    try:
        settings = load_settings(folder, roots)
    except BadConfig as error:
        return [Finding(PROBLEM, "settings", error.message, error.hint)]
    if not deep:
        return examine(settings)
    from recollect.inspection import inspect

    findings = examine(settings)
    with suppress(StoreTooNew):  # which has been told
        findings += inspect(settings, progress, max_seconds).findings()
    return findings


def repair(
    folder: str | PathLike[str] | None = None,
    roots: Sequence[str] = (),
    *,
    confirm: Callable[[list[str]], None] | None = None,
    progress: Progress = silent,
) -> "RepairReport":
    """Rebuild what is damaged from sources, packs and ledger; nothing is deleted.

    `confirm` is told the steps before anything is changed, and raises to stop.
    """
    from recollect.inspection import inspect
    from recollect.repairs import RepairReport, apply, plan

    settings = load_settings(folder, roots)
    planned = plan(inspect(settings, progress).faults)
    if not planned.steps:
        return RepairReport(notes=_finish_forgetting(settings.folder))
    if confirm:
        confirm(planned.steps)
    return apply(settings, planned, progress)


def _finish_forgetting(folder: Path) -> list[str]:
    """Remove what a forget that was stopped has left; says so."""
    from recollect.removal import finish_forgetting
    from recollect.store import open_store
    from recollect.store.locks import sweep_lock

    if not (folder / MEMORY_NAME).exists():
        return []
    with open_store(folder) as store:
        count = len(store.tombstones.unfinished())
        if not count:
            return []
        with sweep_lock(folder):
            finish_forgetting(store)
            store.checkpoint()
        if store.tombstones.unfinished():
            raise StoreUnwritable(f"Forgetting was begun and cannot be finished now: {folder}", FINISHES_FORGETTING)
    return [f"Finished a forget that was stopped: {count:,} {'session' if count == 1 else 'sessions'}"]


def restore(
    path: str | PathLike[str], folder: str | PathLike[str] | None = None, progress: Progress = silent
) -> "RestoreReport":
    """Put a backup in the place of the store, which is set aside. A backup that is not whole changes nothing."""
    from recollect.backup import restore_backup

    settings = load_settings(folder)
    return restore_backup(settings, Path(path).absolute(), progress)
