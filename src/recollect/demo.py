"""A store filled from bundled sample sessions, gone when it is closed."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from recollect.adapters import adapters
from recollect.memory import Memory, open_memory


@contextmanager
def run_demo() -> Iterator[Memory]:
    """An empty throw-away memory whose agents' homes are the samples."""
    with as_file(files("recollect") / "samples") as samples, tempfile.TemporaryDirectory(prefix="recollect-") as folder:
        # Copied: an installer may have linked them from its cache, and linked files are not read.
        homes = shutil.copytree(samples, Path(folder) / "homes")
        roots = [f"{agent}={homes / agent}" for agent in adapters() if (homes / agent).is_dir()]
        with open_memory(Path(folder) / "store", roots) as memory:
            yield memory
