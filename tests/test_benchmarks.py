"""The benchmarks read what they are given."""

import json
from pathlib import Path

from bench import locomo

SAMPLE = Path(__file__).parent / "data" / "locomo.json"


def test_a_question_is_answered_by_the_session_that_its_evidence_names(tmp_path: Path) -> None:
    answers = locomo.ask(json.loads(SAMPLE.read_text()), tmp_path)

    assert [(answer.category, answer.place) for answer in answers] == [(4, 1), (4, 1), (1, 1), (2, 1)]


def test_figures_count_a_session_that_was_not_found_as_nothing() -> None:
    assert locomo.figures([1, 2, 0, 8]) == (25.0, 50.0, 75.0, (1 + 0.5 + 0.125) / 4)
