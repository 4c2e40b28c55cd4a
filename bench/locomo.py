"""LoCoMo, session level: which of a conversation's sessions holds what a question asks for?

    python bench/locomo.py locomo10.json [--misses]

The data set is not kept here (its licence does not allow it): give the file as snap-research/locomo publishes it, a
list of {"conversation": {"session_1": [{"speaker", "dia_id", "text"}], …}, "qa": [{"question", "answer", "evidence",
"category"}]}. Each conversation becomes a repository and each of its sessions a session; a question is answered if
`search` in that repository finds a session that its evidence (`D3:12`: of session 3) is from.
"""

import argparse
import json
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from recollect import Filters, open_memory

LIMIT = 20
# As the projects publish them, and as fast-resume was measured: hit@1, hit@5, hit@10 in per cent, and MRR.
PUBLISHED = {"deja-vu (its claim)": (69.7, 85.6, None, 0.767), "fast-resume": (58.3, 87.3, 94.6, 0.708)}
CATEGORIES = {1: "several sessions", 2: "time", 3: "inference", 4: "one session", 5: "adversarial"}
SESSION, EVIDENCE = re.compile(r"session_(\d+)"), re.compile(r"D(\d+):\d+")
SPACE = uuid.UUID("5b0f6f4e-7d5c-4a55-9d0e-6c6f636f6d6f")


class Asked(NamedTuple):
    """A question and the place of the first session that has the answer; 0 if none was found."""

    conversation: int
    category: int
    question: str
    place: int


def session_id(conversation: int, session: int) -> str:
    return str(uuid.uuid5(SPACE, f"{conversation}/{session}"))


def write_home(samples: Sequence[dict[str, Any]], home: Path) -> None:
    """The conversations as the logs of an agent; the first who speaks is the user."""
    for number, sample in enumerate(samples):
        conversation = sample["conversation"]
        folder = home / "projects" / f"-w-conversation-{number:03}"
        folder.mkdir(parents=True)
        for name, turns in conversation.items():
            if (match := SESSION.fullmatch(name)) and turns:
                session = int(match[1])
                start = _time(conversation.get(f"{name}_date_time"), session)
                lines = _lines(f"/w/conversation-{number:03}", session_id(number, session), turns, start)
                (folder / f"{session_id(number, session)}.jsonl").write_text("\n".join(lines) + "\n")


def _time(text: str | None, session: int) -> datetime:
    return datetime.strptime(text, "%I:%M %p on %d %B, %Y") if text else datetime(2023, 1, 1) + timedelta(days=session)


def _lines(cwd: str, session: str, turns: Sequence[dict[str, Any]], start: datetime) -> Iterator[str]:
    before, user = None, turns[0]["speaker"]
    for number, turn in enumerate(turns):
        uid, text = str(uuid.uuid5(SPACE, f"{session}/{number}")), f"{turn['speaker']}: {turn['text']}"
        role = "user" if turn["speaker"] == user else "assistant"
        content: Any = text if role == "user" else [{"type": "text", "text": text}]
        message = {"role": role, "content": content}
        if role == "assistant":
            message |= {"id": f"msg_{uid[:8]}", "type": "message", "model": "claude-sonnet-4-5"}
        yield json.dumps(
            {"parentUuid": before, "isSidechain": False, "userType": "external", "cwd": cwd, "sessionId": session,
             "version": "2.1.300", "type": role, "message": message, "uuid": uid,
             "timestamp": (start + timedelta(minutes=number)).strftime("%Y-%m-%dT%H:%M:%S.000Z")}
        )  # fmt: skip
        before = uid


def ask(samples: Sequence[dict[str, Any]], folder: Path) -> list[Asked]:
    """Every question that has evidence."""
    write_home(samples, folder / "home")
    answers = []
    with open_memory(folder / "store", [f"claude={folder / 'home'}"]) as memory:
        memory.sweep()
        for number, sample in enumerate(samples):
            filters = Filters(repo=f"conversation-{number:03}")
            for qa in sample["qa"]:
                told = {session_id(number, int(one)) for one in EVIDENCE.findall(" ".join(qa["evidence"]))}
                if told:
                    hits = memory.search(str(qa["question"]), filters, limit=LIMIT, context=0)
                    order = [hit.session_uid.partition(":")[2] for hit in hits]
                    place = next((place for place, uid in enumerate(order, start=1) if uid in told), 0)
                    answers.append(Asked(number, int(qa["category"]), str(qa["question"]), place))
    return answers


def figures(places: Iterable[int]) -> tuple[float, float, float, float]:
    """hit@1, hit@5, hit@10 in per cent, and MRR."""
    known = list(places)
    at = [100 * fmean(0 < place <= most for place in known) for most in (1, 5, 10)]
    return at[0], at[1], at[2], fmean(1 / place if place else 0.0 for place in known)


def line(name: str, count: int | None, values: Sequence[float | None]) -> str:
    hits = " ".join(f"{'–' if value is None else f'{value:.1f}':>7}" for value in values[:3])
    return f"{name:<24} {count or '':>6} {hits} {values[3]:>7.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--misses", action="store_true", help="list what was not found first")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        answers = ask(json.loads(options.file.read_text("utf-8")), Path(folder))
    print(f"{'':<24} {'asked':>6} {'hit@1':>7} {'hit@5':>7} {'hit@10':>7} {'MRR':>7}")
    for category in sorted({answer.category for answer in answers}):
        places = [answer.place for answer in answers if answer.category == category]
        print(line(f"  {CATEGORIES.get(category, category)}", len(places), figures(places)))
    print(line("recollect", len(answers), figures(answer.place for answer in answers)))
    for name, values in PUBLISHED.items():
        print(line(name, None, values))
    for answer in answers if options.misses else ():
        if answer.place != 1:
            print(f"{answer.place or 'not found':>9}  conversation {answer.conversation}: {answer.question}")


if __name__ == "__main__":
    main()
