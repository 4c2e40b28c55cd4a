"""Finding it again: the query language, the search, and what it shows."""
