"""How fast secrets are found, how many are missed, and what is mistaken for one.

    python bench/redact.py                    50 MB of generated logs with planted secrets, a new seed
    python bench/redact.py --seed 7 --mb 100

One core, processor time: raw lines go through the redactor in the batches of a sweep. If the folder `shared` with the
reference generator is beside the checkout (or where RECOLLECT_SHARED points), that is measured too. Bars are printed
with a mark and never asserted.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY))

from tests.planted import DECOYS, KINDS, LAYOUTS, Planted, escaped, named, named_decoy, plant  # noqa: E402

from recollect.redact import (  # noqa: E402
    AHO_CORASICK,
    HYPERSCAN,
    RedactionRules,
    Redactor,
)

SHARED = Path(os.environ.get("RECOLLECT_SHARED", REPOSITORY.parent / "shared"))
KEY = bytes(range(32))
MEGABYTE = 1_000_000
BATCH_BYTES = 4 * 1024 * 1024
LEAST_SPEED = 150
LEAST_RECALL = 0.999
LEAST_NAMED_RECALL = 0.998
FALLBACK_MB = 5


@dataclass
class Line:
    """One line of a log, and what was planted in it."""

    raw: bytes
    secret: str | None = None
    kind: str = ""
    decoy: str | None = None


def generated(megabytes: int, seed: int, each: int) -> list[Line]:
    """Lines shaped like an agent's, of real text, each kind of secret planted `each` times, decoys in a third."""
    draw = random.Random(seed)
    waiting = [plant(draw, kind) for kind in KINDS for _ in range(each)]
    draw.shuffle(waiting)
    texts = _texts(draw)
    every = megabytes * MEGABYTE // (len(waiting) + 1)
    lines: list[Line] = []
    size = 0
    while size < megabytes * MEGABYTE or waiting:
        planted = waiting.pop() if waiting and size >= every * (len(KINDS) * each - len(waiting)) else None
        lines.append(_line(draw, next(texts), planted))
        size += len(lines[-1].raw)
    return lines


def _texts(draw: random.Random):  # type: ignore[no-untyped-def]
    folder = Path(os.__file__).parent
    files = sorted(path for path in folder.glob("*.py") if path.stat().st_size > 2000)
    while True:
        text = draw.choice(files).read_text(errors="replace")
        start = draw.randrange(max(1, len(text) - 500))
        yield text[start : start + min(int(draw.lognormvariate(7.3, 1.3)) + 40, 60_000)]


def _line(draw: random.Random, text: str, planted: Planted | None) -> Line:
    middle = text.rfind("\n", 0, len(text) // 2) + 1
    depth = draw.choice((0, 0, 0, 1, 1, 2))
    decoy = draw.choice(DECOYS)(draw) if planted is None and draw.random() < 0.35 else None
    inserted = planted.line if planted else decoy or ""
    content = f"{text[:middle]}{escaped(inserted, depth)}\n{text[middle:]}"
    block = draw.choice(
        (
            {"type": "text", "text": content},
            {"type": "tool_use", "name": "Write", "input": {"file_path": "/home/dev/a.py", "content": content}},
            {"type": "tool_result", "tool_use_id": f"toolu_{draw.getrandbits(90):x}", "content": content},
        )
    )
    record = {"uuid": f"{draw.getrandbits(128):032x}", "cwd": "/home/dev", "message": {"content": [block]}}
    secret = escaped(planted.secret, depth) if planted else None
    return Line(orjson.dumps(record), secret, planted.kind if planted else "", escaped(decoy, depth) if decoy else None)


def shared(megabytes: int, seed: int, each: int) -> list[Line]:
    """The same from the generator in the shared folder."""
    with tempfile.TemporaryDirectory() as folder:
        program = SHARED / "prototypes" / "secrets" / "gen.py"
        command = [sys.executable, str(program), folder, str(megabytes), str(seed), str(each)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        raw = (Path(folder) / "corpus.jsonl").read_bytes().split(b"\n")[:-1]
        truth = json.loads((Path(folder) / "truth.json").read_bytes())
    lines = [Line(line) for line in raw]
    for row in truth:
        lines[row["rec"]].secret, lines[row["rec"]].kind = row["secret"], row["kind"]
    return lines


def measure_named(seed: int, count: int, redactor: Redactor) -> None:
    """Named values in every layout, and what only looks like them, each a document of its own."""
    draw = random.Random(seed)
    lines = [_line(draw, "before\nafter\n", named(draw)) for _ in range(count)]
    leaked = Counter(line.kind for line in lines if is_leaked(line.secret or "", redacted(redactor, [[line.raw]])[0]))
    decoys = [orjson.dumps({"text": escaped(named_decoy(draw), draw.randrange(3))}) for _ in range(2000)]
    touched = [decoy for decoy in decoys if redactor.payloads([decoy])]
    recall = 1 - leaked.total() / count
    print(f"named values: {len(LAYOUTS)} layouts, {redactor.engine}")
    print(f"  recall   {_mark(recall >= LEAST_NAMED_RECALL)} {recall:.4f} of {count:,}")
    print(f"  decoys   {_mark(not touched)} {len(touched)} of {len(decoys):,} touched")
    for layout, number in leaked.most_common(5):
        print(f"             {number} x {layout!r:.100}")


def batches(lines: Sequence[Line]) -> list[list[bytes]]:
    groups: list[list[bytes]] = [[]]
    size = 0
    for line in lines:
        if size + len(line.raw) > BATCH_BYTES and groups[-1]:
            groups.append([])
            size = 0
        groups[-1].append(line.raw)
        size += len(line.raw)
    return groups


def redacted(redactor: Redactor, work: Sequence[Sequence[bytes]]) -> list[bytes]:
    found: list[bytes] = []
    for batch in work:
        changed = redactor.payloads(batch)
        found += [changed.get(number, raw) for number, raw in enumerate(batch)]
    return found


def is_leaked(secret: str, raw: bytes) -> bool:
    written = orjson.dumps(secret)[1:-1]
    core = written[: max(8, int(len(written) * 0.6))]
    return core in raw or (len(written) >= 24 and written[4:-4] in raw)


def measure(name: str, lines: Sequence[Line], redactor: Redactor, repeat: int) -> None:
    work = batches(lines)
    megabytes = sum(len(line.raw) for line in lines) / MEGABYTE
    redactor.payloads(work[0][:50])
    times, floors = [], []
    for _ in range(repeat):
        begun = time.process_time()
        found = redacted(redactor, work)
        times.append(time.process_time() - begun)
        begun = time.process_time()
        for line in lines:
            orjson.loads(line.raw)
        floors.append(time.process_time() - begun)
    planted = [(line, raw) for line, raw in zip(lines, found, strict=True) if line.secret]
    leaked = Counter(line.kind for line, raw in planted if is_leaked(line.secret or "", raw))
    touched = [line for line, raw in zip(lines, found, strict=True) if line.decoy and raw != line.raw]
    others = sum(raw != line.raw for line, raw in zip(lines, found, strict=True) if not line.secret and not line.decoy)
    best, median = megabytes / min(times), megabytes / statistics.median(times)
    recall = 1 - leaked.total() / len(planted)
    print(f"{name}: {megabytes:.0f} MB, {len(lines):,} lines, {redactor.engine}")
    floor = megabytes / min(floors)
    mark = _mark(best >= LEAST_SPEED) if repeat > 1 else " "  # others have a secret in each line, or another engine
    print(f"  speed    {mark} {best:.0f} MB/s (median {median:.0f}), orjson.loads {floor:.0f}")
    missed = dict(leaked) or "none"
    print(f"  recall   {_mark(recall >= LEAST_RECALL)} {recall:.4f} of {len(planted):,}  missed: {missed}")
    if decoys := sum(bool(line.decoy) for line in lines):
        print(f"  decoys   {_mark(not touched)} {len(touched)} of {decoys:,} lines touched")
    print(f"  others     {others} lines without anything planted changed; {redactor.unscannable} left out")
    for line in touched[:3]:
        print(f"             {line.decoy!r:.100}")


def _mark(is_met: bool) -> str:
    return "✓" if is_met else "✗"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--each", type=int, default=50, help="secrets of each kind for the recall")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        fast = Redactor(RedactionRules(), KEY, HYPERSCAN, folder=Path(folder))
        compiled = time.perf_counter()
        Redactor(RedactionRules(), KEY, HYPERSCAN, folder=Path(folder))
        print(f"compile {compiled - begun:.2f} s, load {1000 * (time.perf_counter() - compiled):.1f} ms")
    lines = generated(options.mb, options.seed, 3)
    measure("speed", lines, fast, options.repeat)
    measure("recall", generated(options.mb // 5, options.seed + 1, options.each), fast, 1)
    measure_named(options.seed + 3, 400 * options.each, fast)
    measure("fallback", generated(FALLBACK_MB, options.seed + 2, 5), Redactor(RedactionRules(), KEY, AHO_CORASICK), 1)
    if (SHARED / "prototypes" / "secrets" / "gen.py").is_file():
        measure("shared, speed", shared(options.mb, options.seed, 10), fast, options.repeat)
        measure("shared, recall", shared(options.mb // 5, options.seed + 1, 4 * options.each), fast, 1)


if __name__ == "__main__":
    main()
