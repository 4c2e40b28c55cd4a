"""What live sessions hold, for the owner of a host."""

from collections import defaultdict
from dataclasses import dataclass

from recollect.clock import rfc3339
from recollect.live.backfill import FileStatus
from recollect.store import LiveRow


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    channel: str | None
    sessions: int
    messages: int
    updated_at: str | None


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """Live sessions by channel, and the JSONL files that were looked at."""

    sessions: int
    archived: int
    messages: int
    channels: tuple[ChannelStatus, ...]
    files: tuple[FileStatus, ...] = ()


def make_status(rows: list[LiveRow], files: tuple[FileStatus, ...]) -> LiveStatus:
    by_channel: dict[str | None, list[LiveRow]] = defaultdict(list)
    for row in rows:
        by_channel[row.channel].append(row)
    channels = [
        ChannelStatus(
            channel,
            len(found),
            sum(row.messages for row in found),
            rfc3339(max(row.updated_ms for row in found)),
        )
        for channel, found in by_channel.items()
    ]
    return LiveStatus(
        sessions=sum(row.archived_ms is None for row in rows),
        archived=sum(row.archived_ms is not None for row in rows),
        messages=sum(row.messages for row in rows),
        channels=tuple(sorted(channels, key=lambda channel: -channel.messages)),
        files=files,
    )
