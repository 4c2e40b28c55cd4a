"""Commands of the budget: retention, rehydrate, schedule."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from recollect import care
from recollect.api import make_room, open_memory, plan_schedule
from recollect.cli.filters import SESSION
from recollect.cli.output import confirm, emit, json_option, print_json, reports_errors, root_option, yes_option
from recollect.cli.terminal import local_time, one_line, plural, shown_progress, size
from recollect.clock import rfc3339

if TYPE_CHECKING:
    from recollect.care import RetentionStatus, Schedule
    from recollect.retention import BudgetReport, Outlook
    from recollect.store import Eviction

_SHOWN = 20
_REASON_COLUMNS = 22
_LOSSES = {
    "data_loss": "evicted without a digest",
    "last_copy_evicted": "evicted whose files your agents have deleted; their digests are kept",
}


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be evicted, by which rule, and what went for good.")
@json_option
@reports_errors
def retention(dry_run: bool, as_json: bool) -> None:
    """Evict raw detail, as sweeps do, to fit the budget.

    Digests are always kept. The limits are settings in `[retention]`.

    \b
    recollect retention --dry-run
    """
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


def budget_lines(report: "BudgetReport") -> Iterator[str]:
    """What a sweep prints about the budget: nothing if nothing was evicted."""
    if report.sessions_evicted:
        freed = f"{plural(report.sessions_evicted, 'session')} ({size(report.bytes_evicted)})"
        yield f"Evicted the raw detail of {freed} to stay within the budget; digests are kept"


def print_budget_warnings(report: "BudgetReport") -> None:
    for count, event in ((report.data_loss, "data_loss"), (report.last_copies_evicted, "last_copy_evicted")):
        if count:
            click.echo(f"{click.style(event, fg='red')}: {plural(count, 'session')} {_LOSSES[event]}", err=True)
    for warning in report.warnings:
        click.echo(f"{click.style('warning', fg='yellow')}: {one_line(warning)}", err=True)


def retention_status_lines(retention: "RetentionStatus") -> Iterator[str]:
    """The lines of `recollect status` about the budget."""
    yield f"{'raw':<8} {size(retention.raw_bytes)} of at most {size(retention.raw_hard_cap)}"
    if retention.distilled_bytes > retention.distilled_cap:
        over = f"{size(retention.distilled_bytes)}, over retention.distilled_cap ({size(retention.distilled_cap)})"
        yield f"{click.style('kept'.ljust(8), fg='yellow')} digests take {over}; they are never evicted"
    if retention.sessions_evicted:
        yield f"{'evicted':<8} {plural(retention.sessions_evicted, 'session')} kept as digests only"
    for event, count in retention.losses.items():
        yield f"{click.style('lost'.ljust(8), fg='red')} {event}: {plural(count, 'session')} {_LOSSES[event]}"


def _outlook_lines(outlook: "Outlook") -> Iterator[str]:
    yield f"{size(outlook.raw_bytes)} of raw detail; eviction starts above {size(outlook.limits.raw_soft_cap)}"
    yield from map(_eviction_line, outlook.evictions[:_SHOWN])
    if len(outlook.evictions) > _SHOWN:
        yield f"  and {plural(len(outlook.evictions) - _SHOWN, 'more session')}: --json lists all"
    if outlook.evictions:
        count = plural(len(outlook.evictions), "session")
        yield f"{count} would be evicted, {size(outlook.bytes_after)} would remain"
    else:
        yield "Nothing would be evicted"
    for loss in outlook.lost[:_SHOWN]:
        lost_at = local_time(rfc3339(loss.at_ms))[:10]
        yield f"  {lost_at}  {size(loss.bytes):>8}  {loss.event:<{_REASON_COLUMNS}}  {one_line(loss.session_uid)}"
    if len(outlook.lost) > _SHOWN:
        yield f"  and {len(outlook.lost) - _SHOWN} more: --json lists all"


def _eviction_line(eviction: "Eviction") -> str:
    held = eviction.held
    last = local_time(rfc3339(held.ended_ms) if held.ended_ms else None)[:10]
    return f"  {last}  {size(held.bytes):>8}  {eviction.reason:<{_REASON_COLUMNS}}  {one_line(held.session_uid)}"


@click.command()
@click.argument("session", type=SESSION)
@root_option
@json_option
@reports_errors
def rehydrate(session: str, roots: tuple[str, ...], as_json: bool) -> None:
    """Bring back the raw detail of an evicted session.

    Reads your agent's own file again, if it still exists.

    \b
    recollect rehydrate 3f2a91c4
    """
    with open_memory(roots=roots, create=False) as memory:
        chosen = memory.session(session)
        with shown_progress() as show:
            memory.rehydrate(chosen, show)
        events = len(memory.events(chosen, with_copies=True))
    if as_json:
        print_json({"session_uid": chosen.session_uid, "events": events})
    else:
        click.echo(f"Restored {plural(events, 'event')} of {one_line(chosen.session_uid)}")


@click.command()
@click.option("--watch", "is_watch", is_flag=True, help="Install `recollect watch` as a service instead.")
@click.option("--remove", "is_removal", is_flag=True, help="Remove the schedule.")
@click.option("--dry-run", is_flag=True, help="Only show what would be installed.")
@yes_option
@json_option
@reports_errors
def schedule(is_watch: bool, is_removal: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Run sweeps automatically: daily, weekly, or as agents write.

    Installs a systemd unit, a launchd agent or a crontab line. It sweeps daily or weekly (`retention.cadence`) or, with
    --watch, watches from your login on. Shows what it will install, and asks; --remove uninstalls it.
    """
    # `sweep` uses this module too, and needs neither.
    planned = plan_schedule(is_removal=is_removal, watch=is_watch)
    if not as_json and not is_removal:
        click.echo("\n".join(_schedule_lines(planned)))
    is_done = False
    if is_removal:
        is_done = care.remove_schedule(planned)
    elif not dry_run:
        confirm("Install this?", "install the schedule", yes)
        care.install_schedule(planned)
        is_done = True
    if as_json:
        print_json(planned.to_json() | {"is_done": is_done})
    elif is_removal:
        click.echo("Removed" if is_done else "No schedule is installed")
    elif is_done:
        click.echo("Installed; `recollect schedule --remove` uninstalls it")


def _schedule_lines(planned: "Schedule") -> Iterator[str]:
    for path, content in planned.files.items():
        yield click.style(str(path), bold=True)
        yield content
    if planned.cron_line:
        yield planned.cron_line
    for command in planned.on:
        yield f"$ {' '.join(command)}"


COMMANDS = (retention, rehydrate, schedule)
