"""What distilling adds to a sweep: the whole sweep against the floor, distilling alone, and the size of what it keeps.

    python bench/distil.py                     a generated home of 500 MB
    python bench/distil.py ~/.claude           a home of your own, which is only read

All in processor time. Distilling alone is measured in a process of its own, on the store of the last sweep.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import generate
import ingest

MOST_FLOORS = 10.0  # of processor time, for the whole sweep
MOST_DIGESTS = 0.01
MOST_MEDIAN_BYTES = 8 * 1024
ALONE = """
import json, statistics, sys
from pathlib import Path
from knowledge import distilling
from recollect.store import open_store

store = open_store(Path(sys.argv[1]))
sizes = [size for (size,) in store._memory.rows("SELECT octet_length(digest) FROM digests WHERE digest IS NOT NULL")]
events = store._cache.value("SELECT count(*) FROM events")
figures = {"cpu_s": distilling(store), "sessions": store.sessions.count(), "events": events}
print(json.dumps(figures | {"digest_bytes": sum(sizes), "median_bytes": statistics.median(sizes)}))
"""


def measure(home: ingest.Home, work: Path, repeat: int) -> dict[str, float]:
    """Figures of one home: the best of several runs, the floor and the sweep taking turns."""
    home.parse()  # brings the files into memory for all of them
    floor, sweep, store = ingest.Series(), ingest.Series(), work / "distil-store"
    for _ in range(repeat):
        shutil.rmtree(store, ignore_errors=True)
        floor.runs.append(home.parse())
        sweep.runs.append(home.sweep(store))
    here = {"PYTHONPATH": str(Path(__file__).parent)}
    alone = [json.loads(ingest.run((sys.executable, "-c", ALONE, str(store)), here).output) for _ in range(repeat)]
    best = min(alone, key=lambda figures: figures["cpu_s"])
    return best | {"floor_s": floor.cpu, "sweep_s": sweep.cpu, "source_bytes": home.bytes}


def show(figures: dict[str, float]) -> None:
    floors, share = figures["sweep_s"] / figures["floor_s"], figures["digest_bytes"] / figures["source_bytes"]
    lines = [
        ("whole sweep", f"{figures['sweep_s']:.2f} s", f"{floors:.2f} floors", floors <= MOST_FLOORS),
        (
            "distilling alone",
            f"{figures['cpu_s']:.2f} s CPU",
            f"{figures['cpu_s'] / figures['floor_s']:.2f} floors",
            None,
        ),
        ("digests of source", f"{figures['digest_bytes'] / 1e6:.2f} MB", f"{share:.2%}", share <= MOST_DIGESTS),
        ("median digest", f"{figures['median_bytes']:.0f} B", "", figures["median_bytes"] <= MOST_MEDIAN_BYTES),
    ]
    print(f"{figures['source_bytes'] / 1e6:.0f} MB, {figures['sessions']:,} sessions, {figures['events']:,} events")
    print(f"{'floor':<18} {figures['floor_s']:.2f} s")
    for name, figure, ratio, is_met in lines:
        mark = "" if is_met is None else "✓" if is_met else "✗"
        print(f"{name:<18} {figure:<12} {ratio:<12} {mark}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="an agent's home to read, instead of a generated one")
    parser.add_argument("--agent", choices=sorted(generate.WRITERS), default="claude")
    parser.add_argument("--mb", type=int, default=500, help="size of the generated home")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "recollect-bench")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    bench = ingest.Bench(asked.work, asked.repeat, asked.seed)
    home = ingest.Home(asked.agent, asked.folder) if asked.folder else bench.home(asked.agent, asked.mb)
    figures = measure(home, asked.work, asked.repeat)
    print(json.dumps(figures, indent=2)) if asked.json else show(figures)


if __name__ == "__main__":
    main()
