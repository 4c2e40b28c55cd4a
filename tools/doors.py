"""Write the lists of names that packages load on first use (`model/lazy.py`) from what type checkers see of them.

python tools/doors.py           # after a change below `if TYPE_CHECKING:` in an `__init__.py`
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
_LIST = re.compile(r'^_NAMES = """\n(.*?)^"""$', re.DOTALL | re.MULTILINE)
_COLUMNS = 120


def doors() -> dict[str, Path]:
    """Each package that loads its names on first use, and its `__init__.py`."""
    paths = [path for path in sorted(SOURCE.rglob("__init__.py")) if _LIST.search(path.read_text())]
    return {".".join(path.parent.relative_to(SOURCE).parts): path for path in paths}


def typed_names(path: Path) -> dict[str, str]:
    """Each name that a door offers to type checkers, and the module it is imported from."""
    (checked,) = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If)]
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: node.module
        for node in imports
        if node.module and node.module.startswith("recollect")
        for alias in node.names
    }


def listed_names(path: Path) -> dict[str, str]:
    """The same, as the running program reads it."""
    lines = [line.partition(": ") for line in _LIST.findall(path.read_text())[0].splitlines()]
    return {name: module for module, _, names in lines for name in names.split()}


def _lines(names: dict[str, str]) -> Iterator[str]:
    for module in dict.fromkeys(names.values()):
        line = f"{module}:"
        for name in (name for name, source in names.items() if source == module):
            if len(line) + 1 + len(name) > _COLUMNS:
                yield line
                line = f"{module}:"
            line += f" {name}"
        yield line


def write(path: Path) -> None:
    text = "".join(f"{line}\n" for line in _lines(typed_names(path)))
    path.write_text(_LIST.sub(lambda _: f'_NAMES = """\n{text}"""', path.read_text()))


if __name__ == "__main__":
    for door in doors().values():
        write(door)
