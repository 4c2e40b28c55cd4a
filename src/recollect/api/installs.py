"""Installing Recollect into agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect import __version__, care
from recollect.config import home_variable, load_settings

if TYPE_CHECKING:
    from recollect.care import Installer


def installer(*, with_plugin: bool = True, can_write: bool = False) -> Installer:
    """Installs Recollect into agents and uninstalls it; without the plugin, through the agents' settings.

    With `can_write` agents may record things.
    """
    settings = load_settings()
    return care.Installer(settings.folder, settings.roots, __version__, home_variable(), with_plugin, can_write)
