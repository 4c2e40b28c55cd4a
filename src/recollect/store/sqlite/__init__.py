"""SQLite and the file system as this store needs them: safe versions, checksums, locks, durable files."""
