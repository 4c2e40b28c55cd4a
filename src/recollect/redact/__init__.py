"""Replaces secrets with marks before anything is stored. docs/privacy.md lists what is found.

Names load on first use: a search must not load the rules or Hyperscan.
"""

from typing import TYPE_CHECKING

from recollect.model.lazy import lazy_names

_NAMES = """
recollect.redact.finder: Learned
recollect.redact.marks: KEY_BYTES KEY_FILE MARK OLDER OPENING OTHER SAME NamedValue compare_versions key_id key_of
recollect.redact.marks: load_key without_rules
recollect.redact.redactor: AHO_CORASICK HYPERSCAN KnownValues NamedBefore Redactor
recollect.redact.rules: RULES AllowList RedactionRules UserRule
recollect.redact.values: has_placeholder
"""
if TYPE_CHECKING:
    from recollect.redact.finder import Learned
    from recollect.redact.marks import (
        KEY_BYTES,
        KEY_FILE,
        MARK,
        OLDER,
        OPENING,
        OTHER,
        SAME,
        NamedValue,
        compare_versions,
        key_id,
        key_of,
        load_key,
        without_rules,
    )
    from recollect.redact.redactor import AHO_CORASICK, HYPERSCAN, KnownValues, NamedBefore, Redactor
    from recollect.redact.rules import RULES, AllowList, RedactionRules, UserRule
    from recollect.redact.values import has_placeholder
else:
    __getattr__ = lazy_names(__name__, _NAMES)
