"""Numbers as people read them: counts, sizes, money, time."""


def size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def number(count: int) -> str:
    return f"{count:,}"


def plural(count: int, thing: str) -> str:
    return f"{number(count)} {thing}" if count == 1 else f"{number(count)} {thing}s"


def session_counts(total: int, sub_agents: int, warm_ups: int) -> str:
    """`325 sessions, 7 sub-agents, 1 warm-up`, the same wherever sessions are counted; `total` is of all three."""
    others = [plural(count, thing) for count, thing in ((sub_agents, "sub-agent"), (warm_ups, "warm-up")) if count]
    return ", ".join([plural(total - sub_agents - warm_ups, "session"), *others])


def money(usd: float | None, is_estimate: bool = False, is_incomplete: bool = False) -> str:
    """An amount: `~` if it is estimated, `+` if more was spent at a price that is not known."""
    if usd is None:
        return "–"
    return f"{'~' if is_estimate else ''}${usd:,.2f}{'+' if is_incomplete else ''}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 86_400 else f"{seconds / 86_400:.0f} d"
