"""How often commands fail: what `stats --by command` says, beside a count from the logs that shares no code with it.

    python bench/rates.py ~/.claude [COMMAND…]         a home of Claude Code; by default ls, git branch, git status

A call may be a chain of commands. The count splits it at `&&`, `||`, `;`, `|` and line ends, outside quotes and
documents in it. Of a failed chain it cannot always say which command failed: it gives the failures of calls that are
this command alone, and of all calls with it, and a rate is right between the two. Calls that were refused, cancelled or
never run are no failures, and those of warm-ups, and copies in a resumed session's file, are not counted.
"""

import argparse
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recollect import open_memory

COMMANDS = ("ls", "git branch", "git status")
NOT_RUN = re.compile(
    r"doesn't want to|tool use was rejected|Sibling tool call|Request interrupted|[Cc]ancelled|haven't granted"
)
DOCUMENT = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?.*?\n\1\b", re.DOTALL)
OPTION = r"(?: -\w+ \S+)? "  # `git -C folder status`
WARM_UP = re.compile(r"^warmup$", re.IGNORECASE)


def parts(command: str) -> list[str]:
    """The commands of a chain."""
    found, part, quote, place = [], "", "", 0
    command = DOCUMENT.sub("", command)
    while place < len(command):
        letter, step = command[place], 1
        if letter == "\\" and quote != "'":
            step, part = 2, part + command[place : place + 2]
        elif quote or letter in "\"'":
            quote = ("" if letter == quote else quote) if quote else letter
            part += letter
        elif letter in ";\n|&" and command[max(0, place - 1)] != ">" and command[place : place + 2] != "&>":
            found.append(part)
            part, step = "", 2 if command[place : place + 2] in ("&&", "||") else 1
        else:
            part += letter
        place += step
    return [one.strip() for one in (*found, part) if one.strip()]


def calls(home: Path) -> Iterator[tuple[str, bool]]:
    """Every shell command that ran, once, and whether it failed."""
    seen: set[str] = set()
    for path in sorted(home.rglob("*.jsonl")):
        commands: dict[str, str] = {}
        records = list(_records(path))
        first = next((text for role, block in records if role == "user" and (text := _text(block))), "")
        if WARM_UP.match(first.strip()):
            continue
        for _, block in records:
            if block.get("type") == "tool_use" and block.get("name") == "Bash":
                commands[block["id"]] = str((block.get("input") or {}).get("command", ""))
            elif block.get("type") == "tool_result" and block.get("tool_use_id") in commands:
                call = block["tool_use_id"]
                has_failed = bool(block.get("is_error"))
                if call not in seen and not (has_failed and NOT_RUN.search(_text(block))):
                    yield commands[call], has_failed
                seen.add(call)


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in path.read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("type") in ("user", "assistant"):
            content = (record.get("message") or {}).get("content") or ""
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            yield from ((record["type"], block) for block in blocks if isinstance(block, dict))


def _text(block: dict[str, Any]) -> str:
    text = block.get("text") or block.get("content") or ""
    return text if isinstance(text, str) else " ".join(part.get("text", "") for part in text if isinstance(part, dict))


def count(home: Path, names: list[str]) -> dict[str, Counter[str]]:
    """Uses of commands, and failures of calls that are this command alone and of any with it."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    patterns = {name: re.compile(rf"(?:\w+=\S* )*{name.replace(' ', OPTION)}(?:\s|$)") for name in names}
    for command, has_failed in calls(home):
        chain = parts(command)
        for name, pattern in patterns.items():
            uses = sum(pattern.match(part) is not None for part in chain)
            counts[name].update({"uses": uses, "any": uses > 0 and has_failed})
            counts[name]["alone"] += uses > 0 and has_failed and len(chain) == 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("commands", nargs="*", default=COMMANDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_memory(folder, [f"claude={options.home}"]) as memory:
        memory.sweep()
        lines = {line.name: line for line in memory.stats("command").lines}
    print(f"{'command':<14} {'uses':>6} {'failed':>7} {'rate':>6}   own count: {'uses':>5} {'failed':>9} {'rate':>13}")
    for name, counted in count(options.home, list(options.commands)).items():
        line, uses = lines.get(name), counted["uses"] or 1
        used, failed = (line.uses or 0, line.failures or 0) if line else (0, 0)
        told = f"{name:<14} {used:>6} {failed:>7} {failed / max(used, 1):>6.1%}"
        rates = f"{counted['alone'] / uses:.1%} – {counted['any'] / uses:.1%}"
        print(f"{told}              {counted['uses']:>5} {counted['alone']:>4} – {counted['any']:<2} {rates:>13}")


if __name__ == "__main__":
    main()
