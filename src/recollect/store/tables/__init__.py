"""The tables, a module for each family: what they declare, and the SQL on them."""

from functools import cache
from importlib import import_module
from types import ModuleType

from recollect.store.tables.table import BOTH, Table


@cache
def _modules() -> list[ModuleType]:
    from pkgutil import iter_modules  # a search needs no list of the tables

    return [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]


def declared(database: str) -> list[Table]:
    """Every table of a database, whichever module of this package declares it."""
    tables = {
        value.name: value
        for module in _modules()
        for value in vars(module).values()
        if isinstance(value, Table) and value.database in (database, BOTH)
    }
    return list(tables.values())
