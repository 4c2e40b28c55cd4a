"""The commands that look after the store: doctor, backup, restore, export, import."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from recollect.cli.output import confirm, json_option, print_json, repo_option, reports_errors, root_option, yes_option
from recollect.cli.progress import shown_progress
from recollect.cli.words import one_line, plural, size
from recollect.errors import UsageError

if TYPE_CHECKING:
    from recollect.doctor import Finding
    from recollect.repairs import RepairReport

_MARKS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "problem": ("✗", "red")}


@click.command()
@root_option
@click.option("--deep", is_flag=True, help="Look at every stored byte, and compare it with your agents' files.")
@click.option("--max-seconds", metavar="N", type=click.FloatRange(0), help="Stop a deep look after this time.")
@click.option("--repair", "is_repair", is_flag=True, help="Rebuild what is damaged; nothing is deleted.")
@yes_option
@json_option
@reports_errors
def doctor(
    roots: tuple[str, ...], deep: bool, max_seconds: float | None, is_repair: bool, yes: bool, as_json: bool
) -> None:
    """Check homes, permissions, settings and the store.

    Says what to do about each problem, and reads everything stored once to see that it can be read.
    --deep finds a single flipped bit, a lost write-ahead log, and files that were edited after they were read.

    \b
    recollect doctor --deep --max-seconds 60
    recollect doctor --repair
    """
    from recollect.care import doctor as examine

    if is_repair:
        _repair(roots, yes, as_json)
        return
    with shown_progress() as show:
        findings = examine(roots=roots, deep=deep, max_seconds=max_seconds, progress=show)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print_findings(findings)
    if any(finding.level == "problem" for finding in findings):
        sys.exit(1)


def _print_findings(findings: list["Finding"]) -> None:
    for finding in findings:
        mark, colour = _MARKS[finding.level]
        click.echo(f"{click.style(mark, fg=colour)} {one_line(finding.message)}")
        if finding.advice:
            click.echo(f"  {click.style('→', fg='cyan')} {one_line(finding.advice)}")


def _repair(roots: tuple[str, ...], yes: bool, as_json: bool) -> None:
    from recollect.care import repair

    def ask(steps: list[str]) -> None:
        for step in steps if not as_json else ():
            click.echo(one_line(step))
        confirm("Go on?", yes)

    with shown_progress() as show:
        report = repair(roots=roots, confirm=ask, progress=show)
    if as_json:
        print_json(asdict(report))
    else:
        _print_repair(report)
    if report.lost:
        sys.exit(1)


def _print_repair(report: "RepairReport") -> None:
    if not report.steps:
        for line in report.notes:
            click.echo(one_line(line))
        click.echo("Nothing to repair: every stored byte is as it should be")
        return
    again = plural(report.events_read_again, "event")
    click.echo(f"Repaired: {plural(report.events_saved, 'event')} saved, {again} read again")
    for kind, count in report.records_restored.items():
        click.echo(f"Back from the ledger: {count:,} × {one_line(kind)}")
    if report.set_aside:
        click.echo(f"The damaged files are kept: {one_line(report.set_aside)}")
    for line in report.notes:
        click.echo(one_line(line))
    for line in report.lost:
        click.echo(one_line(line), err=True)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@json_option
@reports_errors
def backup(file: str, as_json: bool) -> None:
    """Write the whole store into one new FILE.

    Sweeps may go on meanwhile. It holds all that is stored, and the key of the redaction marks: keep it private.

    \b
    recollect backup ~/backups/recollect-2026-11-15.tar.zst
    """
    from recollect.memory import open_memory

    with open_memory(create=False) as memory, shown_progress() as show:
        report = memory.backup(file, show)
    if as_json:
        print_json(asdict(report))
        return
    held = f"{plural(report.sessions, 'session')}, {plural(report.events, 'event')}"
    click.echo(f"Wrote {held} ({size(report.bytes)}) and read it back: {one_line(report.path)}")
    _print_noted(report.is_noted)


def _print_noted(is_noted: bool) -> None:
    if not is_noted:
        click.echo("The store is read-only, so it cannot remember this copy: when you forget a session, think of it")


@click.command()
@click.argument("file", type=click.Path())
@yes_option
@json_option
@reports_errors
def restore(file: str, yes: bool, as_json: bool) -> None:
    """Put the backup FILE in the place of the store.

    It is compared with its hashes first; one that is damaged changes nothing. The store that is there is kept aside.
    """
    from recollect.care import restore as put_back
    from recollect.config import load_settings

    folder = load_settings().folder
    if (folder / "memory.db").exists():
        confirm(f"Replace the store in {folder}? It is kept aside.", yes)
    with shown_progress() as show:
        report = put_back(file, progress=show)
    if as_json:
        print_json(asdict(report))
        return
    held = f"{plural(report.sessions, 'session')}, {plural(report.events, 'event')}"
    click.echo(f"Restored {held} as of {report.made_at}: {one_line(report.folder)}")
    if report.set_aside:
        click.echo(f"What was there before is kept: {one_line(report.set_aside)}")


@click.command()
@click.argument("path", type=click.Path())
@click.argument("sessions", nargs=-1)
@repo_option
@json_option
@reports_errors
def export(path: str, sessions: tuple[str, ...], repo: str | None, as_json: bool) -> None:
    """Write sessions as JSON lines and packs into a new folder PATH.

    A PATH that ends in .tar.zst becomes one file. SESSIONS are ids or titles, with their sub-agents; none means all.

    \b
    recollect export ~/sessions --repo shop-api
    recollect export fix.tar.zst 3f2a91c4
    """
    from recollect.memory import open_memory

    if sessions and repo:
        raise UsageError("`--repo` and sessions exclude each other", "give one of them")
    with open_memory(create=False) as memory, shown_progress() as show:
        report = memory.export(path, sessions, repo=repo, progress=show)
    if as_json:
        print_json(asdict(report))
        return
    held = f"{plural(report.sessions, 'session')}, {plural(report.events, 'event')}"
    click.echo(f"Exported {held} ({size(report.bytes)}): {one_line(report.path)}")
    if report.damaged:
        click.echo(
            f"Left out {plural(report.damaged, 'damaged event')}: `recollect doctor --repair` may help", err=True
        )
    _print_noted(report.is_noted)


@click.command(name="import")
@click.argument("path", type=click.Path())
@json_option
@reports_errors
def import_(path: str, as_json: bool) -> None:
    """Take over the sessions of an export.

    What is stored already stays as it is, so importing twice adds nothing.
    """
    from recollect.memory import open_memory

    with open_memory() as memory, shown_progress() as show:
        report = memory.import_sessions(path, show)
    if as_json:
        print_json(asdict(report))
        return
    new = f"{plural(report.events_new, 'new event')}, {plural(report.sessions_new, 'new session')}"
    click.echo(f"Imported {plural(report.sessions, 'session')}: {new}")
    if report.different:
        found = plural(report.different, "session")
        click.echo(f"Not as the export tells, because grown here or redacted by other rules: {found}")
    if report.forgotten:
        click.echo(f"Forgotten here, which they stay: {plural(report.forgotten, 'session')}")
    if report.excluded:
        click.echo(f"Left out {plural(report.excluded, 'excluded session')}")
    if not report.is_settled:
        click.echo("A sweep is running: run `recollect sweep` after it, and they are listed")


COMMANDS = (doctor, backup, restore, export, import_)
