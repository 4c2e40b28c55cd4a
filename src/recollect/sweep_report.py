"""What a sweep found and did."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from recollect.lifecycle import BudgetReport

if TYPE_CHECKING:
    from recollect.ingest import Group


@dataclass(slots=True)
class SweepReport:
    """What one sweep found and did."""

    sources: int = 0
    sources_changed: int = 0
    sources_gone: int = 0
    sources_failed: int = 0
    sessions: int = 0  # in the store, with these two
    sub_agents: int = 0
    warm_ups: int = 0
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

    def add(self, group: "Group") -> None:
        """Count what was read and written together."""
        self.events_new += group.events_new
        self.events_replaced += group.events_replaced
        self.sources_changed += group.files_read
        self.sources_failed += len(group.failures)
        self.failures += [(failure.task.row.path, failure.failure or "") for failure in group.failures]
        for batch in group.batches:
            self.lines_read += batch.lines
            self.bytes_read += batch.bytes
            self.bad_lines += len(batch.problems)
            self.skipped.update(batch.skipped)

    def count(self, totals: list[dict[str, Any]], sessions_before: int) -> None:
        """Count the sessions in the store."""
        self.sessions = sum(agent["sessions"] for agent in totals)
        self.sub_agents = sum(agent["sub_agents"] for agent in totals)
        self.warm_ups = sum(agent["warm_ups"] for agent in totals)
        self.sessions_new = self.sessions - sessions_before

    def to_json(self) -> dict[str, Any]:
        left_out = {reason: len(sessions) for reason, sessions in sorted(self.left_out.items())}
        return asdict(self) | {"skipped": dict(sorted(self.skipped.items())), "left_out": left_out}
