"""How often the outcome of a session is told right: against labels that people made by reading, before the code ran.

    python bench/outcomes.py                        all labelled sessions whose logs are at hand (../shared)
    python bench/outcomes.py --sure                 only those whose label was beyond doubt

The labels are in tests/data/labels/outcomes.json. The constant answer is the label most sessions have.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.test_lossless import CORPUS_HOMES, GENUINE_HOMES  # noqa: E402

from recollect import open_memory  # noqa: E402

LABELS = ROOT / "tests" / "data" / "labels" / "outcomes.json"
LEAST_RIGHT, LEAST_F1, LEAST_GAIN = 0.85, 0.75, 0.20

Pairs = list[tuple[str, str]]  # label, what the distiller says


def told_outcomes() -> dict[str, str]:
    """The outcome of every session below ../shared, by its uid."""
    found: dict[str, str] = {}
    for home in (*GENUINE_HOMES, *CORPUS_HOMES):
        with tempfile.TemporaryDirectory() as folder, open_memory(folder, [home]) as memory:
            memory.sweep()
            found |= {session.session_uid: session.outcome for session in memory.sessions()}
    return found


def macro_f1(pairs: Pairs) -> float:
    scores = []
    for label in {label for label, _ in pairs}:
        right = sum(label == told == one for one, told in pairs)
        wrong = sum((one == label) != (told == label) for one, told in pairs)
        scores.append(2 * right / (2 * right + wrong))
    return sum(scores) / len(scores)


def show(name: str, pairs: Pairs) -> None:
    right = sum(label == told for label, told in pairs) / len(pairs)
    constant = Counter(label for label, _ in pairs).most_common(1)[0][1] / len(pairs)
    score = f"right {right:.3f}   macro-F1 {macro_f1(pairs):.3f}   constant {constant:.3f}"
    print(f"{name:10} {len(pairs):4} sessions   {score}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sure", action="store_true")
    asked = parser.parse_args()
    labels = [one for one in json.loads(LABELS.read_text()) if one["sure"] or not asked.sure]
    told = told_outcomes()
    known = [(one, told[one["session_uid"]]) for one in labels if one["session_uid"] in told]
    for agent in sorted({one["agent"] for one, _ in known}):
        show(agent, [(one["label"], outcome) for one, outcome in known if one["agent"] == agent])
    pairs = [(one["label"], outcome) for one, outcome in known]
    show("all", pairs)
    for (label, outcome), count in sorted(Counter(pairs).items()):
        print(f"  {label:10} told as {outcome:10} {count:4}{'' if label == outcome else '  <-'}")
    print(f"missing: {len(labels) - len(known)}")
    print(f"bars: right ≥ {LEAST_RIGHT}, macro-F1 ≥ {LEAST_F1}, at least {LEAST_GAIN} above the constant answer")


if __name__ == "__main__":
    main()
