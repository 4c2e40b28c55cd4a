"""Threads of one process read, store and redact at the same time: a web page and a live host do."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from recollect.redact import KEY_BYTES, RedactionRules, Redactor

# In a process of its own: without a codec for each thread it crashes.
PROGRAM = """
import os
from concurrent.futures import ThreadPoolExecutor
from recollect.store.payloads import packs

contents = [os.urandom(64) * (500 * n) for n in range(1, 9)]

def turn(number):
    content = contents[number % 8]
    assert packs._codec.decompress(packs._codec.compress(content)) == content

with ThreadPoolExecutor(8) as pool:
    list(pool.map(turn, range(4000)))
"""


def test_threads_pack_and_unpack_at_the_same_time() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_threads_redact_with_one_redactor(tmp_path: Path) -> None:
    redactor = Redactor(RedactionRules(), bytes(KEY_BYTES))
    text = "some words before " * 2000 + "password = 'hunter2hunter2' "

    with ThreadPoolExecutor(8) as pool:
        redacted = set(pool.map(redactor.text, [text] * 64))

    assert len(redacted) == 1
    assert "hunter2hunter2" not in redacted.pop()
