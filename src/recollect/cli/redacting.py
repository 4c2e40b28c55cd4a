"""`recollect redact`: apply the rules to what is stored, or see what they do to a text."""

import sys
from dataclasses import asdict

import click

from recollect.cli.output import json_option, print_json, reports_errors
from recollect.cli.words import one_line, plural
from recollect.errors import UsageError


@click.command()
@click.option("--rescan", is_flag=True, help="Apply the rules to sessions that went through older ones.")
@click.option("--dry-run", is_flag=True, help="With --rescan: only say what would be replaced.")
@click.option("--check", metavar="TEXT", help="Show what would be replaced in TEXT; - reads it from standard input.")
@json_option
@reports_errors
def redact(rescan: bool, dry_run: bool, check: str | None, as_json: bool) -> None:
    """Replace secrets in what is stored, or try the rules on a text.

    \b
    recollect redact --rescan
    recollect redact --check "password = hunter2hunter2"
    cat deploy.log | recollect redact --check -
    """
    if rescan == (check is not None) or (dry_run and not rescan):
        raise UsageError("Say one thing to do: --rescan (with or without --dry-run) or --check TEXT")
    if check is not None:
        _check(sys.stdin.read() if check == "-" else check, as_json)
    else:
        _rescan(dry_run, as_json)


def _check(text: str, as_json: bool) -> None:
    from recollect.care import check_text

    found = check_text(text)
    if as_json:
        print_json(asdict(found))
        return
    click.echo(found.text)
    click.echo(_rules(found.replaced) or "Nothing would be replaced", err=True)


def _rescan(dry_run: bool, as_json: bool) -> None:
    from recollect.cli.progress import shown_progress
    from recollect.memory import open_memory

    with open_memory(create=False) as memory, shown_progress() as show:
        report = memory.rescan(show, dry_run=dry_run)
    if as_json:
        print_json(asdict(report))
        return
    click.echo(f"Looked at {plural(report.sessions, 'session')} that went through older rules or none")
    if report.sessions_changed:
        did = "Would change" if dry_run else "Changed"
        click.echo(f"{did} {plural(report.events_changed, 'event')} in {plural(report.sessions_changed, 'session')}")
    click.echo(_rules(report.replaced) or "No secrets found")
    if report.unscannable:
        click.echo(f"{plural(report.unscannable, 'text')} could not be looked through: left out")


def _rules(replaced: dict[str, int]) -> str:
    return one_line(", ".join(f"{rule} {count}" for rule, count in sorted(replaced.items())))


COMMANDS = (redact,)
