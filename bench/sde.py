"""Decisions of earlier conversations, some of them amended later: is the session that holds now found first?

    python bench/sde.py [--shared ../shared] [--list]

Runs sde-bench as `../shared/benchmarks/sde-bench` lays it out: one repository per task, with its conversations among
decoys in which nothing was decided. Asks each task's question and function of `search` and `why`, and lists the
decisions of its repository. A superseded session counts as first if it comes before the right one. Nothing is asked of
a model. `--list` prints each place, and the decisions that were listed wrongly.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from recollect import Filters, Memory, open_memory

LIMIT = 10


def places(sessions: Sequence[str], right: str, superseded: Sequence[str]) -> tuple[int, bool]:
    """The place of the right session, 0 if it is not there, and whether a superseded one comes before it."""
    order = [uid.partition(":")[2] for uid in dict.fromkeys(sessions)]
    place = order.index(right) + 1 if right in order else 0
    before = order[: place - 1] if place else order
    return place, any(uid in before for uid in superseded)


def asked(memory: Memory, task: dict[str, Any]) -> dict[str, tuple[int, bool]]:
    """Where the right session stands in each answer."""
    filters = Filters(repo=task["repo"])
    found = {}
    for name in ("question", "function"):
        hits = memory.search(task[name], filters, limit=LIMIT)
        facts = memory.knowledge.why(task[name], filters, limit=LIMIT)
        found[f"search {name}"] = [hit.session_uid for hit in hits]
        found[f"why {name}"] = [fact.session_uid or "" for fact in facts]
    return {name: places(sessions, task["right"], task["superseded"]) for name, sessions in found.items()}


def listed(memory: Memory, task: dict[str, Any]) -> dict[str, list[str]]:
    """The decisions that hold in the repository of a task, by the session they are from."""
    texts: dict[str, list[str]] = {"right": [], "superseded": [], "decoys": []}
    for fact in memory.knowledge.decisions(Filters(repo=task["repo"])):
        session = (fact.session_uid or "").partition(":")[2]
        sort = "right" if session == task["right"] else "superseded" if session in task["superseded"] else "decoys"
        texts[sort].append(fact.text)
    return texts


def show(results: Sequence[tuple[dict[str, Any], dict[str, tuple[int, bool]], dict[str, list[str]]]]) -> None:
    amended = [result for result in results if result[0]["superseded"]]
    print(f"{'':18} {'first':>8} {'top 5':>8} {'none':>6}   amended: {'first':>7} {'superseded before':>18}")
    for name in results[0][1]:
        ranks, of_amended = [found[name] for _, found, _ in results], [found[name] for _, found, _ in amended]
        first, among = sum(rank == 1 for rank, _ in ranks), sum(0 < rank <= 5 for rank, _ in ranks)
        none, before = sum(rank == 0 for rank, _ in ranks), sum(is_before for _, is_before in of_amended)
        line = f"{name:18} {first:>3} / {len(ranks)} {among:>3} / {len(ranks)} {none:>6}"
        right = sum(rank == 1 for rank, _ in of_amended)
        print(f"{line}            {right:>3} / {len(amended)} {before:>14} / {len(amended)}")
    with_right = sum(bool(texts["right"]) for _, _, texts in results)
    print(f"tasks with a decision from the right session   {with_right} / {len(results)}")
    print(f"superseded decisions listed as valid           {sum(len(t['superseded']) for _, _, t in results)}")
    print(f"decisions from decoys per repository           {fmean(len(t['decoys']) for _, _, t in results):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside = Path(__file__).parent.parent.parent / "shared"
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("RECOLLECT_SHARED", beside)))
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        maker = options.shared / "benchmarks" / "sde-bench" / "make_home.py"
        subprocess.run([sys.executable, maker, folder], check=True)
        tasks = json.loads((Path(folder) / "questions.json").read_text())
        with open_memory(Path(folder) / "store", [f"claude={folder}/.claude"]) as memory:
            memory.sweep()
            results = [(task, asked(memory, task), listed(memory, task)) for task in tasks]
    show(results)
    for task, found, texts in results if options.list else ():
        ranks = (f"{name} {rank}{'!' * before}" for name, (rank, before) in found.items())
        print(f"\n{task['id']}: {', '.join(ranks)}")
        print(f"  policy: {task['policy']}")
        for sort, lines in texts.items():
            print("\n".join(f"  {sort:<10} {' '.join(line.split())[:160]}" for line in lines))


if __name__ == "__main__":
    main()
