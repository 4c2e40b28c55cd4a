"""The commands of the budget: retention, rehydrate, schedule."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.output import Renamed, confirm, json_option, print_json, reports_errors, root_option, yes_option
from recollect.cli.words import local_time, one_line, plural, printable, size
from recollect.clock import rfc3339
from recollect.errors import NotFound

if TYPE_CHECKING:
    from recollect.budget import BudgetReport, Outlook
    from recollect.memory import Memory
    from recollect.retention import Eviction
    from recollect.schedule import Schedule
    from recollect.schema import Session
    from recollect.status import RetentionStatus

_SHOWN = 20
_REASON_COLUMNS = 22
_LOSSES = {
    "data_loss": "went without a digest",
    "last_copy_evicted": "went whose files your agents have deleted too; digests are kept",
}


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--explain", is_flag=True, help="Only say what would go, what stays, and why.")
@json_option
@reports_errors
def retention(dry_run: bool, explain: bool, as_json: bool) -> None:
    """Drop raw detail until the store fits its budget, as sweeps do.

    Digests always stay. `[retention]` in the settings has the limits.

    \b
    recollect retention --explain
    """
    from recollect.care import make_room
    from recollect.memory import open_memory

    if dry_run or explain:
        with open_memory(create=False) as memory:
            limits, outlook = memory.settings.limits, memory.outlook()
        if as_json:
            print_json({"limits": asdict(limits), **_outlook_json(outlook)})
        else:
            _print_outlook(outlook, limits, explain)
        return
    make_room()
    with open_memory(create=False) as memory:
        report = memory.keep_within_budget()
    if as_json:
        print_json(asdict(report))
        return
    print_budget(report)
    if not report.sessions_evicted:
        click.echo(f"Nothing to drop: {size(report.raw_bytes)} of raw detail")


def print_budget(report: "BudgetReport") -> None:
    """What a sweep says of the budget: nothing if nothing went."""
    if report.sessions_evicted:
        freed = f"{plural(report.sessions_evicted, 'session')} ({size(report.bytes_evicted)})"
        click.echo(f"Dropped the raw detail of {freed} to keep within the budget; digests stay")
    for count, event in ((report.data_loss, "data_loss"), (report.last_copies_evicted, "last_copy_evicted")):
        if count:
            click.echo(f"{click.style(event, fg='red')}: {plural(count, 'session')} {_LOSSES[event]}", err=True)
    for warning in report.warnings:
        click.echo(f"{click.style('warning', fg='yellow')}: {one_line(warning)}", err=True)


def find_digest_of_evicted(memory: "Memory", session: "Session") -> dict[str, Any] | None:
    """What is left to tell of a session whose raw detail is gone, for programs."""
    from recollect.schema import as_json

    if session.evicted_at is None:
        return None
    try:
        return as_json(memory.digest(session))
    except NotFound:
        return None  # a line in its root's digest is all there is


def note_evicted(session: "Session") -> None:
    """Say of a session that its raw detail is gone where only data is printed."""
    if session.evicted_at is not None:
        left = "`recollect digest` tells what is left, `recollect rehydrate` reads it again"
        click.echo(f"note: raw detail up to {local_time(session.evicted_at)} was dropped: {left}", err=True)


def print_evicted(memory: "Memory", session: "Session") -> None:
    """Say of a session that its raw detail is gone, with the digest that is left."""
    if session.evicted_at is None:
        return
    from recollect.distill.markdown import render

    when = local_time(session.evicted_at)
    click.echo(f"Raw detail up to {when} was dropped to keep within the budget; this is its digest:\n")
    try:
        click.echo(printable(render(memory.digest(session), None)), nl=False)
    except NotFound as error:
        click.echo(f"{one_line(error.message)}; {one_line(error.hint or '')}")


def print_retention_status(found: "RetentionStatus") -> None:
    """The lines of `recollect status` about the budget."""
    click.echo(f"{'raw':<8} {size(found.raw_bytes)} of at most {size(found.raw_hard_cap)}")
    if found.distilled_bytes > found.distilled_cap:
        told = f"{size(found.distilled_bytes)}, more than retention.distilled_cap ({size(found.distilled_cap)})"
        click.echo(
            f"{click.style('kept'.ljust(8), fg='yellow')} what was distilled takes {told}; nothing of it is dropped"
        )
    if found.sessions_evicted:
        click.echo(f"{'evicted':<8} {plural(found.sessions_evicted, 'session')} kept as digests only")
    for event, count in found.losses.items():
        click.echo(f"{click.style('lost'.ljust(8), fg='red')} {event}: {plural(count, 'session')} {_LOSSES[event]}")
    if found.last_copies_go_at:
        when = local_time(found.last_copies_go_at)[:10]
        click.echo(f"{'forecast':<8} from about {when} on last copies will go: raise retention.raw_hard_cap")


def _outlook_json(outlook: "Outlook") -> dict[str, Any]:
    planned = outlook.plan
    told = asdict(outlook) | {"bytes_after": planned.bytes_after}
    told["evictions"] = [
        {"session_uid": one.held.session_uid, "bytes": one.held.bytes, "reason": one.reason}
        for one in planned.evictions
    ]
    told["stays"] = {why: share._asdict() for why, share in outlook.stays.items()}
    del told["plan"]
    return told


def _print_outlook(outlook: "Outlook", limits: Any, explain: bool) -> None:
    planned = outlook.plan
    click.echo(f"{size(outlook.raw_bytes)} of raw detail; drops begin above {size(limits.raw_soft_cap)}")
    if explain:
        _print_rules(outlook, limits)
    for one in planned.evictions[:_SHOWN]:
        click.echo(f"  {_planned_line(one)}")
    if len(planned.evictions) > _SHOWN:
        click.echo(f"  and {plural(len(planned.evictions) - _SHOWN, 'more session')}: --json lists all")
    count = plural(len(planned.evictions), "session")
    click.echo(
        f"{count} would go, {size(planned.bytes_after)} would be left" if planned.evictions else "Nothing would go"
    )
    for why, share in outlook.stays.items() if explain else ():
        click.echo(f"{plural(share.sessions, 'session')} ({size(share.bytes)}) would stay: {why}")


def _planned_line(one: "Eviction") -> str:
    last = local_time(rfc3339(one.held.ended_ms) if one.held.ended_ms else None)[:10]
    return f"{last}  {size(one.held.bytes):>8}  {one.reason:<{_REASON_COLUMNS}}  {one_line(one.held.session_uid)}"


def _print_rules(outlook: "Outlook", limits: Any) -> None:
    last = "go like others" if limits.evict_last_copy else f"stay up to {size(limits.raw_hard_cap)}"
    lines = (
        f"age: digested sessions idle for {limits.raw_max_age_days} days go whatever room there is",
        f"soft cap: above {size(limits.raw_soft_cap)} digested sessions go, the longest digested first",
        f"hard cap: above {size(limits.raw_hard_cap)} what is left is digested and goes, last copies after all others",
        "not analysed: what cannot be digested goes only over the hard cap, when nothing else is left",
        f"last copies ({size(outlook.last_copy_bytes)}), whose files your agents have deleted, {last}",
        f"it grows by about {size(outlook.growth_bytes_per_day)} a day",
    )
    for line in lines:
        click.echo(click.style(f"  {line}", fg="bright_black"))


@click.command()
@click.argument("session")
@root_option
@json_option
@reports_errors
def rehydrate(session: str, roots: tuple[str, ...], as_json: bool) -> None:
    """Bring back the raw detail of an evicted session.

    From your agent's own file, if that is still there.

    \b
    recollect rehydrate 3f2a91c4
    """
    from recollect.cli.progress import shown_progress
    from recollect.memory import open_memory

    with open_memory(roots=roots, create=False) as memory:
        found = memory.session(session)
        with shown_progress() as show:
            memory.rehydrate(found, show)
        events = len(memory.events(found))
    if as_json:
        print_json({"session_uid": found.session_uid, "events": events})
    else:
        click.echo(f"Read again: {plural(events, 'event')} of {one_line(found.session_uid)}")


@click.command()
@click.option("--remove", "is_removal", is_flag=True, help="Take the schedule away.")
@click.option("--dry-run", "--print", "dry_run", cls=Renamed, is_flag=True, help="Only show what would be installed.")
@yes_option
@json_option
@reports_errors
def schedule(is_removal: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Have sweeps run by themselves, daily or weekly.

    As `retention.cadence` says, by a systemd timer, a launchd agent or a line of your crontab: shown first, and taken
    away by --remove.
    """
    from recollect.care import own_schedule
    from recollect.schedule import install, remove

    planned = own_schedule(is_removal=is_removal)
    if not as_json and not is_removal:
        _print_schedule(planned)
    is_done = False
    if is_removal:
        is_done = remove(planned)
    elif not dry_run:
        confirm("Install this?", yes)
        install(planned)
        is_done = True
    if as_json:
        print_json(_schedule_json(planned) | {"is_done": is_done})
    elif is_removal:
        click.echo("Removed" if is_done else "There was none")
    elif is_done:
        click.echo("Installed; `recollect schedule --remove` takes it away")


def _print_schedule(planned: "Schedule") -> None:
    for path, content in planned.files.items():
        click.echo(click.style(str(path), bold=True))
        click.echo(content)
    if planned.cron_line:
        click.echo(planned.cron_line)
    for command in planned.on:
        click.echo(f"$ {' '.join(command)}")


def _schedule_json(planned: "Schedule") -> dict[str, Any]:
    return {
        "kind": planned.kind,
        "files": {str(path): content for path, content in planned.files.items()},
        "cron_line": planned.cron_line,
        "commands": [list(command) for command in planned.on],
    }


COMMANDS = (retention, rehydrate, schedule)
