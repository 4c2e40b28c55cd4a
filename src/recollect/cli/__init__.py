"""The command line: parse, call one function of the library, render."""

from recollect.cli.commands import main

__all__ = ["main"]
