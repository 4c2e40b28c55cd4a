"""The coin that decides whether hooks stay silent in a session, while the user measures their effect.

Loads next to nothing: a hook has no time for more.
"""

import os
from zlib import crc32

_ONE_IN = 5  # sessions is silent


def proving_path(store_folder: str) -> str:
    """The file that exists while the effect is measured."""
    return f"{store_folder}/proving"


def is_measuring(store_folder: str) -> bool:
    return os.path.exists(proving_path(store_folder))


def is_silent(store_folder: str, session: str) -> bool:
    """Whether hooks stay silent in this session, for comparison; the same for all its hooks and servers."""
    return is_measuring(store_folder) and comes_up_silent(session)


def comes_up_silent(session: str) -> bool:
    return crc32(session.encode("utf-8", "replace")) % _ONE_IN == 0
