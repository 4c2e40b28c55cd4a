"""The line that an agent shows below its prompt. It must start at once and never fail, so it loads hardly anything.

What the store knows comes from a small file that each sweep leaves (`recall/spending.py`). The agent's own figure for
the session that runs takes the place of what was stored of it.
"""

import json
import os
import sys
import time
from zlib import crc32

from recollect.model.home import SPENDING_NAME, is_in_group, store_path

TYPE_CHECKING = False  # `typing` takes longer to load than all of this
if TYPE_CHECKING:
    from typing import Any

_MOST_CHARS = 1_000_000
_MODEL_CHARS = 40


def print_status_line(*, as_json: bool) -> None:
    """Print the line for what the agent writes to standard input; at worst an empty one."""
    try:
        facts = _facts(_object(_payload()), _object(_snapshot()))
        line = json.dumps(facts) if as_json else " · ".join(_parts(facts))
    except Exception:  # the top of a door: an agent shows nothing rather than an error
        line = "{}" if as_json else ""
    sys.stdout.buffer.write(line.encode() + b"\n")  # whatever the terminal's encoding is
    sys.stdout.flush()


def _payload() -> "Any":
    if sys.stdin is None or sys.stdin.isatty():
        return {}
    try:
        return json.loads(sys.stdin.read(_MOST_CHARS))
    except ValueError:
        return {}


def _snapshot() -> "Any":
    if is_in_group():
        return {}
    try:
        path = os.path.expanduser(f"{store_path()}/{SPENDING_NAME}")  # noqa: PTH111 - pathlib takes too long to load
        with open(path, "rb") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def _object(value: "Any") -> "dict[str, Any]":
    return value if isinstance(value, dict) else {}


def _number(value: "Any") -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _facts(payload: "dict[str, Any]", snapshot: "dict[str, Any]") -> "dict[str, Any]":
    """What the line says; None where it is not known."""
    now = time.time()
    session_usd = _number(_object(payload.get("cost")).get("total_cost_usd"))
    checksum = crc32(str(payload.get("session_id")).encode("utf-8", "replace"))
    stored = _number(_object(snapshot.get("sessions")).get(f"{checksum:08x}")) or 0.0
    news = 0.0 if session_usd is None else max(0.0, session_usd - stored)
    is_today = snapshot.get("day") == time.strftime("%Y-%m-%d")
    is_month = snapshot.get("month") == time.strftime("%Y-%m")
    ends, block_usd = _block(payload, snapshot, now)
    context = _number(_object(payload.get("context_window")).get("used_percentage"))
    limit = _number(_object(_object(payload.get("rate_limits")).get("five_hour")).get("used_percentage"))
    model = _object(payload.get("model")).get("display_name")
    return {
        "model": model[:_MODEL_CHARS] if isinstance(model, str) and model.isprintable() else None,
        "session_usd": session_usd,
        "today_usd": (_number(snapshot.get("today_usd")) or 0.0) * is_today + news if snapshot else None,
        "month_usd": (_number(snapshot.get("month_usd")) or 0.0) * is_month + news if snapshot else None,
        "block_usd": None if ends is None else block_usd + news,
        "block_left_s": None if ends is None else round(ends - now),
        "limit_percent": limit,
        "context_percent": context,
        "is_estimate": bool(snapshot.get("is_estimate")),
        "today_is_incomplete": bool(is_today and snapshot.get("today_is_incomplete")),
    }


def _block(payload: "dict[str, Any]", snapshot: "dict[str, Any]", now: float) -> tuple[float | None, float]:
    """When the block of the agent that asks ends, and its money; the agent is the one whose folder has the log."""
    path = str(payload.get("transcript_path") or "")
    for agent, roots in _object(snapshot.get("roots")).items():
        if any(path.startswith(f"{root}/") for root in roots):
            ends, usd = _object(snapshot.get("blocks")).get(agent) or (0.0, 0.0)
            return (float(ends), float(usd)) if now < ends else (None, 0.0)
    return None, 0.0


def _parts(facts: "dict[str, Any]") -> list[str]:
    about, more = "~" if facts["is_estimate"] else "", "+" if facts["today_is_incomplete"] else ""
    left_s = facts["block_left_s"]
    parts = [
        facts["model"],
        None if facts["session_usd"] is None else f"${facts['session_usd']:,.2f}",
        None if facts["today_usd"] is None else f"today {about}${facts['today_usd']:,.2f}{more}",
        None if left_s is None else f"block {about}${facts['block_usd']:,.2f}, {clock(left_s)} left",
        None if facts["limit_percent"] is None else f"limit {facts['limit_percent']:.0f}%",
        None if facts["context_percent"] is None else f"context {facts['context_percent']:.0f}%",
    ]
    return [part for part in parts if part]


def clock(seconds: float) -> str:
    """Hours and minutes."""
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
