"""Names that a package offers and loads on first use.

The package imports them under `if TYPE_CHECKING:`, where type checkers and readers find them, and lists them a second
time as text for the running program: `python tools/doors.py` writes that list, and a test compares the two.
`__getattr__` belongs into the `else:`, where type checkers do not see it: they would take any name for one that the
package has.

Code outside imports from the package only, and calls what it seldom needs through it (`from recollect import care`,
then `care.make_backup(…)`): that costs nothing until it is called, and no import is hidden in a function.
"""

from importlib import import_module

TYPE_CHECKING = False  # `typing` takes as long to load as all that a hook needs
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lazy_names(package: str, listed: str) -> "Callable[[str], Any]":
    """A `__getattr__` for a package; each line of the list is `module: name name …`."""
    modules: dict[str, str] = {}

    def load(name: str) -> "Any":
        if not modules:
            lines = [line.partition(": ") for line in listed.split("\n")]
            modules.update({name: module.strip() for module, _, names in lines for name in names.split()})
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:  # a module of its own
            return import_module(f"{package}.{name}")
        return getattr(import_module(modules[name]), name)

    return load
