"""Is what the memory says unasked right, and does it say what it should? Against lines judged by reading.

    python bench/quality.py [--shared ../shared] [--work FOLDER] [--new] [--misses] [--json FILE]

The real sessions of `../shared` are replayed (`bench/replay.py`) from an empty memory that grows as they end. Every
line told is looked up among those judged in tests/quality; `--new` prints the others, to be read and added. The other
direction are things found by reading that a memory should know: errors that were solved later, corrections by users,
standing wishes and decisions, and, counted from the logs without this project's code, answers that users chose and
plans they approved. Figures are given for both halves of the set, which is split by repository: rules are made on
`tune`, and `report` is what is published. `--misses` lists what is wrong or was not found.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recollect import Fix, Memory, open_memory, to_json
from recollect.knowledge.records import LEAST_CONFIDENCE, PREFERS
from recollect.recall import read_brief
from replay import Split, replay

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.test_lossless import CORPUS_HOMES, GENUINE_HOMES  # noqa: E402

JUDGED = ROOT / "tests" / "quality"
FILES = {"decided": "brief", "before edit": "edit"}  # kinds of lines whose file has another name
KINDS = ("brief", "fix", "reminder", "wish", "edit", "packet")
VERDICTS = ("right", "neutral", "wrong", "new")
HALVES = ("tune", "report", "all")
LIKE = 0.6  # of the words of a quote
NOT_WORD = re.compile(r"\W+")
SAID = re.compile(r"^\d{4}-\d\d-\d\d, \w+ \w+: ")  # when, and by whom, before a decision in a brief
MARKER = re.compile(r"recollect-[0-9a-f]{16}")
CORRECTION = "human_correction"
FILE = re.compile(r"[\w/.-]+\.(?:go|sh)")
ANSWER = re.compile(r'"[^"]+"="([^"]+)"')
HANDED, TITLE = "Implement the following plan:", re.compile(r"^\s*#+ *(?:Plan: *)?(.+)", re.MULTILINE)


class Told(NamedTuple):
    """A line told, with what is known about it."""

    kind: str
    session: str
    repo: str
    text: str
    trigger: str
    then: tuple[str, ...]


def judged(name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads((JUDGED / f"{name}.json").read_text("utf-8"))
    return items


def plain(text: str) -> str:
    return NOT_WORD.sub("", text.lower())


def homes(shared: Path, work: Path) -> dict[str, list[str]]:
    """The homes by the name of their store; the large one is unpacked once."""
    raw = work / "raw"
    if not raw.exists():
        raw.mkdir(parents=True)
        archive = next((shared / "corpus-large").glob("*.tar.zst"))
        subprocess.run(["tar", "--zstd", "-xf", archive, "-C", raw], check=True)
    chinese = [f"codex={path}" for path in sorted((shared / "corpus-cjk").glob("*/home/.codex"))]
    return {"large": [f"claude={raw}/home/.claude"], "small": [*CORPUS_HOMES, *GENUINE_HOMES, *chinese]}


def told_lines(roots: Sequence[str], folder: Path) -> Iterator[Told]:
    """What the hooks say when the home is replayed, and the wishes that are listed at its end."""
    for said in replay(roots, folder, Split(share=0, is_growing=True)):
        kind = FILES.get(said.kind, said.kind)
        if kind in KINDS:
            quoted = " ".join(re.findall(r"^> (.*)", said.text, re.MULTILINE)[:2])
            text = quoted.replace("error: ", "", 1) if kind in ("fix", "reminder") else said.text
            yield Told(kind, said.session, said.repo, text, said.trigger, said.then)
    with open_memory(folder / "whole", read_only=True) as memory:
        for fact in memory.knowledge.decisions(limit=None):
            if fact.predicate == PREFERS and fact.confidence >= LEAST_CONFIDENCE and fact.session_uid:
                yield Told("wish", fact.session_uid, fact.repo or "", fact.text, "", ())


class Verdicts:
    """The judged lines of a kind, found again by their words."""

    def __init__(self, kind: str) -> None:
        self.items = judged(kind)
        self._keys = [(plain(item["quote"]), item) for item in self.items]

    def of(self, line: Told) -> dict[str, Any] | None:
        text = plain(SAID.sub("", MARKER.sub("", line.text)))
        for quote, item in self._keys:
            where = item["session"] if line.kind in ("fix", "reminder", "wish", "edit", "packet") else "*"
            if (
                where in ("*", line.session)
                and quote
                and (text.startswith(quote) or quote.startswith(text) or quote in text)
            ):
                return item
        return None


def precision(lines: Sequence[Told], *, has_new: bool, has_misses: bool) -> dict[str, Any]:
    """Print how many of the lines told are right, by kind and half."""
    verdicts = {kind: Verdicts(kind) for kind in KINDS}
    known_halves = {item["session"]: item["half"] for kind in KINDS for item in verdicts[kind].items}
    print(f"{'told':<10} {'half':<7} {'lines':>6} {'different':>9} {'right':>6} {'neutral':>8} {'wrong':>6} {'new':>5}")
    figures: dict[str, Any] = {}
    unread: list[Told] = []
    for kind in KINDS:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        seen: set[tuple[str, ...]] = set()
        for line in (line for line in lines if line.kind == kind):
            item = verdicts[kind].of(line)
            half = item["half"] if item else known_halves.get(line.session, "report")
            verdict = item["verdict"] if item else "new"
            key = (
                (item["session"], item["quote"])
                if item
                else (line.text if kind == "brief" else line.session, line.text)
            )
            for name in (half, "all"):
                counts[name]["lines"] += 1
                counts[name][verdict] += key not in seen
            if key not in seen and item is None:
                unread.append(line)
            if key not in seen and has_misses and item and verdict == "wrong":
                print(
                    f"    wrong {kind} {item['repo']} {item['session'][:16]}: {item['quote'][:110]}  [{item['reason']}]"
                )
            seen.add(key)
        for half in HALVES:
            count = counts[half]
            known = sum(count[verdict] for verdict in VERDICTS[:3])
            rates = f"  {count['right'] / known:.0%} right, {count['wrong'] / known:.0%} wrong" if known else ""
            cells = " ".join(f"{count[verdict]:>{size}}" for verdict, size in zip(VERDICTS, (6, 8, 6, 5), strict=True))
            print(f"{kind:<10} {half:<7} {count['lines']:>6} {known + count['new']:>9} {cells}{rates}")
            figures[f"{kind} {half}"] = dict(count)
    for line in unread if has_new else ():
        print(f"\nnew {line.kind} · {line.session} · {line.repo}")
        print("\n".join(f"  | {text[:200]}" for text in line.trigger.splitlines()[-8:]))
        print(f"  > {line.text[:400]}")
        print("\n".join(f"    then {text}" for text in line.then[:6]))
    return figures


def row(name: str, found: Sequence[tuple[dict[str, Any], str]], good: str) -> dict[str, Any]:
    """Print how often each outcome came, by half."""
    figures = {}
    for half in HALVES:
        counts = Counter(what for item, what in found if half in (item["half"], "all"))
        total = sum(counts.values())
        rest = ", ".join(f"{what} {count}" for what, count in counts.most_common() if what != good)
        print(
            f"{name:<24} {half:<7} {good} {counts[good]:>3} of {total:<4} {counts[good] / max(total, 1):>4.0%}  {rest}"
        )
        figures[half] = dict(counts)
    return figures


def solved(memory: Memory, item: dict[str, Any]) -> str:
    """What `fix` says about an error that was solved later in its session."""
    fixes = memory.knowledge.fixes(item["quote"], 3)
    has_key = [any(_has(fix, key, item["session"]) for key in item["keys"]) for fix in fixes]
    if has_key[:1] == [True]:
        return "right"
    if any(has_key):
        return "second or third"
    if fixes:
        return "wrong" if fixes[0].is_same_error else "wrong, as a similar error"
    known = memory.knowledge.discussions(item["quote"], limit=3, is_error=True)
    return "only where it came up" if known else "“No session met this error”"


def _has(fix: Fix, key: str, session: str) -> bool:
    """Whether a fix says this; the name of a file tells something of a fix in the same session only."""
    text = json.dumps([to_json(list(fix.steps)), fix.why, fix.text], ensure_ascii=False).replace('\\"', '"')
    return key in text and (FILE.fullmatch(key) is None or fix.session_uid == session)


def corrected(memory: Memory, item: dict[str, Any]) -> str:
    """Whether the user's correction is a signal of its session."""
    session = memory.session(item["session"])
    texts = {
        event.event_uid: plain(str(payload.get("text", event.summary)))
        for events in [memory.events(session)]
        for event, payload in zip(events, memory.payloads(session, events), strict=True)
        if event.role == "user"
    }
    quote = plain(item["quote"])
    signals = [signal for signal in memory.signals(session=session) if signal.signal == CORRECTION]
    return "found" if any(quote in texts.get(uid, "") for one in signals for uid in one.evidence) else "not found"


def signalled(memory: Memory, item: dict[str, Any]) -> str:
    """Whether what a reader judged is still given as a correction of its session."""
    told = [
        plain(one.detail) for one in memory.signals(session=memory.session(item["session"])) if one.signal == CORRECTION
    ]
    return f"{item['verdict']}, {'given' if any(one.startswith(plain(item['quote'])) for one in told) else 'not given'}"


def known_wish(facts: dict[str, list[str]], item: dict[str, Any]) -> str:
    """Whether a standing wish or decision is listed, from its session."""
    words = set(re.findall(r"\w{3,}", item["quote"].lower()))
    for text in facts.get(item["session"], ()):
        shared = words & set(re.findall(r"\w{3,}", text.lower()))
        if plain(item["words"]) in plain(text) or (len(words) > 3 and len(shared) >= LIKE * len(words)):
            return "found"
    return "not found"


def choices(roots: Iterable[str], memory: Memory) -> dict[str, list[str]]:
    """By repository, the answers users chose and the titles of plans they approved, read from the logs as they are."""
    repos = {session.native_session_id: session.repo or "" for session in memory.sessions()}
    chosen: dict[str, list[str]] = defaultdict(list)
    for root in (Path(root.partition("=")[2]) for root in roots if root.startswith("claude=")):
        for path in sorted(root.rglob("*.jsonl")):
            plans: dict[str, str] = {}
            for record in _records(path):
                content = (record.get("message") or {}).get("content") or ()
                repo = repos.get(record.get("sessionId", ""), "")
                if isinstance(content, str):
                    content = [{"type": "text", "text": content}]
                for block in content if repo else ():
                    chosen[repo] += _chosen(block, plans, record["type"])
    return {repo: names for repo, names in chosen.items() if names}


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        if any(
            word in line
            for word in (b"answered your questions", b"ExitPlanMode", b"approved your plan", b"following plan:")
        ):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if record.get("type") in ("user", "assistant"):
                yield record


def _chosen(block: dict[str, Any], plans: dict[str, str], role: str) -> list[str]:
    text = block.get("text") or block.get("content") or ""
    text = text if isinstance(text, str) else " ".join(part.get("text", "") for part in text if isinstance(part, dict))
    if block.get("type") == "tool_use" and block.get("name") == "ExitPlanMode":
        plans[block["id"]] = _title((block.get("input") or {}).get("plan") or "")
    elif block.get("type") == "tool_result" and "answered your questions" in text:
        return ANSWER.findall(text)
    elif block.get("type") == "tool_result" and "approved your plan" in text:
        return [_title(text) or plans.get(block.get("tool_use_id", ""), "")]
    elif role == "user" and text.startswith(HANDED):
        return [_title(text)]
    return []


def _title(plan: str) -> str:
    match = TITLE.search(plan)
    return match[1].strip() if match else ""


def briefed(memory: Memory, store: Path, chosen: dict[str, list[str]], facts: dict[str, list[str]]) -> dict[str, Any]:
    """Print for each repository whether its brief and its decisions have what was chosen there."""
    folders = {session.repo or "": session.cwd or "" for session in memory.sessions()}
    listed = [plain(text) for texts in facts.values() for text in texts]
    figures: dict[str, Any] = {}
    for repo, names in sorted(chosen.items()):
        lines = re.findall(r"^> - (.*)", read_brief(str(store), folders[repo]), re.MULTILINE)
        wanted = [plain(name) for name in names if plain(name)]
        told = sum(any(name[:40] in plain(line) for name in wanted) for line in lines)
        known = sum(any(name in text for text in listed) for name in wanted)
        brief = f"lines of its brief {len(lines)}, of these chosen {told}"
        print(f"{repo[:38]:<38} chosen {len(names):>3}, among decisions {known:>3}; {brief}")
        figures[repo] = {"chosen": len(names), "known": known, "brief": len(lines), "brief_chosen": told}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("RECOLLECT_SHARED", ROOT.parent / "shared")))
    parser.add_argument("--work", type=Path, help="where to keep the stores, and the unpacked corpus")
    parser.add_argument("--new", action="store_true", help="print the lines that nobody judged yet")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        roots = homes(options.shared, work)
        lines = [line for name in roots for line in told_lines(roots[name], work / name)]
        print()
        figures: dict[str, Any] = {"told": precision(lines, has_new=options.new, has_misses=options.misses)}
        print()
        found: dict[str, list[tuple[dict[str, Any], str]]] = defaultdict(list)
        for name in roots:
            with open_memory(work / name / "whole", read_only=True) as memory:
                facts: dict[str, list[str]] = defaultdict(list)
                for fact in memory.knowledge.decisions(history=True, limit=None):
                    facts[fact.session_uid or ""].append(f"{fact.text} {fact.object}")
                here = {session.session_uid for session in memory.sessions()}
                tests = {
                    "errors": lambda item, memory=memory: solved(memory, item),
                    "corrections": lambda item, memory=memory: corrected(memory, item),
                    "signals": lambda item, memory=memory: signalled(memory, item),
                    "standing": lambda item, facts=facts: known_wish(facts, item),
                }
                done = {(kind, item["session"], item["quote"]) for kind in found for item, _ in found[kind]}
                for kind, test in tests.items():
                    items = [item for item in judged(kind) if item["session"] in here]
                    found[kind] += [(i, test(i)) for i in items if (kind, i["session"], i["quote"]) not in done]
                figures[f"chosen {name}"] = briefed(memory, work / name / "whole", choices(roots[name], memory), facts)
    print()
    figures["errors"] = row("errors: `fix TEXT`", found["errors"], "right")
    figures["corrections"] = row("corrections", found["corrections"], "found")
    figures["signals"] = row("correction signals", found["signals"], "right, given")
    figures["standing"] = row("wishes and decisions", found["standing"], "found")
    for language in sorted({item["language"] for item, _ in found["corrections"]}):
        those = [one for one in found["corrections"] if one[0]["language"] == language]
        print(f"  corrections in {language}: {sum(what == 'found' for _, what in those)} of {len(those)}")
    for kind in found if options.misses else ():
        for item, what in found[kind]:
            if what not in ("right", "found", "right, given", "wrong, not given"):
                print(f"  {kind} {item['half']} {item['session'][:16]}: {what}: {item['quote'][:130]}")
    if options.json:
        told = [line._asdict() for line in lines]
        options.json.write_text(json.dumps(figures | {"lines": told}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
