"""The command that lets another agent go on with a session: handoff."""

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.agents import BUILT_IN, shell_line
from recollect.api import open_memory
from recollect.cli.filters import SESSION
from recollect.cli.fresh import open_fresh
from recollect.cli.output import confirm, json_option, print_json, reports_errors, yes_option
from recollect.cli.terminal import one_line
from recollect.errors import NotFound, UsageError
from recollect.schema import to_json

if TYPE_CHECKING:
    from recollect.api import HandoverPlan


@click.command()
@click.argument("session", type=SESSION)
@click.option("--to", "agent", required=True, type=click.Choice(BUILT_IN), help="The agent that continues.")
@click.option("--run", is_flag=True, help="Start that agent instead of printing its command.")
@yes_option
@json_option
@reports_errors
def handoff(session: str, agent: str, run: bool, yes: bool, as_json: bool) -> None:
    """Continue a session in another agent.

    If that agent can take a whole session, Recollect writes a session file into its home. It first lists what the file
    will lack, and asks. Other agents get a brief as their first prompt.

    \b
    recollect handoff last --to AGENT
    recollect handoff 3f2a91c4 --to AGENT --run
    """
    if run and as_json:
        raise UsageError("Cannot use `--run` and `--json` together", "choose one")
    with open_fresh() as memory:
        plan = memory.handover.plan_handoff(memory.session(session), agent)
        write_plan(plan, yes=yes, is_quiet=as_json)
    if as_json:
        print_json(to_json(plan))
    elif run:
        run_in(list(plan.words), plan.cwd or "")
    else:
        click.echo(in_folder(plan.cwd, plan.command))


def in_folder(folder: str | None, command: str) -> str:
    """A command line that runs a command in a session's folder."""
    return f"cd {shlex.quote(folder)} && {command}" if folder else command


def write_plan(plan: "HandoverPlan", *, yes: bool, is_quiet: bool) -> None:
    """Show what a plan writes and what it lacks, ask, and write it."""
    if not is_quiet:
        for loss in plan.losses:
            click.echo(f"will be missing: {one_line(loss)}", err=True)
        for path in plan.files:
            click.echo(f"new file: {one_line(path)}", err=True)
    if plan.files:
        confirm("Write it into the agent's home?", f"write {plan.files[0]}", yes)
        with open_memory(create=False) as writable:
            writable.handover.write(plan)


def obstacles(words: Sequence[str], folder: str) -> Iterator[str]:
    """Why a command could not be run here; its first words may set variables."""
    program = next(word for word in words if "=" not in word)
    if folder and not Path(folder).is_dir():
        yield f"no such folder here: {folder}"
    if shutil.which(program) is None:
        yield f"not on your PATH: {program}"


def run_in(words: Sequence[str], folder: str) -> None:
    """Become the agent, in its folder and with its home."""
    for obstacle in obstacles(words, folder):
        raise NotFound(f"Cannot resume: {obstacle}", f"the command is: {shell_line(words)[:200]}")
    if folder:
        os.chdir(folder)
    # `env` sets the variables that the first words may name.
    os.execvp("env", ["env", *words])


COMMANDS = (handoff,)
