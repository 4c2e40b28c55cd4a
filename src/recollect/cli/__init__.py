"""The command line: parse, call one function of the library, render."""

from recollect.cli.entry import main

__all__ = ["main"]
