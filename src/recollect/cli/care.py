"""Commands that look after the store or write copies: doctor, backup, export, archive, import, retention, schedule."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect import api, care, live
from recollect.api import make_room, open_memory
from recollect.cli.options import SESSION, open_fresh
from recollect.cli.output import (
    command,
    confirm,
    emit,
    first_lines,
    json_option,
    repo_option,
    reports_errors,
    root_option,
    yes_option,
)
from recollect.cli.sweep import budget_lines, print_budget_warnings
from recollect.cli.terminal import local_time, no_sessions, one_line, plural, shown_progress, size, wrapped
from recollect.model.clock import rfc3339
from recollect.model.errors import NotFound, UsageError
from recollect.recall import Filters

if TYPE_CHECKING:
    from recollect.api import Archive, Memory
    from recollect.care import BackupReport, ExportReport, Finding, RepairReport, RestoreReport, Schedule
    from recollect.lifecycle import Outlook
    from recollect.model.schema import Session

_FORMATS = ("md", "html", "json")
_NAMED = "the file is named after the day and the title"
_UNNOTED = "The store is read-only and cannot record this copy: `recollect forget` will not list it"
_MOST_ROWS = 20  # of a finding, and of skipped lines
_DOCUMENTS = (".md", ".markdown", ".html", ".htm", ".txt", ".pdf")
_MARKS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "problem": ("✗", "red")}


@command()
@root_option
@click.option("--deep", is_flag=True, help="Check every stored byte, and compare it with your agents' files.")
@click.option("--max-seconds", metavar="N", type=click.FloatRange(0), help="Stop a deep check after N seconds.")
@click.option("--repair", "is_repair", is_flag=True, help="Rebuild what is damaged; nothing is deleted.")
@yes_option
def doctor(
    roots: tuple[str, ...], deep: bool, max_seconds: float | None, is_repair: bool, yes: bool, as_json: bool
) -> None:
    """Check homes, permissions, settings and the store.

    Reads all stored content once, and shows what to do about each problem. --deep finds even a single flipped bit, a
    lost write-ahead log, and source files edited after they were read.

    \b
    recollect doctor --deep --max-seconds 60
    recollect doctor --repair
    """
    if is_repair:
        _repair(roots, yes, as_json)
        return
    with shown_progress() as show:
        findings = api.doctor(roots=roots, deep=deep, max_seconds=max_seconds, progress=show)
    emit(findings, as_json, _finding_lines)
    if any(finding.level == "problem" for finding in findings):
        sys.exit(1)


def _finding_lines(findings: list["Finding"]) -> Iterator[str]:
    for finding in findings:
        mark, colour = _MARKS[finding.level]
        message = "\n".join(wrapped(one_line(finding.message), f"{mark} ", rows=_MOST_ROWS))
        yield click.style(mark, fg=colour) + message.removeprefix(mark)
        if finding.advice:
            yield from wrapped(one_line(finding.advice), "  → ", after="    ", rows=_MOST_ROWS)


def _repair(roots: tuple[str, ...], yes: bool, as_json: bool) -> None:
    def ask(steps: list[str]) -> None:
        for step in steps if not as_json else ():
            click.echo(one_line(step))
        confirm("Continue?", "repair the store", yes)

    with shown_progress() as show:
        report = api.repair(roots=roots, confirm=ask, progress=show)
    emit(report, as_json, _repair_lines)
    for line in report.lost if not as_json else ():
        click.echo(one_line(line), err=True)
    if report.lost:
        sys.exit(1)


def _repair_lines(report: "RepairReport") -> Iterator[str]:
    if report.steps:
        again = plural(report.events_read_again, "event")
        yield f"Repaired: {plural(report.events_saved, 'event')} saved, {again} read again"
        for kind, count in report.records_restored.items():
            yield f"Restored from the ledger: {count:,} × {one_line(kind)}"
        if report.set_aside:
            yield f"Damaged files are kept: {one_line(report.set_aside)}"
    yield from map(one_line, report.notes)
    if not report.steps:
        yield "Nothing to repair: the store is intact"


@command()
@click.argument("file", type=click.Path(dir_okay=False))
def backup(file: str, as_json: bool) -> None:
    """Write the whole store to a new FILE.

    A sweep may run at the same time. The file holds everything stored, and the redaction key: keep it private.

    \b
    recollect backup ~/backups/recollect-2026-11-15.tar.zst
    """
    with open_memory(create=False) as memory, shown_progress() as show:
        report = memory.backup(file, show)
    done = f"Wrote and verified {_held(report)} ({size(report.bytes)}): {one_line(report.path)}"
    emit(report, as_json, [done, None if report.is_noted else _UNNOTED])


def _held(report: "BackupReport | RestoreReport | ExportReport") -> str:
    return f"{plural(report.sessions, 'session')}, {plural(report.events, 'event')}"


@command()
@click.argument("file", type=click.Path())
@yes_option
def restore(file: str, yes: bool, as_json: bool) -> None:
    """Replace the store with the backup FILE.

    Verifies the backup first; a damaged one changes nothing. The old store is kept beside the new one.
    """

    def ask(folder: Path) -> None:
        confirm(f"Replace the store in {folder}? The old one is kept.", "replace the store", yes)

    with shown_progress() as show:
        report = api.restore(file, confirm=ask, progress=show)
    left_out = "The backup's settings were not applied; copy what you need from"
    lines = (
        f"Restored {_held(report)} as of {local_time(report.made_at)}: {one_line(report.folder)}",
        f"The old store is kept: {one_line(report.set_aside)}" if report.set_aside else None,
        f"{left_out}: {one_line(report.settings)}" if report.settings else None,
    )
    emit(report, as_json, lines)


@command()
@click.argument("path", type=click.Path())
@click.argument("sessions", nargs=-1)
@repo_option
@click.option("--digests", is_flag=True, help="Write each session's digest as Markdown into PATH instead.")
def export(path: str, sessions: tuple[str, ...], repo: str | None, digests: bool, as_json: bool) -> None:
    """Write sessions as JSON lines and packs to a new folder PATH.

    If PATH ends in .tar.zst, writes one file. SESSIONS are ids or titles; their sub-agents are included. The default
    is all sessions. With --digests, PATH may exist: each session's page has a name that stays the same, and is
    replaced by the next export.

    \b
    recollect export ~/sessions --repo shop-api
    recollect export fix.tar.zst 3f2a91c4
    recollect export --digests ~/notes/sessions
    """
    if sessions and repo:
        raise UsageError("Cannot use `--repo` together with sessions", "choose one")
    if Path(path).suffix.lower() in _DOCUMENTS:
        session = sessions[0] if sessions else "SESSION"
        hint = f"`recollect archive {session}` writes a document, `recollect digest {session}` prints a summary"
        raise UsageError(f"An export is a folder or a `.tar.zst` file: {path}", hint)
    with open_memory(create=False) as memory, shown_progress() as show:
        if digests:
            chosen = memory.with_sub_agents(sessions) if sessions else memory.sessions(Filters(repo=repo))
            pages = memory.archives.write_digests(path, chosen, show)
            without, foreign = pages.without_digest, "Left alone, because Recollect did not write it"
            lines = (
                f"Wrote {plural(pages.written, 'digest')}: {one_line(pages.path)}",
                f"{plural(without, 'session')} without a digest of their own" if without else None,
                *(f"{foreign}: {one_line(name)}" for name in pages.foreign),
            )
            emit(pages, as_json, lines)
            return
        report = memory.export(path, sessions, repo=repo, progress=show)
    done = f"Exported {_held(report)} ({size(report.bytes)}): {one_line(report.path)}"
    emit(report, as_json, [done, None if report.is_noted else _UNNOTED])
    if report.damaged and not as_json:
        damaged = plural(report.damaged, "damaged event")
        click.echo(f"Left out {damaged}: `recollect doctor --repair` may help", err=True)


@command(name="import")
@click.argument("path", type=click.Path())
@click.argument("folder", type=click.Path(file_okay=False), required=False)
@click.option("--dry-run", is_flag=True, help="With jsonl: show what would be stored, store nothing.")
def import_(path: str, folder: str | None, dry_run: bool, as_json: bool) -> None:
    """Add the sessions of an export, or of JSONL files.

    `jsonl FOLDER` imports the files of an agent host. Stored sessions do not change, so importing twice adds nothing.

    \b
    recollect import ~/sessions
    recollect import jsonl ~/.my-host/sessions --dry-run
    """
    if path == "jsonl" and folder is not None:
        _import_jsonl(Path(folder), dry_run, as_json)
        return
    if folder is not None or dry_run:
        raise UsageError("Only `jsonl` takes a folder and `--dry-run`", "recollect import jsonl FOLDER --dry-run")
    with open_memory() as memory, shown_progress() as show:
        report = memory.import_sessions(path, show)
    new = f"{plural(report.events_new, 'new event')}, {plural(report.sessions_new, 'new session')}"
    differ = "differ from the export: they have grown here, or were redacted by other rules"
    wait = "A sweep is running: run `recollect sweep` afterwards to list the imported sessions"
    lines = (
        f"Imported {plural(report.sessions, 'session')}: {new}",
        f"{plural(report.different, 'session')} {differ}" if report.different else None,
        f"Left out {plural(report.forgotten, 'forgotten session')}" if report.forgotten else None,
        f"Left out {plural(report.excluded, 'excluded session')}" if report.excluded else None,
        None if report.is_settled else wait,
    )
    emit(report, as_json, lines)


def _import_jsonl(folder: Path, dry_run: bool, as_json: bool) -> None:
    with open_memory() as memory:
        report = live.Backfill(live.Live(memory)).run(folder, dry_run=dry_run)
    verb = "Would import" if report.is_dry_run else "Imported"
    new = f"{plural(report.messages_new, 'new message')}, {plural(report.sessions_new, 'new session')}"
    skipped = (f"{one_line(path)}:{number}  {reason}" for path, number, reason in report.skipped)
    lines = (
        f"{verb} {plural(report.files, 'file')}: {new}; {report.messages_known:,} already stored",
        f"Skipped {plural(len(report.skipped), 'line')}:" if report.skipped else None,
        *first_lines(skipped, _MOST_ROWS),
        *(f"Cannot read ({one_line(reason)}): {one_line(path)}" for path, reason in report.failures),
    )
    emit(report, as_json, lines)
    if report.failures:
        sys.exit(3)


_REASON_COLUMNS = 22


@click.group(invoke_without_command=True)
@click.option("--dry-run", is_flag=True, help="Only show what would be evicted, by which rule, and what went for good.")
@json_option
@click.pass_context
@reports_errors
def retention(context: click.Context, dry_run: bool, as_json: bool) -> None:
    """Evict raw detail, as sweeps do, to fit the budget.

    Digests are always kept. The limits are settings in `[retention]`.

    \b
    recollect retention --dry-run
    recollect retention rehydrate 3f2a91
    """
    if context.invoked_subcommand is not None:
        return
    if dry_run:
        with open_memory(create=False) as memory:
            outlook = memory.outlook()
        emit(outlook, as_json, _outlook_lines)
        return
    make_room()
    with open_memory(create=False) as memory:
        report = memory.keep_within_budget()
    emit(report, as_json, budget_lines)
    if not as_json:
        print_budget_warnings(report)
        if not report.sessions_evicted:
            click.echo(f"Nothing to evict: {size(report.raw_bytes)} of raw detail")


def _outlook_lines(outlook: "Outlook") -> Iterator[str]:
    yield f"{size(outlook.raw_bytes)} of raw detail; eviction starts above {size(outlook.limits.raw_soft_cap)}"
    held = ((row.held.ended_ms, row.held.bytes, row.reason, row.held.session_uid) for row in outlook.evictions)
    yield from _loss_lines(held)
    if outlook.evictions:
        count = plural(len(outlook.evictions), "session")
        yield f"{count} would be evicted, {size(outlook.bytes_after)} would remain"
    else:
        yield "Nothing would be evicted"
    yield from _loss_lines((loss.at_ms, loss.bytes, loss.event, loss.session_uid) for loss in outlook.lost)


def _loss_lines(rows: Iterable[tuple[int | None, int, str, str]]) -> Iterator[str]:
    """Sessions whose raw detail goes or went: the day, how much it is, why."""
    lines = []
    for at_ms, count, why, session_uid in rows:
        day = local_time(rfc3339(at_ms) if at_ms else None)[:10]
        lines.append(f"{day}  {size(count):>8}  {why:<{_REASON_COLUMNS}}  {one_line(session_uid)}")
    return first_lines(lines, _MOST_ROWS)


@command(below=retention)
@click.argument("session", type=SESSION)
@root_option
def rehydrate(session: str, roots: tuple[str, ...], as_json: bool) -> None:
    """Bring back the raw detail of an evicted session.

    Reads your agent's own file again, if it still exists.

    \b
    recollect retention rehydrate 3f2a91c4
    """
    with open_memory(roots=roots, create=False) as memory:
        chosen = memory.session(session)
        with shown_progress() as show:
            memory.rehydrate(chosen, show)
        events = len(memory.events(chosen, with_copies=True))
    done = f"Restored {plural(events, 'event')} of {one_line(chosen.session_uid)}"
    emit({"session_uid": chosen.session_uid, "events": events}, as_json, [done])


@command()
@click.option("--watch", "is_watch", is_flag=True, help="Install `recollect watch` as a service instead.")
@click.option("--remove", "is_removal", is_flag=True, help="Remove the schedule.")
@click.option("--dry-run", is_flag=True, help="Only show what would be installed.")
@yes_option
def schedule(is_watch: bool, is_removal: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Run sweeps automatically: daily, weekly, or as agents write.

    Installs a systemd unit, a launchd agent or a crontab line. It sweeps daily or weekly (`retention.cadence`) or, with
    --watch, watches from your login on. Shows what it will install, and asks; --remove uninstalls it.
    """
    planned = api.plan_schedule(is_removal=is_removal, watch=is_watch)
    if not as_json and not is_removal:
        click.echo("\n".join(_schedule_lines(planned)))
    is_done = False
    if is_removal:
        is_done = care.remove_schedule(planned)
    elif not dry_run:
        confirm("Install this?", "install the schedule", yes)
        care.install_schedule(planned)
        is_done = True
    installed = ["Installed; `recollect schedule --remove` uninstalls it"] if is_done else []
    said = installed if not is_removal else ["Removed" if is_done else "No schedule is installed"]
    emit(planned.to_json() | {"is_done": is_done}, as_json, said)


def _schedule_lines(planned: "Schedule") -> Iterator[str]:
    for path, content in planned.files.items():
        yield click.style(str(path), bold=True)
        yield content
    if planned.cron_line:
        yield planned.cron_line
    for words in planned.on:
        yield f"$ {' '.join(words)}"


@command()
@click.argument("sessions", nargs=-1, type=SESSION)
@click.option(
    "--format", "format_", type=click.Choice(_FORMATS), default="md", help="Write md (default), html or json."
)
@click.option("--tools", is_flag=True, help="In Markdown: add a line for each tool call and its result.")
@click.option("--diffs", is_flag=True, help="In Markdown: add what each edit changed.")
@click.option("--all", "is_all", is_flag=True, help="Archive every session except sub-agents and those without work.")
@click.option(
    "--to",
    "-o",
    "folder",
    metavar="DIR",
    type=click.Path(),
    default="conversations",
    help="Write into DIR (conversations).",
)
def archive(
    sessions: tuple[str, ...], format_: str, tools: bool, diffs: bool, is_all: bool, folder: str, as_json: bool
) -> None:
    """Write sessions as documents to read, keep or share.

    A file is named after the day and the title: conversations/2026-11-15-fix-the-failing-test.md. It never replaces
    an existing file. Commands then accept its name for the session:
    `recollect show 2026-11-15-fix-the-failing-test.md`.

    \b
    recollect archive last
    recollect archive 3f2a91c4 --tools --diffs --to ~/notes
    recollect archive 3f2a91c4 --format html
    recollect archive --all --format json --to ~/backup
    """
    if is_all == bool(sessions):
        raise UsageError("Give either sessions or `--all`", "`recollect sessions` lists ids and titles")
    if Path(folder).suffix.lstrip(".") in _FORMATS and not Path(folder).is_dir():
        raise UsageError(f"`--to` takes a folder, not a file: {folder}", _NAMED)
    with open_fresh(read_only=False) as memory, shown_progress() as show:
        named = [_archived(memory, name) for name in sessions]
        chosen = named or memory.sessions(roots_only=True, is_idle=False)
        written = memory.archives.write_all(chosen, folder, format_, tools=tools, diffs=diffs, progress=show)
    emit(written, as_json, _archive_lines, no_sessions())


def _archived(memory: "Memory", name: str) -> "Session":
    try:
        return memory.session(name)
    except NotFound:
        if Path(name).suffix.lstrip(".") not in _FORMATS:
            raise
        raise UsageError(f"No session is called {name}; `--to DIR` names the folder to write into", _NAMED) from None


def _archive_lines(written: "list[Archive]") -> Iterator[str]:
    yield from (f"Archived: {one_line(document.path)}" for document in written[:_MOST_ROWS])
    if len(written) > _MOST_ROWS:
        yield f"and {plural(len(written) - _MOST_ROWS, 'more session')}"
