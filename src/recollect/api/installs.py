"""Installing into the agents, as every interface does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect import __version__
from recollect.config import home_variable, load_settings

if TYPE_CHECKING:
    from collections.abc import Collection

    from recollect.care.install import Installer


def installer(*, with_plugin: bool = True, without: Collection[str] = (), can_write: bool = False) -> Installer:
    """What adds Recollect to agents and takes it out again; without the plugin, by the agents' settings.

    `without` names what agents are not told unless they ask: `brief`, `fixes`. With `can_write` they may record things.
    """
    from recollect.care.install import Installer

    settings = load_settings()
    left_out = frozenset(without)
    return Installer(settings.folder, settings.roots, __version__, home_variable(), with_plugin, left_out, can_write)
