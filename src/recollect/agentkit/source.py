"""What is read, and from where on. Apart from the rest of the contract, because most sweeps only look for changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "folder"  # the kind of a source that is a folder nobody may read
CONTAINER = "container"  # the kind under which a source that holds units is known


@dataclass(frozen=True, slots=True)
class Source:
    """One file that holds a session, a part of one, or facts about several.

    `kind` is the adapter's own word for what the file is; `history` is a prompt history, read after the sessions whose
    prompts it repeats. An agent replaces `is_rewritten` files as a whole: they have no offset and are read again when
    their content hash changes. A source with a `failure` is reported and not opened. `session` is the owner by the
    file's name or folder, if they show it: a file in which no line can be read belongs to that session.

    A source that `holds_units` (a database of many sessions) is not read itself: its adapter lists its units, which are
    sources of their own. `unit` is a session's id in it; its `stamp` changes whenever the session does.
    """

    agent: str
    kind: str
    root: Path
    path: Path
    is_rewritten: bool = False
    failure: str | None = None
    session: str | None = None
    holds_units: bool = False
    unit: str | None = None
    stamp: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files whose change may mean news: a database changes in its write-ahead log first."""
        return (self.path, self.path.with_name(f"{self.path.name}-wal")) if self.holds_units else (self.path,)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where to resume reading a source, and the adapter's own state at that point.

    `line` counts the complete lines before `offset`. `head` and `tail` are hashes of the file's first bytes and of the
    bytes just before `offset`: if either has changed, the file is read again from its start.
    """

    offset: int = 0
    line: int = 0
    head: str = ""
    tail: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
