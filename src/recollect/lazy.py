"""Names that a package offers and loads on first use.

The package lists them once, as imports under `if TYPE_CHECKING:`. What type checkers read there is what loads: no
second list can differ from it. `__getattr__` belongs into the `else:`, where type checkers do not see it: they would
take any name for one that the package has.

Code outside imports from the package only, and calls what it seldom needs through it (`from recollect import care`,
then `care.make_backup(…)`): that costs nothing until it is called, and no import is hidden in a function.
"""

from importlib import import_module
from itertools import takewhile

TYPE_CHECKING = False  # `typing` takes as long to load as all that a hook needs
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PUNCTUATION = str.maketrans("(),", "   ")


def lazy_names(package: str, file: str) -> "Callable[[str], Any]":
    """A `__getattr__` for the package whose `__init__.py` is `file`."""
    modules: dict[str, str] = {}

    def load(name: str) -> "Any":
        if not modules and not name.startswith("__"):
            modules.update(_listed_names(file))
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:  # a module of its own
            return import_module(f"{package}.{name}")
        return getattr(import_module(modules[name]), name)

    return load


def _listed_names(file: str) -> dict[str, str]:
    """Each name imported under `if TYPE_CHECKING:`, and its module."""
    with open(file, encoding="utf-8") as source:
        _, _, after = source.read().partition("\nif TYPE_CHECKING:\n")
    block = " ".join(takewhile(lambda line: not line or line.startswith(" "), after.splitlines()))
    imports = [statement.partition(" import ") for statement in block.split(" from ")[1:]]
    return {name: module for module, _, names in imports for name in names.translate(_PUNCTUATION).split()}
