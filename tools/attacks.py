"""Print the table of attacks from what a soak counted: each promise, what was tried, how often it held."""

import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.tally import PROMISES


def main(paths: list[str]) -> int:
    """Exit 1 if a promise was broken or tried less often than it should be."""
    tried, held = Counter[str](), Counter[str]()
    for path in paths:
        for text in Path(path).read_text().splitlines():
            promise, attacks, survived = json.loads(text)
            tried[promise] += attacks
            held[promise] += survived
    print("| promise | tried | at least | times | held |\n|---|---|---:|---:|---:|")
    for name, (promise, attack, least) in PROMISES.items():
        print(f"| {promise} | {attack} | {least:,} | {tried[name]:,} | {held[name]:,} |")
    return int(any(held[name] < max(tried[name], least) for name, (_, _, least) in PROMISES.items()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
