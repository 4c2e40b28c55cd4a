"""Chinese and Japanese questions: at which place does the session stand that the answer is in?

    python bench/cjk.py [--shared ../shared] [--mb 100] [--from HOME] [--work FOLDER] [--misses]

Builds the home of `../shared/benchmarks/cjk` from the large corpus (or `--from` a home of your own), sweeps it, and
asks its 60 queries: pieces of text of `search`, goals of `how` and `search`, decisions of `why` and `search`. A
session's place is the one at which an answer names it first. `--work` keeps home and store for the next run.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from recollect import Memory, open_memory, to_json

ASKED = {"piece": ["search"], "goal": ["how", "search"], "decision": ["why", "search"]}
LEAST = {("goal", "how"): 14, ("decision", "why"): 14, ("all", "search"): 58}
SESSION = re.compile(r"claude:[0-9a-f-]{36}")


def home_of(shared: Path, given: Path | None, megabytes: int, folder: Path) -> Path:
    """The home with its `queries.json`, built once in this folder."""
    home = folder / f"cjk-{megabytes}"
    if not (home / "queries.json").exists():
        source = given or folder / "raw"
        if given is None and not source.exists():
            source.mkdir(parents=True)
            archive = next((shared / "corpus-large").glob("*.tar.zst"))
            subprocess.run(["tar", "--zstd", "-xf", archive, "-C", source], check=True)
        projects = next(source.rglob("projects")).parent
        maker = shared / "benchmarks" / "cjk" / "make_home.py"
        subprocess.run([sys.executable, maker, home, "--mb", str(megabytes), "--from", projects], check=True)
    return home


def answered(memory: Memory, command: str, query: str) -> Any:
    """What the command of this name prints as JSON."""
    if command == "search":
        return memory.answer(query).to_json()
    known = memory.knowledge
    answers = known.how(query) or known.discussions(query) if command == "how" else known.why(query, limit=None)
    return to_json(list(answers))


def place(answer: Any, right: list[str]) -> int:
    named = list(dict.fromkeys(SESSION.findall(json.dumps(answer))))
    return next((number for number, name in enumerate(named, start=1) if name in right), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside = Path(__file__).parent.parent.parent / "shared"
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("RECOLLECT_SHARED", beside)))
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--from", type=Path, dest="source")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--misses", action="store_true")
    options = parser.parse_args()
    places: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        home = home_of(options.shared, options.source, options.mb, work)
        with open_memory(work / f"store-{options.mb}", [f"claude={home / '.claude'}"]) as memory:
            memory.sweep()
            for query in json.loads((home / "queries.json").read_text("utf-8")):
                for command in ASKED[query["kind"]]:
                    found = place(answered(memory, command, query["query"]), query["sessions"])
                    for kind in (query["kind"], "all"):
                        places[kind, command, query["language"]].append(found)
                        places[kind, command, "all"].append(found)
                    if found != 1 and options.misses:
                        print(f"{command} {query['query']}: {found or 'not found'}")
    print(f"{'kind':<9} {'command':<8} {'language':<8} {'asked':>5} {'first':>5} {'in 10':>5} {'none':>5}")
    for (kind, command, language), found in sorted(places.items()):
        counts = len(found), found.count(1), sum(0 < one <= 10 for one in found), found.count(0)
        least = LEAST.get((kind, command)) if language == "all" else None
        mark = "" if least is None else f"  {'✓' if counts[1] >= least else '✗'} at least {least} first"
        print(f"{kind:<9} {command:<8} {language:<8} " + " ".join(f"{count:>5}" for count in counts) + mark)


if __name__ == "__main__":
    main()
