"""The command `web`: the page to look at, in a browser."""

import click

from recollect import archive
from recollect.cli.output import reports_errors
from recollect.cli.terminal import grey
from recollect.config import refuse_in_group


@click.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="PORT", help="Use this port (7391, or any if it is taken)."
)
@click.option("--no-open", is_flag=True, help="Print the address instead of opening a browser.")
@click.option("--read-only", is_flag=True, help="Read only: no stars, tags, notes, names or forgetting.")
@reports_errors
def web(port: int | None, no_open: bool, read_only: bool) -> None:
    """Read your sessions in a browser, on this machine only.

    Only you can open the page: its address contains a code that works once. If the browser does not open it within 5
    seconds, the address is printed. Ctrl-C stops it.

    \b
    recollect web
    recollect web --no-open --port 8080
    """
    refuse_in_group()
    archive.require_web_parts()  # else the rest cannot be imported
    from recollect.loopback import bind
    from recollect.web.app import USUAL_PORT, serve  # needs the extra

    def tell(address: str) -> None:
        click.echo(f"Open this in your browser; it works once:\n{address}")

    with bind(port, USUAL_PORT) as opened:
        click.echo(grey("Ctrl-C stops the page"), err=True)
        serve(opened, tell, opens=not no_open, read_only=read_only)


COMMANDS = (web,)
