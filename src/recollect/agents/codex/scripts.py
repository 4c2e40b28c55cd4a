"""Code mode: what a script of the model ran.

In a paginated log items say it. No id links an item to its script: a script is JavaScript that names its commands,
patches and tools in its text, so an item belongs to the open script that names what the item did. Other logs have no
items of commands: there the script's text is all that says which it ran, and its output how they ended.
"""

import re
from collections.abc import Iterable
from typing import Any

from recollect.agentkit.values import remember, short_hash
from recollect.agents.codex.rollout import State, is_own_id, state_key
from recollect.agents.codex.text import parse_outcome, patched_paths

KEPT_SCRIPTS = 8
KEPT_NAMES = 24
SCRIPT_CHARS = 20_000
_CUT_OFF = ""
# An unclosed string runs to the end, so that the search passes each character once.
_STRING = re.compile(r""""((?:[^"\\]|\\.?)*)(?:"|\Z)|'((?:[^'\\]|\\.?)*)(?:'|\Z)|`((?:[^`\\]|\\.?)*)(?:`|\Z)""", re.S)
_ESCAPE = re.compile(r"\\(.)", re.S)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_TOOL = re.compile(r"\btools\.(\w+)")
_COMMAND = re.compile(
    r"\btools\.(?:exec_command|shell_command|shell)\s*\(\s*\{[^{}]{0,400}?(?<![\w.])[\"']?(?:cmd|command)[\"']?"
    rf"\s*(?::\s*(?:(?P<variable>[A-Za-z_$][\w$]*)|{_STRING.pattern})|(?P<short>[,}}]))",
    re.DOTALL,
)
MOST_COMMANDS = 24


def find_commands(script: Any) -> list[str]:
    """The shell commands that a script names: as texts, or as variables that it sets to a text."""
    if not isinstance(script, str) or "tools." not in script:
        return []
    script = script[:SCRIPT_CHARS]
    commands = (_command(script, match) for match in _COMMAND.finditer(script))
    return [command for command in commands if command][:MOST_COMMANDS]


def _command(script: str, match: re.Match[str]) -> str:
    name = "cmd" if match["short"] else match["variable"]
    if name is None:
        return _unescape("".join(text for text in match.groups()[1:4] if text))
    value = re.search(rf"\b{re.escape(name)}\s*=\s*(?:{_STRING.pattern})", script, re.DOTALL)
    return _unescape("".join(text for text in value.groups() if text)) if value else ""


def find_command(state: State, command: str) -> tuple[str, int] | None:
    """The open script that a command was read off, and which of its commands it is; it is given once."""
    name = _hash(command)
    for key, names in state.commands.items():
        if name in names:
            number = names.index(name)
            names[number] = _CUT_OFF
            return key, number
    return None


def remember_commands(state: State, call_id: str, commands: list[str]) -> None:
    remember(state.commands, state_key(call_id), [_hash(command) for command in commands], KEPT_SCRIPTS)


def share_output(names: list[str], parts: list[str]) -> dict[int, str]:
    """What each command of a script printed, by its number, as far as the parts of the script's output show it."""
    printed = parts[1:]  # the first says how the script ended
    if len(names) == 1:
        printed = ["".join(printed)]
    if len(printed) != len(names):
        return {}
    return {number: words for number, words in enumerate(printed) if names[number] != _CUT_OFF}


def open_script(state: State, call_id: str, script: Any) -> None:
    """Remember a script until its output comes; of its text only hashes of what it names."""
    names = _names(script[:SCRIPT_CHARS]) if isinstance(script, str) else []
    remember(state.scripts, state_key(call_id), [_hash(name) for name in names[:KEPT_NAMES]], KEPT_SCRIPTS)


def close_script(state: State, key: str, output: str) -> None:
    """A script's output ends it, unless the script keeps running.

    A script that the user cut off is kept for items it names, which come later, and for no others.
    """
    names = state.scripts.get(key)
    if names is None or output.startswith("Script running"):
        return
    if parse_outcome(output).is_refused:
        names[:0] = [_CUT_OFF]
    else:
        del state.scripts[key]


def find_script(state: State, named: Iterable[str]) -> str | None:
    """The call id of the script that names one of these; of none or several, the first that is still open."""
    hashes = {_hash(name) for name in named}
    still_open = [call_id for call_id, names in state.scripts.items() if _CUT_OFF not in names]
    naming = [call_id for call_id, names in state.scripts.items() if not hashes.isdisjoint(names)]
    candidates = [call_id for call_id in naming if call_id in still_open] or naming or still_open
    return candidates[0] if candidates and is_own_id(candidates[0]) else None


def patched_name(path: str) -> str:
    """A patched file by its name alone: a patch has a path below the working directory, its item a full one."""
    return path.replace("\\", "/").rpartition("/")[2]


def _names(script: str) -> list[str]:
    strings = [_unescape("".join(groups)) for groups in _STRING.findall(script)]
    files = [patched_name(path) for words in strings if "*** " in words for path in patched_paths(words)]
    return list(dict.fromkeys([*_TOOL.findall(script), *files, *strings]))


def _unescape(words: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), words)


def _hash(name: str) -> str:
    return short_hash(name)[:8]
