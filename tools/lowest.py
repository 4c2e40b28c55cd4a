"""Installs the lowest versions that pyproject.toml allows into a scratch environment and runs a short test there.

make lowest
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
TESTS = ["tests/test_cli.py", "tests/test_api.py", "tests/redact/test_rules.py", "tests/store/test_contract.py"]
TOOLS = ["pytest", "pytest-xdist", "hypothesis", "syrupy", "hatchling", "editables"]


def main() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = f"{folder}/bin/python"
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run(*pip, *map(lowest, project["dependencies"]), *TOOLS)
        _run(*pip, "--no-deps", "--no-build-isolation", "--editable", str(REPOSITORY))
        _run(python, "-m", "recollect", "demo")
        _run(python, "-m", "pytest", "-n", "auto", *TESTS)


def lowest(requirement: str) -> str:
    """`name>=1.2; condition` as `name==1.2; condition`."""
    name, version, condition = re.fullmatch(r"([\w-]+)>=([\d.]+)\s*(;.*)?", requirement).groups()  # type: ignore[union-attr]
    return f"{name}=={version}{condition or ''}"


def _run(*command: str) -> None:
    if subprocess.run(command, cwd=REPOSITORY, check=False).returncode:
        sys.exit(f"failed: {' '.join(command)}")


if __name__ == "__main__":
    main()
