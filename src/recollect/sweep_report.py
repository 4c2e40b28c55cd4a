"""What a sweep found and did."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from recollect.retention import BudgetReport
from recollect.store import Batch


@dataclass(slots=True)
class SweepReport:
    """What one sweep found and did."""

    sources: int = 0
    sources_changed: int = 0
    sources_gone: int = 0
    sources_failed: int = 0
    sessions: int = 0
    sessions_new: int = 0
    events_new: int = 0
    events_replaced: int = 0
    lines_read: int = 0
    bytes_read: int = 0
    bad_lines: int = 0
    seconds: float = 0.0
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, set[str]] = field(default_factory=dict)  # why, and which sessions
    failures: list[tuple[str, str]] = field(default_factory=list)
    budget: BudgetReport = field(default_factory=BudgetReport)

    def add(self, batch: Batch) -> None:
        """Count what a batch was read from."""
        self.lines_read += batch.lines
        self.bytes_read += batch.bytes
        self.bad_lines += len(batch.problems)
        self.skipped.update(batch.skipped)

    def to_json(self) -> dict[str, Any]:
        left_out = {reason: len(sessions) for reason, sessions in sorted(self.left_out.items())}
        return asdict(self) | {"skipped": dict(sorted(self.skipped.items())), "left_out": left_out}
