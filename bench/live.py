"""Processes that append to live sessions at once while others search: what is lost or twice, and how long each takes.

    python bench/live.py                                     4 writers x 200 messages, 2 readers, as a sample
    python bench/live.py --writers 10 --messages 10000 --readers 4
    python bench/live.py --writers 10 --messages 10000 --readers 4 --sweep-mb 500

Each writer has a session of its own and a share of one that all write to. A message counts as stored when the append
has returned. Times are by the clock, of the append alone. With `--sweep-mb` a first sweep of so many generated
megabytes begins on the same store with the writers.
"""

import argparse
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import orjson

from recollect.api import open_memory
from recollect.live import Live

SHARED = "shared:all"
WORDS = "deploy release invoice parser timeout queue cache index retry schema token ledger".split()  # noqa: SIM905


def main() -> None:
    options = _options()
    if options.role == "write":
        write(options.store, options.number, options.messages)
    elif options.role == "read":
        read(options.store)
    else:
        with tempfile.TemporaryDirectory(prefix="recollect-live-") as folder:
            report = measure(
                Path(folder), options.writers, options.messages, options.readers, options.sweep_mb, options.home
            )
        print(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--sweep-mb", type=int, default=0)
    parser.add_argument("--home", type=Path, help="generated sessions to sweep, instead of making new ones")
    parser.add_argument("--role", choices=("write", "read"), help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def text_of(writer: int, number: int) -> str:
    """A message that says which it is, in words that others have too."""
    words = " ".join(WORDS[(writer + number * step) % len(WORDS)] for step in range(1, 30))
    return f"w{writer}n{number} {words}"


def write(store: Path, writer: int, messages: int) -> None:
    """Append, and print every message's number once it is stored; the times come last."""
    seconds = []
    with open_memory(store) as memory:
        live = Live(memory)
        live.session(f"bench:{writer}")
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(messages):
            key = SHARED if number % 10 == 0 else f"bench:{writer}"
            content, role = text_of(writer, number), "user" if number % 2 else "assistant"
            begun = time.perf_counter()
            live.append_message(key, role, content)
            seconds.append(time.perf_counter() - begun)
            print(number, flush=True)
    print(orjson.dumps(seconds).decode(), flush=True)


def read(store: Path) -> None:
    """Search until told to stop."""
    seconds = []
    with open_memory(store, read_only=True) as memory:
        print("ready", flush=True)
        sys.stdin.readline()
        stop = time.monotonic() + 3600
        while time.monotonic() < stop and not select.select([sys.stdin], [], [], 0.05)[0]:
            begun = time.perf_counter()
            memory.search(f"w{len(seconds) % 10}n{len(seconds)}")
            seconds.append(time.perf_counter() - begun)
    print(orjson.dumps(seconds).decode(), flush=True)


def start(role: str, store: Path, number: int, messages: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--role", role, "--store", str(store), "--number", str(number)]
    command += ["--messages", str(messages)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def measure(
    folder: Path, writers: int, messages: int, readers: int, sweep_mb: int, home: Path | None
) -> dict[str, object]:
    store = folder / "store"
    with open_memory(store) as memory:
        Live(memory).append_message("warm:up", "user", "makes the store, and compiles the rules once")
    if sweep_mb and home is None:
        home = folder / "home"
        generator = Path(__file__).with_name("generate.py")
        subprocess.run([sys.executable, generator, home, "--mb", str(sweep_mb)], check=True, stdout=subprocess.DEVNULL)
    processes = [start("read", store, number, 0) for number in range(readers)]
    processes += [start("write", store, number, messages) for number in range(writers)]
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    sweep = _start_sweep(store, home) if home else None
    begun = time.perf_counter()
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    written = [process.communicate()[0].splitlines() for process in processes[readers:]]
    took = time.perf_counter() - begun
    searched = [orjson.loads(process.communicate("stop\n")[0].splitlines()[-1]) for process in processes[:readers]]
    report: dict[str, object] = {
        "writers": writers,
        "messages": messages,
        "readers": readers,
        "seconds": round(took, 1),
    }
    if sweep is not None:
        report["sweep_ran_throughout"] = sweep.poll() is None
        sweep.wait()
        report["sweep_seconds"] = round(time.perf_counter() - begun, 1)
    report["append_ms"] = _percentiles([second for lines in written for second in orjson.loads(lines[-1])])
    report["search_ms"] = _percentiles([second for seconds in searched for second in seconds])
    report["acknowledged"] = sum(len(lines) - 1 for lines in written)
    return report | count(store, writers, messages)


def _start_sweep(store: Path, home: Path) -> subprocess.Popen[bytes]:
    program = (
        "import sys; from recollect.api import open_memory\n"
        "roots = [f'claude={sys.argv[2]}', 'codex=/nonexistent', 'grok=/nonexistent']\n"
        "with open_memory(sys.argv[1], roots) as memory:\n"
        "    memory.sweep()\n"
    )
    return subprocess.Popen([sys.executable, "-c", program, str(store), str(home)])


def count(store: Path, writers: int, messages: int) -> dict[str, object]:
    """What the store holds of what was written: lost, twice, and messages before one that was written earlier."""
    expected = {text_of(writer, number) for writer in range(writers) for number in range(messages)}
    with open_memory(store) as memory:
        live = Live(memory)
        sessions = [live.get_history(key, None) for key in (SHARED, *(f"bench:{writer}" for writer in range(writers)))]
        held = Counter(message.content for history in sessions for message in history)
        disordered = sum(_disordered([str(message.content) for message in history]) for history in sessions)
        missed = sum(not live.search(f"w{writer}n{messages - 1}").hits for writer in range(writers))
    twice = sum(number - 1 for number in held.values())
    return {"lost": len(expected - held.keys()), "duplicated": twice, "disordered": disordered, "not_found": missed}


def _disordered(texts: list[str]) -> int:
    last: dict[str, int] = {}
    wrong = 0
    for text in texts:
        writer, _, number = text.split()[0].partition("n")
        wrong += int(number) < last.get(writer, -1)
        last[writer] = int(number)
    return wrong


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds) or [0.0]
    at = {name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for name, share in _SHARES.items()}
    return {name: round(value * 1000, 2) for name, value in at.items()} | {"count": len(seconds)}


_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


if __name__ == "__main__":
    main()
