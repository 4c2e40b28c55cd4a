"""How fast secrets are found, how many, and what is taken for one that is none.

    python bench/redact.py                    50 MB of generated logs with planted secrets, a new seed
    python bench/redact.py --seed 7 --mb 100

One core, processor time: the raw lines go through the redactor in batches as a sweep hands them over. If the folder
`shared` with its own generator lies beside the checkout (or RECOLLECT_SHARED says where), that is measured too.
Bars are printed with a mark and never asserted.
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

from tests.planted import DECOYS, KINDS, Planted, escaped, plant  # noqa: E402

from recollect.redact.redactor import AHO_CORASICK, HYPERSCAN, Redactor  # noqa: E402
from recollect.redact.userrules import RedactionRules  # noqa: E402

SHARED = Path(os.environ.get("RECOLLECT_SHARED", REPOSITORY.parent / "shared"))
KEY = bytes(range(32))
MEGABYTE = 1_000_000
BATCH_BYTES = 4 * 1024 * 1024
LEAST_SPEED = 150
LEAST_RECALL = 0.999
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
    told = escaped(inserted, depth)
    content = f"{text[:middle]}{told}\n{text[middle:]}"
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
    for told in truth:
        lines[told["rec"]].secret, lines[told["rec"]].kind = told["secret"], told["kind"]
    return lines


def batches(lines: Sequence[Line]) -> list[list[bytes]]:
    found: list[list[bytes]] = [[]]
    size = 0
    for line in lines:
        if size + len(line.raw) > BATCH_BYTES and found[-1]:
            found.append([])
            size = 0
        found[-1].append(line.raw)
        size += len(line.raw)
    return found


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
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        fast = Redactor(RedactionRules(), KEY, HYPERSCAN, folder=Path(folder))
        compiled = time.perf_counter()
        Redactor(RedactionRules(), KEY, HYPERSCAN, folder=Path(folder))
        print(f"compile {compiled - begun:.2f} s, load {1000 * (time.perf_counter() - compiled):.1f} ms")
    lines = generated(asked.mb, asked.seed, 3)
    measure("speed", lines, fast, asked.repeat)
    measure("recall", generated(asked.mb // 5, asked.seed + 1, asked.each), fast, 1)
    measure("fallback", generated(FALLBACK_MB, asked.seed + 2, 5), Redactor(RedactionRules(), KEY, AHO_CORASICK), 1)
    if (SHARED / "prototypes" / "secrets" / "gen.py").is_file():
        measure("shared, speed", shared(asked.mb, asked.seed, 10), fast, asked.repeat)
        measure("shared, recall", shared(asked.mb // 5, asked.seed + 1, 4 * asked.each), fast, 1)


if __name__ == "__main__":
    main()
