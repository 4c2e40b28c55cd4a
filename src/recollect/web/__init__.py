"""The page to look at: a server for one user on this machine, and what it shows."""
