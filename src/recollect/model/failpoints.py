"""Named places at which a test can kill, break or hold the program: the edges of every commit.

Nothing happens at them unless one was armed. What is armed strikes once, at the nth time the place is reached.
"""

import errno
import os
import re

from recollect.model.errors import BadConfig

NAMES = (
    "before-migration-commit",
    "after-migration-commit",
    "after-pack-append",
    "before-packs-durable",
    "after-packs-durable",
    "before-cache-commit",
    "after-cache-commit",
    "before-memory-commit",
    "after-memory-commit",
    "before-cache-checkpoint",
    "after-cache-checkpoint",
    "before-memory-checkpoint",
    "after-memory-checkpoint",
)
ACTIONS = ("kill", "eio", "enospc", "pause")

_FORM = r"([^:]+):([^:]+)(?::([1-9][0-9]{0,8}))?"
_ERRORS = {"eio": errno.EIO, "enospc": errno.ENOSPC}
# `pause` stops the process as a terminal does: whoever armed it sees that, looks around, and lets it go on.
_SIGNALS = {"kill": "SIGKILL", "pause": "SIGSTOP"}


class _Armed:
    def __init__(self, name: str, action: str, left: int) -> None:
        self.name = name
        self.action = action
        self.left = left

    def reach(self, name: str) -> None:
        if name != self.name:
            return
        self.left -= 1
        if self.left == 0:
            self._strike()

    def _strike(self) -> None:
        if self.action in _SIGNALS:
            import signal  # takes a millisecond to load, which a search does not have

            os.kill(os.getpid(), signal.Signals[_SIGNALS[self.action]])
        else:
            number = _ERRORS[self.action]
            raise OSError(number, os.strerror(number))


_armed: _Armed | None = None


def hit(name: str) -> None:
    """Say that the program has come to a place."""
    if _armed is not None:
        _armed.reach(name)


def arm(text: str) -> None:
    """Arm `name:action` or `name:action:nth`; an empty text disarms. Raises BadConfig for anything else."""
    global _armed
    _armed = _parse(text) if text else None


def _parse(text: str) -> _Armed:
    form = re.fullmatch(_FORM, text)
    if form is None:
        raise BadConfig(f"Invalid RECOLLECT_FAILPOINT: {text}", "write name:action, or name:action:nth from 1 on")
    name, action, nth = form.groups()
    if name not in NAMES:
        raise BadConfig(f"Unknown failpoint in RECOLLECT_FAILPOINT: {name}", f"known: {', '.join(NAMES)}")
    if action not in ACTIONS:
        raise BadConfig(f"Unknown action in RECOLLECT_FAILPOINT: {action}", f"known: {', '.join(ACTIONS)}")
    return _Armed(name, action, int(nth or 1))
