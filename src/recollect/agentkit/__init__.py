"""What all adapters share: the contract, reading of logs, safe files, ids, shell commands."""
