"""How often `ls`, `git branch` and `git status` fail in raw Claude logs, counted without any code of the product.

    python bench/command_rates.py HOME/.claude [STORE]

Warm-ups (their first message is `Warmup`) count nowhere, a call counts once, and so does each command of a chain but
filters of a pipe and what follows `||`. A failure is of the command that its error names, else of the only one that may
have ended the chain. Prints (uses, failures), a STORE's beside them; exit 1 if they differ.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

COUNTED = ("ls", "git branch", "git status")
NO_FAILURE = re.compile(  # somebody stopped or refused it
    r"doesn't want to|Request interrupted|Cancelled: parallel|Sibling tool call|^Exit code 130|requires? approval"
    r"|Permission to use|haven't granted|was blocked", re.IGNORECASE)  # fmt: skip
SILENT = re.compile(r"cd|export|source|set|echo|printf|true|sleep|pushd|popd|unset|\.|test|read|\[|\w+=.*|#.*|done|fi")


def parts(command: str) -> list[tuple[str, str]]:
    """(what joins it to the part before, what it runs), quoted texts and here-documents left out."""
    plain = re.sub(r"<<-?\s*['\"]?(\w+)['\"]?.*?\n\s*\1\b", "", command.replace("\\\n", " "), flags=re.DOTALL)
    plain = re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", "''", plain)
    found, pieces = [], re.split(r"\s*(&&|\|\||;|\n|\|&?|(?<![&>])&(?![&>]))\s*", plain.strip("; \n"))
    for joint, piece in zip(["", *pieces[1::2]], pieces[::2], strict=True):
        words = re.sub(r"^(?:for\s.*?\sdo|do|then|else|if|while|!|\(|\{|time|sudo|timeout \S+)\s+", "", piece)
        words = re.sub(r"(?<=git)(?:\s-[cC]\s+\S+|\s--?\S+)*", "", words).split()
        if words and not SILENT.fullmatch(words[0]):
            name = words[0].lstrip("({").rstrip("/").rpartition("/")[2]
            found.append((joint, " ".join(words[:2]) if name == "git" else name))
    return found


def failed_one(chain: list[tuple[str, str]], error: str) -> str | None:
    """The part of a failed chain that did it, as far as that can be told."""
    ending = []  # the parts whose exit may be that of the whole
    for joint, name in reversed(chain):
        ending += [name] if joint not in ("|", "|&") else []
        if joint not in ("&&", "|", "|&"):
            break
    starts = {name: rf"^(?:.*sh:.*)?{name.split()[0]}: " + "|^fatal: " * name.startswith("git ") for name in ending}
    named = {name for name in ending if re.search(starts[name], error, re.MULTILINE)}
    return next(iter(named or ending)) if len(named or set(ending)) == 1 else None


def entries(path: Path) -> Iterator[dict[str, dict[str, str]]]:
    """The records of a log; some lines hold several."""
    for line in path.read_text("utf-8", "replace").replace("}{", "}\n{").split("\n"):
        with suppress(ValueError):
            yield json.loads(line) if line.startswith("{") else {}


def count(home: Path) -> dict[str, tuple[int, int]]:
    calls, errors = dict[str, list[tuple[str, str]]](), dict[str, str]()
    for path in sorted((home / "projects").rglob("*.jsonl")):
        first = None
        for entry in entries(path):
            content = (entry.get("message") or {}).get("content")
            first = content if first is None and entry.get("type") == "user" else first
            if first == "Warmup" or not isinstance(content, list):
                continue
            for block in content:
                if block.get("type") == "tool_use" and block.get("name") == "Bash":
                    calls[block["id"]] = parts(block["input"].get("command") or "")
                elif block.get("type") == "tool_result" and block.get("is_error"):
                    errors[block["tool_use_id"]] = str(block.get("content")).replace("\\n", "\n")
    rates: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for call_id, chain in calls.items():
        error = errors.get(call_id)
        failed = None if error is None or NO_FAILURE.search(error) else failed_one(chain, error)
        is_over, ran = False, set()
        for joint, name in chain:
            is_over = is_over and joint in ("&&", "|", "|&", "||")
            ran |= {name} if not is_over and joint not in ("|", "|&", "||") else set()
            is_over = is_over or name == failed
        for name in ran:
            rates[name][0] += 1
            rates[name][1] += name == failed
    return {name: (rates[name][0], rates[name][1]) for name in COUNTED}


def main() -> None:
    home, *store = map(Path, sys.argv[1:])
    mine, theirs = count(home), {}
    if store:
        command = [sys.executable, "-m", "recollect", "stats", "--by", "command", "--agent", "claude", "--json"]
        shown = subprocess.run(command, env={"RECOLLECT_HOME": str(store[0])}, capture_output=True, check=True)
        theirs = {line["name"]: (line["uses"], line["failures"]) for line in json.loads(shown.stdout)["lines"]}
    print("\n".join(f"{name:<12} {figures} {theirs.get(name, '')}" for name, figures in mine.items()))
    sys.exit(bool(store) and any(theirs.get(name) != mine[name] for name in COUNTED))


if __name__ == "__main__":
    main()
