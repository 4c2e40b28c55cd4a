"""What the agents tell the programs they run. Apart from the adapters, so that a search need not load them."""

# As in the profiles of the adapters: a test compares them.
SESSION_VARIABLES = ("CLAUDE_CODE_SESSION_ID", "GROK_SESSION_ID")
