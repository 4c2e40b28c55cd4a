"""What deriving facts adds to distilling, and how long a fix takes to find among many facts.

python bench/knowledge.py STORE FOLDER     a store that was swept from FOLDER; both are only read
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import orjson

from recollect.analysis import distiller
from recollect.knowledge.asking import find_fixes
from recollect.knowledge.rules import Lessons
from recollect.store import Store, open_store

MOST_FLOORS = 1.0
MOST_MS = 10.0
FACTS = 100_000
QUERIES = 200
ROUNDS = 3


def floor_of(folder: Path) -> float:
    """Processor time to parse every line once: no program that reads the logs takes less."""
    started = time.process_time()
    for path in sorted(folder.rglob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                with suppress(orjson.JSONDecodeError):
                    orjson.loads(line)
    return time.process_time() - started


def distilling(store: Store) -> float:
    with store._memory.transaction() as connection:
        connection.execute("UPDATE digests SET checked_by = 0")
    with store._cache.transaction() as connection:
        connection.execute("DELETE FROM kept")
    started = time.process_time()
    distiller.distil_pending(store, lambda done, total: None)
    return time.process_time() - started


def deriving(store: Store) -> float:
    """Distilling with the rules, less distilling without them."""
    whole = min(distilling(store) for _ in range(ROUNDS))
    derive, to_read = distiller.derive, distiller.steps_to_read
    distiller.derive, distiller.steps_to_read = lambda material: Lessons(), lambda trace: []
    try:
        return whole - min(distilling(store) for _ in range(ROUNDS))
    finally:
        distiller.derive, distiller.steps_to_read = derive, to_read


def _word(number: int) -> str:
    """A word for a number: signatures of errors have no digits."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def looking_up(store: Store) -> float:
    """Median milliseconds for a fix among many facts."""
    digest = store._memory.value("SELECT min(id) FROM digests")
    details = json.dumps(
        {"headline": "x", "steps": [], "step_count": 0, "why": None, "chosen_by": "agent", "quote": None, "tried": [],
         "fixed_ms": 1}
    )  # fmt: skip
    rows = (
        (digest, 0, 1, f"{number:016x}", "bench", "fixed_by", "error", f"Error: {_word(number % 50_000)} broke",
         "edit",
         "a.py", "text", 0.8, 1, details, "[]")
        for number in range(FACTS)
    )  # fmt: skip
    with store._memory.transaction() as connection:
        connection.executemany(
            "INSERT INTO facts (digest, is_sealed, recorded_ms, fact_uid, rule, predicate, subject_kind, subject,"
            " object_kind, object, text, confidence, since_ms, details, evidence)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
    taken = []
    for (subject,) in store._memory.rows("SELECT subject FROM facts ORDER BY random() LIMIT ?", (QUERIES,)):
        started = time.perf_counter()
        find_fixes(store, subject)
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        copy = Path(shutil.copytree(given.store, Path(work) / "store"))
        copy.chmod(0o700)
        with open_store(copy) as store:
            floor, derived = floor_of(given.folder), deriving(store)
            median = looking_up(store)
    print(f"floor      {floor:.2f} s CPU")
    mark = "✓" if derived <= MOST_FLOORS * floor else "✗"
    print(f"deriving   {derived:.2f} s CPU  {derived / floor:.2f} floors {mark}")
    print(f"fix        {median:.2f} ms median among {FACTS:,} facts {'✓' if median <= MOST_MS else '✗'}")


if __name__ == "__main__":
    main()
