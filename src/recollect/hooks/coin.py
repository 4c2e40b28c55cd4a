"""The coin that decides whether a session is told anything, while the user has the effect of it measured.

Loads next to nothing: a hook has no time for more.
"""

import os
from zlib import crc32

_ONE_IN = 5  # sessions is silent


def proving_path(store_folder: str) -> str:
    """The file that is there while the effect is measured."""
    return f"{store_folder}/proving"


def is_silent(store_folder: str, session: str) -> bool:
    """Whether this session is told nothing, for comparison: the same answer for every hook and server of it."""
    return os.path.exists(proving_path(store_folder)) and comes_up_silent(session)


def comes_up_silent(session: str) -> bool:
    return crc32(session.encode("utf-8", "replace")) % _ONE_IN == 0
