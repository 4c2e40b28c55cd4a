"""Print how large the code is, package by package, and what of it is easy to lose sight of.

python tools/size.py            the table and the counts
python tools/size.py --write    put them into docs/internal/size.md
python tools/size.py --check    print the totals; exit 1 if that page differs from them by more than 2 %
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "internal" / "size.md"
TOLERANCE = 0.02
RECORD_BASES = {"NamedTuple", "Struct", "TypedDict"}
BEGIN, END = "<!-- begin -->\n", "<!-- end -->\n"
# What is counted, and where it should end; agents' folders do not count for lines and modules.
BARS = {
    "lines": "≤ 50,000",
    "modules": "≤ 170",
    "statements": "≤ 32,300",
    "record types": "≤ 200",
    "public store methods": "≤ 120",
    "run-time import cycles": "0",
    "type names used twice": "≤ 8",
    "test lines": "≤ 42,000",
    "test files inside the store": "0",
}


class Module(NamedTuple):
    name: str
    path: Path
    lines: int
    tree: ast.Module

    @property
    def package(self) -> str:
        """The first part of its name, and for an agent the second; `recollect` itself for modules at the top."""
        top, *rest = self.name.split(".")[:-1] if self.path.name != "__init__.py" else self.name.split(".")
        return "/".join(rest[: 2 if rest[:1] == ["agents"] else 1]) or top

    @property
    def statements(self) -> int:
        return sum(isinstance(node, ast.stmt) for node in ast.walk(self.tree))

    @property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]

    @property
    def records(self) -> int:
        return sum(map(is_record, self.classes))


def is_record(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
    return bool(bases & RECORD_BASES) or any("dataclass" in ast.unparse(one) for one in node.decorator_list)


def read_modules(folder: Path) -> list[Module]:
    """The modules below a folder, by name."""
    modules = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        modules.append(Module(name, path, text.count("\n"), ast.parse(text)))
    return modules


def count_store_methods(modules: list[Module]) -> int:
    """Public methods and properties of `Store`, of the classes that its attributes are, and of their bases."""
    classes = {node.name: node for module in modules if ".store" in module.name for node in module.classes}
    waiting, reached = ["Store", *(part for node in ast.walk(classes["Store"]) for part in _class_names(node))], set()
    while waiting:
        name = waiting.pop()
        if name in classes and name not in reached:
            reached.add(name)
            waiting += [ast.unparse(base).split("[")[0] for base in classes[name].bases]
    methods = [one for name in reached for one in classes[name].body if isinstance(one, ast.FunctionDef)]
    return sum(not method.name.startswith("_") for method in methods)


def _class_names(node: ast.AST) -> Iterator[str]:
    """The class that an attribute of `Store` is declared as, or made of."""
    if isinstance(node, ast.AnnAssign):
        yield from re.findall(r"\w+", ast.unparse(node.annotation))
    elif isinstance(node, ast.FunctionDef) and node.returns is not None and node.decorator_list:
        yield from re.findall(r"\w+", ast.unparse(node.returns))
    elif isinstance(node, ast.Assign):  # also what a lambda in it makes
        calls = (call.func for call in ast.walk(node.value) if isinstance(call, ast.Call))
        yield from (ast.unparse(func).rpartition(".")[2] for func in calls)


def import_cycles(modules: list[Module]) -> list[set[str]]:
    """Groups of modules that need each other when they are loaded; imports inside functions are not among them."""
    names = {module.name for module in modules}
    needs = {module.name: set(_imports(module, names)) - {module.name} for module in modules}
    reached = {name: _reached(name, needs) for name in needs}
    cycles: list[set[str]] = []
    for name in sorted(names):
        if name in reached[name] and not any(name in cycle for cycle in cycles):
            cycles.append({other for other in reached[name] if name in reached[other]})
    return cycles


def _imports(module: Module, names: set[str]) -> Iterator[str]:
    for node in _loaded(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module in names:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from inner & names
            if inner - names:
                yield node.module


def _loaded(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is loaded: no functions, nothing that only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from _loaded(child)


def _reached(name: str, needs: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(needs[name])
    while waiting:
        if (one := waiting.pop()) not in reached:
            reached.add(one)
            waiting += needs[one]
    return reached


def names_used_twice(modules: list[Module]) -> list[str]:
    """Names of classes that several modules define, without those that begin with `_`."""
    counts = Counter(node.name for module in modules for node in module.classes)
    return sorted(name for name, count in counts.items() if count > 1 and not name.startswith("_"))


def tests_inside_the_store(modules: list[Module]) -> list[str]:
    """Test modules outside `tests/store` that import a module of the store or reach for `._store`."""
    inside = re.compile(r"\brecollect\.store\.[a-z]|\._store\b")
    others = (module for module in modules if not module.name.startswith("store"))
    return [module.name for module in others if inside.search(module.path.read_text())]


def totals(modules: list[Module], tests: list[Module]) -> dict[str, int]:
    own = [module for module in modules if not module.package.startswith("agents/")]
    figures = (
        sum(module.lines for module in own),
        len(own),
        sum(module.statements for module in modules),
        sum(module.records for module in modules),
        count_store_methods(modules),
        len(import_cycles(modules)),
        len(names_used_twice(modules)),
        sum(module.lines for module in tests),
        len(tests_inside_the_store(tests)),
    )
    return dict(zip(BARS, figures, strict=True))


def table(modules: list[Module], counts: dict[str, int]) -> str:
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for module in modules:
        figures = (module.lines, 1, module.statements, module.records)
        rows[module.package] = [old + new for old, new in zip(rows[module.package], figures, strict=True)]
    text = "| count | now | bar |\n|---|---:|---:|\n"
    text += "".join(f"| {name} | {count:,} | {BARS[name]} |\n" for name, count in counts.items())
    text += "\n| package | lines | modules | statements | record types |\n|---|---:|---:|---:|---:|\n"
    for package, row in [*sorted(rows.items(), key=lambda item: -item[1][0])]:
        text += f"| {package} | {' | '.join(f'{figure:,}' for figure in row)} |\n"
    every = [sum(column) for column in zip(*rows.values(), strict=True)]
    return f"{text}| all | {' | '.join(f'{figure:,}' for figure in every)} |\n"


def stale(page: str, counts: dict[str, int]) -> list[str]:
    """The counts that the page gives too differently."""
    found = dict(re.findall(r"^\| (.+?) \| ([\d,]+) \| (?:≤ )?[\d,]+ \|$", page, re.MULTILINE))
    written = {name: int(figure.replace(",", "")) for name, figure in found.items()}
    return [
        f"{name}: {written.get(name)} written, {count} now"
        for name, count in counts.items()
        if name not in written or abs(count - written[name]) > max(TOLERANCE * count, 3 if written[name] else 0)
    ]


def main(words: list[str]) -> int:
    modules, tests = read_modules(ROOT / "src"), read_modules(ROOT / "tests")
    counts = totals(modules, tests)
    if words == ["--check"]:
        print(", ".join(f"{count:,} {name}" for name, count in counts.items()))
        differing = stale(PAGE.read_text(), counts)
        for text in differing:
            print(f"docs/internal/size.md is stale: {text}; run `make fix`", file=sys.stderr)
        return int(bool(differing))
    if words == ["--write"]:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{table(modules, counts)}\n{END}{after}")
        return 0
    print(table(modules, counts))
    print("import cycles:", *(" ⇄ ".join(sorted(cycle)) for cycle in import_cycles(modules)), sep="\n  ")
    print("used twice:", ", ".join(names_used_twice(modules)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
