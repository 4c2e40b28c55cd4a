"""The command line: parse, call one function of the library, render."""

from importlib import import_module

TYPE_CHECKING = False  # nothing here is loaded before it is needed: a status line needs nearly nothing
if TYPE_CHECKING:
    from recollect.cli.entry import main

__all__ = ["main"]


def __getattr__(name: str) -> object:
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("recollect.cli.entry").main
