"""Secrets become marks before anything is stored. What is looked for stands in `rules.py` and in docs/privacy.md."""
