"""All rules over one session: what it teaches, as facts with evidence, and the steps of its exchanges."""

from dataclasses import dataclass

from recollect.knowledge.decisions import decisions
from recollect.knowledge.exchanges import turns_of
from recollect.knowledge.facts import Material, distinct, fact_rows
from recollect.knowledge.reported import causes_found
from recollect.knowledge.resolutions import resolutions
from recollect.knowledge.runs import changes_of, runs_of
from recollect.knowledge.statements import statements
from recollect.knowledge.touches import git_work, installs, touches
from recollect.knowledge.workflows import exchange_rows
from recollect.store import ExchangeRow, FactRow


@dataclass(frozen=True, slots=True)
class Lessons:
    """What a session teaches, or a part of one."""

    facts: tuple[FactRow, ...] = ()
    exchanges: tuple[ExchangeRow, ...] = ()

    def __add__(self, later: "Lessons") -> "Lessons":
        return Lessons(distinct(self.facts + later.facts), self.exchanges + later.exchanges)


def derive(material: Material) -> Lessons:
    """The lessons of a session; none of one that only copies another."""
    if not material.trace.has_own:
        return Lessons()
    turns, runs, changes = turns_of(material.trace), runs_of(material), changes_of(material)
    facts = fact_rows(
        [
            *resolutions(material, turns, runs, changes),
            *causes_found(material, turns),
            *decisions(material, turns, changes),
            *statements(material, turns, changes),
            *touches(material, turns, changes),
            *git_work(material, turns),
            *installs(turns, runs),
        ],
        material.subject.started_ms,
    )
    return Lessons(distinct(facts), tuple(exchange_rows(material, turns, runs)))
