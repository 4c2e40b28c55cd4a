"""What sessions teach: which errors were fixed and how, what was decided and why, what works here.

All of it is derived by pure functions from what a session's events show, stored with its evidence, and joined across
sessions when it is asked for, so that the order in which sessions were read makes no difference.
"""

from recollect.model.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes long to load

VERSION = 12  # of the rules: what another one derived is derived again

_NAMES = """
recollect.knowledge.asking: RECORDED REMEMBERED fact_of fact_of_note find_amended find_decisions find_facts find_fixes
recollect.knowledge.asking: find_reasons fix_lines fixed_by fixes_of with_changed_files with_ends
recollect.knowledge.graph: DOCUMENTS Link draw find_graph workflow_graph
recollect.knowledge.material: Material steps_to_read
recollect.knowledge.records: DECIDED FIXED_BY LEAST_CONFIDENCE PREFERS STANDING Audit Evidence Fact FailingCommand Fix
recollect.knowledge.records: FixStep Graph Rehearsal Route Workflow Workflows make_note parse_notes
recollect.knowledge.review: audit make_rehearsal
recollect.knowledge.rules: Lessons derive
recollect.knowledge.signature: error_in is_same_failure signature_of signatures_of
recollect.knowledge.workflows: failing_commands find_routes find_workflows
"""
if TYPE_CHECKING:
    from recollect.knowledge.asking import (
        RECORDED,
        REMEMBERED,
        fact_of,
        fact_of_note,
        find_amended,
        find_decisions,
        find_facts,
        find_fixes,
        find_reasons,
        fix_lines,
        fixed_by,
        fixes_of,
        with_changed_files,
        with_ends,
    )
    from recollect.knowledge.graph import DOCUMENTS, Link, draw, find_graph, workflow_graph
    from recollect.knowledge.material import Material, steps_to_read
    from recollect.knowledge.records import (
        DECIDED,
        FIXED_BY,
        LEAST_CONFIDENCE,
        PREFERS,
        STANDING,
        Audit,
        Evidence,
        Fact,
        FailingCommand,
        Fix,
        FixStep,
        Graph,
        Rehearsal,
        Route,
        Workflow,
        Workflows,
        make_note,
        parse_notes,
    )
    from recollect.knowledge.review import audit, make_rehearsal
    from recollect.knowledge.rules import Lessons, derive
    from recollect.knowledge.signature import error_in, is_same_failure, signature_of, signatures_of
    from recollect.knowledge.workflows import failing_commands, find_routes, find_workflows

else:
    __getattr__ = lazy_names(__name__, _NAMES)
