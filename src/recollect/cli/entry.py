"""The command `recollect`. Each family of commands is loaded when it is called, so that a search starts at once."""

import io
import sys
from importlib import import_module
from typing import Any

import click

from recollect import __version__
from recollect.cli.output import usage_errors_as_json
from recollect.config import has_colour

_AS_JSON = "recollect.as_json"
_NEAR_MISS = 0.7  # how alike a command and what was typed must be to ask which was meant
# The help's sections, as in the README, and the module of each command in them.
_SECTIONS = {
    "Find": dict.fromkeys(("search", "history", "recent", "blame"), "find")
    | dict.fromkeys(("fix", "why", "how", "decisions", "remember"), "answers")
    | {"knowledge": "knowledge"},
    "Continue": dict.fromkeys(("resume", "open", "handoff", "group"), "resume"),
    "Review": dict.fromkeys(("sessions", "show", "digest", "signals"), "sessions")
    | {"diff": "transcript", "stats": "stats", "mark": "sessions", "archive": "care", "web": "setup"},
    "Set up": dict.fromkeys(("install", "uninstall", "hooks", "mcp"), "setup")
    | {"statusline": "stats"}
    | dict.fromkeys(("sweep", "watch", "demo"), "sweep")
    | {"schedule": "care"}
    | dict.fromkeys(("track", "exclude", "config", "completion"), "setup"),
    "Look after": {"status": "sweep"}
    | dict.fromkeys(("doctor", "backup", "restore", "export", "import", "retention"), "care")
    | dict.fromkeys(("forget", "redact"), "privacy"),
    "Build": {"live": "setup"},
}
_MODULES = {name: module for names in _SECTIONS.values() for name, module in names.items()}
# Names of earlier versions and the words that they stand for now: they still work, and say so.
RENAMED = {
    "star": "mark star",
    "tag": "mark tag",
    "note": "mark note",
    "rename": "mark rename",
    "run": "group run",
    "clear": "group clear",
    "bookmarks": "group bookmarks",
    "ipc": "group",  # `ipc serve`
    "fork": "resume --fork",
    "files": "blame --all",
    "related": "sessions --related",
    "timeline": "sessions --timeline",
    "exchanges": "show --exchanges",
    "facts": "knowledge facts",
    "workflows": "knowledge workflows",
    "graph": "knowledge graph",
    "graphiti": "knowledge graphiti",
    "audit": "knowledge audit",
    "rehearse": "knowledge rehearse",
    "problems": "status --problems",
    "rehydrate": "retention rehydrate",
}
# What people type, knowing other programs, for what is called otherwise here.
_SYNONYMS = {
    "sessions": "list ls",
    "search": "find grep query ask",
    "recent": "last latest log",
    "show": "view cat read transcript",
    "digest": "summary summarise summarize brief",
    "resume": "continue",
    "open": "todo todos unfinished",
    "diff": "changes edits",
    "stats": "cost costs usage spend tokens money",
    "stats --by command": "commands failures",
    "search --kind user_msg": "prompts requests",
    "sweep": "index sync update scan refresh",
    "install": "init setup",
    "archive": "share document markdown",
    "forget": "delete remove rm erase purge",
    "exclude": "ignore",
    "web": "serve ui browse gui",
    "config": "settings",
    "--version": "version",
    "--help": "help",
}


class Commands(click.Group):
    """Lists commands by purpose, and reports wrong usage as JSON to a call with `--json`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        as_json = "--json" in (args[: args.index("--")] if "--" in args else args)
        with usage_errors_as_json(as_json):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[_AS_JSON] = as_json
        return context

    def invoke(self, ctx: click.Context) -> Any:
        with usage_errors_as_json(ctx.meta[_AS_JSON]):
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name) if cmd_name in _MODULES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and (words := RENAMED.get(args[0])):
            if not ctx.resilient_parsing:  # as completion parses
                click.echo(f"note: `recollect {args[0]}` is `recollect {words}` now", err=True)
            args = [*words.split(), *args[1:]]
        if args and args[0] not in _MODULES and not args[0].startswith("-"):
            ctx.fail(_unknown(args[0]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(title, ", ".join(names)) for title, names in _SECTIONS.items()])


def _unknown(name: str) -> str:
    from difflib import get_close_matches  # only where a command was mistyped

    near = [command for command, synonyms in _SYNONYMS.items() if name.lower() in synonyms.split()]
    near = near or get_close_matches(name.lower(), _MODULES, 2, _NEAR_MISS)
    meant = f"Did you mean {' or '.join(near)}?" if near else f"To search for it: recollect search {name}"
    return f"No such command: {name}. {meant}"


def load(name: str) -> click.Command:
    """Return a command by its name."""
    commands = vars(import_module(f"recollect.cli.{_MODULES[name]}")).values()
    return next(command for command in commands if isinstance(command, click.Command) and command.name == name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="recollect")
@click.pass_context
def main(context: click.Context) -> None:
    """Everything your coding agents did, searchable, in one local store.

    \b
    recollect                         search as you type, then resume
    recollect sweep                   read new sessions
    recollect search "pool timeout"   search words, paths, commands, errors
    recollect recent                  pick up where you left off
    recollect digest 3f2a91           what a session did and left open
    recollect show 3f2a91             the whole session

    `recollect COMMAND --help` explains a command. Your agents' files are never changed. RECOLLECT_HOME sets the store's
    folder.
    """
    if not has_colour():
        context.color = False
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks `✓` must not end a command
    if context.invoked_subcommand is not None:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(context.get_help())
        return
    from recollect.cli.picker import pick_session  # only where no command is given

    pick_session(lambda *words: main.main(list(words), prog_name="recollect", standalone_mode=False))
