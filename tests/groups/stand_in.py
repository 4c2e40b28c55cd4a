#!/usr/bin/env python3
"""A program that speaks as Claude Code does: it writes each prompt into its transcript, then answers it.

With STUBBORN in its environment, a file for its process number, it neither ends with its input nor when asked to.
"""

import json
import os
import signal
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

words = sys.argv
session = words[words.index("--resume") + 1] if "--resume" in words else str(uuid.uuid4())
transcript = Path(os.environ["CLAUDE_CONFIG_DIR"]) / "projects" / "-work" / f"{session}.jsonl"
transcript.parent.mkdir(parents=True, exist_ok=True)


def write(role: str, content: object) -> str:
    name = str(uuid.uuid4())
    moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    facts = {"uuid": name, "parentUuid": None, "timestamp": moment, "sessionId": session, "cwd": str(Path.cwd())}
    with transcript.open("a") as file:
        file.write(json.dumps({"type": role, "message": {"role": role, "content": content}, **facts}) + "\n")
    return name


def say(**message: object) -> None:
    try:
        print(json.dumps({"session_id": session, **message}), flush=True)
    except BrokenPipeError:  # nobody listens any more: it goes on, as the real one does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if stubborn := os.environ.get("STUBBORN"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(stubborn).write_text(str(os.getpid()))
for line in sys.stdin:
    write("user", json.loads(line)["message"]["content"])
    say(type="system", subtype="init")
    answer = [{"type": "text", "text": "done"}]
    say(type="assistant", message={"content": answer}, uuid=write("assistant", answer))
    say(type="result", result="done", is_error=False)
if stubborn:
    time.sleep(60)
