"""How often each promise was attacked, and how often it held: every rig counts here, `make soak` prints the table."""

import json
import os

# By its key: what is promised, the attack, and how often a soak tries it at least.
PROMISES = {
    "kill": (
        "A killed command loses nothing, doubles nothing, and the next run completes it",
        "killed at write calls, at commit edges and at random moments, every command that writes",
        500,
    ),
    "failed commit": (
        "A failed commit is one clear error; no data is lost",
        "EIO or ENOSPC at commit edges, every command that commits",
        300,
    ),
    "failed write": (
        "A failed write is one clear error; no data is lost",
        "EIO or ENOSPC at write calls, every command that writes, outside the store as well",
        300,
    ),
    "web": (
        "The page answers nobody but its own browser tab",
        "requests without the token, with a wrong one, from other hosts, origins and sites, to every route",
        3400,
    ),
    "frame": (
        "An MCP server answers whatever it is sent, and goes on",
        "malformed, mutated, huge and deeply nested frames; arguments that do not fit",
        1500,
    ),
    "line": (
        "A damaged line costs that line only",
        "lines with a replaced value, torn lines, noise, for every agent",
        9000,
    ),
    "word": (
        "Nothing of a forgotten session is left in any file or answer",
        "words of forgotten sessions looked for in every byte of the store and in what every command answers",
        200,
    ),
}


def count(promise: str, tried: int, held: int) -> None:
    """Add to the file that RECOLLECT_ATTACKS names, if it does."""
    assert promise in PROMISES
    if path := os.environ.get("RECOLLECT_ATTACKS"):
        with open(path, "a") as file:  # one short write: processes do not mix
            file.write(json.dumps([promise, tried, int(held)]) + "\n")
