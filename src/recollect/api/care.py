"""Care of a store: what must work even if there is none, or if it cannot be opened. Installing into agents."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect import __version__, care, ingest, lifecycle, redact, sessions
from recollect.agentkit.files import Source, resolve_root
from recollect.config import home_variable, load_settings, refuse_in_group
from recollect.model.errors import BadConfig, NotFound, StoreTooNew
from recollect.model.text import Progress, plural, silent
from recollect.store import MEMORY_NAME, give_up_spare, open_for_reading, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike
    from threading import Event

    from recollect.care import Finding, Installer, RepairReport, RestoreReport, Schedule
    from recollect.watch import Attempt


def check_text(text: str, folder: str | PathLike[str] | None = None) -> dict[str, Any]:
    """Return a text as it would be stored, how often each rule replaced something, and whether it has a placeholder.

    A placeholder stands for a secret (`your-key-here`, `AKIA…EXAMPLE`). Without a store, the marks differ from those
    it will use later.
    """
    settings = load_settings(folder)
    if (settings.folder / MEMORY_NAME).exists():
        redactor = ingest.Protection(settings.folder, settings.redaction).redactor()
    else:
        redactor = redact.Redactor(settings.redaction, bytes(redact.KEY_BYTES))
    stored, replaced = redactor.text(text), dict(sorted(redactor.replaced.items()))
    return {"text": stored, "replaced": replaced, "is_placeholder": redact.has_placeholder(text)}


def make_room(folder: str | PathLike[str] | None = None) -> None:
    """Remove files that the next sweep makes again if the store's disk is nearly full: even deleting needs room."""
    refuse_in_group()
    give_up_spare(load_settings(folder).folder)


def rescue(path: str | PathLike[str], folder: str | PathLike[str] | None = None, roots: Sequence[str] = ()) -> None:
    """Copy what is new in a log beside the store, in case its agent drops it before the next sweep.

    The copy enters the store with the next sweep. Nothing is shown, so a group's process may call this too. A path that
    belongs to no agent is ignored.
    """
    settings, log = load_settings(folder, roots), resolve_root(Path(path))
    with open_for_reading(settings.folder) as store:
        for agent, homes in sessions.with_group_homes(store, settings.roots).items():
            for home in map(resolve_root, homes):
                if log.is_relative_to(home):
                    redactor = ingest.Protection(settings.folder, settings.redaction).redactor()
                    ingest.save_copy(store, settings.host, Source(agent, "", home, log), redactor)
                    return


def plan_schedule(*, is_removal: bool = False, watch: bool = False) -> Schedule:
    """The scheduled sweep for this machine, or the watcher as a service; for a removal, whatever the cadence."""
    from platformdirs import user_config_path

    refuse_in_group()
    settings = load_settings()
    has_systemd, log_path = Path("/run/systemd/system").exists(), settings.folder / care.LOG_NAME
    host = care.Host(sys.platform, Path.home(), user_config_path(), has_systemd, log_path)
    is_moved = settings.config_path.parent == settings.folder
    variables = {"RECOLLECT_HOME": str(settings.folder)} if is_moved else {}
    cadence = care.WATCH if watch or is_removal else settings.limits.cadence
    command = "watch" if watch else "sweep"
    return care.plan_schedule(host, cadence, (sys.executable, "-m", "recollect", command), variables)


def watch(
    stop: Event,
    tell: Callable[[Attempt], None],
    folder: str | PathLike[str] | None = None,
    roots: Sequence[str] = (),
    *,
    every_minutes: float | None = None,
) -> None:
    """Sweep what agents write as they write it, until `stop` is set; with `every_minutes`, everything that often.

    `tell` gets each sweep. Raises Busy if another process watches for this store.
    """
    from recollect.watch import watch  # loads what a sweep needs

    refuse_in_group()
    settings = load_settings(folder, roots)
    with open_store(settings.folder, create=True) as store:
        settings = settings._replace(roots=sessions.with_group_homes(store, settings.roots))
    watch(settings, stop, tell, every_minutes=every_minutes)


def doctor(
    folder: str | PathLike[str] | None = None,
    roots: Sequence[str] = (),
    *,
    deep: bool = False,
    max_seconds: float | None = None,
    progress: Progress = silent,
) -> list[Finding]:
    """Check homes, permissions, settings and the store. Works without a store.

    `deep` checks every stored byte and compares it with the agents' files, for at most `max_seconds`.
    """
    refuse_in_group()
    try:
        settings = load_settings(folder, roots)
    except BadConfig as error:
        return [care.Finding(care.PROBLEM, "settings", error.message, error.hint)]
    findings = care.examine(settings, with_content=not deep)
    if deep:
        with suppress(StoreTooNew):  # which `examine` has reported
            findings += care.inspect_store(settings, progress, max_seconds).findings()
    return findings


def repair(
    folder: str | PathLike[str] | None = None,
    roots: Sequence[str] = (),
    *,
    confirm: Callable[[list[str]], None] | None = None,
    progress: Progress = silent,
) -> RepairReport:
    """Rebuild what is damaged from sources, packs and ledger; nothing is deleted.

    `confirm` gets the steps before anything changes, and raises to stop.
    """
    refuse_in_group()
    settings = load_settings(folder, roots)
    planned = care.plan_repair(care.inspect_store(settings, progress).faults)
    if steps := care.repair_steps(planned):
        if confirm:
            confirm(steps)
        return care.apply_repair(settings, planned, progress)
    count = 0
    if (settings.folder / MEMORY_NAME).exists():
        with open_store(settings.folder) as store:
            count = lifecycle.finish_interrupted(store, settings.rules, settings.domains)
    return care.RepairReport(notes=[f"Finished an interrupted forget: {plural(count, 'session')}"] if count else [])


def restore(
    path: str | PathLike[str],
    folder: str | PathLike[str] | None = None,
    *,
    confirm: Callable[[Path], None] | None = None,
    progress: Progress = silent,
) -> RestoreReport:
    """Replace the store with a backup; the old store is kept. An incomplete backup changes nothing.

    `confirm` gets the folder of a store that would be replaced, and raises to stop.
    """
    refuse_in_group()
    if not Path(path).exists():
        raise NotFound(f"No such file: {path}", "`recollect backup FILE` makes one")
    settings = load_settings(folder)
    if confirm and (settings.folder / MEMORY_NAME).exists():
        confirm(settings.folder)
    return care.restore_backup(settings, Path(path).absolute(), progress)


def installer(*, with_plugin: bool = True, can_write: bool = False) -> Installer:
    """Installs Recollect into agents and uninstalls it; without the plugin, through the agents' settings.

    With `can_write` agents may record things.
    """
    settings = load_settings()
    return care.Installer(settings.folder, settings.roots, __version__, home_variable(), with_plugin, can_write)
