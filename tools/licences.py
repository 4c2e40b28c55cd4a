"""Writes docs/licences.md: the licence of every package in requirements.lock, as its own metadata states it.

make licences
"""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution, requires
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
PAGE = REPOSITORY / "docs" / "licences.md"
HEADER = """\
# Licences

Recollect is under the Apache License 2.0. It installs these packages, at the versions in `requirements.lock`, and
copies nothing of them. `make licences` writes this page from the packages' own metadata, and a test compares them.

"""


def main() -> None:
    PAGE.write_text(page())


def page() -> str:
    """The page as the installed packages make it; raises PackageNotFoundError if one is missing."""
    needed = _closure("recollect")
    rows = {name: licence(distribution(name)) for name in locked()}
    return (
        f"{HEADER}## To run\n\n{_table({name: rows[name] for name in rows if name in needed})}\n"
        f"## To develop and test\n\n{_table({name: rows[name] for name in rows if name not in needed})}"
    )


def locked() -> list[str]:
    """The names in requirements.lock."""
    return re.findall(r"^([a-z0-9-]+)==", (REPOSITORY / "requirements.lock").read_text(), re.MULTILINE)


def licence(package: Distribution) -> str:
    """What a package's metadata says; in older ones a classifier, or a field of free text."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier", []) if "License ::" in text]
    named = [text for text in classifiers if text != "OSI Approved"]
    if named:
        return ", ".join(named)
    return (metadata.get("License") or "not stated").splitlines()[0]


def _closure(name: str) -> set[str]:
    """What a package needs to run, directly or not."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for requirement in _requirements(waiting.pop()):
            if requirement not in found:
                found.add(requirement)
                waiting.append(requirement)
    return found


def _requirements(name: str) -> list[str]:
    try:
        texts = requires(name) or []
    except PackageNotFoundError:
        return []  # for another platform
    names = [re.match(r"[A-Za-z0-9._-]+", text) for text in texts if "extra ==" not in text]
    return [re.sub(r"[-_.]+", "-", match[0]).lower() for match in names if match]


def _table(rows: dict[str, str]) -> str:
    lines = [f"| {name} | {text} |" for name, text in sorted(rows.items())]
    return "\n".join(["| package | licence |", "|---|---|", *lines]) + "\n"


if __name__ == "__main__":
    main()
