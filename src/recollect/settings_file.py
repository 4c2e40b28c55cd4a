"""Changing config.toml: one value at a time, the rest of the file stays as it is, comments included."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.errors import BadConfig

_ADVICE = "edit the file by hand"


def with_value(text: str, key: str, value: Any) -> str:
    """The text of a settings file with `section.key` set. Raises BadConfig if that would change anything else."""
    section, _, name = key.rpartition(".")
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if _is_header(line, section)), None)
    if start is None:
        lines += [*([""] if lines else []), f"[{section}]", f"{name} = {_toml(value)}"]
    else:
        end = next((place for place in range(start + 1, len(lines)) if lines[place].startswith("[")), len(lines))
        first, last = _span(lines, start + 1, end, name)
        lines[first:last] = [f"{name} = {_toml(value)}"]
    changed = "\n".join(lines) + "\n"
    _require(text, changed, key, value)
    return changed


def _is_header(line: str, section: str) -> bool:
    return re.fullmatch(rf"\[\s*{re.escape(section)}\s*\]\s*(#.*)?", line) is not None


def _span(lines: list[str], start: int, end: int, name: str) -> tuple[int, int]:
    """The lines that hold a value, which may be several; where it belongs if it is not there."""
    first = next((n for n in range(start, end) if re.match(rf"\s*{re.escape(name)}\s*=", lines[n])), None)
    if first is None:
        return start, start
    for last in range(first + 1, end + 1):
        try:
            tomllib.loads("\n".join(lines[first:last]))
        except tomllib.TOMLDecodeError:
            continue
        return first, last
    return first, first + 1


def _toml(value: Any) -> str:
    """A text, a number, a switch or a list of texts as TOML writes it, which is as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def _require(before: str, after: str, key: str, value: Any) -> None:
    try:
        old, new = tomllib.loads(before), tomllib.loads(after)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(f"Cannot change `{key}` in this file ({error})", _ADVICE) from None
    if values_of(new) != values_of(old) | {key: value}:
        raise BadConfig(f"Cannot change only `{key}` in this file", _ADVICE)


def values_of(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Every value of a settings file by its full name."""
    values: dict[str, Any] = {}
    for name, value in config.items():
        values |= values_of(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return values


def read_value(text: str) -> Any:
    """What was typed as a value: TOML if it is some (`45`, `true`, `["a", "b"]`), else a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def write_settings(path: Path, text: str) -> None:
    """Replace the file at once: a crash leaves the old one or the new one, with the rights it had."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    if path.exists():
        beside.chmod(path.stat().st_mode & 0o777)
    beside.replace(path)
