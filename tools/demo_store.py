"""A store of made-up sessions that looks like some weeks of work, for screenshots and for trying the page.

    python tools/demo_store.py FOLDER

Nobody's words are in it. The same day gives the same store.
"""

import json
import random
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from recollect.api import Memory, open_memory

Record = dict[str, Any]
SAMPLES = Path(__file__).parents[1] / "src/recollect/samples"
STORE = ".local/share/recollect"  # seen from the folder, as from a home
MODELS = ("claude-opus-4-5-20251101", "claude-sonnet-4-5-20250929")
TASKS = (
    (
        "shop-api",
        "pool timeouts",
        "The checkout endpoint times out under load. Find out why and fix it.",
        "src/db/pool.py",
        "    return Pool(size=5)",
        "    return Pool(size=20, timeout=3.0)",
        "pytest -q tests/test_pool.py",
        "The pool had **5 connections** for 40 workers, so requests queued until they timed out.\n\n"
        "- `src/db/pool.py`: 20 connections, and a timeout of 3 s instead of none\n"
        "- a test that holds every connection and expects `PoolTimeout`\n\nAll 18 tests pass.",
    ),
    (
        "shop-api",
        "jwt expiry",
        "Users are logged out after a minute. Look at the token code, please.",
        "src/auth/token.py",
        "EXPIRES_S = 60",
        "EXPIRES_S = 3600",
        "pytest -q tests/test_token.py",
        "`EXPIRES_S` was 60, meant as minutes. It is **3600 s** now, and its name says the unit.\n\n"
        "We decided to keep refresh tokens out of this change.",
    ),
    (
        "web-front",
        "dark theme",
        "Add a dark theme that follows the system, with a switch in the header.",
        "src/theme.ts",
        "export const theme = 'light'",
        "export const theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'",
        "npm test",
        "The theme follows the system until someone uses the switch; the choice is kept per browser.",
    ),
    (
        "web-front",
        "slow first paint",
        "First paint takes three seconds on a phone. What can we cut?",
        "vite.config.ts",
        "  build: {}",
        "  build: { rollupOptions: { output: { manualChunks: { charts: ['uplot'] } } } }",
        "npm run build",
        "| chunk | before | after |\n|---|---|---|\n| main | 812 KB | 214 KB |\n| charts | – | 96 KB, on demand |\n\n"
        "First paint went from 3.1 s to **0.9 s** on the throttled profile.",
    ),
    (
        "ledger",
        "rounding",
        "Totals are off by a cent in the June report.",
        "ledger/money.py",
        "    return round(amount, 2)",
        "    return amount.quantize(Decimal('0.01'), ROUND_HALF_EVEN)",
        "pytest -q",
        "Floats were rounded line by line. Amounts are `Decimal` from the parser on, and rounded **once**, at the end.",
    ),
    (
        "ledger",
        "import speed",
        "Importing the yearly file takes 40 seconds. Make it fast.",
        "ledger/importer.py",
        "    for line in lines: insert(line)",
        "    insert_many(lines, batch=5_000)",
        "pytest -q tests/test_importer.py",
        "One transaction per 5,000 lines instead of one per line: **40 s → 1.8 s** for the yearly file.",
    ),
)


class Log:
    """One session in the shape Claude Code writes."""

    def __init__(self, home: Path, repo: str, begin: datetime, model: str, chance: random.Random) -> None:
        self.id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        self.cwd, self.model, self.now, self.chance = f"/home/dev/{repo}", model, begin, chance
        self.records: list[Record] = []
        self.path = home / "projects" / self.cwd.replace("/", "-") / f"{self.id}.jsonl"

    def add(self, kind: str, content: Any, seconds: int = 8, **message: Any) -> None:
        self.now += timedelta(seconds=seconds)
        last = self.records[-1]["uuid"] if self.records else None
        self.records.append(
            {
                "parentUuid": last,
                "isSidechain": False,
                "type": kind,
                "userType": "external",
                "cwd": self.cwd,
                "sessionId": self.id,
                "version": "2.1.325",
                "gitBranch": "main",
                "uuid": str(uuid.UUID(int=self.chance.getrandbits(128), version=4)),
                "timestamp": self.now.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                "message": {"role": kind, "content": content} | message,
            }
        )

    def say(self, text: str, seconds: int = 20) -> None:
        self._answer({"type": "text", "text": text}, seconds)

    def call(self, tool: str, given: Record, output: str, *, fails: bool = False, seconds: int = 4) -> None:
        name = f"toolu_{self.chance.getrandbits(64):016x}"
        self._answer({"type": "tool_use", "id": name, "name": tool, "input": given}, 6)
        result = {"type": "tool_result", "tool_use_id": name, "content": output, "is_error": fails}
        self.add("user", [result], seconds)

    def _answer(self, block: Record, seconds: int) -> None:
        usage = {
            "input_tokens": 400,
            "output_tokens": self.chance.randint(60, 900),
            "cache_read_input_tokens": self.chance.randint(20_000, 90_000),
            "cache_creation_input_tokens": 900,
        }
        number = f"{self.chance.getrandbits(64):016x}"
        self.add("assistant", [block], seconds, id=f"msg_{number}", type="message", model=self.model, usage=usage)
        self.records[-1]["requestId"] = f"req_{number}"

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in self.records))


def _session(home: Path, begin: datetime, number: int, chance: random.Random) -> None:
    repo, topic, request, path, old, new, test, ending = TASKS[number % len(TASKS)]
    log = Log(home, repo, begin, chance.choice(MODELS), chance)
    log.add("user", request)
    log.say(f"I'll look at how {topic} works here first, then reproduce it with a test.")
    log.call("Grep", {"pattern": topic.split()[0], "path": "."}, f"{path}:12:{old}\nREADME.md:40:{topic}")
    log.call("Read", {"file_path": f"{log.cwd}/{path}"}, f"    11→import os\n    12→{old}\n    13→")
    failed = f"F..\nFAILED {test.split()[-1]}::test_{topic.split()[0]} - AssertionError\n1 failed, 17 passed in 0.41s"
    log.call("Bash", {"command": test, "description": "Reproduce it"}, f"Exit code 1\n{failed}", fails=True, seconds=40)
    log.call(
        "Edit",
        {"file_path": f"{log.cwd}/{path}", "old_string": old, "new_string": new},
        f"The file {log.cwd}/{path} has been updated successfully.",
    )
    log.call("Bash", {"command": test, "description": "Run it again"}, "18 passed in 0.43s", seconds=35)
    if number % 3 == 0:
        log.call(
            "Bash", {"command": f"git commit -am 'Fix {topic}'"}, f"[main {number:07x}] Fix {topic}\n 1 file changed"
        )
    log.say(ending, 60)
    if number % 4 == 1:
        log.add("user", "Good. Add a line to the changelog, and tell me what is left to do.", 900)
        log.call(
            "Edit",
            {
                "file_path": f"{log.cwd}/CHANGELOG.md",
                "old_string": "## Unreleased\n",
                "new_string": f"## Unreleased\n\n- Fixed {topic}.\n",
            },
            "updated",
        )
        log.say(f"Done. Left to do: the dashboard still shows the old figure for {topic}. Shall I change it too?")
    log.write()


def make_store(folder: Path) -> Memory:
    """A store below `folder`, its sessions read from an agent's home in it; the last weeks up to an hour ago."""
    chance, home = random.Random(20), folder / "home"
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for number in range(64):
        begin = now - timedelta(days=83 - number * 1.3 + chance.random(), hours=chance.choice((1, 2, 3, 5, 8, 10, 14)))
        _session(home, min(begin, now - timedelta(hours=1)), number, chance)
    roots = [f"claude={home}"]
    roots += [f"{agent.name}={agent}" for agent in sorted(SAMPLES.iterdir()) if agent.is_dir()]
    memory = open_memory(folder / STORE, roots)
    memory.sweep()
    first, second, *_ = memory.sessions(roots_only=True)
    memory.annotations.star(first)
    memory.annotations.tag(first, "release")
    memory.annotations.tag(second, "performance")
    return memory


if __name__ == "__main__":
    make_store(Path(sys.argv[1])).close()
    print(f"RECOLLECT_HOME={sys.argv[1]}/{STORE} recollect web --read-only")
