"""Writes requirements.lock: what the development install takes, to the byte.

    make lock

pip chooses the newest versions that pyproject.toml allows. Each is written down with the hashes of all its files, so
that the same lock serves every platform that has wheels for them.
"""

import html
import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

from pip._internal.models.index import PyPI  # the address that pip itself asks by default

REPOSITORY = Path(__file__).parent.parent
LOCK = REPOSITORY / "requirements.lock"
BUILD = ["hatchling", "editables"]  # what installing this project itself takes, which pip would fetch unlocked
HEADER = """\
# Every package of the development install, with the hashes of its files. `make lock` writes this file.
# Only what is in it is installed: pip install --require-hashes --no-deps -r requirements.lock
"""


def main() -> None:
    packages = sorted(_resolved(), key=lambda package: package[0])
    entries = [_entry(name, version, digest) for name, version, digest in packages]
    LOCK.write_text(HEADER + "".join(entries))
    print(f"{len(packages)} packages in {LOCK.name}")


def _resolved() -> list[tuple[str, str, str]]:
    """Name, version and hash of every package that an install takes here."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    report = subprocess.run([*command, f"{REPOSITORY}[dev]", *BUILD], check=True, capture_output=True, text=True)
    return [
        (_normal(item["metadata"]["name"]), item["metadata"]["version"], hashes["sha256"])
        for item in json.loads(report.stdout)["install"]
        if (hashes := item["download_info"].get("archive_info", {}).get("hashes"))  # this project has none
    ]


def _entry(name: str, version: str, digest: str) -> str:
    lines = [
        f"{name}=={version}{_marker(name)}",
        *(f"--hash=sha256:{value}" for value in _hashes(name, version, digest)),
    ]
    return " \\\n    ".join(lines) + "\n"


def _hashes(name: str, version: str, digest: str) -> list[str]:
    """The hashes of all files of a version, the one that was resolved among them."""
    with urllib.request.urlopen(f"{PyPI.simple_url}/{name}/", timeout=60) as answer:
        links = re.findall(r'href="[^"]*/([^"/#]+)#sha256=([0-9a-f]{64})"', html.unescape(answer.read().decode()))
    stem = re.compile(rf"{name.replace('-', '[-_.]')}-{re.escape(version)}(?:-.*\.whl|\.tar\.gz)", re.IGNORECASE)
    return sorted({digest, *(value for file, value in links if stem.fullmatch(file))})


def _marker(name: str) -> str:
    """The condition that pyproject.toml gives for a package."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    requirement = next((text for text in project["dependencies"] if re.match(rf"{name}\b", text)), "")
    condition = requirement.partition(";")[2].strip()
    return f" ; {condition}" if condition else ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
