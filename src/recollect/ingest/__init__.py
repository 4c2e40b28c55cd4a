"""From the agents' files to batches the store takes: discover, read, redact, decide what may be stored."""
