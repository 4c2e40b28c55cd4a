"""Sessions that real agents wrote: one fixed a test, another met the same failure later."""

from pathlib import Path

import recollect
from tests.conftest import swept

SAMPLES = Path(recollect.__file__).parent / "samples"


def test_a_fix_by_one_agent_is_known_when_another_meets_the_error_elsewhere(tmp_path: Path) -> None:
    roots = [f"{agent}={SAMPLES / agent}" for agent in ("claude", "codex", "grok")]
    memory = swept(tmp_path / "store", *roots)

    fixes = memory.knowledge.fixes("FAILED other/place/test_calc.py::test_add - assert -7 == 19", limit=1)
    rehearsal = memory.knowledge.rehearse()

    agents = {session.partition(":")[0] for session in fixes[0].sessions}
    assert "`return a - b # BUG` became `return a + b`" in fixes[0].text
    assert agents >= {"claude", "codex"}
    first = rehearsal.repeats[0]
    assert (first.session_uid[:5], first.known_session_uid[:6]) == ("codex", "claude")
