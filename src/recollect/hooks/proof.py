"""What the memory changes: sessions in which hooks spoke, compared with those in which they stayed silent."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist, fmean, variance

from recollect.api import open_memory
from recollect.config import refuse_in_group, store_folder
from recollect.hooks.coin import proving_path
from recollect.hooks.history import MET_AGAIN, LogEntry, find_session, read_hook_log

BRIEF, FIX = "brief", "fix"
_LEAST_SESSIONS = 2  # of each side: fewer have no spread
_CERTAINTY = 0.95
_COUNTS = ("retries", "repeated_errors")  # may be 0; the others are sizes


@dataclass(frozen=True, slots=True)
class Effect:
    """One measure of sessions in which hooks spoke, compared with silent ones.

    Means of turns, tokens and active time are geometric: those of a typical session. `change` is by how much it is
    larger (0.1: a tenth more), `low` to `high` its 95 % interval; None if there are too few sessions to compare.
    """

    kind: str
    measure: str
    spoken_sessions: int
    silent_sessions: int
    spoken_mean: float
    silent_mean: float
    change: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Proof:
    """What is measured so far; with `is_running`, hooks stay silent in one of five sessions."""

    is_running: bool
    effects: tuple[Effect, ...]


def switch_proof(*, is_on: bool) -> None:
    """Begin or end to leave one in five sessions without briefs and fixes."""
    refuse_in_group()
    path = Path(proving_path(str(store_folder())))
    if is_on:
        with open_memory(create=False):  # raises NotFound without a store
            path.touch(mode=0o600)
    else:
        path.unlink(missing_ok=True)


def prove() -> Proof:
    """Compare the sessions in the log of hooks during which the effect was measured, by kind of answer."""
    values = _values(read_hook_log(None))
    effects = [
        compare(kind, measure, spoken, silent)
        for (kind, measure), (spoken, silent) in sorted(values.items())
        if spoken or silent
    ]
    return Proof(Path(proving_path(str(store_folder()))).exists(), tuple(effects))


def _values(entries: Sequence[LogEntry]) -> Mapping[tuple[str, str], tuple[list[float], list[float]]]:
    """By kind and measure, the values of sessions in which hooks spoke and of silent ones."""
    sessions: dict[tuple[str, str, str, bool], list[LogEntry]] = defaultdict(list)
    for item in entries:
        if item.then is not None and item.is_silent is not None:
            kind = FIX if item.error else BRIEF
            sessions[kind, item.agent, item.session, item.is_silent].append(item)
    values: dict[tuple[str, str], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    if not sessions:
        return values
    with open_memory(read_only=True) as memory:
        for (kind, agent, name, is_silent), items in sessions.items():
            session = find_session(memory, agent, name)
            if session is None:
                continue
            cost = session.cost
            measures: dict[str, float] = {
                "turns": cost.turns,
                "retries": cost.retries,
                "tokens": cost.input_tokens + cost.output_tokens + cost.cache_read_tokens + cost.cache_write_tokens,
                "active_s": memory.digest(session).active_s,
            }
            if kind == FIX:
                measures["repeated_errors"] = fmean(item.then == MET_AGAIN for item in items)
            for measure, value in measures.items():
                values[kind, measure][is_silent].append(value)
    return values


def compare(kind: str, measure: str, spoken: Sequence[float], silent: Sequence[float]) -> Effect:
    """How `spoken` differs from `silent`, in parts of the latter.

    Of sizes the geometric means are compared: of ordinary ones a few very long sessions would decide.
    """
    summary = _of_counts if measure in _COUNTS else _of_sizes
    (spoken_mean, spoken_error), (silent_mean, silent_error) = summary(spoken), summary(silent)
    change = low = high = None
    if min(len(spoken), len(silent)) >= _LEAST_SESSIONS and min(spoken_mean, silent_mean) > 0:
        ratio = log(spoken_mean / silent_mean)
        spread = _half_width((spoken_error, silent_error), (len(spoken), len(silent)))
        change, low, high = (exp(value) - 1 for value in (ratio, ratio - spread, ratio + spread))
    return Effect(kind, measure, len(spoken), len(silent), spoken_mean, silent_mean, change, low, high)


def _of_sizes(values: Sequence[float]) -> tuple[float, float]:
    """The geometric mean, and the squared standard error of its logarithm; nothing is smaller than 1."""
    logs = [log(max(value, 1)) for value in values]
    return (exp(fmean(logs)), variance(logs) / len(logs)) if len(logs) >= _LEAST_SESSIONS else (0.0, 0.0)


def _of_counts(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and the squared standard error of its logarithm."""
    mean = fmean(values) if values else 0.0
    return (mean, variance(values) / len(values) / mean**2) if mean and len(values) >= _LEAST_SESSIONS else (mean, 0.0)


def _half_width(errors: Sequence[float], counts: Sequence[int]) -> float:
    """Half of the interval of a difference of logarithms, with few sessions a wider one (Welch)."""
    total = sum(errors)
    if total == 0:
        return 0.0
    freedom = total**2 / sum(error**2 / (count - 1) for error, count in zip(errors, counts, strict=True))
    z = NormalDist().inv_cdf((1 + _CERTAINTY) / 2)
    # Student's quantile from the normal one, by the first terms of Fisher's expansion.
    wider = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return wider * sqrt(total)


def effect_lines(proof: Proof) -> Iterator[str]:
    """The comparison as a table."""
    yield "Measuring: one in five sessions gets no brief and no fixes" if proof.is_running else "Not measuring"
    for effect in proof.effects:
        counts = f"{effect.spoken_sessions} with, {effect.silent_sessions} without"
        if effect.change is None:
            result = "too few sessions to compare"
        else:
            result = f"{effect.change:+.0%} (95 %: {effect.low:+.0%} to {effect.high:+.0%})"
        spoken = _shown(effect.spoken_mean, effect.spoken_sessions)
        silent = _shown(effect.silent_mean, effect.silent_sessions)
        yield f"{effect.kind:<6} {effect.measure:<16} {spoken:>9} : {silent:<9} {result}  [{counts}]"
    if not proof.effects:
        yield "No sessions to compare yet"


def _shown(mean: float, sessions: int) -> str:
    if not sessions:
        return "–"
    return f"{mean:,.0f}" if mean >= 100 else f"{mean:.2g}"
