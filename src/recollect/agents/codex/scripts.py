"""Code mode: what a script of the model ran.

In a paginated log items say it. No id links an item to its script: a script is JavaScript that names its commands,
patches and tools in its text, so an item belongs to the open script that names what the item did. Other logs have no
items of commands: there the script's text is all that says which it ran, and its output how they ended.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

from recollect.agentkit.calls import patched_paths
from recollect.agentkit.values import remember, short_hash
from recollect.agents.codex.rollout import State, is_own_id, state_key
from recollect.agents.codex.text import parse_outcome, shell_command

KEPT_SCRIPTS = 8
KEPT_NAMES = 24
SCRIPT_CHARS = 20_000
_CUT_OFF = ""
# An unclosed string runs to the end, so that the search passes each character once.
_STRING = re.compile(r""""((?:[^"\\]|\\.?)*)(?:"|\Z)|'((?:[^'\\]|\\.?)*)(?:'|\Z)|`((?:[^`\\]|\\.?)*)(?:`|\Z)""", re.S)
_ESCAPE = re.compile(r"\\(.)", re.S)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_TOOL = re.compile(r"\btools\.(\w+)")
_COMMENT = re.compile(rf"//[^\n]*|/\*.*?(?:\*/|\Z)|{_STRING.pattern}", re.DOTALL)
_RUNS = re.compile(r"\btools\.(?:exec_command|shell_command|shell)\s*\(")
_KEY = re.compile(r"(?<![\w.$])[\"']?(?P<key>cmd|command)[\"']?\s*(?P<colon>:)?")
_PRINTS = re.compile(r"(?<![\w.$])text\s*\(")
_NAMES = re.compile(r"(?<![\w$.])[A-Za-z_$][\w$]*")
_INDEXED = re.compile(r"(?<![\w$])([A-Za-z_$][\w$]*)\[(\d+)\]")
_SETS = re.compile(r"\b(?:const|let|var)\s+([\w$]+|[\[{][^=;]{0,200}?[\]}])\s*=\s*")
_LOOPS = re.compile(
    r"\bfor\s*\(\s*(?:const|let|var)\s+(?P<item>[^()]{1,80}?)\s+of\s+(?P<of>[\w$]+|(?=\[))"
    r"|(?P<each>(?<![\w$])[\w$]+|\])\.(?:map|forEach)\(\s*(?:async\s*)?\(?\s*(?P<given>[\w$]+)[^)=]{0,40}\)?\s*=>"
)
_KEPT = re.compile(r"(?<![\w$])([\w$]+)\.push\(\s*(?:await\s+)?$")
_HOLES = re.compile(r"(?<!\\)\$\{([^{}]{1,200})\}")
_MARKS = re.compile(r"[\[\](){},;\n]")
_OPENING, _CLOSING = "([{", ")]}"
MOST_COMMANDS = 24
MOST_PRINTED = 64
MOST_SET = 200
_NOBODY = -1


class Command(NamedTuple):
    """A command of a script. A template has values that only the run knew: `sed -n "${from}p" a.py`."""

    text: str
    is_template: bool = False


class Script(NamedTuple):
    """What a script ran, and which command each part of its output is of, as far as its text tells."""

    commands: list[Command]
    printed: list[int]


def read_script(source: Any) -> Script:
    """The commands of a script with the values of its variables and loops, and what it prints of each."""
    if not isinstance(source, str) or "tools." not in source:
        return Script([], [])
    return _Reading(source[:SCRIPT_CHARS]).read()


class _Loop(NamedTuple):
    start: int
    end: int
    turns: int


class _Reading:
    """One pass over a script for its variables, its loops, its commands, its prints, in that order.

    `_bare` is the script with blanks for what is in strings and comments, so that no bracket in them counts.
    """

    def __init__(self, source: str) -> None:
        self._source = _COMMENT.sub(lambda match: _blank(match[0]) if match[0][0] == "/" else match[0], source)
        self._bare = _STRING.sub(lambda match: _bare(match[0]), self._source)
        self._closing = _closing(self._bare)
        self._values: dict[str, list[str]] = {}
        self._bound: dict[str, list[int]] = {}  # the commands whose outcome a variable holds
        self._loops: list[_Loop] = []
        self._commands: list[Command] = []
        self._calls: list[tuple[int, list[int]]] = []  # where each is, and the commands it runs

    def read(self) -> Script:
        settings = list(islice(_SETS.finditer(self._bare), MOST_SET))
        for match in settings:
            if values := self._texts(match.end(), self._end(match.end())):
                self._values[match[1]] = values
        self._read_loops(self._values)
        for match in islice(_RUNS.finditer(self._bare), MOST_COMMANDS):
            self._read_call(match.start(), match.end())
        for match in settings:
            self._bind(match[1], match.end(), self._end(match.end()))
        self._read_loops(self._bound)
        return Script(self._commands, self._printed())

    def _end(self, start: int, stops: str = ",;\n") -> int:
        """Where an expression ends: at one of these, or at the bracket that closes what is around it."""
        place = start
        while (mark := _MARKS.search(self._bare, place)) is not None:
            if mark[0] in _OPENING:
                place = self._closing.get(mark.start(), len(self._bare)) + 1
            elif mark[0] in _CLOSING or mark[0] in stops:
                return mark.start()
            else:
                place = mark.end()
        return len(self._bare)

    def _texts(self, start: int, end: int) -> list[str]:
        """The texts of an expression that is a string, a variable of that kind, or a list of them."""
        if self._bare[start : start + 1] == "[":
            after, end = end, self._end(start + 1, "") + 1
            if self._bare[end:after].strip():
                return []
            parts, place = [], start + 1
            while place < end - 1:
                stop = self._end(place, ",")
                part = [] if "[" in self._bare[place:stop] else self._texts(place, stop)
                if len(part) != 1 and self._bare[place:stop].strip():
                    return []
                parts += part
                place = stop + 1
            return parts
        words = self._source[start:end].strip()
        if _STRING.fullmatch(words):
            found = self._filled(words)
            return [] if any(command.is_template for command in found) else [command.text for command in found]
        return self._values.get(words, [])

    def _filled(self, literal: str) -> list[Command]:
        """A string, with the values of its variables; as often as the one among them that a loop sets has values."""
        pieces = _HOLES.split(literal[1:-1]) if literal[0] == "`" else [literal[1:-1]]  # words and variables by turns
        known = {hole: self._values[name] for hole in pieces[1::2] if (name := hole.strip()) in self._values}
        counts = {len(values) for values in known.values()} - {1}
        if len(counts) > 1:
            known = {}
        filled = []
        for turn in range(min(max(counts, default=1) if known else 1, MOST_COMMANDS)):
            texts = [_unescape(piece) for piece in pieces]
            texts[1::2] = [
                known[hole][turn % len(known[hole])] if hole in known else f"${{{hole}}}" for hole in pieces[1::2]
            ]
            filled.append(Command("".join(texts), len(known) < len(set(pieces[1::2]))))
        return filled

    def _read_loops(self, known: Mapping[str, list[Any]]) -> None:
        """The variables of loops over what is known, and how often each loop runs."""
        for match in islice(_LOOPS.finditer(self._bare), MOST_PRINTED):
            name, over = match["item"] or match["given"], match["of"] or match["each"]
            if over in ("", "]", None):
                start = match.end() if match["item"] else self._bare.rfind("[", 0, match.start("each"))
                items: list[Any] = self._texts(start, self._end(start + 1, "") + 1) if known is self._values else []
            else:
                items = known.get(over, [])
            for item in _NAMES.findall(name) if items else ():
                known[item] = items  # type: ignore[index]
            if items:
                self._loops.append(_Loop(match.end(), self._body_end(match), len(items)))

    def _body_end(self, match: "re.Match[str]") -> int:
        if not match["item"]:
            return self._end(match.end(), "")
        head = self._end(match.end(), "")  # the bracket that closes the loop's head
        body = head + 1 + len(self._bare[head + 1 :]) - len(self._bare[head + 1 :].lstrip())
        return self._end(body + 1, "") if self._bare[body : body + 1] == "{" else self._end(body, ";")

    def _read_call(self, place: int, start: int) -> None:
        end = self._end(start, "")
        key = _KEY.search(self._bare, start, end)
        first = start if key is None else key.end() if key["colon"] else key.start("key")
        words = self._source[first : self._end(first)].strip()
        if _STRING.fullmatch(words) and words[0] == "`":
            commands = self._filled(words)
        else:
            known = self._texts(first + self._source[first:].find(words), self._end(first))
            known = [shell_command(known)] if words[:1] == "[" else known
            commands = [Command(text) for text in known] or [Command(f"${{{words}}}", is_template=True)]
        numbers = range(len(self._commands), min(len(self._commands) + len(commands), MOST_COMMANDS))
        self._commands += commands[: len(numbers)]
        self._calls.append((place, list(numbers)))
        if kept := _KEPT.search(self._bare[max(0, place - 80) : place]):
            self._bound.setdefault(kept[1], []).extend(numbers)

    def _bind(self, name: str, start: int, end: int) -> None:
        """Remember whose outcomes a variable holds."""
        inside = [numbers for place, numbers in self._calls if start <= place < end]
        numbers = [number for part in inside for number in part] or self._named(start, end)
        names = _NAMES.findall(name)
        if name[:1] == "[" and len(names) == len(numbers):
            self._bound.update((one, [number]) for one, number in zip(names, numbers, strict=True))
        else:
            self._bound.update((one, numbers) for one in names if numbers)

    def _named(self, start: int, end: int) -> list[int]:
        """The commands that an expression names by their variables."""
        words = self._bare[start:end] + " ".join(_HOLES.findall(self._source[start:end]))
        for name, number in _INDEXED.findall(words):
            if len(self._bound.get(name, ())) > int(number):
                return [self._bound[name][int(number)]]
        return next((self._bound[name] for name in _NAMES.findall(words) if name in self._bound), [])

    def _printed(self) -> list[int]:
        """The command of each part of the output, in order; a part that is of none is `_NOBODY`'s."""
        prints = []
        for match in islice(_PRINTS.finditer(self._bare), MOST_PRINTED + 1):
            end = self._end(match.end(), "")
            inside = [numbers for place, numbers in self._calls if match.end() <= place < end]
            loops = [loop for loop in self._loops if loop.start <= match.start() < loop.end]
            prints.append((loops[-1] if loops else None, inside[0] if inside else self._named(match.end(), end)))
        printed: list[int] = []
        for loop, group in groupby(prints, key=itemgetter(0)):
            targets = [numbers for _, numbers in group]
            for turn in range(loop.turns if loop else 1):
                for numbers in targets:
                    is_one = len(numbers) == 1
                    at = 0 if is_one else turn if loop and len(numbers) == loop.turns else None
                    printed.append(_NOBODY if at is None else numbers[at])
        return printed if len(printed) <= MOST_PRINTED else []


def _closing(bare: str) -> dict[int, int]:
    """The place of the bracket that closes each one, if any does."""
    closing: dict[int, int] = {}
    open_places: list[int] = []
    for mark in _MARKS.finditer(bare):
        if mark[0] in _OPENING:
            open_places.append(mark.start())
        elif mark[0] in _CLOSING and open_places:
            closing[open_places.pop()] = mark.start()
    return closing


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _bare(literal: str) -> str:
    """A string without what may look like code; one that may be a key keeps its word."""
    inner = literal[1:-1]
    return literal if inner.isidentifier() else f"{literal[0]}{' ' * len(inner)}{literal[-1]}" if inner else literal


def find_command(state: State, command: str) -> tuple[str, int] | None:
    """The open script that a command was read off, and which of its commands it is; it is given once."""
    name = _hash(command)
    for key, names in state.commands.items():
        if name in names:
            number = names.index(name)
            names[number] = _CUT_OFF
            return key, number
    return None


def remember_commands(state: State, call_id: str, script: Script) -> None:
    key = state_key(call_id)
    remember(state.commands, key, [_hash(command.text) for command in script.commands], KEPT_SCRIPTS)
    remember(state.printed, key, script.printed, KEPT_SCRIPTS)


def share_output(names: list[str], printed: list[int], parts: list[str]) -> dict[int, list[str]]:
    """What each command of a script printed, by its number, as far as the script's text tells whose each part is."""
    parts = parts[1:]  # the first says how the script ended
    if len(names) == 1 and len(printed) != len(parts):
        printed = [0] * len(parts)
    shares: dict[int, list[str]] = {}
    for number, words in zip(printed, parts, strict=True) if len(printed) == len(parts) else ():
        if number != _NOBODY and names[number] != _CUT_OFF:
            shares.setdefault(number, []).append(words)
    return shares


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
