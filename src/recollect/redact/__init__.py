"""Replaces secrets with marks before anything is stored. docs/privacy.md lists what is found.

Names load on first use: a search must not load the rules or Hyperscan.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.redact.learned import Learned
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
    from recollect.redact.rules import RULES
    from recollect.redact.user_rules import AllowList, RedactionRules, UserRule
    from recollect.redact.values import has_placeholder

__all__ = [
    "AHO_CORASICK",
    "HYPERSCAN",
    "KEY_BYTES",
    "KEY_FILE",
    "MARK",
    "OLDER",
    "OPENING",
    "OTHER",
    "RULES",
    "SAME",
    "AllowList",
    "KnownValues",
    "Learned",
    "NamedBefore",
    "NamedValue",
    "RedactionRules",
    "Redactor",
    "UserRule",
    "compare_versions",
    "has_placeholder",
    "key_id",
    "key_of",
    "load_key",
    "without_rules",
]
_MODULES = {
    **dict.fromkeys(("AHO_CORASICK", "HYPERSCAN", "KnownValues", "NamedBefore", "Redactor"), "redactor"),
    **dict.fromkeys(("AllowList", "RedactionRules", "UserRule"), "user_rules"),
    "Learned": "learned",
    "RULES": "rules",
    "has_placeholder": "values",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'marks')}"), name)
