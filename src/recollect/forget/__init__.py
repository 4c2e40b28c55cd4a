"""Removing sessions for good, and applying newer redaction rules to what is stored."""
