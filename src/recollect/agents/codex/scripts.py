"""Code mode: which script of the model an item ran in.

No id links the two. A script is JavaScript that names its commands, patches and tools in its text,
so an item belongs to the open script that names what the item did.
"""

import re
from collections.abc import Iterable
from typing import Any

from recollect.agentkit.ids import short_hash
from recollect.agentkit.values import remember
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
