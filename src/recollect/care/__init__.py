"""Looking after a store: doctor, repair, backup, export and import, schedules."""
