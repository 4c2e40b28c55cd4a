"""Sentences with the answer they should give: wishes, reasons, causes, corrections, fingerprints of errors.

    python bench/cases.py [--all]

Each sentence of tests/quality/cases.json is put into a made-up session of its own, in a repository of its own.
`lasting` must be listed as a decision with a confidence of 0.6 or more, `passing` must not; `cause` must be a cause and
no requirement; `why` is asked for the reason; a `correction` follows an edit; a `fingerprint` must be found for the
output of a failed command. Prints how many hold, and those that do not.
"""

import argparse
import json
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recollect import Filters, Memory, open_memory
from recollect.knowledge import LEAST_CONFIDENCE, signature_of

CASES = Path(__file__).resolve().parent.parent / "tests" / "quality" / "cases.json"
SPACE = uuid.UUID("7f1c2d5e-2b1a-4c57-9a40-636173657321")
FINGERPRINTS = ("fingerprint", "no fingerprint")


def session_id(number: int) -> str:
    return str(uuid.uuid5(SPACE, str(number)))


def turns(case: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """A session with the sentence in its place."""
    said, kind = case["said"], case["kind"]
    yield "user", "Fix the header of the shop page"
    edit = {"file_path": "/w/shop/page.py", "old_string": "blue", "new_string": "red"}
    yield "assistant", [{"type": "tool_use", "id": "toolu_1", "name": "Edit", "input": edit}]
    yield "user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "The file has been updated"}]
    yield "assistant", [{"type": "text", "text": said if kind == "cause" else "Done: the header is red now."}]
    if kind != "cause":
        yield "user", said
        yield "assistant", [{"type": "text", "text": "Understood."}]


def write_home(cases: list[dict[str, Any]], home: Path) -> None:
    for number, case in enumerate(cases):
        folder = home / "projects" / f"-w-case-{number}"
        folder.mkdir(parents=True)
        records, before = [], None
        for place, (role, content) in enumerate(turns(case)):
            uid = str(uuid.uuid5(SPACE, f"{number}/{place}"))
            message = {"role": role, "content": content}
            if role == "assistant":
                message |= {"id": f"msg_{uid[:8]}", "type": "message", "model": "claude-sonnet-4-5"}
            records.append(
                {"parentUuid": before, "isSidechain": False, "userType": "external", "cwd": f"/w/case-{number}",
                 "sessionId": session_id(number), "version": "2.1.300", "type": role, "message": message, "uuid": uid,
                 "timestamp": f"2026-05-{1 + number % 28:02}T09:{place:02}:00.000Z"}
            )  # fmt: skip
            before = uid
        text = "\n".join(json.dumps(record, ensure_ascii=False) for record in records)
        (folder / f"{session_id(number)}.jsonl").write_text(text + "\n", "utf-8")


def answer(memory: Memory, number: int, case: dict[str, Any]) -> tuple[bool, str]:
    """Whether a case holds, and what was said."""
    kind, repo = case["kind"], Filters(repo=f"case-{number}")
    if kind in FINGERPRINTS:
        signature = signature_of(f"Exit code 1\n{case['said']}")
        return bool(signature) == (kind == "fingerprint"), signature
    if kind in ("correction", "no correction"):
        signals = [one.detail for one in memory.signals(filters=repo) if one.signal == "human_correction"]
        return bool(signals) == (kind == "correction"), "; ".join(signals)
    if kind == "cause":
        facts = [fact for fact in memory._store.facts.select() if fact.repo == f"case-{number}"]
        told = [f"{fact.subject} {fact.predicate} {fact.object}" for fact in facts if fact.predicate != "touches"]
        has_cause = any(fact.predicate == "caused_by" and case["has"] in fact.object for fact in facts)
        return has_cause and not any(fact.predicate == "requires" for fact in facts), "; ".join(told)
    if kind == "why":
        known = memory.knowledge.why(case["ask"], repo, limit=1)
        text = json.dumps([str(one) for one in known], ensure_ascii=False)
        reason = getattr(known[0], "reason", None) if known else None
        return bool(reason) and all(word in text for word in case["has"]), f"reason: {reason}"
    facts = memory.knowledge.decisions(repo, everything=True)
    sure = [fact for fact in facts if fact.confidence >= LEAST_CONFIDENCE and fact.by == "user"]
    told = "; ".join(f"{fact.text} ({fact.confidence})" for fact in facts)
    if kind == "passing":
        return not sure, told
    return any(case["has"] in f"{fact.text} {fact.reason}" for fact in sure), told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="list those that hold, too")
    options = parser.parse_args()
    cases = json.loads(CASES.read_text("utf-8"))
    counts: Counter[tuple[str, bool]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        write_home(cases, Path(folder) / "home")
        with open_memory(Path(folder) / "store", [f"claude={folder}/home"]) as memory:
            memory.sweep()
            for number, case in enumerate(cases):
                holds, told = answer(memory, number, case)
                counts[case["kind"], holds] += 1
                if options.all or not holds:
                    print(f"{'ok  ' if holds else 'MISS'} {case['kind']:<14} {case['said'][:90]!r}  {told[:90]}")
    for kind in dict.fromkeys(case["kind"] for case in cases):
        print(f"{kind:<14} {counts[kind, True]:>3} of {counts[kind, True] + counts[kind, False]} hold")


if __name__ == "__main__":
    main()
