"""What OpenCode's edits did."""

from collections.abc import Mapping
from typing import Any

from recollect.agentkit.calls import FileChange, edited, find_patches, parse_patch
from recollect.agentkit.values import as_mapping


def changes(call: Mapping[str, Any], result: Mapping[str, Any] | None) -> list[FileChange]:
    """The files that a call changed."""
    arguments = as_mapping(call.get("input"))
    patched = [change for patch in find_patches(arguments) for change in parse_patch(patch)]
    named = {**arguments, "old_string": arguments.get("oldString"), "new_string": arguments.get("newString")}
    return patched or [change for change in (edited(named),) if change]
